"""Why two ways of computing a GEMM give other bits, in words: their dot units, products and orders of summation.

It knows dot units and schedules as data; it computes no product and compares no results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hwsim.devices import dot_spec, numerics_evidence
from hwsim.formats import format_of
from hwsim.numerics.units import (
    BlockScaledUnit,
    CompositeUnit,
    DotSpec,
    ExactUnit,
    FmaChainUnit,
    FusedUnit,
    IntegerUnit,
    PairwiseUnit,
    TwoLevelUnit,
)

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.record import Gemm
    from hwsim.numerics.units import Specials, Unit

_ROUNDED = {
    "RNE": "to nearest even",
    "RNA": "to nearest, ties away from zero",
    "RZ": "toward zero",
    "RU": "up",
    "RD": "down",
}
ARITHMETIC = "units' arithmetic"  # what the evidence of a difference is of, beside the order of summation
MOST_PRECISE = 0.01  # percent: shares closer to none or all than that have no number
#: Parts of a schedule that fix the order of summation, in words.
_ORDER = {
    "split_k": "slices of K",
    "slice_k": "length of the slices of K",
    "slice_multiple": "multiple of the slices' length",
    "merge_order": "order of the merge",
    "partial_format": "format of a slice's sum",
    "merge_format": "format of the merge",
    "merge_into": "what the merge adds into",
    "promotion_k": "K between promotions",
    "k_permutation": "permutation of K",
    "remainder": "place of K's remainder",
    "sum": "sum",
    "regions": "order by region",
}
#: Fields of a plan that say how its products are added.
_SUMS_OF_PRODUCTS = ("terms", "combine", "join", "arithmetic")


@dataclass(frozen=True, slots=True)
class UnitSide:
    """One way of computing: the device, its matrix instruction, and the record, where there is one. name: in words."""

    name: str
    device: Device
    unit: str
    gemm: Gemm | None = None

    @property
    def evidence(self) -> str:
        """The weakest level behind the bits of the instruction."""
        return str(numerics_evidence(self.device, self.unit))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitDifference:
    """Why two sides differ. reasons: the weightiest first, each a sentence without its full stop; empty where both
    compute alike. evidence: of the units' arithmetic, left and right. str(): the first reason, what it does to the
    result, and the evidence, in one sentence.
    """

    left: str
    right: str
    reasons: tuple[str, ...]
    alike: str
    evidence: tuple[str, str]
    share: float | None = field(default=None)
    largest: float | None = field(default=None)

    def __str__(self) -> str:
        reason = self.reasons[0] if self.reasons else self.alike
        if self.share and not self.reasons:
            reason = f"{self.alike}, and differ outside of it"
        return f"{reason}{self._outcome()}, evidence of the {ARITHMETIC}: {' | '.join(self.evidence)}"

    def _outcome(self) -> str:
        if self.share is None:
            return ""
        if not self.share:
            return ": no element differs"
        most = "" if self.largest is None else f", at most {self.largest:.2g} of the RMS"
        return f": {_percent(self.share)} of the elements differ{most}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data: `text` is the sentence."""
        return {
            "text": str(self),
            "reasons": list(self.reasons),
            "alike": self.alike,
            "evidence": list(self.evidence),
        }


def unit_difference(
    left: UnitSide, right: UnitSide, *, share: float | None = None, largest: float | None = None
) -> UnitDifference:
    """The reasons why two sides give other bits.

    share: of the elements that differ, 0 to 1; largest: |difference| over the RMS of the result; both where they were
    computed. Raises what `dot_spec` raises for an instruction that a device does not have.
    """
    names = (left.name, right.name) if left.name != right.name else ("left", "right")
    specs = dot_spec(left.device, left.unit), dot_spec(right.device, right.unit)
    reasons = [
        *_of_plans(names, left, right, specs),
        *_of_schemes(names, left, right),
        *_of_units(names, *specs),
        *_of_orders(names, left, right),
        *_of_special_values(names, *specs),  # last: most sums meet none
    ]
    alike = f"{names[0]} and {names[1]} compute alike: each step {described(specs[0].unit)}"
    return UnitDifference(
        left=names[0],
        right=names[1],
        reasons=tuple(reasons),
        alike=alike,
        evidence=(left.evidence, right.evidence),
        share=share,
        largest=largest,
    )


def described(unit: Unit) -> str:
    """What one step of a dot unit does, as a verb with its objects."""
    return _DESCRIBED[type(unit)](unit)


