"""The fused multiply-add chain: d = a * b + c, rounded once, one k at a time (fp64, fp32 lanes, AMD's fp32).

One FMA is an exact step with one product, so it has the same stages. Chains over K are in `reference`.
"""

from __future__ import annotations

from dataclasses import replace

from hwsim.formats import Format, format_of
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.exact import ExactStages, exact_stages
from hwsim.numerics.terms import read_operand
from hwsim.numerics.units import DotSpec, FmaChainUnit


def quiet_nan(source: Format, code: int, target: Format) -> int:
    """Convert the NaN `code` to a quiet NaN of another format with IEEE 754 NaNs.

    Inputs and width: a NaN of `source`.
    Exact result: sign and payload kept, the payload's leading bits where the fractions differ in width; only the
        NaNs of IEEE 754 have one.
    Dropped: payload bits that the target has no place for.
    Specials: the quiet bit is set.
    Source: as nan_order of the unit; payloads of other widths by IEEE 754, 6.2.3 (a recommendation).
    """
    bits = code >> source.ignored_bits
    fraction = bits & (1 << source.fraction_bits) - 1 if source.nan == "ieee" else 0
    sign = bits >> source.magnitude_bits & 1 if source.signed and source.nan != "minus_zero" else 0
    wider = target.fraction_bits - source.fraction_bits
    payload = fraction << wider if wider >= 0 else fraction >> -wider
    return target.nan_code | payload << target.ignored_bits | target.word(sign, 0)


def fma_stages(unit: FmaChainUnit, spec: DotSpec, operands: DotOperands) -> ExactStages:
    """Compute one IEEE 754 fusedMultiplyAdd with its intermediate values.

    Inputs and width: one product and the accumulator.
    Exact result: a * b + c.
    Dropped: only what the one rounding cuts.
    Specials: infinity times zero and infinities of both signs are NaN, also when c is a NaN; which NaN, the unit's
        nan_order says; signs of zero by IEEE 754, 6.3 unless the unit says otherwise.
    Source: numerics reference, sections 2 (fp64) and 6 (fp32, fp64 on AMD).
    """
    done = exact_stages(unit, spec, operands)
    inputs = {"a": (spec.a, operands.a), "b": (spec.b, operands.b), "c": (spec.c, (operands.c,))}
    for name in unit.nan_order or "":
        fmt, codes = format_of(inputs[name][0]), inputs[name][1]
        for code in codes:  # one, or none where K is 0
            if read_operand(fmt, code, unit.specials).kind == "nan":
                return replace(done, result=quiet_nan(fmt, code, format_of(spec.d)))
    return done
