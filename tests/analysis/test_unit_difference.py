"""The reason why two units give other bits, from their data: true of each field, and silent where nothing differs."""

from dataclasses import fields, replace

import numpy as np
import pytest

import hwsim
from hwsim.analysis.unit_difference import UnitSide, described, unit_difference, unit_reasons
from hwsim.devices import load
from hwsim.numerics.units import (
    BlockScaledUnit,
    CompositeUnit,
    DotSpec,
    ExactUnit,
    FmaChainUnit,
    FusedUnit,
    IntegerUnit,
    PairwiseUnit,
    Specials,
    TwoLevelUnit,
)

FUSED = FusedUnit(terms=16, fraction_bits=25, floor_exponent=-133)
UNITS = (
    FUSED,
    ExactUnit(terms=16),
    FmaChainUnit(),
    PairwiseUnit(terms=4),
    TwoLevelUnit(terms=8),
    IntegerUnit(terms=4),
    BlockScaledUnit(terms=64, group=16, fraction_bits=35, floor_exponent=-133, zero_exponent=-133),
    CompositeUnit(terms=32, inner=FUSED, operand_format="fp16", modulus=4, selections=((0, 1), (2, 3))),
)
OTHER = {
    "rounding": "RU",
    "result_format": "bf16",
    "overflow": "saturate",
    "operands": "saturate",
    "nan_code": 0x7FFF1234,
    "nan_order": "bca",
    "operand_format": "bf16",
    "interleaved": True,
    "flush_operands": True,
    "flush_results": True,
    "accumulator_drop_bits": 40,
    "modulus": 8,
    "selections": ((0, 2), (1, 3)),
}


def spec(unit):
    integer = isinstance(unit, IntegerUnit)
    return DotSpec(unit, *(("int8", "int8", "int32", "int32") if integer else ("fp16", "fp16", "fp32", "fp32")))


def changes(unit):
    """The unit with each of its fields changed, by name."""
    for entry in fields(unit):
        if not entry.init or entry.name == "model":
            continue
        value = getattr(unit, entry.name)
        if isinstance(value, Specials | FusedUnit):
            for name, inner in changes(value):
                yield f"{entry.name}.{name}", replace(unit, **{entry.name: inner})
            continue
        if entry.name == "zero":
            yield entry.name, replace(unit, zero="ieee" if value == "positive" else "positive")
        elif entry.name in OTHER:
            yield entry.name, replace(unit, **{entry.name: OTHER[entry.name]})
        else:
            yield entry.name, replace(unit, **{entry.name: value + 1})


CHANGED = [(unit, name, other) for unit in UNITS for name, other in changes(unit)]


@pytest.mark.parametrize("unit, name, other", CHANGED, ids=[f"{type(u).__name__} {n}" for u, n, _ in CHANGED])
def test_every_field_is_a_reason(unit, name, other):
    assert not unit_reasons(("x", "y"), spec(unit), spec(unit))
    reasons = unit_reasons(("x", "y"), spec(unit), spec(other))
    assert reasons and all("x" in reason and "y" in reason and "None" not in reason for reason in reasons), name


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: type(unit).__name__)
@pytest.mark.parametrize("other", UNITS, ids=lambda unit: type(unit).__name__)
def test_units_of_other_kinds_are_described(unit, other):
    if type(unit) is not type(other):
        first = unit_reasons(("x", "y"), spec(unit), spec(other))[0]
        assert first == f"x {described(unit)}, y {described(other)}"


def side(name, **arguments):
    result = hwsim.run(device=name, m=32, n=32, k=256, exact=False, timing=False, **arguments)
    return UnitSide(name, load(name), result.gemm.unit, result.gemm)


def test_fraction_bits_of_two_chips():
    """The bits that the device files give, in words, and the outcome of a product."""
    sides = side("h100", format="e4m3"), side("b200", format="e4m3")
    difference = unit_difference(*sides, share=0.3712, largest=0.00123)
    assert str(difference) == (
        "h100 keeps 13 fraction bits in e4m3 sums, b200 25: 37 % of the elements differ, at most 0.0012 of the RMS, "
        "evidence of the units' arithmetic: silicon | assumption"
    )
    assert difference.reasons[1] == "h100 keeps 13 fraction bits in its accumulator, b200 23"
    assert difference.to_dict()["text"] == str(difference)