_DESCRIBED: Mapping[type, Callable[[Any], str]] = {
    FusedUnit: lambda u: (
        f"adds {_products(u.terms)} and the accumulator at once, cut to {u.fraction_bits} fraction bits"
    ),
    ExactUnit: lambda u: f"adds {_products(u.terms)} and the accumulator exactly and rounds once",
    FmaChainUnit: lambda u: "adds one product and rounds",
    PairwiseUnit: lambda u: f"adds {_products(u.terms)} in a tree and rounds each sum",
    TwoLevelUnit: lambda u: (
        f"adds {_products(u.terms)} cut to {u.product_fraction_bits} fraction bits, then the accumulator"
    ),
    IntegerUnit: lambda u: "adds integers exactly",
    BlockScaledUnit: lambda u: (
        f"adds groups of {_products(u.group)} exactly, then {u.terms // u.group} groups and the accumulator, cut to "
        f"{u.fraction_bits} fraction bits"
    ),
    CompositeUnit: lambda u: (
        f"adds {len(u.selections)} parts of {_products(u.terms)} from zero, cut to {u.inner.fraction_bits} fraction "
        "bits, then the accumulator, rounded to nearest even"
    ),
}


def _products(count: int) -> str:
    return "one product" if count == 1 else f"{count} products"


def _of_plans(names: tuple[str, str], left: UnitSide, right: UnitSide, specs: tuple[DotSpec, DotSpec]) -> Iterator[str]:
    """The numbers and formats of the products."""
    counts = [1 if side.gemm is None or side.gemm.parts else side.gemm.single.products for side in (left, right)]
    formats = [spec.a if spec.a == spec.b else f"{spec.a} x {spec.b}" for spec in specs]
    if counts != [1, 1] or formats[0] != formats[1]:
        texts = [f"{_products(count)} in {fmt}" for count, fmt in zip(counts, formats, strict=True)]
        if texts[0] != texts[1]:
            yield f"{names[0]} computes A B as {texts[0]}, {names[1]} as {texts[1]}"


def _of_schemes(names: tuple[str, str], left: UnitSide, right: UnitSide) -> Iterator[str]:
    """What the schemes do outside of the dot unit: scales, pieces, and sums of products."""
    if left.gemm is None or right.gemm is None:
        return
    both = f"{names[0]} and {names[1]}"
    problems = left.gemm.problem, right.gemm.problem
    if (problems[0].a.scale, problems[0].b.scale) != (problems[1].a.scale, problems[1].b.scale):
        yield f"{both} scale A and B in other ways"
    plans = left.gemm.single, right.gemm.single
    if plans[0].products != plans[1].products:
        return  # pieces and sums then follow from the number of products
    pieces = [(*plan.a_pieces, *plan.b_pieces) for plan in plans]
    if pieces[0] != pieces[1] or plans[0].split != plans[1].split:
        roundings = [{piece.rounding for piece in of_plan} for of_plan in pieces]
        if all(len(names_of) == 1 and names_of <= set(_ROUNDED) for names_of in roundings) and (
            roundings[0] != roundings[1]
        ):
            texts = [_ROUNDED[next(iter(names_of))] for names_of in roundings]
            yield f"{names[0]} rounds the pieces of A and B {texts[0]}, {names[1]} {texts[1]}"
        elif [piece.format for piece in pieces[0]] == [piece.format for piece in pieces[1]]:
            yield f"{both} split A and B into other pieces"
    if any(getattr(plans[0], name) != getattr(plans[1], name) for name in _SUMS_OF_PRODUCTS):
        yield f"{both} add the products in other orders"


def unit_reasons(names: tuple[str, str], left: DotSpec, right: DotSpec) -> tuple[str, ...]:
    """How one step of two units differs, the weightiest property first; empty where it does not."""
    return (*_of_units(names, left, right), *_of_special_values(names, left, right))


def _of_units(names: tuple[str, str], left: DotSpec, right: DotSpec) -> Iterator[str]:
    first, second = names
    units = left.unit, right.unit
    sums = f"{left.a} sums" if left.a == right.a else "sums"
    if type(units[0]) is not type(units[1]):
        yield f"{first} {described(units[0])}, {second} {described(units[1])}"
    else:
        for attribute, words in _NUMBERS:
            values = [getattr(unit, attribute, None) for unit in units]
            if values[0] != values[1]:
                shown = ["none" if value is None else value for value in values]
                yield f"{first} {words.format(x=shown[0], sums=sums)}, {second} {shown[1]}"
        yield from _of_drops(names, units)
        if isinstance(units[0], CompositeUnit) and isinstance(units[1], CompositeUnit):
            for reason in _of_units(names, *map(_step_from_zero, (units[0], units[1]))):
                yield f"in the steps from zero {reason}"
    roundings = [str(getattr(unit, "rounding", "")) for unit in units]
    if roundings[0] != roundings[1] and all(roundings):
        yield f"{first} rounds a sum {_ROUNDED[roundings[0]]}, {second} {_ROUNDED[roundings[1]]}"
    widths = [_fraction(spec) for spec in (left, right)]
    if widths[0] != widths[1]:
        yield f"{first} keeps {widths[0]} fraction bits in its accumulator, {second} {widths[1]}"


def _step_from_zero(unit: CompositeUnit) -> DotSpec:
    return DotSpec(unit.inner, *(unit.operand_format,) * 2, "fp32", "fp32")


