"""Sums of PyTorch's own depthwise kernels, which may start from the bias and leave padding out.

A product of matrices starts from zero and multiplies zeros for padding. Other bits come of it where the sum is a zero,
whose sign may differ, or a NaN, from padding times an infinity. These elements alone are added anew here. The module
knows arrays in FP32; it knows no library and no framework. Source: github pytorch/pytorch,
aten/src/ATen/native/cuda/DepthwiseConv2d.cu and DepthwiseConv3d.cu.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.rounded_once import multiply_add

AnyArray = NDArray[Any]
Single = NDArray[np.float32]
Booleans = NDArray[np.bool_]


def own_elements(
    product: AnyArray,
    bias: Single | None,
    skipped: Booleans,
    factors: Callable[[], tuple[Single, Single]],
    *,
    begins_with_bias: bool,
) -> tuple[tuple[AnyArray, ...], Single]:
    """The indices of the elements whose bits a product of matrices may miss, and the kernel's sums of these: (count,),
    not yet rounded to the result's format.

    product: (..., m, n), floats. bias: (..., 1, n) or (n,). skipped: (m, k), products that the kernel leaves out.
    factors: gives a (..., m, k) and b (..., k, n), and is asked where there are such elements. begins_with_bias: a sum
    starts from the bias; else the bias is added last.
    """
    at = _missed(product, bias, skipped, begins_with_bias=begins_with_bias)
    if not len(at[0]):
        return at, np.zeros(0, np.float32)
    return at, _own_sums(*factors(), bias, skipped, at, begins_with_bias=begins_with_bias)


def _missed(
    product: AnyArray, bias: Single | None, skipped: Booleans, *, begins_with_bias: bool
) -> tuple[AnyArray, ...]:
    """The indices of the zeros and NaNs whose sums leave products out, or start from -0."""
    is_other_sum: Booleans = np.broadcast_to(np.any(skipped, axis=1, keepdims=True), product.shape)
    if bias is not None and begins_with_bias:
        is_other_sum = is_other_sum | ((bias == 0) & np.signbit(bias))
    return np.nonzero(is_other_sum & ((product == 0) | np.isnan(product)))


def _own_sums(
    a: Single, b: Single, bias: Single | None, skipped: Booleans, at: tuple[AnyArray, ...], *, begins_with_bias: bool
) -> Single:
    """The kernel's sums of the elements `at`: (count,)."""
    *lead, rows, columns = at
    left, right = a[(*lead, rows)], b.swapaxes(-1, -2)[(*lead, columns)]
    shape = (*a.shape[:-1], b.shape[-1])
    added = np.zeros(len(rows), np.float32) if bias is None else np.broadcast_to(bias, shape)[at]
    total = added if begins_with_bias else np.zeros(len(rows), np.float32)
    for place in range(left.shape[-1]):
        total = np.where(skipped[rows, place], total, multiply_add(left[:, place], right[:, place], total))
    if begins_with_bias or bias is None:
        return total
    with np.errstate(all="ignore"):
        return total + added


__all__ = ["own_elements"]
