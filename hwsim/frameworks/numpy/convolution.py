"""Convolution by implicit GEMM: each output element is one dot product of a GEMM, with its order of summation.

The bits of one, from arrays. The module knows how images become matrices; it knows no device and no number format.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hwsim.api import matmul
from hwsim.errors import InputError, UnsupportedError
from hwsim.frameworks.numpy.depthwise import depthwise
from hwsim.frameworks.numpy.windows import im2col
from hwsim.gemm.convolution import ConvShape, IntPair, conv_shape
from hwsim.host.arrays import given_array
from hwsim.libraries.convolution_call import ConvolutionSizes
from hwsim.libraries.model.convolution_model import KOrder
from hwsim.libraries.pytorch.convolutions import ConvolutionKernel, convolution_kernel
from hwsim.operands.operand import Operand, operand_pair, to_common_format
from hwsim.request.declarations import DEFAULT_DEVICE

__all__ = ["ConvShape", "conv2d", "conv_shape"]

AnyArray = NDArray[Any]
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
    depthwise ones, as in hwsim.torch: sums start from the bias, and leave padding out.

    Args:
        x: (N, C, H, W).
        w: (O, C / groups, R, S).
        c: (N, O, P, Q), added beta times.
        bias: (O,).
        layout: in which the library finds images and filters in memory, which decides its kernel.
        arguments: as of hwsim.matmul (device, scheme, ...).

    Raises:
        InputError: shapes that do not fit; a bias that PyTorch's own kernel starts from, and that is not of the images'
            format; and whatever hwsim.matmul raises. UnsupportedError: c, alpha or beta beside that kernel.
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
        left, right = _stored(arguments, images, filters)
        kernel = _kernel(arguments, shape, left.format, layout)
        arguments["library"], k_order = kernel.library, kernel.k_order
        program = {}  # of the matrix of windows
        if kernel.depthwise is not None and kernel.is_known:
            if start is not None or any(arguments.get(name) is not None for name in ("alpha", "beta")):
                raise UnsupportedError(
                    "C, alpha, beta: PyTorch's own kernel of depthwise convolutions takes none; leave them out, or "
                    "library"
                )
            rest = {name: value for name, value in arguments.items() if name != "input_format"}
            begins_with_bias = kernel.begins_with_bias
            product = depthwise(left, right, shift, shape, kernel.depthwise, begins_with_bias=begins_with_bias, **rest)
            return _as_image(product, out)
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
    return _as_image(product, out)


def _as_image(product: AnyArray, out: tuple[int, ...]) -> AnyArray:
    """The product (m, O) as (N, O, P, Q)."""
    return np.moveaxis(product.reshape(out[0], out[2], out[3], out[1]), -1, 1)


def _stored(arguments: dict[str, Any], images: AnyArray, filters: AnyArray) -> tuple[Operand, Operand]:
    """Images and filters in their common format, which is memory's."""
    named = {name: arguments.get(name) for name in ("input_format", "format")}
    return to_common_format(*operand_pair(images, filters, **named))


def _kernel(arguments: dict[str, Any], shape: ConvShape, stored: str, layout: str) -> ConvolutionKernel:
    """The library's kernel for a convolution of images in the format `stored`."""
    if layout not in LAYOUTS:
        raise InputError(f"layout = {layout!r}; allowed: {', '.join(LAYOUTS)}")
    if arguments.get("scheme") not in (None, "native"):
        raise UnsupportedError("library: cuDNN runs no schemes; leave scheme or library out")
    return convolution_kernel(
        arguments["library"],
        arguments.get("device", DEFAULT_DEVICE),
        ConvolutionSizes.of(shape),
        format=str(arguments.get("format") or stored),
        stored=stored,
        output=str(arguments.get("output") or stored),
        is_nchw=layout == "nchw",
    )


def _of_one_group(shape: ConvShape) -> dict[str, Any]:
    """The sizes of a group's convolution, as the option `conv` takes them."""
    sizes = {"channels": shape.channels // shape.groups, "filters": shape.filters // shape.groups, "groups": 1}
    names = ("batch", "height", "width", "r", "s", "stride", "padding", "dilation")
    return {name: getattr(shape, name) for name in names} | sizes
