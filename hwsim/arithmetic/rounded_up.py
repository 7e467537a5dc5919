"""Sums and squares of NumPy arrays that are rounded up, and sums of squares by the lanes of a thread block.

It knows numbers and orders of addition; it knows no device, no plan and no instruction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

AnyArray = NDArray[Any]
SPLITTER = 2.0**27 + 1  # halves fp64 numbers (Dekker)
LEAST, MOST = 2.0**-480, 2.0**480  # magnitudes whose squares have an exact error in fp64
WARP = 32


def added_up(left: AnyArray, right: AnyArray) -> AnyArray:
    """left + right of fp32 or fp64 arrays, rounded up."""
    with np.errstate(invalid="ignore", over="ignore"):
        total = left + right
        return _up(total, _error(total, left, right))


def product_added_up(left: AnyArray, right: AnyArray, addend: AnyArray) -> AnyArray:
    """left * right + addend of arrays of one dtype, fp32 or fp64, rounded up once.

    In fp64 a product beyond 2^960 counts as rounded to nearest, and one below 2^-960 as just more than nothing: then
    the result is the next number above the rounded sum.
    """
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        if left.dtype == np.float32:
            product, wide = left.astype(np.float64) * right, addend.astype(np.float64)
            total = product + wide
            return _narrowed_up(total, _error(total, product, wide))
        product = left * right
        rest = _product_error(left, right, product)
        total = product + addend
        error = _error(total, product, addend)
        low = error + rest
        last = _error(low, error, rest)
        result = total + low
        residual = _error(result, total, low)
        return _up(result, np.where(residual != 0, residual, last))


def _error(total: AnyArray, left: AnyArray, right: AnyArray) -> AnyArray:
    """left + right - total, exact where total is the rounded sum (Knuth's TwoSum); 0 of an infinity."""
    part = total - left
    error: AnyArray = (left - (total - part)) + (right - part)
    return np.where(np.isfinite(total), error, 0)


def _product_error(left: AnyArray, right: AnyArray, product: AnyArray) -> AnyArray:
    """left * right - product in fp64 (Dekker). Of tiny factors the least positive number, of huge ones 0."""
    size = np.maximum(np.abs(left), np.abs(right))
    is_plain = (np.minimum(np.abs(left), np.abs(right)) >= LEAST) & (size <= MOST)
    halves = []
    for factor in (left, right):
        bounded = np.where(is_plain, factor, 1.0)
        high = bounded * SPLITTER
        high = high - (high - bounded)
        halves.append((high, bounded - high))
    (x, y), (u, v) = halves
    error = y * v - (((np.where(is_plain, product, 1.0) - x * u) - y * u) - x * v)
    is_tiny = (left != 0) & (right != 0) & (size <= MOST)
    tiny = np.where(is_tiny, np.copysign(np.finfo(np.float64).smallest_subnormal, left * np.sign(right)), 0.0)
    result: AnyArray = np.where(is_plain, error, tiny)
    return result


def _up(value: AnyArray, residual: AnyArray) -> AnyArray:
    """The value, or the next one above it where the residual is positive."""
    result: AnyArray = np.where(residual > 0, np.nextafter(value, value.dtype.type(np.inf)), value)
    return result


def _narrowed_up(value: AnyArray, residual: AnyArray) -> AnyArray:
    """value + residual as fp32, rounded up; value: fp64, residual: below its last place."""
    narrow = value.astype(np.float32)
    is_below = (narrow < value) | ((narrow == value) & (residual > 0))
    result: AnyArray = np.where(is_below, np.nextafter(narrow, np.float32(np.inf)), narrow)
    return result


def narrowed_up(values: AnyArray) -> AnyArray:
    """fp64 numbers as fp32, rounded up."""
    with np.errstate(over="ignore", under="ignore"):
        return _narrowed_up(values, np.zeros_like(values))


def squares_added_up(x: AnyArray, lanes: int) -> AnyArray:
    """The sum of squares along the last axis, every step rounded up, as a thread block of GEMMul8 forms it.

    Lane l adds the squares l, l + lanes, ..., each by a fused multiply-add. In each warp of 32 lanes, and then among
    the warps, lanes half apart are added, then those a quarter apart, and so on.
    """
    total = np.zeros((*x.shape[:-1], lanes), x.dtype)
    for start in range(0, x.shape[-1], lanes):
        some = x[..., start : start + lanes]
        count = some.shape[-1]
        total[..., :count] = product_added_up(some, some, total[..., :count])
    warps = total.reshape(*total.shape[:-1], -1, min(WARP, lanes))
    return _halved(_halved(warps))


def _halved(x: AnyArray) -> AnyArray:
    """The sum along the last axis, whose length is a power of two, of those half its length apart first."""
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = added_up(x[..., :half], x[..., half:])
    return x[..., 0]
