"""PTX's approximate instructions without .ftz, and CUDA's single-precision functions, on top of MUFU.

It knows the scaling and range reductions around MUFU and tables of special functions; it knows no device. Source of
the constants: libdevice.10.bc of CUDA 12.8, as Triton 3.9 compiles it to PTX; machine code of nvcc 13.0 for sm_90.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.rounded_once import multiply_add
from hwsim.numerics import special_functions
from hwsim.numerics.special_functions import Tables

SingleArray = NDArray[np.float32]
AnyArray = NDArray[Any]

#: expf: exp(x) = 2^k 2^r, k = floor(252 saturate(x STEP + 0.5)) - 126, r = x LOG2E - k in two parts.
STEP = np.float32(0.0057249800302088260650634765625)
LOG2E = np.float32(1.44269502162933349609375), np.float32(1.925963033500011079013347625732421875e-08)
RANGE, LEAST = 252.0, -126.0
UNDERFLOW = np.float32(-(2.0**10))  # exp of it and below is 0
NORMAL, LARGE = np.float32(2.0**-126), np.float32(2.0**126)
LIFT, LIFT_ROOT, LIFT_BITS = np.float32(2.0**24), np.float32(2.0**12), np.float32(24)  # of subnormal arguments
SMALL = np.float32(-126)  # exp2f halves arguments below it and squares the result
INFINITY = np.float32(np.inf)
LN2 = np.float32(0.693147182464599609375)
#: logf: of subnormals times 2^23; the exponent is the integer next to the logarithm of x * 4 / 3.
SCALE = np.float32(2.0**23)
TWO_THIRDS = 0x3F2AAAAB
COEFFICIENTS = tuple(
    np.array([word], np.uint32).view(np.float32)[0]
    for word in (
        *(0xBE055027, 0x3E1039F6, 0xBDF8CDCC, 0x3E0F2955, 0xBE2AD8B9),
        *(0x3E4CED0B, 0xBE7FFF22, 0x3EAAAA78, 0xBF000000),
    )
)


@dataclass(frozen=True, slots=True, eq=False)
class CudaMath:
    """The functions, of fp32 arrays. tables: of the chip's special functions."""

    tables: Tables

    def ex2(self, x: SingleArray) -> SingleArray:
        """ex2.approx.ftz."""
        return special_functions.ex2(_codes(x), self.tables).view(np.float32)

    def reciprocal(self, x: SingleArray) -> SingleArray:
        """rcp.approx.ftz."""
        return special_functions.rcp(_codes(x), self.tables).view(np.float32)

    def exp2f(self, x: SingleArray) -> SingleArray:
        """2^x (ex2.approx); arguments below -126 are halved and the result squared, so that subnormal results are
        there.
        """
        is_small = x < SMALL
        power = self.ex2(np.where(is_small, x * np.float32(0.5), x))
        result: SingleArray = np.where(is_small, power * power, power)
        return result

    def rcp(self, x: SingleArray) -> SingleArray:
        """1/x (rcp.approx): subnormal arguments are scaled up, and large ones down."""
        size = np.abs(x)
        scale = np.where(size < NORMAL, LIFT, np.where(size > LARGE, np.float32(0.25), np.float32(1)))
        result: SingleArray = self.reciprocal(x * scale) * scale
        return result

    def rsqrtf(self, x: SingleArray) -> SingleArray:
        """1/sqrt(x) (rsqrt.approx): subnormal arguments are scaled."""
        return self._scaled("rsqrt", x, lambda result: result * LIFT_ROOT)

    def sqrt(self, x: SingleArray) -> SingleArray:
        """sqrt(x) (sqrt.approx): subnormal arguments are scaled."""
        return self._scaled("sqrt", x, lambda result: result / LIFT_ROOT)

    def lg2(self, x: SingleArray) -> SingleArray:
        """log2(x) (lg2.approx): subnormal arguments are scaled."""
        return self._scaled("lg2", x, lambda result: result - LIFT_BITS)

    def _scaled(self, name: str, x: SingleArray, back: Callable[[SingleArray], SingleArray]) -> SingleArray:
        is_scaled = np.abs(x) < NORMAL
        unscaled = special_functions.FUNCTIONS[name](_codes(np.where(is_scaled, x * LIFT, x)), self.tables)
        result = unscaled.view(np.float32)
        return np.where(is_scaled, back(result), result)

    def expf(self, x: SingleArray) -> SingleArray:
        """e^x."""
        bounded = np.maximum(x, UNDERFLOW)
        step = np.clip(_fma(bounded, STEP, np.float32(0.5)), 0, 1).astype(np.float64)
        whole = np.floor(step * RANGE) + LEAST
        rest = _fma(bounded, LOG2E[1], _fma(bounded, LOG2E[0], (-whole).astype(np.float32)))
        result: SingleArray = self.ex2(rest) * np.exp2(whole).astype(np.float32)
        return result

    def fast_expf(self, x: SingleArray) -> SingleArray:
        """__expf and expf by -use_fast_math: ex2.approx.ftz of x times LOG2E."""
        return self.ex2(x * LOG2E[0])

    def short_expf(self, x: SingleArray) -> SingleArray:
        """__expf: ex2.approx of x times LOG2E."""
        return self.exp2f(x * LOG2E[0])

    def fast_logf(self, x: SingleArray) -> SingleArray:
        """__logf and logf by -use_fast_math: lg2.approx.ftz times the logarithm of 2."""
        result: SingleArray = special_functions.lg2(_codes(x), self.tables).view(np.float32) * LN2
        return result

    def short_logf(self, x: SingleArray) -> SingleArray:
        """__logf: lg2.approx times the logarithm of 2."""
        result: SingleArray = self.lg2(x) * LN2
        return result

    def logf(self, x: SingleArray) -> SingleArray:
        """The natural logarithm; no special function is in it."""
        is_scaled = x < NORMAL
        codes = _codes(np.where(is_scaled, x * SCALE, x)).astype(np.int64)
        exponent = (codes - TWO_THIRDS) >> 23 << 23
        significand = (codes - exponent).astype(np.uint32).view(np.float32)
        power = (exponent >> 23).astype(np.float32) + np.where(is_scaled, np.float32(-23), np.float32(0))
        rest = significand - np.float32(1)
        total = np.full_like(rest, COEFFICIENTS[0])
        for coefficient in COEFFICIENTS[1:]:
            total = _fma(total, rest, coefficient)
        result = _fma(power, LN2, _fma(rest * total, rest, rest))
        beyond = np.where(x == 0, -INFINITY, np.where(x < 0, np.float32(np.nan), x))
        logarithm: SingleArray = np.where((x > 0) & (x < INFINITY), result, beyond)
        return logarithm


def _codes(x: SingleArray) -> NDArray[np.uint32]:
    return np.ascontiguousarray(x, np.float32).view(np.uint32)


def _fma(x: AnyArray, y: AnyArray | np.float32, z: AnyArray | np.float32) -> SingleArray:
    operands = np.broadcast_arrays(x, y, z)
    result: SingleArray = multiply_add(operands[0], operands[1], operands[2])
    return result
