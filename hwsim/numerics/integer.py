"""The integer step: exact products added to an integer accumulator that wraps or saturates.

The module models one step; chains over K are in `reference`.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwsim.formats import Exact, format_of, round_to
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.terms import forbid_scales, form_products, read_accumulator
from hwsim.numerics.units import DotSpec, IntegerUnit, Specials


@dataclass(frozen=True, slots=True)
class IntegerStages:
    """The intermediate values of one integer step: products, accumulator, their exact sum, and the resulting code."""

    products: tuple[int, ...]
    accumulator: int
    total: int
    result: int


def integer_stages(unit: IntegerUnit, spec: DotSpec, operands: DotOperands) -> IntegerStages:
    """Compute one integer step: multiply, add, then wrap or saturate.

    Inputs and width: two's complement or unsigned integers, as a's, b's and c's formats say.
    Exact result: the sum of up to `unit.terms` products and the accumulator.
    Dropped: bits above d's width ("wrap"), or the excess over d's range ("saturate"), once per step.
    Specials: none.
    Source: PTX ISA, mma with and without .satfinite (numerics reference, section 10).
    """
    forbid_scales(spec, operands)
    plain = Specials()
    products = tuple(product.signed_significand for product in form_products(spec, plain, operands))
    accumulator = read_accumulator(spec, plain, operands).signed_significand
    total = accumulator + sum(products)
    d = format_of(spec.d)
    if unit.overflow == "wrap":
        result = total % (1 << d.bits)
    else:
        result = round_to(d, Exact("finite", int(total < 0), abs(total)), "RZ", overflow="saturate")
    return IntegerStages(products, accumulator, total, result)
