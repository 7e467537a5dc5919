"""The composite step: a few fused steps from a zero accumulator, then one ordinary addition of the accumulator.

fp8 mma.sync on Hopper and on B200 works so: the assembler widens the operands to fp16 and issues two fp16 instructions
and an addition. The module models one step; chains over K are in `reference`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwsim.formats import decode, encode, format_of
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.fused import FusedStages, fused_stages
from hwsim.numerics.terms import Addend, add_rounded, forbid_scales, read_accumulator, read_operand
from hwsim.numerics.units import CompositeUnit, DotSpec, Specials


@dataclass(frozen=True, slots=True)
class CompositeStages:
    """The intermediate values of one composite step: the fused steps in order, the accumulator, and the code of their
    rounded sum.
    """

    steps: tuple[FusedStages, ...]
    accumulator: Addend
    result: int


def widen(codes: Sequence[int], source: str, target: str) -> list[int]:
    """The codes of the same values in a wider format; a NaN becomes that format's default NaN.

    Raises InputError when a value is not representable in `target`.
    """
    source_format, target_format = format_of(source), format_of(target)
    return [encode(target_format, decode(source_format, code)) for code in codes]


def composite_stages(unit: CompositeUnit, spec: DotSpec, operands: DotOperands) -> CompositeStages:
    """Compute one composite step: widen the operands, run the fused steps in order from +0, add the accumulator.

    Inputs and width: operands that `unit.operand_format` holds exactly.
    Exact result: of each fused step as `fused` says, its result in d's format starting the next one.
    Dropped: by each fused step, and by the last addition, nearest even in d's format.
    Specials: infinities and NaNs pass through the steps; the last addition treats them as IEEE does.
    Source: numerics reference, section 2, fp8 mma.sync on sm_90 and sm_100.
    """
    forbid_scales(spec, operands)
    d = format_of(spec.d)
    a = widen(operands.a, spec.a, unit.operand_format)
    b = widen(operands.b, spec.b, unit.operand_format)
    inner = DotSpec(unit.inner, unit.operand_format, unit.operand_format, spec.d, spec.d)
    partial = d.zero_code()
    steps = []
    for residues in unit.selections:
        chosen_a = [x for k, x in enumerate(a) if k % unit.modulus in residues]
        chosen_b = [x for k, x in enumerate(b) if k % unit.modulus in residues]
        steps.append(fused_stages(unit.inner, inner, DotOperands(chosen_a, chosen_b, partial)))
        partial = steps[-1].result
    accumulator = read_accumulator(spec, unit.specials, operands)
    result = add_rounded(d, (read_operand(d, partial, Specials()), accumulator), "RNE", unit.specials)
    return CompositeStages(tuple(steps), accumulator, result)
