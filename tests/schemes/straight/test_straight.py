"""Every scheme against the same scheme written down step by step over single instructions, bit for bit.

Odd shapes, wide exponents, subnormals, signed zeros, NaNs and infinities; every option at least once, on a chip of the
scheme's paper. The written-down versions know only the description of each scheme.
"""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
import straight_fp16 as fp16
import straight_slices as sliced
import straight_wide as wide
from straight_unit import KINDS, SHAPES, pair, same, to_bf16, to_fp16, to_tf32

import hwsim
from hwsim._kernels.convert import decode
from hwsim.devices import dot_spec
from hwsim.formats import format_of
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands
from hwsim.schemes import scheme_of

SMALL, MIDDLE, LARGE = SHAPES
KIND_NAMES = (*KINDS, "cancel")


def rows(device, scheme, by_hand, *options, **fixed):
    """(device, scheme, options, by_hand) for each of the options. fixed: of `by_hand` alone."""
    return [(device, scheme, given, partial(by_hand, **fixed)) for given in options or ({},)]


K_GROUPS = {"k_group": 24}, {"k_group": 32, "interleave": "k"}, {"interleave": 16}
CALLS = {"accumulation": "termwise"}, {"accumulation": "termwise", "k_group": 24}
MULTIWORD = [
    row
    for device, count in itertools.product(("a100", "h200"), (1, 3, 4))
    for row in rows(device, f"tf32x{count}", wide.multiword, {}, {"k_group": 40}, count=count)
]
CHAINED = [{"accumulation": "chained", **more} for more in ({}, {"interleave": 16}, {"interleave": 32, "k_group": 40})]
MULTIWORD += [row for n in (3, 4) for row in rows("a100", f"tf32x{n}", wide.multiword, *CHAINED, count=n)]
CASES = [
    *rows(
        "h200",
        "sgemm-cube",
        partial(fp16.sgemm_cube, k_group=None),
        {},
        {"scaling_exponent": 0},
        {"scaling_exponent": 6},
    ),
    *rows("h200", "sgemm-cube", partial(fp16.sgemm_cube, k_group=None), {"scaling_exponent": 11}),
    *rows("v100", "sgemm-cube", fp16.sgemm_cube, {"k_group": 40}, {"k_group": 16, "accumulation": "elementwise"}),
    *rows("a100", "le-gemm", fp16.le_gemm, {}, {"residual_rounding": "RNE"}, {"interleave": "k"}, *K_GROUPS),
    *rows("mi210", "le-gemm", fp16.le_gemm, {}, {"residual_rounding": "RNE", "k_group": 56}),
    *(row for chip in ("v100", "t4", "a100") for row in rows(chip, "ape-fp32-f", fp16.ape_fp32_f, {}, *K_GROUPS)),
    *rows("a100", "ape-fp32-f", fp16.ape_fp32_f, *CALLS),
    *rows("a100", "ape-fp32-b", wide.ape_fp32_b, {}, {"interleave": "k"}, *K_GROUPS, *CALLS),
    *rows("a100", "ape-fp32-t", wide.ape_fp32_t, {}, {"interleave": "k"}, *K_GROUPS),
    *rows("v100", "markidis", partial(fp16.four_products, rounding="RZ"), {}, {"rounding": "RNE"}, *K_GROUPS, *CALLS),
    *rows("t4", "egemm-tc", partial(fp16.four_products, rounding="RNE"), {}, {"rounding": "RZ"}, *K_GROUPS, *CALLS),
    *rows("a100", "ootomo-fp16", fp16.ootomo_fp16, {}, {"leading": "unit"}),
    *rows("a100", "ootomo-tf32", wide.ootomo_tf32, {}, {"leading": "unit"}),
    *MULTIWORD,
    *(
        row
        for name in ("bf16x9", "bf16x6", "bf16x3")
        for row in [
            *rows("b200", name, wide.bf16x, {"accumulation": "fastf32"}, {"accumulation": "bands"}, name=name),
            *rows("b200", name, wide.bf16x, {"accumulation": "fastf32", "promotion_interval": 3}, name=name),
            *rows("h200", name, wide.bf16x, {"accumulation": "termwise"}, name=name),
            *rows("h200", name, wide.bf16x, {"accumulation": "termwise", "k_group": 48}, name=name),
        ]
    ),
    *rows("b200", "bf16x9", wide.bf16x, {"accumulation": "bands", "promotion_interval": 2}, name="bf16x9"),
    *rows("t4", "quantensor", sliced.quantensor, {}, {"format": "int4"}, {"pieces": 1}, {"pieces": 3}),
    *rows("t4", "quantensor", sliced.quantensor, {"all_products": False}, {"residual": True}),
    *rows(
        "t4", "quantensor", sliced.quantensor, {"format": "int4", "pieces": 4, "all_products": False, "residual": True}
    ),
]
WIDE_CASES = [
    *(
        row
        for n in (1, 3, 4)
        for row in rows("tf64", f"tf64x{n}", wide.multiword, {}, {"k_group": 10}, count=n, fmt="fp32")
    ),
    *(
        row
        for fmt, chip in (("fp16", "a100"), ("int8", "a100"), ("fp16", "v100"), ("int8", "t4"))
        for row in rows(chip, f"ozaki-{fmt}", sliced.ozaki, {}, {"sum": "exact"}, fmt=fmt)
    ),
    *rows("a100", "ozaki-int8", sliced.ozaki, {"slices": 3}, {"slices": 4, "truncate": False}, fmt="int8"),
    *rows("a100", "ozaki-fp16", sliced.ozaki, {"slices": 5, "truncate": False, "sum": "exact"}, fmt="fp16"),
]


