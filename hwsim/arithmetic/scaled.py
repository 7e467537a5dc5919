"""Products added to an accumulator that is first divided by a power of two (tcgen05's scale-input-d)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.devices.arithmetic import scaled_accumulator
from hwsim.formats import format_of
from hwsim.numerics import reference

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.numerics.units import DotSpec

Codes = NDArray[Any]


def scaled_gemm(
    spec: DotSpec,
    a: Codes,
    b: Codes,
    c: Codes,
    exponent: int,
    rule: str,
    *,
    backend: Backend,
    out: Codes | None = None,
    threads: int = 1,
) -> Codes:
    """Codes (m, n) of the chain over K of a (m, k) b (k, n), starting from c (m, n) * 2^-exponent; k is at least 1.

    Stacks of matrices have further leading dimensions, as for the backend.

    rule: the instruction's scale_input_d_rule. With "exact" the backend divides before the first step, even where c's
    format could not hold the result; the others round c first. out, threads: as of `Backend.gemm`.
    """
    if rule != "exact":
        scaled, _ = scaled_accumulator(c, format_of(spec.c), exponent, rule)
        return backend.gemm(spec, a, b, scaled, out=out, threads=threads)
    terms = spec.unit.terms
    divide = np.zeros(-(-a.shape[-1] // terms), np.uint8)
    divide[0] = exponent
    if spec.d == "fp32":
        return backend.gemm(spec, a, b, c, divide=divide, out=out, threads=threads)
    # Other results have no lanes that divide: those of the first step, then the fast ones.
    first = backend.gemm(spec, a[..., :terms], b[..., :terms, :], c, divide=divide[:1], out=out, threads=threads)
    return backend.gemm(spec, a[..., terms:], b[..., terms:, :], first, out=first, threads=threads)


def scaled_reference(spec: DotSpec, a: Codes, b: Codes, c: Codes, exponent: int, rule: str) -> Codes:
    """The same computation by the integer reference."""
    if rule == "exact":
        return reference.gemm(spec, a, b, c, scale_d=exponent)
    return reference.gemm(spec, a, b, scaled_accumulator(c, format_of(spec.c), exponent, rule)[0])
