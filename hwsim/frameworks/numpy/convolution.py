"""Convolution by implicit GEMM: each output element is one dot product of a GEMM, with its order of summation.

The bits of one, from arrays. The module knows how images become matrices; it knows no device and no number format.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hwsim.api import matmul
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.convolution import ConvShape, IntPair, conv_shape
from hwsim.host.arrays import given_array
from hwsim.libraries.convolution_call import ConvolutionCall
from hwsim.libraries.model.convolution_model import KOrder
from hwsim.libraries.pytorch.convolutions import ConvolutionKernel, convolution_library
from hwsim.operands.operand import operand, to_common_format
from hwsim.request.declarations import DEFAULT_DEVICE

__all__ = ["ConvShape", "conv2d", "conv_shape", "im2col"]

AnyArray = NDArray[Any]
CHANNELS_LAST: KOrder = "rsc"
LAYOUTS = ("nchw", "nhwc")
NOT_HERE = (
    "rows",
    "cols",
    "m",
    "n",
    "k",
    "conv",
    "shape",
    "at",
)  # arguments of a matrix product that a convolution has no place for


def im2col(x: AnyArray, shape: ConvShape, group: int = 0, k_order: KOrder = "crs") -> AnyArray:
    """The A matrix (m, k) of one group: one row per output element, columns in order of c, r, s, or of r, s, c.

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
    sizes, strides = (count, shape.r, shape.s), (c, y * gap_y, z * gap_x)
    if k_order == CHANNELS_LAST:
        sizes, strides = (*sizes[1:], count), (*strides[1:], c)
    windows = np.lib.stride_tricks.as_strided(
        part,
        (shape.batch, shape.out_height, shape.out_width, *sizes),
        (n, y * dy, z * dx, *strides),
        writeable=False,
    )
    m, _, k = shape.gemm
    return windows.reshape(m, k)


def conv2d(
    x: AnyArray,
    w: AnyArray,
    c: AnyArray | None = None,
    *,
    stride: IntPair = 1,
    padding: IntPair = 0,
    dilation: IntPair = 1,
    groups: int = 1,
    bias: AnyArray | None = None,
    layout: Literal["nchw", "nhwc"] = "nhwc",
    **arguments: Any,
) -> AnyArray:
    """2-D convolution of x (N, C, H, W) with w (O, C / groups, R, S) on a simulated device; returns (N, O, P, Q), bits
    only (`hwsim.run(conv=...)` has the time).

    Each group is one matrix product, as in an implicit GEMM: K runs over c, then r, then s, and padding counts as
    zeros. With functional=True its program runs, which reads the images. With library="cudnn" (or "pytorch") K runs and
    is added as cuDNN's kernel does; other libraries have no convolutions. With "pytorch" its own kernel computes
    depthwise ones as in hwsim.torch, but a bias is added last.

    Args:
        x: (N, C, H, W).
        w: (O, C / groups, R, S).
        c: (N, O, P, Q), added beta times.
        bias: (O,).
        layout: in which the library finds images and filters in memory, which decides its kernel.
        arguments: as of hwsim.matmul (device, scheme, ...).

    Raises:
        InputError: shapes that do not fit; and whatever hwsim.matmul raises.
    """
    for name in NOT_HERE:
        if name in arguments:
            raise InputError(f"{name}: not for a convolution; leave it out")
    images, filters = given_array("x", x), given_array("w", w)
    shape = conv_shape(images.shape, filters.shape, stride=stride, padding=padding, dilation=dilation, groups=groups)
    _, n, k = shape.gemm
    out = (shape.batch, shape.filters, shape.out_height, shape.out_width)
    start = None if c is None else given_array("C", c)
    if start is not None and start.shape != out:
        raise InputError(f"C has shape {start.shape}; allowed: {out}")
    shift = None if bias is None else given_array("bias", bias)
    if shift is not None and shift.shape != (shape.filters,):
        raise InputError(f"bias has shape {shift.shape}; allowed: ({shape.filters},)")
    program: dict[str, Any] = {"conv": _of_one_group(shape)} if arguments.get("functional") else {}
    k_order: KOrder = "crs"
    if arguments.get("library") is not None:
        arguments["library"], k_order, *_ = _library(arguments, shape, images, filters, layout)
        program = {}  # of the matrix of windows
    parts = []
    for group in range(shape.groups):
        filters_of_group = slice(group * n, (group + 1) * n)
        part = filters[filters_of_group]
        result = matmul(
            im2col(images, shape, group, k_order),
            (part if k_order == "crs" else np.moveaxis(part, 1, -1)).reshape(n, k).T,
            None if start is None else np.moveaxis(start[:, filters_of_group], 1, -1).reshape(-1, n),
            bias=None if shift is None else shift[filters_of_group],
            **program,
            **arguments,
        )
        parts.append(result)
    product = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
    return np.moveaxis(product.reshape(out[0], out[2], out[3], out[1]), -1, 1)


def _library(
    arguments: dict[str, Any], shape: ConvShape, images: AnyArray, filters: AnyArray, layout: str
) -> ConvolutionKernel:
    """The library for the GEMM of a group."""
    if layout not in LAYOUTS:
        raise InputError(f"layout = {layout!r}; allowed: {', '.join(LAYOUTS)}")
    if arguments.get("scheme") not in (None, "native"):
        raise UnsupportedError("library: cuDNN runs no schemes; leave scheme or library out")
    in_memory = arguments.get("input_format")
    if in_memory is None:
        left, _ = to_common_format(operand("x", images.reshape(1, -1)), operand("w", filters.reshape(1, -1)))
        in_memory = left.format
    form, output = arguments.get("format") or in_memory, arguments.get("output") or in_memory
    call = ConvolutionCall(shape=shape, format=str(form), output=str(output), is_nchw=layout == "nchw")
    return convolution_library(arguments["library"], arguments.get("device", DEFAULT_DEVICE), call)


def _of_one_group(shape: ConvShape) -> dict[str, Any]:
    """The sizes of a group's convolution, as the option `conv` takes them."""
    sizes = {"channels": shape.channels // shape.groups, "filters": shape.filters // shape.groups, "groups": 1}
    names = ("batch", "height", "width", "r", "s", "stride", "padding", "dilation")
    return {name: getattr(shape, name) for name in names} | sizes
