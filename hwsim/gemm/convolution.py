"""Convolutions as implicit GEMMs: their sizes, those of the GEMM, and the image behind its A matrix.

The module knows shapes; it knows no array, no device and no number format.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hwsim.errors import InputError, nearest
from hwsim.gemm.problem import Image, Windows

IntPair = int | tuple[int, int]
NCHW = 4  # dimensions
REQUIRED = ("channels", "height", "width", "filters", "r", "s")
WITH_DEFAULTS: Mapping[str, int] = {"batch": 1, "stride": 1, "padding": 0, "dilation": 1, "groups": 1}


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

    @property
    def image(self) -> Image | None:
        """What the A matrix of one group is read from; None where that is the A matrix itself (1 x 1, stride 1)."""
        rows, cols = self.batch * self.height * self.width, self.channels // self.groups
        read = self.batch * cols * self._lines(self.height, self.r, 0) * self._lines(self.width, self.s, 1)
        m, _, k = self.gemm
        if (rows, cols) == (m, k) and read == m * k:
            return None
        windows = Windows(
            batch=self.batch,
            height=self.height,
            width=self.width,
            window=(self.r, self.s),
            places=(self.out_height, self.out_width),
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
        )
        return Image(rows, cols, read, windows)

    def _lines(self, size: int, window: int, axis: int) -> int:
        """Rows of an image (axis 0), or columns, that any window reads."""
        count = self._out(size, window, axis)
        places = range(-self.padding[axis], count * self.stride[axis] - self.padding[axis], self.stride[axis])
        taps = range(0, window * self.dilation[axis], self.dilation[axis])
        return len({at for first in places for at in (first + tap for tap in taps) if 0 <= at < size})

    def _out(self, size: int, window: int, axis: int) -> int:
        reach = self.dilation[axis] * (window - 1) + 1
        return (size + 2 * self.padding[axis] - reach) // self.stride[axis] + 1


def conv_shape(
    x: tuple[int, ...],
    w: tuple[int, ...],
    *,
    stride: IntPair = 1,
    padding: IntPair = 0,
    dilation: IntPair = 1,
    groups: int = 1,
) -> ConvShape:
    """Sizes of the convolution of shapes x (N, C, H, W) and w (O, C / groups, R, S).

    stride, padding (zeros on each side), dilation: of height and width, or one number for both.
    Raises InputError for shapes that do not fit together.
    """
    for name, sizes in (("x", x), ("w", w)):
        if len(sizes) != NCHW or min(sizes) < 1:
            raise InputError(f"{name} has shape {sizes}; allowed: four dimensions of at least 1, NCHW and OCRS")
    steps, edges, gaps = _pair("stride", stride, 1), _pair("padding", padding, 0), _pair("dilation", dilation, 1)
    if isinstance(groups, bool) or not isinstance(groups, numbers.Integral) or groups < 1:
        raise InputError(f"groups = {groups!r}; allowed: an integer of at least 1")
    if x[1] % groups or w[0] % groups or w[1] != x[1] // groups:
        raise InputError(
            f"x has {x[1]} channels and w {w[0]} filters of {w[1]}, in {groups} groups; allowed: channels and filters "
            "that the groups divide, and filters of channels / groups"
        )
    shape = ConvShape(
        batch=x[0],
        channels=x[1],
        height=x[2],
        width=x[3],
        filters=w[0],
        r=w[2],
        s=w[3],
        stride=steps,
        padding=edges,
        dilation=gaps,
        groups=int(groups),
    )
    if shape.out_height < 1 or shape.out_width < 1:
        raise InputError(f"windows of {w[2]} x {w[3]} do not fit images of {x[2]} x {x[3]} with padding {edges}")
    return shape


def conv_of(sizes: Mapping[str, Any]) -> ConvShape:
    """The convolution of the option `conv`: sizes by name, of REQUIRED and WITH_DEFAULTS.

    Raises InputError for a name that is missing or unknown, and for sizes that do not fit together.
    """
    if not isinstance(sizes, Mapping):
        raise InputError(f"conv = {sizes!r}; allowed: a mapping of {', '.join((*REQUIRED, *WITH_DEFAULTS))}")
    names = (*REQUIRED, *WITH_DEFAULTS)
    for name in sizes:
        if name not in names:
            raise InputError(f"conv has no {name!r}; it has {', '.join(names)}{nearest(str(name), names)}")
    missing = [name for name in REQUIRED if name not in sizes]
    if missing:
        raise InputError(f"conv lacks {', '.join(missing)}")
    values = {**WITH_DEFAULTS, **sizes}
    plain = (*REQUIRED, "batch", "groups")
    for name in plain:
        size = values[name]
        if isinstance(size, bool) or not isinstance(size, numbers.Integral) or size < 1:
            raise InputError(f"conv: {name} = {size!r}; allowed: an integer of at least 1")
    batch, channels, height, width, filters, r, s, groups = (
        int(values[name]) for name in ("batch", "channels", "height", "width", "filters", "r", "s", "groups")
    )
    return conv_shape(
        (batch, channels, height, width),
        (filters, max(1, channels // groups), r, s),
        stride=values["stride"],
        padding=values["padding"],
        dilation=values["dilation"],
        groups=groups,
    )


def _pair(name: str, value: IntPair, least: int) -> tuple[int, int]:
    pair = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(pair) != 2 or any(isinstance(v, bool) or not isinstance(v, numbers.Integral) or v < least for v in pair):
        raise InputError(f"{name} = {value!r}; allowed: an integer of at least {least}, or two of them")
    return int(pair[0]), int(pair[1])
