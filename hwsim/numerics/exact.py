"""The exact step: the accumulator and all products added without rounding, then rounded once (MI100, an ideal unit).

The module models one step; chains over K are in `reference`.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwsim.formats import Exact, format_of
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.terms import (
    Addend,
    add_exactly,
    forbid_scales,
    form_products,
    pack,
    read_accumulator,
    round_sum,
    special_of,
    zero_sign,
)
from hwsim.numerics.units import DotSpec, ExactUnit, FmaChainUnit


@dataclass(frozen=True, slots=True)
class ExactStages:
    """The intermediate values of one exact step: total * 2^last_place is the unrounded sum, result the code of the
    rounded one.

    special: the NaN or infinity that overrules the sum (total is then 0), or None.
    """

    products: tuple[Addend, ...]
    accumulator: Addend
    total: int
    last_place: int
    special: Exact | None
    result: int


def exact_stages(unit: ExactUnit | FmaChainUnit, spec: DotSpec, operands: DotOperands) -> ExactStages:
    """Compute one exact step: add products and accumulator exactly, round once.

    Inputs and width: up to `unit.terms` products and the accumulator, of any exponents.
    Exact result: the whole sum; products beyond d's range are allowed when the sum comes back.
    Dropped: only what the one rounding cuts.
    Specials: see `special_of`, `zero_sign` and `pack`.
    Source: numerics reference, section 6 (MI100).
    """
    forbid_scales(spec, operands)
    products = form_products(spec, unit.specials, operands)
    accumulator = read_accumulator(spec, unit.specials, operands)
    terms = (*products, accumulator)
    special = special_of(terms)
    total, last_place = add_exactly(terms) if special is None else (0, 0)
    value = special or round_sum(total, last_place, zero_sign(terms, unit.specials, unit.rounding))
    result = pack(format_of(spec.d), value, unit.rounding, unit.specials)
    return ExactStages(products, accumulator, total, last_place, special, result)
