"""The rounded adder tree (CDNA2): products summed in a balanced tree, then the accumulator added, each addition
rounded.

The module models one step; chains over K are in `reference`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwsim.formats import Format, format_of
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.terms import (
    Addend,
    add_rounded,
    forbid_scales,
    form_products,
    read_accumulator,
    read_operand,
)
from hwsim.numerics.units import DotSpec, PairwiseUnit, Specials


@dataclass(frozen=True, slots=True)
class PairwiseStages:
    """The intermediate values of one tree step.

    products: exact. levels: codes in d's format, first the rounded products, last the root. result: code of accumulator
    + root.
    """

    products: tuple[Addend, ...]
    accumulator: Addend
    levels: tuple[tuple[int, ...], ...]
    result: int


def add_level(d: Format, codes: Sequence[int], unit: PairwiseUnit) -> tuple[int, ...]:
    """One level of the adder tree: sums of neighbours; an odd last element passes through.

    Inputs and width: codes in d's format.
    Exact result: one sum per pair.
    Dropped: each sum is rounded to d; a subnormal one becomes zero of its sign where results are flushed.
    Specials: infinities and NaNs as in ordinary addition.
    Source: numerics reference, section 6 (CDNA2).
    """
    terms = [read_operand(d, code, Specials()) for code in codes]
    sums = [
        add_rounded(d, (x, y), unit.rounding, unit.specials) for x, y in zip(terms[0::2], terms[1::2], strict=False)
    ]
    return (*sums, *codes[len(sums) * 2 :])


def pairwise_stages(unit: PairwiseUnit, spec: DotSpec, operands: DotOperands) -> PairwiseStages:
    """Compute one tree step, level by level. Raises InputError for operands that do not fit (see `terms`)."""
    forbid_scales(spec, operands)
    d = format_of(spec.d)
    products = form_products(spec, unit.specials, operands)
    accumulator = read_accumulator(spec, unit.specials, operands)
    levels = [tuple(add_rounded(d, (product,), unit.rounding, unit.specials) for product in products)]
    while len(levels[-1]) > 1:
        levels.append(add_level(d, levels[-1], unit))
    root = read_operand(d, levels[-1][0], Specials())
    result = add_rounded(d, (accumulator, root), unit.rounding, unit.specials)
    return PairwiseStages(products, accumulator, tuple(levels), result)
