"""Products added to an accumulator that is first divided by a power of two (tcgen05's scale-input-d)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.devices.arithmetic import scaled_accumulator
from hwsim.formats import format_of
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.numerics.units import DotSpec

Codes = NDArray[Any]


def scaled_gemm(
    spec: DotSpec,
    operands: DotOperands,
    rule: str,
    *,
    backend: Backend,
    out: Codes | None = None,
    threads: int = 1,
) -> Codes:
    """Codes (m, n) of the chain over K of a (m, k) b (k, n), starting from c (m, n) * 2^-scale_d; k is at least 1.

    Stacks of matrices have further leading dimensions, as for the backend.

    operands: scale_d is an integer, or an array with the exponents of all steps, which the backend takes as it is.
    rule: the instruction's scale_input_d_rule. With "exact" the backend divides before the first step, even where c's
    format could not hold the result; the others round c first. out, threads: as of `Backend.gemm`.
    """
    a, b, c, _, _, exponent = operands
    if not isinstance(exponent, int) or not exponent:
        return backend.gemm(spec, operands, out=out, threads=threads)
    if c is None:
        return backend.gemm(spec, operands._replace(scale_d=0), out=out, threads=threads)
    if rule != "exact":
        scaled, _ = scaled_accumulator(c, format_of(spec.c), exponent, rule)
        return backend.gemm(spec, operands._replace(c=scaled, scale_d=0), out=out, threads=threads)
    terms = spec.unit.terms
    by_step = np.zeros(-(-a.shape[-1] // terms), np.uint8)
    by_step[0] = exponent
    if spec.d == "fp32":
        return backend.gemm(spec, operands._replace(scale_d=by_step), out=out, threads=threads)
    # Other results have no lanes that divide: those of the first step, then the fast ones.
    first = DotOperands(a[..., :terms], b[..., :terms, :], c, scale_d=by_step[:1])
    done = backend.gemm(spec, first, out=out, threads=threads)
    return backend.gemm(spec, DotOperands(a[..., terms:], b[..., terms:, :], done), out=done, threads=threads)


def scaled_reference(spec: DotSpec, operands: DotOperands, rule: str) -> Codes:
    """The same computation by the integer reference."""
    if rule == "exact" or not operands.scale_d:
        return reference.gemm(spec, operands)
    scaled, _ = scaled_accumulator(operands.c, format_of(spec.c), operands.scale_d, rule)
    return reference.gemm(spec, operands._replace(c=scaled, scale_d=0))
