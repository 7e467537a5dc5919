"""The fused dot product of NVIDIA's matrix units: align all terms to the largest exponent, truncate, add exactly, round
once.

Every rule follows the published models and recordings named in the device files; on Hopper it was verified against an
H200. The module models one step; chains over K are in `reference`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hwsim.errors import InputError
from hwsim.formats import Exact, format_of, round_shift
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.terms import (
    Addend,
    form_products,
    multiply_terms,
    pack,
    read_accumulator,
    read_scales,
    round_sum,
    special_of,
    zero_sign,
)
from hwsim.numerics.units import DotSpec, FusedUnit


@dataclass(frozen=True, slots=True)
class FusedStages:
    """The intermediate values of one fused step, from the products to the result.

    products: `unit.terms` of them, after block scaling. top_exponent: where the alignment stands.
    cut_terms: the products and then the accumulator, signed, in units of 2^(top_exponent - fraction_bits).
    total: their sum. special: the NaN or infinity that overrules the sum, or None. result: code in d's format.
    """

    products: tuple[Addend, ...]
    accumulator: Addend
    top_exponent: int
    cut_last_place: int
    cut_terms: tuple[int, ...]
    total: int
    special: Exact | None
    result: int


def scale_products(products: Sequence[Addend], scales: Sequence[Addend], block: int) -> tuple[Addend, ...]:
    """Multiply each product by the two scales of its block (mxf8f6f4).

    Inputs and width: products; one scale pair per `block` of k. Padding has no scale and stays zero.
    Exact result: exponents added, significands multiplied (a power of two for ue8m0).
    Dropped: nothing.
    Specials: a NaN scale makes every product of its block a NaN, zero products too.
    Source: numerics reference, section 3.
    """
    return tuple(
        multiply_terms(product, scales[index // block]) if index // block < len(scales) else product
        for index, product in enumerate(products)
    )


def top_exponent(terms: Sequence[Addend], floor_exponent: int) -> int:
    """The exponent that terms are aligned to: the largest among non-zero terms, but not below the floor.

    Inputs and width: finite terms.
    Exact result: an exponent; products are not normalised, so a product's may be one too small.
    Dropped: zero terms take no part, whatever their operands' exponents.
    Specials: with no term left, the floor.
    Source: numerics reference, sections 1.2 and 8 (checked on H200).
    """
    return max([floor_exponent, *(term.exponent for term in terms if not term.is_zero)])


def cut(term: Addend, last_place: int) -> int:
    """Truncate a finite term to a signed integer in units of 2^last_place.

    Inputs and width: any finite term.
    Exact result: the magnitude shifted.
    Dropped: places below 2^last_place, toward zero, sign and magnitude; no guard and no sticky bit.
    Specials: none.
    Source: numerics reference, section 1.3.
    """
    magnitude = round_shift(term.significand, last_place - term.last_place, "RZ")
    return -magnitude if term.sign else magnitude


def align_and_add(
    terms: Sequence[Addend], fraction_bits: int, floor_exponent: int
) -> tuple[int, int, tuple[int, ...], int]:
    """Align, truncate and add finite terms; returns (top exponent, last place kept, truncated terms, their exact
    sum).
    """
    top = top_exponent(terms, floor_exponent)
    last_place = top - fraction_bits
    cut_terms = tuple(cut(term, last_place) for term in terms)
    return top, last_place, cut_terms, sum(cut_terms)


def fused_stages(unit: FusedUnit, spec: DotSpec, operands: DotOperands) -> FusedStages:
    """Compute one fused step with all its intermediate values. Raises InputError for operands that do not fit (see
    `terms`).
    """
    if operands.scale_d and spec.scale_format is not None:
        raise InputError("scale_d: block-scaled instructions do not scale the accumulator")
    products = form_products(spec, unit.specials, operands)
    scales = read_scales(spec, operands)
    if scales is not None and spec.scale_block is not None:
        products = scale_products(products, scales, spec.scale_block)
    accumulator = read_accumulator(spec, unit.specials, operands)
    d = format_of(spec.d)
    terms = (*products, accumulator)
    special = special_of(terms)
    finite = tuple(term if term.kind == "finite" else replace(term, kind="finite", significand=0) for term in terms)
    top, last_place, cut_terms, total = align_and_add(finite, unit.fraction_bits, unit.floor_exponent)
    value = special or round_sum(total, last_place, zero_sign(terms, unit.specials, unit.rounding))
    narrow = None if unit.result_format is None else format_of(unit.result_format)
    result = pack(d, value, unit.rounding, unit.specials, narrow)
    return FusedStages(
        products=products,
        accumulator=accumulator,
        top_exponent=top,
        cut_last_place=last_place,
        cut_terms=cut_terms,
        total=total,
        special=special,
        result=result,
    )