@pytest.mark.parametrize(
    "share, words",
    [
        (1e-9, "less than 0.01 %"),
        (0.00123, "0.12 %"),
        (0.5, "50 %"),
        (0.9953, "99.5 %"),
        (0.99976, "99.98 %"),
        (1 - 1e-9, "more than 99.99 %"),
        (1.0, "100 %"),
    ],
)
def test_shares_have_no_exponent_and_only_all_is_a_hundred_percent(share, words):
    text = str(unit_difference(side("h100", format="e4m3"), side("b200", format="e4m3"), share=share))
    assert f": {words} of the elements differ," in text


def test_alike():
    difference = unit_difference(side("h100", format="bf16"), side("h200", format="bf16"), share=0.0)
    assert not difference.reasons
    assert str(difference) == (
        "h100 and h200 compute alike: each step adds 16 products and the accumulator at once, cut to 25 fraction bits: "
        "no element differs, evidence of the units' arithmetic: silicon | silicon"
    )


@pytest.mark.parametrize(
    "left, right, reason",
    [
        (
            {"format": "bf16"},
            {"format": "bf16", "split_k": 4},
            "the order of summation differs: slices of K 1 on left, 4 on right",
        ),
        (
            {"format": "bf16", "schedule": {"promotion_k": 64}},
            {"format": "bf16"},
            "the order of summation differs: K between promotions 64 on left, not set on right",
        ),
        (
            {"format": "bf16"},
            {"format": "bf16", "schedule": {"promotion_k": 128}},
            "the order of summation differs: K between promotions not set on left, 128 on right",
        ),
        (
            {"format": "bf16"},
            {"scheme": "bf16x9"},
            "left computes A B as one product in bf16, right as 9 products in bf16",
        ),
        (
            {"format": "bf16"},
            {"format": "e4m3"},
            "left computes A B as one product in bf16, right as one product in e4m3",
        ),
        ({"format": "bf16"}, {"format": "bf16", "output": "bf16"}, "left gives fp32, right bf16"),
    ],
)
def test_two_ways_on_one_chip(left, right, reason):
    assert reason in unit_difference(side("h100", **left), side("h100", **right)).reasons


@pytest.mark.parametrize("fmt", ["fp16", "bf16", "tf32"])
@pytest.mark.parametrize(
    "pair", [("v100", "h100"), ("a100", "h100"), ("h100", "h200"), ("h100", "mi300x"), ("h100", "b200")]
)
def test_units_without_a_reason_give_equal_bits(pair, fmt):
    """Where no reason is given, no bit of a product differs."""
    try:
        sides = [side(name, format=fmt) for name in pair]
    except hwsim.HwsimError:
        return
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((16, 96), (96, 16)))
    results = [hwsim.run(a, b, device=name, format=fmt, timing=False).result_sha256 for name in pair]
    assert unit_difference(*sides).reasons or results[0] == results[1]


@pytest.mark.parametrize(
    "device, schemes, reasons",
    [
        (
            "a100",
            ("egemm-tc", "markidis"),
            ["left rounds the pieces of A and B to nearest even, right toward zero"],
        ),
        (
            "a100",
            ("tf32x3", "ootomo-tf32"),
            [
                "left rounds the pieces of A and B to nearest even, right to nearest, ties away from zero",
                "left and right add the products in other orders",
            ],
        ),
        ("b200", ("fp8-row", "mxfp8"), ["left and right scale A and B in other ways"]),
    ],
)
def test_what_schemes_do_outside_of_the_unit_is_a_reason(device, schemes, reasons):
    sides = [side(device, scheme=scheme) for scheme in schemes]
    difference = unit_difference(*sides, share=0.5)
    assert list(difference.reasons[: len(reasons)]) == reasons


def test_sides_that_differ_are_not_called_alike():
    sides = [UnitSide(name, load("h100"), "wgmma.m64n8k16.f32.bf16.bf16") for name in ("x", "y")]
    assert "compute alike" in str(unit_difference(*sides, share=0.0))
    assert "and differ outside of it: 50 % of the elements" in str(unit_difference(*sides, share=0.5))


def test_the_length_of_slices_is_no_reason_where_k_is_in_one_piece():
    sides = [side("h100", format="bf16", schedule={"slice_multiple": multiple}) for multiple in (64, 128)]
    assert not unit_difference(*sides).reasons
    cut = [side("h100", format="bf16", schedule={"split_k": 2, "slice_multiple": multiple}) for multiple in (64, 128)]
    assert "the order of summation differs: multiple of the slices' length 64 on left, 128 on right" in (
        unit_difference(*cut).reasons
    )