def name_of(case) -> str:
    device, scheme, options, _ = case
    return "-".join([device, scheme, *(f"{key}={value}" for key, value in options.items())])


def plan_for(case, kinds):
    """Shapes and operands for a case: every shape once, every kind of operand once on the middle shape."""
    return [(SMALL, "near"), (LARGE, "near"), *((MIDDLE, kind) for kind in kinds)]


def compare(case, fmt, kinds):
    device, scheme, options, by_hand = case
    given = {"slices_kept" if key == "slices" else key: value for key, value in options.items()}
    for shape, kind in plan_for(case, kinds):
        a, b = pair(kind, shape, fmt=fmt)
        with np.errstate(all="ignore"):
            want = by_hand(a, b, device, **given)
            got = hwsim.matmul(a, b, device=device, scheme=scheme, **options)
        try:
            same(got, want)
        except AssertionError as error:
            raise AssertionError(f"{shape}, {kind}: {error}") from None


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_fp32_schemes(case):
    compare(case, "fp32", KIND_NAMES)


@pytest.mark.parametrize("case", WIDE_CASES, ids=name_of)
def test_fp64_schemes(case):
    compare(case, "fp64", KIND_NAMES)


ASCEND = [
    {"scaling_exponent": 12},
    {"scaling_exponent": 6, "k_group": 64},
    {"accumulation": "elementwise"},
    {"accumulation": "elementwise", "k_group": 32},
]


@pytest.mark.parametrize("options", ASCEND, ids=str)
def test_sgemm_cube_on_the_910a(options):
    """Through the device's program, which chooses k_group; the chip has no infinities and no NaNs."""
    for shape, kind in plan_for(None, KIND_NAMES):
        a, b = pair(kind, shape)
        result = hwsim.run(a, b, device="ascend910a", scheme="sgemm-cube", timing=False, **options)
        with np.errstate(all="ignore"):
            want = fp16.sgemm_cube(a, b, "ascend910a", **(options | {"k_group": result.options["k_group"]}))
        same(result.c, want)


INT16 = [
    ("a100", "unsigned"),
    ("t4", "biased"),
    ("h200", "unsigned"),
    ("mi210", "biased"),
    ("ascend910a", "biased"),
    ("a100", "signed"),
    ("t4", "signed"),
]


@pytest.mark.parametrize("accumulate", ["int64", "int32"])
@pytest.mark.parametrize(("device", "low_byte"), INT16)
def test_ape_int16(device, low_byte, accumulate):
    rng = np.random.default_rng(16)
    for m, n, k in SHAPES:
        a, b = (rng.integers(-(1 << 15), 1 << 15, shape).astype(np.int16) for shape in ((m, k), (k, n)))
        a[rng.random(a.shape) < 0.3], b[rng.random(b.shape) < 0.3] = -(1 << 15), (1 << 15) - 1
        a[rng.random(a.shape) < 0.2] = 255
        options = {"low_byte": low_byte, "accumulate": accumulate}
        with np.errstate(over="ignore"):
            want = sliced.ape_int16(a, b, device, **options)
        same(hwsim.matmul(a, b, device=device, scheme="ape-int16", **options), want)
        left, right = (x.astype(np.int64) for x in (a, b))
        if low_byte == "signed":  # the released split: the high byte of these wraps
            left, right = (np.where(x >= 32640, x - 65536, x) for x in (left, right))
        same(want, (left @ right).astype(accumulate))


