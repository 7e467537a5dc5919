"""Convolution by implicit GEMM: each output element is one dot product of a GEMM, with its order of summation.

The module knows shapes and how they map to GEMM sizes; it knows no device and no number format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.api import matmul
from hwsim.errors import InputError

Array = NDArray[Any]
Pair = int | tuple[int, int]
NCHW = 4  # dimensions
NOT_HERE = (
    "rows",
    "cols",
    "m",
    "n",
    "k",
    "library",
    "shape",
    "at",
)  # arguments of a matrix product that a convolution has no place for


@dataclass(frozen=True, slots=True)
class ConvShape:
    """The sizes of a convolution: x (batch, channels, height, width), w (filters, channels / groups, r, s).

    As a GEMM, for each of the groups: C[m, n] = A[m, k] B[k, n] with m = batch * out_height * out_width (in that
    order), n = filters / groups, k = channels / groups * r * s, in order of c, then r, then s.
    """

    batch: int
    channels: int
    height: int
    width: int
    filters: int
    r: int
    s: int
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int

    @property
    def out_height(self) -> int:
        """Rows of one output image."""
        return self._out(self.height, self.r, 0)

    @property
    def out_width(self) -> int:
        """Columns of one output image."""
        return self._out(self.width, self.s, 1)

    @property
    def gemm(self) -> tuple[int, int, int]:
        """GEMM sizes (m, n, k) of one group."""
        m = self.batch * self.out_height * self.out_width
        return m, self.filters // self.groups, self.channels // self.groups * self.r * self.s

    def _out(self, size: int, window: int, axis: int) -> int:
        reach = self.dilation[axis] * (window - 1) + 1
        return (size + 2 * self.padding[axis] - reach) // self.stride[axis] + 1


def conv_shape(
    x: tuple[int, ...],
    w: tuple[int, ...],
    *,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> ConvShape:
    """Sizes of the convolution of shapes x (N, C, H, W) and w (O, C / groups, R, S).

    stride, padding (zeros on each side), dilation: of height and width, or one number for both.
    Raises InputError for shapes that do not fit together.
    """
    for name, given in (("x", x), ("w", w)):
        if len(given) != NCHW or min(given) < 1:
            raise InputError(f"{name} has shape {given}; allowed: four dimensions of at least 1, NCHW and OCRS")
    steps, edges, gaps = _pair("stride", stride, 1), _pair("padding", padding, 0), _pair("dilation", dilation, 1)
    if isinstance(groups, bool) or not isinstance(groups, int | np.integer) or groups < 1:
        raise InputError(f"groups = {groups!r}; allowed: an integer of at least 1")
    if x[1] % groups or w[0] % groups or w[1] != x[1] // groups:
        raise InputError(
            f"x has {x[1]} channels and w {w[0]} filters of {w[1]}, in {groups} groups; allowed: channels and filters "
            "that the groups divide, and filters of channels / groups"
        )
    shape = ConvShape(x[0], x[1], x[2], x[3], w[0], w[2], w[3], steps, edges, gaps, int(groups))
    if shape.out_height < 1 or shape.out_width < 1:
        raise InputError(f"windows of {w[2]} x {w[3]} do not fit images of {x[2]} x {x[3]} with padding {edges}")
    return shape


def im2col(x: Array, shape: ConvShape, group: int = 0) -> Array:
    """The A matrix (m, k) of one group: one row per output element, columns in order of c, r, s.

    Elements outside the image are zeros. x: (N, C, H, W). group: index of the group.
    """
    (top, left), (dy, dx), (gap_y, gap_x) = shape.padding, shape.stride, shape.dilation
    count = shape.channels // shape.groups
    part = x[:, group * count : (group + 1) * count]
    if top or left:
        full = np.zeros((*part.shape[:2], shape.height + 2 * top, shape.width + 2 * left), x.dtype)
        full[:, :, top : top + shape.height, left : left + shape.width] = part
        part = full
    n, c, y, z = part.strides
    windows = np.lib.stride_tricks.as_strided(
        part,
        (shape.batch, shape.out_height, shape.out_width, count, shape.r, shape.s),
        (n, y * dy, z * dx, c, y * gap_y, z * gap_x),
        writeable=False,
    )
    m, _, k = shape.gemm
    return windows.reshape(m, k)


def conv2d(
    x: Array,
    w: Array,
    c: Array | None = None,
    *,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    bias: Array | None = None,
    **arguments: Any,
) -> Array:
    """2-D convolution of x (N, C, H, W) with w (O, C / groups, R, S) on a simulated device; returns (N, O, P, Q), bits
    only.

    Each group is one matrix product, as in an implicit GEMM: K runs over c, then r, then s, and padding counts as
    zeros. c: (N, O, P, Q), added beta times. bias: (O,). arguments: those of hwsim.matmul (device, scheme, ...). Raises
    InputError for shapes that do not fit, and whatever hwsim.matmul raises.
    """
    for name in NOT_HERE:
        if name in arguments:
            raise InputError(f"{name}: not for a convolution; leave it out")
    images, filters = np.asarray(x), np.asarray(w)
    shape = conv_shape(images.shape, filters.shape, stride=stride, padding=padding, dilation=dilation, groups=groups)
    _, n, k = shape.gemm
    out = (shape.batch, shape.filters, shape.out_height, shape.out_width)
    start = None if c is None else np.asarray(c)
    if start is not None and start.shape != out:
        raise InputError(f"C has shape {start.shape}; allowed: {out}")
    shift = None if bias is None else np.asarray(bias)
    if shift is not None and shift.shape != (shape.filters,):
        raise InputError(f"bias has shape {shift.shape}; allowed: ({shape.filters},)")
    parts = []
    for group in range(shape.groups):
        own = slice(group * n, (group + 1) * n)
        part = matmul(
            im2col(images, shape, group),
            filters[own].reshape(n, k).T,
            None if start is None else np.moveaxis(start[:, own], 1, -1).reshape(-1, n),
            bias=None if shift is None else shift[own],
            **arguments,
        )
        parts.append(part)
    product = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
    return np.moveaxis(product.reshape(out[0], out[2], out[3], out[1]), -1, 1)


def _pair(name: str, given: Pair, least: int) -> tuple[int, int]:
    pair = tuple(given) if isinstance(given, tuple | list) else (given, given)
    if len(pair) != 2 or any(isinstance(v, bool) or not isinstance(v, int | np.integer) or v < least for v in pair):
        raise InputError(f"{name} = {given!r}; allowed: an integer of at least {least}, or two of them")
    return int(pair[0]), int(pair[1])
