"""The block-scaled dot product (mxf4, nvf4): groups of products summed exactly and scaled, then aligned, added and
rounded once.

The module models one step; chains over K are in `reference`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwsim.errors import InputError
from hwsim.formats import Exact, format_of
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.fused import cut
from hwsim.numerics.terms import (
    Addend,
    add_exactly,
    form_products,
    multiply_terms,
    pack,
    read_accumulator,
    read_scales,
    round_sum,
    special_of,
    zero_sign,
)
from hwsim.numerics.units import BlockScaledUnit, DotSpec


@dataclass(frozen=True, slots=True)
class BlockScaledStages:
    """The intermediate values of one block-scaled step.

    products: before scaling. groups: group sums times their scales. top_exponent: where the alignment stands.
    cut_terms: the groups and then the accumulator, signed, in units of 2^cut_last_place. total: their sum.
    special: the NaN or infinity that overrules the sum, or None. result: code in d's format.
    """

    products: tuple[Addend, ...]
    groups: tuple[Addend, ...]
    accumulator: Addend
    top_exponent: int
    cut_last_place: int
    cut_terms: tuple[int, ...]
    total: int
    special: Exact | None
    result: int


def form_group(products: Sequence[Addend], scale: Addend, zero_exponent: int) -> Addend:
    """Exact sum of a group's products times its scales.

    Inputs and width: finite products; the product of the group's two scales.
    Exact result: group sum times scale significands. Its exponent is that of the scales only: the size of the
        group sum does not enter it, nor does a sum that cancels to zero.
    Dropped: nothing.
    Specials: products all zero, or a zero scale, give `zero_exponent`; NaN and infinity as in a plain sum.
    Source: numerics reference, section 3.
    """
    scaled = [multiply_terms(product, scale) for product in products]
    special = special_of(scaled)
    if special is not None:
        return Addend(special.kind, special.sign)
    total, last_place = add_exactly(products)
    is_zero = scale.is_zero or all(product.is_zero for product in products)
    exponent = zero_exponent if is_zero else scale.exponent
    return Addend("finite", int(total < 0), abs(total) * scale.significand, last_place + scale.last_place, exponent)


def block_scaled_stages(unit: BlockScaledUnit, spec: DotSpec, operands: DotOperands) -> BlockScaledStages:
    """Compute one block-scaled step with all its intermediate values.

    Raises InputError for operands that do not fit (see `terms`), without scales, and for a scale_d.
    """
    scales = read_scales(spec, operands)
    if scales is None or spec.scale_block is None or operands.scale_d:
        raise InputError("the block_scaled unit needs scale_a and scale_b, and takes no scale_d")
    products = form_products(spec, unit.specials, operands)
    accumulator = read_accumulator(spec, unit.specials, operands)
    groups = tuple(
        form_group(products[start : start + unit.group], scales[start // spec.scale_block], unit.zero_exponent)
        for start in range(0, len(operands.a), unit.group)
    )
    special = special_of((*groups, accumulator))
    exponents = [unit.floor_exponent, *(group.exponent for group in groups if group.kind == "finite")]
    if accumulator.kind == "finite" and not accumulator.is_zero:
        exponents.append(accumulator.exponent)
    top = max(exponents)
    last_place = top - unit.fraction_bits
    cut_terms = tuple(cut(term, last_place) if term.kind == "finite" else 0 for term in (*groups, accumulator))
    total = sum(cut_terms)
    sign_of_zero = zero_sign((*products, accumulator), unit.specials, unit.rounding)
    value = special or round_sum(total, last_place, sign_of_zero)
    result = pack(format_of(spec.d), value, unit.rounding, unit.specials)
    return BlockScaledStages(
        products=products,
        groups=groups,
        accumulator=accumulator,
        top_exponent=top,
        cut_last_place=last_place,
        cut_terms=cut_terms,
        total=total,
        special=special,
        result=result,
    )