def test_a_split_that_wraps_is_said():
    a = np.array([[32639, 32640, -32768]], np.int16)
    for low_byte, count in (("signed", 1), ("unsigned", 0), ("biased", 0)):
        warnings = hwsim.run(a, a.T * 0, device="a100", scheme="ape-int16", low_byte=low_byte).warnings
        assert [x["count"] for x in warnings if x["code"] == "high_byte_wraps"] == [1] * count


NATIVE = [
    *(("fp16", chip, to_fp16) for chip in ("v100", "t4", "a100", "h200", "b200", "mi210")),
    *(("bf16", chip, to_bf16) for chip in ("a100", "h200", "b200", "mi210")),
    *(("tf32", chip, to_tf32) for chip in ("a100", "h200", "b200")),
    *(("fp32", chip, lambda x: x) for chip in ("ascend910b3", "mi210", "a100", "h200")),
]


@pytest.mark.parametrize("k_group", [None, 40])
@pytest.mark.parametrize(("fmt", "device", "to"), NATIVE, ids=lambda x: x if isinstance(x, str) else "")
def test_native(fmt, device, to, k_group):
    for shape, kind in plan_for(None, KIND_NAMES):
        a, b = pair(kind, shape)
        with np.errstate(all="ignore"):
            want = wide.native(a, b, device, fmt, to, k_group)
        same(hwsim.matmul(a, b, device=device, scheme="native", format=fmt, k_group=k_group), want)


def test_promoted_accumulation_of_8_bit_floats():
    import ml_dtypes

    for shape in (SMALL, LARGE, (5, 4, 300)):
        a, b = (x.astype(ml_dtypes.float8_e4m3fn) for x in pair("near", shape))
        unit, out = wide.Unit("h200", "e4m3"), wide.Outside("h200")
        left, right = a.view(np.uint8), b.view(np.uint8)
        for accumulate, group in (("fast", None), ("promoted", 128)):
            want = out.runs(unit, [(left, right)], group)
            same(hwsim.matmul(a, b, device="h200", format="e4m3", accumulate=accumulate), want)


@pytest.mark.parametrize(("first", "second"), [("e5m2", "e4m3"), ("e4m3", "e5m2")])
def test_native_with_another_format_of_b(first, second):
    """Every bit of the codes drawn; K = 67 ends in an instruction that zeros fill."""
    rng = np.random.default_rng(7)
    a, b = (rng.integers(0, 256, shape).astype(np.uint8) for shape in ((9, 67), (67, 8)))
    values = [decode(x, format_of(name), np.float32) for x, name in ((a, first), (b, second))]
    chip = hwsim.device("h200")
    spec = dot_spec(chip, f"wgmma.m64n256k32.f32.{first}.{second}")
    filled = [np.zeros(shape, np.uint8) for shape in ((9, 96), (96, 8))]
    filled[0][:, :67], filled[1][:67] = a, b
    want = reference.gemm(spec, DotOperands(*filled, np.zeros((9, 8), np.uint32)))
    got = hwsim.matmul(*values, device=chip, format=first, format_b=second)
    assert np.array_equal(got.view(np.uint32), want)


def test_every_option_is_here():
    """Each scheme, each of its options and each choice of an option. Ape's blocks have tests of their own."""
    used = {(scheme, key, value) for _, scheme, options, _ in (*CASES, *WIDE_CASES) for key, value in options.items()}
    used |= {("sgemm-cube", key, value) for options in ASCEND for key, value in options.items()}
    used |= {("ape-int16", "low_byte", low) for _, low in INT16}
    used |= {("ape-int16", "accumulate", x) for x in ("int64", "int32")}
    own = (("format", ""), ("format_b", "e4m3"), ("k_group", 40), ("accumulate", "promoted"))
    used |= {("native", key, value) for key, value in own}
    aside = {"hybrid", "scale"}  # the choice of another scheme; tests/schemes/test_power_scale.py
    names = {scheme for scheme, _, _ in used} | {"ootomo-fp16", "ootomo-tf32"}
    from hwsim.schemes import OWN

    # what reads scales beside the elements: tests/evaluate/test_scaled_products.py; fixedpoint-fp64: an H100's results;
    # Ozaki scheme II: tests/schemes/test_ozaki2.py
    read_elsewhere = {scheme.name for scheme in OWN if scheme.quantizes is not None}
    read_elsewhere |= {"fixedpoint-fp64", "ozaki2-int8", "ozaki2-fp8"}
    assert names == {scheme.name for scheme in OWN} - {"ape"} - read_elsewhere
    for name in sorted(names):
        for option in scheme_of(name).options:
            values = {value for scheme, key, value in used if (scheme, key) == (name, option.name)}
            assert values or option.name in aside, (name, option.name)
            assert option.name in aside or set(option.choices) - {option.default} <= values, (name, option.name, values)
