"""A depthwise convolution by PyTorch's own kernel, of arrays: a product of matrices for each channel, its sums mended.

The module knows arrays and the kernel's rules; it knows no device.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.api import matmul
from hwsim.arithmetic.depthwise_sums import own_elements
from hwsim.errors import InputError
from hwsim.frameworks.numpy.windows import im2col
from hwsim.gemm.convolution import ConvShape
from hwsim.libraries.pytorch.depthwise import OwnDepthwise
from hwsim.operands.operand import Operand, operand

AnyArray = NDArray[Any]


def depthwise(
    images: Operand,
    filters: Operand,
    bias: AnyArray | None,
    shape: ConvShape,
    rules: OwnDepthwise,
    *,
    begins_with_bias: bool,
    **arguments: Any,
) -> AnyArray:
    """The convolution (m, filters) of images (N, C, H, W) with filters (O, 1, R, S), of one format.

    arguments: as of hwsim.matmul. Raises InputError for a bias that a sum starts from and that the format does not
    have.
    """
    m, n, k = shape.gemm
    added = None if bias is None else _bias(bias, images.format if begins_with_bias else "fp32")
    begins_with_bias = begins_with_bias and added is not None
    skipped = ~im2col(np.ones((shape.batch, 1, shape.height, shape.width), np.bool_), shape)
    if not rules.skips_padding:
        skipped[:] = False
    parts = []
    for group in range(shape.groups):
        of_group = slice(group * n, (group + 1) * n)
        rows, columns = im2col(images.array, shape, group), filters.array[of_group].reshape(n, k).T
        part = None if added is None else added[of_group]
        left, right = rows, columns
        if begins_with_bias:
            assert part is not None
            left = np.concatenate((np.ones((m, 1), rows.dtype), rows), axis=1)
            right = np.concatenate((part[None].astype(rows.dtype), columns), axis=0)
        product = matmul(left, right, bias=None if begins_with_bias else part, **arguments)
        factors = partial(_factors, rows, columns, rules.operand)
        wide = product.astype(np.float32)
        at, sums = own_elements(wide, part, skipped, factors, begins_with_bias=begins_with_bias)
        product[at] = sums.astype(product.dtype)
        parts.append(product)
    return np.concatenate(parts, axis=1)


def _factors(a: AnyArray, b: AnyArray, format: str) -> tuple[AnyArray, AnyArray]:
    """A and B rounded to a format, in FP32."""
    left, right = (operand("operand", side).converted(format).fp32().array for side in (a, b))
    return left, right


def _bias(bias: AnyArray, format: str) -> AnyArray:
    """The bias in FP32. Raises InputError for values that are none of the format's."""
    operand_of_bias = operand("bias", bias[None])
    taken = operand_of_bias.converted(format).fp32()
    wide = operand_of_bias.converted("fp64").array
    if format != "fp32" and not np.array_equal(taken.converted("fp64").array, wide, equal_nan=True):
        raise InputError(
            f"bias: PyTorch's kernel starts its sums from a bias of the operands' format, and these are no numbers of "
            f"{format}; round them to {format}, or leave library out"
        )
    result: AnyArray = taken.array[0]
    return result


__all__ = ["depthwise"]
