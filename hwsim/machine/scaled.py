"""Products onto an accumulator that is divided by a power of two first (tcgen05's scale-input-d).

What the accumulator's format cannot hold after scaling is taken in binary64 where that is the same term to the unit,
and left to the reference otherwise.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim._kernels import gemm
from hwsim.devices.arithmetic import scaled_accumulator
from hwsim.formats import format_of
from hwsim.numerics import reference
from hwsim.numerics.units import FusedUnit

if TYPE_CHECKING:
    from hwsim.numerics.units import DotSpec

Codes = NDArray[Any]
FP32_LEAST_EXPONENT = -126


def scaled_gemm(spec: DotSpec, a: Codes, b: Codes, c: Codes, exponent: int, rule: str) -> Codes:
    """Codes of a (m, k) b (k, n) + c (m, n) 2^-exponent; k at most one instruction's.

    rule: the instruction's scale_input_d_rule.
    """
    scaled, left = scaled_accumulator(c, format_of(spec.c), exponent, rule)
    d: Codes = gemm(spec, a, b, scaled)
    if left.any() and spec.c == "fp32" and isinstance(spec.unit, FusedUnit):
        with np.errstate(invalid="ignore"):  # signalling NaNs are not among those that are left
            wide = np.ldexp(c.view(np.float32).astype(np.float64), -exponent).view(np.uint64)
        behind = gemm(dataclasses.replace(spec, c="fp64"), a, b, wide)
        # A subnormal keeps the least exponent of its format, less the scale: the same to the unit below its floor.
        alike = left & (
            (c >> np.uint32(23) & np.uint32(255) > 0) | (FP32_LEAST_EXPONENT - exponent <= spec.unit.floor_exponent)
        )
        d[alike] = behind[alike]
        left &= ~alike
    for i, j in zip(*np.nonzero(left), strict=True):
        d[i, j] = reference.dot(spec, a[i].tolist(), b[:, j].tolist(), int(c[i, j]), scale_d=exponent)
    return d


def scaled_reference(spec: DotSpec, a: Codes, b: Codes, c: Codes, exponent: int, rule: str) -> Codes:
    """The same by the reference alone."""
    if rule == "exact":
        return reference.gemm(spec, a, b, c, scale_d=exponent)
    return reference.gemm(spec, a, b, scaled_accumulator(c, format_of(spec.c), exponent, rule)[0])
