"""The two-level dot product of CDNA3: products summed among themselves, then with the accumulator, truncated downward.

The module models one step; chains over K are in `reference`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwsim.formats import Exact, Format, format_of, round_shift
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.terms import (
    Addend,
    forbid_scales,
    form_products,
    pack,
    read_accumulator,
    round_sum,
    special_of,
    zero_sign,
)
from hwsim.numerics.units import DotSpec, TwoLevelUnit


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """A fixed-point number: value * 2^last_place, where value is a signed integer."""

    value: int
    last_place: int


@dataclass(frozen=True, slots=True)
class TwoLevelStages:
    """The intermediate values of one two-level step.

    partial_sums: of all products, or of even and odd ones. product_exponent: largest exponent of the non-zero products
    (None: there is none). product_sum: the sum of products, truncated for the addition; accumulator_cut: the
    accumulator, truncated likewise. top_exponent: E of the second level. total: the truncated sum before rounding.
    special: the NaN or infinity that overrules it, or None. result: code in d's format.
    """

    products: tuple[Addend, ...]
    accumulator: Addend
    partial_sums: tuple[FixedPoint, ...]
    product_exponent: int | None
    top_exponent: int
    product_sum: FixedPoint
    accumulator_cut: FixedPoint
    total: FixedPoint
    special: Exact | None
    result: int


def overflow_product(product: Addend, d: Format) -> Addend:
    """Replace a product of magnitude 2^(largest exponent of d + 1) or more by an infinity of its sign.

    Source: numerics reference, section 6, step 1.
    """
    exponent = product.significand.bit_length() - 1 + product.last_place
    if product.kind == "finite" and not product.is_zero and exponent > d.max_exponent:
        return Addend("infinity", product.sign)
    return product


def cut_down(number: FixedPoint, last_place: int) -> FixedPoint:
    """Truncate toward minus infinity to multiples of 2^last_place; unchanged if it has no lower bits."""
    if number.last_place >= last_place:
        return number
    sign = int(number.value < 0)
    magnitude = round_shift(abs(number.value), last_place - number.last_place, "RD", sign)
    return FixedPoint(-magnitude if sign else magnitude, last_place)


def add_fixed(numbers: Sequence[FixedPoint]) -> FixedPoint:
    """The exact sum of fixed-point numbers."""
    last_place = min(number.last_place for number in numbers)
    return FixedPoint(sum(number.value << number.last_place - last_place for number in numbers), last_place)


def largest_exponent(products: Sequence[Addend]) -> int | None:
    """The largest exponent of finite non-zero products, or None."""
    return max((p.exponent for p in products if p.kind == "finite" and not p.is_zero), default=None)


def sum_products(products: Sequence[Addend], fraction_bits: int) -> FixedPoint:
    """First level: align finite products to their largest exponent, truncate toward zero, add.

    Inputs and width: finite products (others are passed over; they overrule the sum).
    Exact result: their sum in units of 2^(largest exponent - fraction_bits).
    Dropped: places below that, toward zero, magnitude by magnitude.
    Specials: no non-zero product gives 0.
    Source: numerics reference, section 6, step 2.
    """
    top = largest_exponent(products)
    if top is None:
        return FixedPoint(0, 0)
    last_place = top - fraction_bits
    total = 0
    for product in products:
        if product.kind == "finite":
            magnitude = round_shift(product.significand, last_place - product.last_place, "RZ")
            total += -magnitude if product.sign else magnitude
    return FixedPoint(total, last_place)


def join_accumulator(
    unit: TwoLevelUnit, d: Format, products: FixedPoint, product_exponent: int | None, accumulator: Addend
) -> tuple[int, FixedPoint, FixedPoint, FixedPoint]:
    """Second level: add the accumulator; returns (E, truncated product sum, truncated accumulator, their truncated
    sum).

    Inputs and width: the joined product sum and the accumulator, finite.
    Exact result: the sum of both after their cuts.
    Dropped, all toward minus infinity: of the product sum below 2^(E - sum_fraction_bits), of the accumulator
        below 2^(E - accumulator_fraction_bits) (or all of it, where the unit drops it), of the sum more than
        final_fraction_bits below its own exponent.
    Specials: a zero accumulator has d's lowest exponent.
    Source: numerics reference, section 6, steps 3 to 5.
    """
    addend_exponent = d.min_exponent if accumulator.is_zero else max(accumulator.exponent, d.min_exponent)
    top = addend_exponent if product_exponent is None else max(product_exponent, addend_exponent)
    products_cut = cut_down(products, top - unit.sum_fraction_bits)
    dropped = unit.accumulator_drop_bits is not None and addend_exponent < top - unit.accumulator_drop_bits
    accumulator_cut = (
        FixedPoint(0, 0)
        if dropped or accumulator.is_zero
        else cut_down(
            FixedPoint(accumulator.signed_significand, accumulator.last_place), top - unit.accumulator_fraction_bits
        )
    )
    total = add_fixed([products_cut, accumulator_cut])
    exponent = max(abs(total.value).bit_length() - 1 + total.last_place, d.min_exponent)
    return top, products_cut, accumulator_cut, cut_down(total, exponent - unit.final_fraction_bits)


def two_level_stages(unit: TwoLevelUnit, spec: DotSpec, operands: DotOperands) -> TwoLevelStages:
    """Compute one two-level step with all its intermediate values. Raises InputError for operands that do not fit (see
    `terms`).
    """
    forbid_scales(spec, operands)
    d = format_of(spec.d)
    products = tuple(overflow_product(product, d) for product in form_products(spec, unit.specials, operands))
    accumulator = read_accumulator(spec, unit.specials, operands)
    terms = (*products, accumulator)
    special = special_of(terms)

    halves = (products[0::2], products[1::2]) if unit.interleaved else (products,)
    partial_sums = tuple(sum_products(half, unit.product_fraction_bits) for half in halves)
    product_exponent = largest_exponent(products)
    lowest = 0 if product_exponent is None else product_exponent - unit.product_fraction_bits
    joined = add_fixed([cut_down(partial, lowest) for partial in partial_sums])

    top, product_sum, accumulator_cut, total = join_accumulator(unit, d, joined, product_exponent, accumulator)
    value = special or round_sum(total.value, total.last_place, zero_sign(terms, unit.specials, unit.rounding))
    result = pack(d, value, unit.rounding, unit.specials)
    return TwoLevelStages(
        products=products,
        accumulator=accumulator,
        partial_sums=partial_sums,
        product_exponent=product_exponent,
        top_exponent=top,
        product_sum=product_sum,
        accumulator_cut=accumulator_cut,
        total=total,
        special=special,
        result=result,
    )
