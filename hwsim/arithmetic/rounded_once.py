"""Sums and products that are rounded once, of NumPy arrays. It knows numbers; no device and no plan."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

AnyArray = NDArray[Any]
WORD, LONG_WORD = 32, 64  # bits


def to_odd(total: AnyArray, left: AnyArray, right: AnyArray) -> AnyArray:
    """left + right rounded to odd: of the two numbers around a sum that is not exact, the one whose last digit is odd.

    total: the sum rounded to nearest, of the same float dtype. Rounded to a format with two digits less or fewer, the
    result is that of one rounding (Boldo, Melquiond: Emulation of FMA and correctly rounded sums, 2008).
    """
    with np.errstate(invalid="ignore", over="ignore"):
        right_part = total - left
        error = (left - (total - right_part)) + (right - right_part)  # exact (Knuth's TwoSum)
        is_even = (total.view(f"u{total.dtype.itemsize}") & 1) == 0
        odd = np.nextafter(total, np.copysign(np.inf, error).astype(total.dtype))
    result: AnyArray = np.where(np.isfinite(total) & (error != 0) & is_even, odd, total)
    return result


def multiply_add(x: AnyArray, y: AnyArray, z: AnyArray) -> AnyArray:
    """x * y + z of fp32 arrays of one shape, rounded once to nearest even.

    The product is exact in fp64, the sum there is rounded to odd, and fp64 has more than two digits beyond fp32's.
    """
    with np.errstate(all="ignore"):
        product, addend = x.astype(np.float64) * y, z.astype(np.float64)
        return to_odd(product + addend, product, addend).astype(np.float32)


def raised_whole(numbers: AnyArray, exponents: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """numbers * 2^exponents of int32 or int64 arrays, in fp32 or fp64 (`dtype`), rounded once to nearest even."""
    info = np.finfo(dtype)
    digits, least = info.nmant + 1, info.minexp - info.nmant  # of a number; the place of the last one of subnormals
    magnitude = np.where(numbers < 0, -numbers.astype(np.int64), numbers).astype(np.uint64)  # of -2^63 too
    high, low = magnitude >> np.uint64(WORD), magnitude & np.uint64((1 << WORD) - 1)
    length = np.where(high != 0, WORD + np.frexp(high.astype(np.float64))[1], np.frexp(low.astype(np.float64))[1])
    dropped = np.maximum(np.maximum(length - digits, least - exponents), 0)
    cut = np.minimum(dropped, LONG_WORD - 1).astype(np.uint64)
    whole = np.where(dropped < LONG_WORD, magnitude >> cut, np.uint64(0))
    rest = np.where(dropped < LONG_WORD, magnitude & ((np.uint64(1) << cut) - np.uint64(1)), magnitude)
    half = np.uint64(1) << np.minimum(np.maximum(dropped - 1, 0), LONG_WORD - 1).astype(np.uint64)
    is_odd = (whole & np.uint64(1)) != 0
    is_up = (dropped > 0) & (dropped <= LONG_WORD) & ((rest > half) | ((rest == half) & is_odd))
    with np.errstate(over="ignore"):
        rounded = np.ldexp((whole + is_up.astype(np.uint64)).astype(dtype), exponents + dropped)
    result: AnyArray = np.where(numbers < 0, -rounded, rounded)
    return result
