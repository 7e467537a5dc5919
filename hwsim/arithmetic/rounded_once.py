"""Sums and products that are rounded once, of NumPy arrays. It knows numbers; no device and no plan."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

AnyArray = NDArray[Any]


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