def _of_special_values(names: tuple[str, str], left: DotSpec, right: DotSpec) -> Iterator[str]:
    """Subnormals, zeros, NaNs and infinities."""
    units = left.unit, right.unit
    if isinstance(units[0], CompositeUnit) and isinstance(units[1], CompositeUnit):
        for reason in _of_special_values(names, *map(_step_from_zero, (units[0], units[1]))):
            yield f"in the steps from zero {reason}"
    specials = [getattr(unit, "specials", None) for unit in units]
    if specials[0] is not None and specials[1] is not None:
        yield from _of_specials(names, specials[0], specials[1])


_NUMBERS = (
    ("fraction_bits", "keeps {x} fraction bits in {sums}"),
    ("product_fraction_bits", "keeps {x} fraction bits of each product"),
    ("sum_fraction_bits", "keeps {x} fraction bits in the sum of products"),
    ("terms", "takes {x} products in a step"),
    ("group", "adds exactly groups of {x} products"),
    ("selections", "adds in the parts {x}"),
    ("modulus", "numbers the places of K modulo {x}"),
    ("operand_format", "widens operands to {x}"),
    ("interleaved", "adds even and odd products apart: {x}"),
    ("accumulator_fraction_bits", "keeps {x} fraction bits of the accumulator"),
    ("final_fraction_bits", "keeps {x} fraction bits before it rounds"),
    ("floor_exponent", "aligns sums at 2^{x} or above"),
    ("nan_order", "takes a NaN of its operands in the order {x}"),
    ("zero_exponent", "aligns groups of zeros at 2^{x}"),
    ("overflow", "at overflow does: {x}"),
)


def _of_drops(names: tuple[str, str], units: tuple[Unit, Unit]) -> Iterator[str]:
    """Accumulators that are dropped beside large products."""
    bits = [getattr(unit, "accumulator_drop_bits", None) for unit in units]
    if bits[0] != bits[1]:
        texts = ["never" if count is None else f"{count} binary places below the products" for count in bits]
        yield f"{names[0]} drops an accumulator {texts[0]}, {names[1]} {texts[1]}"


def _fraction(spec: DotSpec) -> int:
    fmt = format_of(getattr(spec.unit, "result_format", None) or spec.d)
    return fmt.bits if fmt.is_integer else fmt.fraction_bits


def _of_specials(names: tuple[str, str], left: Specials, right: Specials) -> Iterator[str]:
    first, second = names
    for attribute, words in (("flush_operands", "reads subnormals as 0"), ("flush_results", "makes subnormal sums 0")):
        flags = getattr(left, attribute), getattr(right, attribute)
        if flags[0] != flags[1]:
            yield f"{first if flags[0] else second} {words}, {second if flags[0] else first} keeps them"
    if left.overflow != right.overflow:
        yield f"{first} gives at overflow: {left.overflow}, {second}: {right.overflow}"
    if left.zero != right.zero:
        yield f"{first} and {second} give zeros of other signs"
    if left.nan_code != right.nan_code or left.operands != right.operands:
        yield f"{first} and {second} give other codes for NaNs and infinities"


def _of_orders(names: tuple[str, str], left: UnitSide, right: UnitSide) -> Iterator[str]:
    """What the schedules order otherwise."""
    if left.gemm is None or right.gemm is None:
        return
    schedules = [_order_of(side.gemm) for side in (left, right) if side.gemm is not None]
    is_cut = any(schedule.get("split_k") != 1 or schedule.get("slice_k") for schedule in schedules)
    for name, words in _ORDER.items():
        if name == "slice_multiple" and not is_cut:
            continue
        values = [schedule.get(name) for schedule in schedules]
        if values[0] != values[1]:
            shown = [_setting(value) for value in values]
            yield f"the order of summation differs: {words} {shown[0]} on {names[0]}, {shown[1]} on {names[1]}"
    outputs = [side.gemm.output for side in (left, right) if side.gemm is not None]
    if outputs[0] != outputs[1]:
        yield f"{names[0]} gives {outputs[0]}, {names[1]} {outputs[1]}"


def _order_of(gemm: Gemm) -> dict[str, Any]:
    """The settings of a record's schedule, with the number of slices where lengths say how K is cut."""
    schedule = gemm.schedule
    if schedule.slice_k is None:
        return schedule.to_dict()
    return schedule.to_dict() | {"split_k": len(schedule.slice_lengths(gemm.problem.k))}


def _setting(value: object) -> str:
    """A setting of a schedule in words."""
    if value is None:
        return "not set"
    return str(value) if len(str(value)) <= 24 else "listed"


def _percent(share: float) -> str:
    """A share without an exponent: 100 % are all, 0 % none."""
    percent = 100 * share
    if 0 < percent < MOST_PRECISE:
        return f"less than {MOST_PRECISE} %"
    if 100 - MOST_PRECISE < percent < 100:
        return f"more than {100 - MOST_PRECISE} %"
    if 99 < percent < 100:
        return f"{percent:.1f} %" if percent < 99.95 else f"{percent:.2f} %"
    return f"{percent:.2g} %" if percent < 1 else f"{percent:.0f} %"
