"""How many binary places integers of a row or column take in Ozaki scheme II, as GEMMul8 decides it.

Source: GEMMul8 2.0.9 (commit 71296f9), scaling_fast_real.hpp and scaling_accu_real.hpp. It knows numbers and NVIDIA's
logarithm; it knows no plan and no operand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.cuda_math import CudaMath
from hwsim.arithmetic.rounded_up import added_up, narrowed_up
from hwsim.devices.special_functions import nvidia_tables

AnyArray = NDArray[Any]
HALF_UP = float(np.float32(0.5) * (1 + 3 * np.float32(2.0**-23)))  # by which logarithms are halved, rounded up
MARGIN = np.float32(1.5)
FEWEST = -(2**20)  # places for a sum that overflowed: nothing is left of its elements


def places_of_squares(total: AnyArray, log2_bound: float) -> AnyArray:
    """Fast mode: floor(log2_bound - 1.5 - max(1, log2(total) / 2)), each step rounded toward fewer places, as int64.

    total: sums of squares, fp64 or fp32. log2_bound: (log2(P - 1) - 1) / 2 of the product P of all moduli, an fp32
    number. An element x of a row whose largest magnitude is below 2^f and not below 2^(f - 1) becomes the integer
    x 2^(places + 1 - f), truncated.
    """
    if total.dtype == np.float64:
        exponent = np.where((total == 0) | ~np.isfinite(total), 1, np.frexp(total)[1]) - 1
        significand = narrowed_up(np.ldexp(total, -exponent))
        logarithm = added_up(_log2(significand), exponent.astype(np.float32))
    else:
        logarithm = _log2(total)
    half = narrowed_up(logarithm.astype(np.float64) * HALF_UP).astype(np.float64)
    limit = _narrowed_down(log2_bound - float(MARGIN))
    return _floor(limit - np.maximum(1.0, half))


def places_of_largest(largest: AnyArray, log2_bound: float) -> AnyArray:
    """Accurate mode: floor(log2_bound - log2(largest) / 2), as int64.

    largest: of the sums of magnitudes in a row or column of the product of bounds, fp32; 0 of a 0, whose products are
    zero whatever the places.
    """
    with np.errstate(invalid="ignore"):
        half = _log2(largest).astype(np.float64) * HALF_UP
        places = log2_bound - half
        error = (log2_bound - places) - half  # exact: places has the larger magnitude, or both are small
    whole = _floor(places)
    return np.where(largest == 0, 0, whole - ((whole == places) & (error < 0)))


def _log2(x: AnyArray) -> AnyArray:
    with np.errstate(all="ignore"):
        return CudaMath(nvidia_tables()).lg2(np.ascontiguousarray(x))


def _narrowed_down(value: float) -> float:
    return -float(narrowed_up(np.array(-value)))


def _floor(x: AnyArray) -> AnyArray:
    return np.floor(np.minimum(np.fmax(x, FEWEST), -FEWEST)).astype(np.int64)
