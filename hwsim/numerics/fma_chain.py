"""The fused multiply-add: d = a * b + c, exact and rounded once, one k at a time (fp64 and AMD's fp32 units).

One fma is an exact step with one product, so it has the same stages. Chains over K are in `reference`.
"""

from __future__ import annotations

from hwsim.numerics.exact import ExactStages, exact_stages
from hwsim.numerics.terms import StepInput
from hwsim.numerics.units import DotSpec, FmaChainUnit


def fma_stages(unit: FmaChainUnit, spec: DotSpec, given: StepInput) -> ExactStages:
    """IEEE 754 fusedMultiplyAdd.

    Inputs and width: one product and the accumulator.
    Exact result: a * b + c.
    Dropped: only what the one rounding cuts.
    Specials: infinity times zero and infinities of both signs are NaN, also when c is a NaN; signs of zero by
        IEEE 754, 6.3 unless the unit says otherwise.
    Source: numerics reference, sections 2 (fp64) and 6 (fp32, fp64 on AMD).
    """
    return exact_stages(unit, spec, given)
