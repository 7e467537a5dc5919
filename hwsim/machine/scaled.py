"""Products onto an accumulator that is divided by a power of two first (tcgen05's scale-input-d).

It joins the kernels with the reference: what the accumulator's format cannot hold after scaling is rare, and left
to the reference where the instruction's rule keeps it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim._kernels import gemm
from hwsim.devices.arithmetic import scaled_accumulator
from hwsim.formats import format_of
from hwsim.numerics import reference

if TYPE_CHECKING:
    from hwsim.numerics.units import DotSpec

Codes = NDArray[Any]


def scaled_gemm(spec: DotSpec, a: Codes, b: Codes, c: Codes, exponent: int, rule: str) -> Codes:
    """Codes of a (m, k) b (k, n) + c (m, n) 2^-exponent; rule: the instruction's scale_input_d_rule."""
    scaled, left = scaled_accumulator(c, format_of(spec.c), exponent, rule)
    d: Codes = gemm(spec, a, b, scaled)
    for i, j in zip(*np.nonzero(left), strict=True):
        d[i, j] = reference.dot(spec, a[i].tolist(), b[:, j].tolist(), int(c[i, j]), scale_d=exponent)
    return d


def scaled_reference(spec: DotSpec, a: Codes, b: Codes, c: Codes, exponent: int, rule: str) -> Codes:
    """The same by the reference alone."""
    if rule == "exact":
        return reference.gemm(spec, a, b, c, scale_d=exponent)
    return reference.gemm(spec, a, b, scaled_accumulator(c, format_of(spec.c), exponent, rule)[0])
