"""Hand-made cases for what no capture shows, the arrays that mma and dot take, and samples of the captures."""

import functools
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim import devices
from hwsim.errors import ConfigError, InputError, UnsupportedError
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands

load = functools.cache(devices.load)
INF, NAN32 = 0x7F800000, 0x7FFFFFFF
DTYPES = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "bf16": ml_dtypes.bfloat16,
    "fp16": np.float16,
    "tf32": np.float32,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "fp32": np.float32,
    "hf32": np.float32,
    "fp64": np.float64,
    "int8": np.int8,
}


def f32(value):
    return np.array(value, np.float32)


def one(device, name, pairs, c, **more):
    """d of one output element, typed: pairs {k: (a, b)}, the other operands zero."""
    chip = load(device) if isinstance(device, str) else device
    model = devices.instruction(chip, name)
    a, b = np.zeros(model.k, DTYPES[model.a]), np.zeros(model.k, DTYPES[model.b])
    for k, (x, y) in pairs.items():
        a[k], b[k] = x, y
        assert (float(a[k]), float(b[k])) == (x, y)  # the case is what it says
    return chip.dot(name, a, b, c, **more)[()]


F16 = "mma.m16n8k16.f32.f16.f16.f32"
FP8_WGMMA, FP8_MMA = "wgmma.m64n8k32.f32.e4m3.e4m3", "mma.m16n8k32.f32.e4m3.e4m3.f32"


@pytest.mark.parametrize(("device", "name"), [("h200", FP8_WGMMA), ("ada", FP8_MMA), ("l40s", FP8_MMA)])
def test_fp8_keeps_14_bits_of_the_accumulator(device, name):
    assert one(device, name, {}, f32(1 + 2**-13 + 2**-14)) == 1 + 2**-13  # nothing is added, bits are lost
    assert one(device, name, {0: (1, 1)}, f32(1 + 2**-13)) == 2  # 13 fraction bits of the result, toward zero
    assert one(device, name, {0: (-1, 1)}, f32(-1 - 2**-13)) == -2


@pytest.mark.parametrize(
    ("device", "name"), [("b200", "tcgen05.mma.m128n16k32.f8f6f4.f32.e4m3.e4m3"), ("rtxpro6000", FP8_MMA)]
)
def test_native_fp8_of_blackwell_keeps_them(device, name):
    assert one(device, name, {0: (1, 1)}, f32(1 + 2**-13)) == 2 + 2**-13
    assert one(device, name, {0: (1, 1)}, f32(2**-24 * (1 + 2**-23))) == 1  # toward zero


@pytest.mark.parametrize("device", ["h100", "h200", "b200", "gb200"])
def test_fp8_by_mma_sync_adds_c_last_and_takes_pairs_apart(device):
    assert one(device, FP8_MMA, {0: (1, 1)}, f32(2**-24 * (1 + 2**-23))) == 1 + 2**-23  # nearest
    small = (2**-9, 2**-9)
    assert one(device, FP8_MMA, {0: (448, 448), 1: (-448, 448), 2: small}, f32(0)) == 2**-18
    assert one(device, FP8_MMA, {0: (448, 448), 2: (-448, 448), 1: small}, f32(0)) == 0
    assert one(device, FP8_MMA, {0: (448, 448), 5: (-448, 448), 6: small}, f32(0)) == 2**-18
    assert one(device, FP8_MMA, {0: (448, 448), 6: (-448, 448), 4: small}, f32(0)) == 0


@pytest.mark.parametrize(
    ("device", "name", "kept"),
    [
        ("v100", "mma.m8n8k4.f32.f16.f16.f32", 23),
        ("t4", "mma.m16n8k8.f32.f16.f16.f32", 24),
        ("t4", "mma.m8n8k4.f32.f16.f16.f32", 23),
        ("a100", "mma.m16n8k16.f32.f16.f16.f32", 24),
        ("h200", "mma.m16n8k16.f32.f16.f16.f32", 25),
        ("b200", "mma.m16n8k16.f32.f16.f16.f32", 25),
    ],
)
def test_the_last_place_kept_below_the_largest_exponent(device, name, kept):
    """Half of 2^13 appears, 2^12 - 2^12 cancels: what is left of a small product shows where the cut is."""
    for bits, left in ((kept, True), (kept + 1, False)):
        small = 2.0 ** (12 - bits)  # 4096 less `bits` places
        got = one(device, name, {0: (64, 64), 1: (-64, 64), 2: (small, 1)}, f32(0))
        assert got == (small if left else 0)


def test_the_grouping_of_k():
    """U - U + v: v survives only where U and -U are in one step before it, or it comes after."""
    for device, name, step in (("v100", "wmma.m16n16k16.f32.f16.f16.f32", 4), ("a100", F16, 8), ("h200", F16, 16)):
        pair, tiny = ((2.0**15, 2.0**15), (-(2.0**15), 2.0**15)), (2.0**-14, 2.0**-14)
        for at in range(1, 15):
            got = one(device, name, {0: pair[0], at: pair[1], 15: tiny}, f32(0))
            assert got == (tiny[0] * tiny[1] if 15 // step > at // step else 0), (device, at)


def test_nan_infinity_and_zero_of_nvidia():
    name = "mma.m16n8k16.f32.f16.f16.f32"
    chip = load("h200")
    nothing = np.zeros(16, np.uint16)
    minus = nothing | 0x8000
    assert chip.dot(name, minus, nothing, np.uint32(0x80000000)) == 0  # all terms -0
    huge = nothing.copy()
    huge[0] = 0x7C00
    assert chip.dot(name, huge, nothing, np.uint32(0)) == NAN32  # infinity times zero
    ones = nothing | 0x3C00
    assert chip.dot(name, huge, ones, np.uint32(0)) == INF
    assert chip.dot(name, huge, ones, np.uint32(INF | 1 << 31)) == NAN32
    assert chip.dot(name, nothing, nothing, np.uint32(0xFFC12345)) == NAN32  # sign and payload dropped
    assert chip.dot("mma.m16n8k16.f16.f16.f16.f16", huge, nothing, np.uint16(0)) == 0x7FFF
    assert one("h200", "mma.m16n8k16.f32.bf16.bf16.f32", {0: (2.0**127, 2.0), 1: (-(2.0**127), 2.0)}, f32(3)) == 0


# ---- AMD -------------------------------------------------------------------------------------------


def test_cdna1_adds_exactly_and_cdna2_rounds_every_sum():
    half = (2**-12, 2**-12)
    name = "v_mfma_f32_32x32x8f16"
    assert one("mi100", name, {0: (1, 1), 1: half, 2: half}, f32(0)) == 1 + 2**-23
    assert one("mi210", name, {0: (1, 1), 1: half, 2: half}, f32(0)) == 1
    assert one("mi210", name, {0: (1, 1), 2: half, 3: half}, f32(0)) == 1 + 2**-23  # the tree adds those two first
    assert one("mi210", name, {0: (1, 1), 2: half, 4: half}, f32(0)) == 1  # another group


def test_cdna2_flushes_and_cdna1_does_not():
    name, bf = "v_mfma_f32_32x32x8f16", {"mi100": "v_mfma_f32_32x32x4bf16", "mi210": "v_mfma_f32_32x32x8bf16_1k"}
    for chip, kept in (("mi100", 1), ("mi210", 0)):
        assert one(chip, name, {0: (2**-24, 1)}, f32(0)) == kept * 2**-24  # subnormal operand
        assert one(chip, name, {}, f32(2**-149)) == kept * 2**-149  # subnormal accumulator
        assert one(chip, bf[chip], {0: (2.0**-70, 2.0**-70)}, f32(0)) == kept * 2.0**-140  # subnormal product
        assert one(chip, bf[chip], {0: (1.5 * 2.0**-63, 2.0**-63)}, f32(-(2.0**-126))) == kept * 2.0**-127  # sum
    minus = one("mi210", bf["mi210"], {0: (-(2.0**-70), 2.0**-70), 1: (-(2.0**-70), 2.0**-70)}, f32(-0.0))
    assert minus == 0
    assert one("mi210", "v_mfma_f32_32x32x2f32", {0: (2.0**-70, 2.0**-70)}, f32(0)) == 2.0**-140  # not in the chain


def test_cdna3_rounds_down_what_is_small():
    name = "v_mfma_f32_32x32x8_f16"
    assert one("mi300x", name, {0: (1, 1)}, f32(2**-30)) == 1
    assert one("mi300x", name, {0: (1, 1)}, f32(-(2.0**-30))) == 1 - 2**-24  # down, not toward zero
    assert one("mi300x", name, {0: (1, 1), 1: (-(2.0**-15), 2.0**-10)}, f32(0)) == 1  # products: toward zero
    assert one("mi300x", "v_mfma_f32_32x32x8_bf16", {0: (2.0**64, 2.0**63)}, f32(0)) == 2.0**127
    beyond = one("mi300x", "v_mfma_f32_32x32x8_bf16", {0: (2.0**64, 2.0**64), 1: (-(2.0**64), 2.0**64)}, f32(0))
    assert np.isnan(beyond)  # each counts as an infinity


def test_cdna3_fp8_drops_a_small_accumulator_and_sums_even_and_odd_apart():
    name = "v_mfma_f32_32x32x16_fp8_fp8"
    assert one("mi300x", name, {0: (1, 1)}, f32(-(2.0**-26))) == 1  # e(c) < E - 25: dropped
    assert one("mi300x", name, {0: (1, 1)}, f32(-(2.0**-25))) == 1 - 2**-24
    tiny = (-(2.0**-9), 2.0**-9)  # beside 2^14, where places below 2^-10 are cut
    assert one("mi300x", name, {0: (128, 128), 2: tiny}, f32(0)) == 2**14  # of one sum: toward zero
    assert one("mi300x", name, {0: (128, 128), 1: tiny}, f32(0)) == 2**14 - 2**-10  # a sum of its own goes down
    assert one("mi300x", name, {1: (128, 128), 0: tiny}, f32(0)) == 2**14 - 2**-10


def test_xf32_ignores_the_low_bits():
    name = "v_mfma_f32_32x32x4_xf32"
    assert one("mi300x", name, {0: (1 + 2**-11, 1)}, f32(0)) == 1
    assert one("mi300x", name, {0: (1 + 2**-10, 1)}, f32(0)) == 1 + 2**-10


# ---- scale-input-d ---------------------------------------------------------------------------------

SCALED = "tcgen05.mma.m64n8k16.f16.f32.bf16.bf16"


def test_scale_input_d_lowers_the_exponent_of_c():
    assert one("b200", SCALED, {0: (3, 1)}, f32(2**10), scale_d=8) == 7
    assert one("b200", SCALED, {}, f32(-0.0), scale_d=15) == 0
    assert np.isinf(one("b200", SCALED, {}, f32(-np.inf), scale_d=15))
    assert np.isnan(one("b200", SCALED, {}, f32(np.nan), scale_d=1))
    assert one("b200", "tcgen05.mma.m64n8k8.tf32.f32.tf32.tf32", {0: (1, 1)}, f32(8), scale_d=3) == 2
    assert one("b200", "tcgen05.mma.m64n8k16.f16.f16.f16.f16", {}, np.float16(2**-14), scale_d=1) == 2**-15


@pytest.mark.parametrize(("rule", "code"), [("exact", 2), ("RZ", 1), ("RNE", 2), ("flush", 0)])
def test_below_the_normal_range_a_switch_says_how(rule, code):
    chip = devices.load(
        {
            "schema_version": 1,
            "name": "mine",
            "extends": "b200",
            "instructions": {"tcgen05.mma.m64nNk16.f16.f32.bf16.bf16": {"scale_input_d_rule": rule}},
        }
    )
    half = (2.0**-75, 2.0**-75)  # half of the smallest subnormal; c 2^-15 is one and a half
    assert one(chip, SCALED, {0: half}, f32(3 * 2.0**-135), scale_d=15).view(np.uint32) == code
    assert (
        one(chip, SCALED, {0: half}, f32(3 * 2.0**-134), scale_d=15).view(np.uint32)
        == ({"exact": 3, "RZ": 3, "RNE": 3, "flush": 0}[rule])
    )


def test_scale_input_d_on_whole_tiles_equals_the_reference():
    rng = np.random.default_rng(5)
    chip, spec = load("b200"), devices.dot_spec(load("b200"), SCALED)
    a = rng.integers(0x1E00, 0x2400, (64, 16)).astype(np.uint16)
    b = rng.integers(0x1E00, 0x2400, (16, 8)).astype(np.uint16)
    c = (rng.integers(0, 40, (64, 8)) << 23 | rng.integers(0, 1 << 23, (64, 8))).astype(np.uint32)
    np.testing.assert_array_equal(
        chip.mma(SCALED, a, b, c, scale_d=15), reference.gemm(spec, DotOperands(a, b, c, scale_d=15))
    )


@pytest.mark.parametrize(
    ("device", "name", "scale_d", "words"),
    [
        ("b200", SCALED, 16, "allowed: 0 to 15"),
        ("b200", SCALED, -1, "at least 0"),
        ("b200", SCALED, 1.0, "an integer"),
        ("b200", "mma.m16n8k16.f32.bf16.bf16.f32", 1, "does not scale its accumulator"),
    ],
)
def test_a_scale_that_is_not_allowed(device, name, scale_d, words):
    with pytest.raises(InputError, match=words):
        one(device, name, {}, f32(0), scale_d=scale_d)


# ---- block scales ----------------------------------------------------------------------------------

MX8 = {"b200": "tcgen05.mma.m128n8k32.mxf8f6f4.f32.e4m3.e4m3", "rtxpro6000": "mma.m16n8k32.mxf8f6f4.f32.e4m3.e4m3.f32"}
MX4 = {"b200": "tcgen05.mma.m128n8k64.mxf4.f32.e2m1.e2m1", "rtxpro6000": "mma.m16n8k64.mxf4.f32.e2m1.e2m1.f32"}
NV4 = {
    "b200": "tcgen05.mma.m256n16k64.mxf4nvf4.f32.e2m1.e2m1.ue4m3.block16",
    "rtxpro6000": "mma.m16n8k64.mxf4nvf4.f32.e2m1.e2m1.f32.ue4m3.block16",
}


def scales(*codes):
    return np.array(codes, np.uint8)


@pytest.mark.parametrize("chip", MX8)
def test_mxf8f6f4_scales_products_not_c(chip):
    given = {"scale_a": scales(227), "scale_b": scales(37)}  # 2^100, 2^-90
    assert one(chip, MX8[chip], {0: (1, 1), 31: (0.5, 1)}, f32(3), **given) == 1.5 * 2**10 + 3
    assert one(chip, MX8[chip], {0: (1, 1)}, f32(2**-14), **given) == 2**10  # 25 below is cut, then rounded
    nan = one(chip, MX8[chip], {}, f32(1), scale_a=scales(255), scale_b=scales(127))
    assert nan.view(np.uint32) == NAN32  # though every product is zero


@pytest.mark.parametrize("chip", MX4)
def test_fp4_groups_are_exact_and_cancelled_ones_keep_their_exponent(chip):
    everything = dict.fromkeys(range(16), (6, 6))
    plain = {"scale_a": scales(127, 127), "scale_b": scales(127, 127)}
    assert one(chip, MX4[chip], everything, f32(0), **plain) == 576
    assert one(chip, MX4[chip], everything, f32(0.25), **plain) == 576.25
    high = {"scale_a": scales(167, 127), "scale_b": scales(127, 127)}  # 2^40 on the first two groups
    assert one(chip, MX4[chip], {}, f32(1), **high) == 1  # all products zero: no part in the largest exponent
    assert one(chip, MX4[chip], {0: (1, 1), 1: (-1, 1)}, f32(1), **high) == 0  # cancelled: 1 lies below 2^(40 - 35)
    assert one(chip, MX4[chip], {0: (1, 1), 1: (-1, 1)}, f32(33), **high) == 32
    assert one(chip, MX4[chip], {0: (1, 1), 16: (-1, 1)}, f32(33), **high) == 32  # two groups, one scale
    assert one(chip, MX4[chip], {0: (1, 1), 32: (1, 1)}, f32(0), **high) == 2.0**40  # 1 is cut


@pytest.mark.parametrize("chip", NV4)
def test_nvf4_scales_are_e4m3_without_sign(chip):
    one_, minus_one, three_halves, smallest = 0x38, 0xB8, 0x3C, 0x01
    given = {
        "scale_a": scales(minus_one, three_halves, smallest, 0),
        "scale_b": scales(one_, three_halves, smallest, one_),
    }
    assert one(chip, NV4[chip], {0: (1, 1)}, f32(0), **given) == 1
    assert one(chip, NV4[chip], {16: (1, 1)}, f32(0), **given) == 2.25
    assert one(chip, NV4[chip], {32: (1, 1)}, f32(0), **given) == 2**-18
    assert one(chip, NV4[chip], {48: (6, 6)}, f32(0), **given) == 0
    nan = one(chip, NV4[chip], {}, f32(0), scale_a=scales(one_, one_, one_, 0x7F), scale_b=scales(0, 0, 0, 0))
    assert nan.view(np.uint32) == NAN32


def test_a_tile_with_block_scales_is_its_dot_products():
    chip, name = load("rtxpro6000"), NV4["rtxpro6000"]
    rng = np.random.default_rng(9)
    a, b = rng.integers(0, 16, (16, 64)).astype(np.uint8), rng.integers(0, 16, (64, 8)).astype(np.uint8)
    sa, sb = rng.integers(0, 126, (16, 4)).astype(np.uint8), rng.integers(0, 126, (4, 8)).astype(np.uint8)
    c = rng.standard_normal((16, 8)).astype(np.float32)
    d = chip.mma(name, a, b, c, scale_a=sa, scale_b=sb)
    i, j = np.indices((16, 8))
    np.testing.assert_array_equal(d, chip.dot(name, a[i], b.T[j], c, scale_a=sa[i], scale_b=sb.T[j]))
    for more in (
        {},
        {"scale_a": sa},
        {"scale_a": sa[:, :3], "scale_b": sb},
        {"scale_a": sa, "scale_b": sb.T},
        {"scale_a": sa.astype(np.uint16), "scale_b": sb},
    ):
        with pytest.raises(InputError, match="scale_"):
            chip.mma(name, a, b, c, **more)
    with pytest.raises(InputError, match="takes no scale_a"):
        load("h200").dot(FP8_WGMMA, a[0, :32], b[:32, 0], c[0, 0], scale_a=sa[0], scale_b=sb[:, 0])


# ---- others ----------------------------------------------------------------------------------------


def test_hf32_words_are_rounded_to_11_bits_first():
    name = "mmad.m16n16k8.f32.hf32.hf32"
    for value, rounded in ((1 + 2**-12, 1), (1 + 2**-12 + 2**-23, 1 + 2**-11), (1 + 3 * 2**-12, 1 + 2**-10)):
        assert one("ascend910b3", name, {0: (float(np.float32(value)), 1)}, f32(0)) == rounded
    away = devices.load(
        {
            "schema_version": 1,
            "name": "mode1",
            "extends": "ascend910b3",
            "instructions": {name: {"operand_rounding": "RNA"}},
        }
    )
    assert one(away, name, {0: (1 + 2**-12, 1)}, f32(0)) == 1 + 2**-11


@pytest.mark.parametrize(
    ("unit", "result"), [("cube", 1 + 2**-23), ("cube_tree", 1), ("cube_fused", 1 + 2**-23), ("cube_fma_chain", 1)]
)
def test_ascends_candidates_differ_by_one_field(unit, result):
    name = "mmad.m16n16k16.f32.f16.f16"
    for device in ("ascend910a", "ascend910b3"):
        chip = devices.load(
            {"schema_version": 1, "name": "mine", "extends": device, "instructions": {name: {"unit": unit}}}
        )
        half = (2**-12, 2**-12)
        assert one(chip, name, {0: (1, 1), 1: half, 3: half}, f32(0)) == result


def test_integers_wrap_or_saturate():
    chip = load("a100")
    a, b = np.full(32, 127, np.int8), np.full(32, 127, np.int8)
    top = np.int32(2**31 - 1)
    assert chip.dot("mma.m16n8k32.s32.s8.s8.s32", a, b, top) == np.array(2**31 - 1 + 32 * 127**2 - 2**32, np.int32)
    assert chip.dot("mma.m16n8k32.satfinite.s32.s8.s8.s32", a, b, top) == top
    assert chip.dot("mma.m16n8k32.satfinite.s32.s8.s8.s32", a, -b, np.int32(-(2**31))) == -(2**31)
    unsigned, least = np.full(32, 255, np.uint8), np.full(32, -128, np.int8)
    assert chip.dot("mma.m16n8k32.s32.u8.s8.s32", unsigned, least, np.int32(1)) == 1 - 32 * 255 * 128
    four = np.full(64, 0x8, np.uint8)  # -8 in the low bits
    assert chip.dot("mma.m16n8k64.s32.s4.s4.s32", four, four, np.uint32(0)) == 64 * 64
    codes = chip.dot("mma.m16n8k32.s32.s8.s8.s32", a.view(np.uint8), (-b).view(np.uint8), np.uint32(0))
    assert (codes.dtype, codes.view(np.int32)) == (np.uint32, -32 * 127**2)


def test_an_fp16_accumulator_with_an_fp32_result():
    d = one("v100", "mma.m8n8k4.f32.f16.f16.f16", {0: (1, 1)}, np.float16(2**-12))
    assert d.dtype == np.float32
    assert d == 1 + 2**-12


def test_the_hypothetical_unit_is_a_chain_of_fp64_fmas():
    name = "mma.m8n8k4.f64.f32.f32.f64"
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((50, 4)).astype(np.float32) for _ in range(2))
    c = rng.standard_normal(50)
    expected = c
    for k in range(4):  # products of fp32 are exact in fp64
        expected = expected + a[:, k].astype(np.float64) * b[:, k].astype(np.float64)
    np.testing.assert_array_equal(load("tf64").dot(name, a, b, c), expected)


# ---- arrays and names ------------------------------------------------------------------------------


def tile(*lead):
    rng = np.random.default_rng(1)
    shapes = ((16, 16), np.float16), ((16, 8), np.float16), ((16, 8), np.float32)
    return tuple(rng.standard_normal((*lead, *shape)).astype(dtype) for shape, dtype in shapes)


def test_d_is_codes_exactly_when_c_is():
    chip = hwsim.device("h200")
    a, b, c = tile()
    typed = chip.mma(F16, a, b, c)
    assert typed.dtype == np.float32
    np.testing.assert_allclose(typed, a.astype(np.float64) @ b + c, atol=1e-4)
    for x in (a, a.view(np.uint16)):
        codes = chip.mma(F16, x, b.view(np.uint16), c.view(np.uint32))
        assert codes.dtype == np.uint32
        np.testing.assert_array_equal(codes.view(np.float32), typed)


def test_leading_dimensions_broadcast_and_strides_do_not_matter():
    chip = load("h200")
    a, b, c = tile(3, 2)
    d = chip.mma(F16, a, b, c)
    np.testing.assert_array_equal(d[2, 1], chip.mma(F16, a[2, 1], b[2, 1], c[2, 1]))
    np.testing.assert_array_equal(chip.mma(F16, a, b[0, 0], c)[1, 1], chip.mma(F16, a[1, 1], b[0, 0], c[1, 1]))
    turned = np.ascontiguousarray(b.swapaxes(-1, -2)).swapaxes(-1, -2)
    np.testing.assert_array_equal(chip.mma(F16, a, turned, c), d)
    before = [x.copy() for x in (a, b, c)]
    chip.mma(F16, a, b, c)
    assert all((x == y).all() for x, y in zip(before, (a, b, c), strict=True))
    assert chip.mma(F16, a[:0], b[:0], c[:0]).shape == (0, 2, 16, 8)


def test_a_short_dot_is_padded_with_zeros():
    chip = load("a100")
    a, b, c = tile()
    for k in (1, 3, 8, 15):
        row, column = a[0].copy(), b[:, 0].copy()
        row[k:] = column[k:] = 0
        assert chip.dot(F16, a[0, :k], b[:k, 0], c[0, 0]) == chip.dot(F16, row, column, c[0, 0])


def test_tf32_words_lose_their_low_bits():
    assert one("a100", "mma.m16n8k8.f32.tf32.tf32.f32", {0: (1 + 2**-11 + 2**-23, 1)}, f32(0)) == 1
    nan = load("a100").dot(
        "mma.m16n8k8.f32.tf32.tf32.f32",
        np.array([0x7F800001], np.uint32),
        np.array([0x3F800000], np.uint32),
        np.uint32(0),
    )
    assert nan == INF  # a NaN only by its low bits


def test_narrow_formats_are_one_element_per_byte():
    name = "tcgen05.mma.m64n8k32.f8f6f4.f32.e2m1.e3m2"
    a, b = np.array([6, -0.5], ml_dtypes.float4_e2m1fn), np.array([28, 0.0625], ml_dtypes.float6_e3m2fn)
    typed = load("b200").dot(name, a, b, f32(0))
    assert typed == 6 * 28 - 0.5 * 0.0625
    codes = np.array([0b0111, 0b1001], np.uint8), np.array([0b011111, 0b000001], np.uint8)
    assert load("b200").dot(name, *codes, f32(0)) == typed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": np.zeros((16, 8), np.float16)}, r"a \(..., 16, 16\) is needed; got \(16, 8\)"),
        ({"b": np.zeros((8, 16), np.float16)}, r"b \(..., 16, 8\) is needed"),
        ({"c": np.zeros(8, np.float32)}, r"c \(..., 16, 8\) is needed; got \(8,\)"),
        ({"a": np.zeros((2, 16, 16), np.float16), "b": np.zeros((3, 16, 8), np.float16)}, "leading dimensions"),
        ({"a": np.zeros((16, 16), np.float32)}, "a is fp16; allowed: float16, or uint16 for codes; got float32"),
        ({"a": np.zeros((16, 16), np.uint8)}, "got uint8"),
        ({"a": np.zeros((16, 16), np.int16)}, "got int16"),
        ({"a": np.zeros((16, 16), ">f2")}, "got >f2"),
        ({"c": np.zeros((16, 8), np.uint16)}, "c is fp32"),
        ({"c": [[0.0] * 8] * 16}, "got float64"),
    ],
)
def test_arrays_that_do_not_fit(change, words):
    given = dict(zip("abc", tile(), strict=True)) | change
    with pytest.raises(InputError, match=words):
        load("h200").mma(F16, given["a"], given["b"], given["c"])


def test_operands_of_a_dot_that_do_not_fit():
    a, b, c = tile()
    long = np.zeros(17, np.float16)
    for x, y in ((a[0], b[:8, 0]), (long, long), (np.float16(1), np.float16(1)), (a[:3], b.T[:2])):
        with pytest.raises(InputError):
            load("h200").dot(F16, x, y, c[0, 0])
    assert load("h200").dot(F16, a[0], b[:, 0], c[0, :2]).shape == (2,)  # only c has cases


def test_every_legal_n_and_no_other():
    chip = load("h200")
    for n in range(8, 257, 8):
        assert devices.instruction(chip, f"wgmma.m64n{n}k16.f32.f16.f16").n == n
    for n in (0, 4, 12, 264, "08", "N "):
        with pytest.raises(UnsupportedError, match="N a multiple of 8 up to 256"):
            devices.instruction(chip, f"wgmma.m64n{n}k16.f32.f16.f16")
    for n in (8, 24, 48):
        assert devices.instruction(chip, f"wgmma.m64n{n}k32.s32.u8.s8").n == n
    with pytest.raises(UnsupportedError):
        devices.instruction(chip, "wgmma.m64n40k32.s32.s8.s8")  # integers: steps of 16 from 32 on
    for name in ("tcgen05.mma.m64n8k16.f16.f32.f16.f16", "tcgen05.mma.m128n16k32.f8f6f4.f16.e2m1.e5m2"):
        assert devices.instruction(load("b200"), name).m in (64, 128)
    for name in (
        "tcgen05.mma.m128n8k16.f16.f32.f16.f16",
        "tcgen05.mma.m192n16k16.f16.f32.f16.f16",
        "tcgen05.mma.m128n16k32.f8f6f4.f32.e4m3.f16",
    ):
        with pytest.raises(UnsupportedError):
            devices.instruction(load("b200"), name)


def test_a_pattern_names_its_choices_and_an_unknown_name_the_nearest():
    a, b, c = tile()
    with pytest.raises(InputError, match=r"several instructions \(N a multiple of 8 .*for example wgmma.m64n8k16"):
        load("h200").mma("wgmma.m64nNk16.f32.f16.f16", a, b, c)
    with pytest.raises(InputError, match="A and B any of e4m3, e5m2"):
        load("h200").dot("mma.m16n8k32.f32.A.B.f32", a[0], b[:, 0], c[0, 0])
    with pytest.raises(UnsupportedError, match=rf"did you mean '{F16}'"):
        load("h200").mma("mma.m16n8k16.f32.fp16.f16.f32", a, b, c)
    assert "wgmma.m64nNk16.f32.f16.f16" in load("h200").instructions()


def test_resolved_names_keep_one_spec():
    chip = load("h200")
    name = "wgmma.m64n128k32.f32.e5m2.e4m3"
    assert devices.dot_spec(chip, name) is devices.dot_spec(chip, name)
    assert (devices.dot_spec(chip, name).a, devices.dot_spec(chip, name).b) == ("e5m2", "e4m3")
    assert devices.numerics_evidence(chip, name) == "silicon"
    assert chip == devices.load("h200")  # what has been asked of a device is no part of it


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"n_last": 256}, "no 'nN' for it to fill"),
        ({"formats": ["fp16"]}, "no '.A.B' for it to fill"),
        ({"formats": ["fp61"]}, "'fp61' is not a known format"),
    ],
)
def test_what_an_entry_leaves_open_stands_in_its_name(entry, words):
    with pytest.raises(ConfigError, match=words):
        devices.load(
            {
                "schema_version": 1,
                "name": "mine",
                "extends": "a100",
                "source": "DS",
                "evidence": "assumption",
                "instructions": {F16: entry},
            }
        )


def test_inherited_needs_a_base_and_both_parts():
    for inherited in ({"source": "DS"}, {"source": "DS", "evidence": "sure"}, "DS"):
        with pytest.raises(ConfigError, match="inherited"):
            devices.load({"schema_version": 1, "name": "mine", "extends": "a100", "inherited": inherited})
    tree = devices.expanded(load("a100")) | {"inherited": {"source": "DS", "evidence": "paper"}}
    with pytest.raises(ConfigError, match="only beside extends"):
        devices.load(tree)


# ---- captures --------------------------------------------------------------------------------------

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize("name", ["h200/instructions.npz", "h200_edge/edge.npz"])
def test_a_sample_of_the_h200s_captures(name):
    data = np.load(GOLDEN / name)
    keys = sorted({key.rsplit("/", 1)[0] for key in data.files})
    assert len(keys) >= 40
    for key in keys:
        a, b, c, d = (data[f"{key}/{x}"][:2] for x in "abcd")
        got = load("h200").mma(key.split("/")[0], a, b.swapaxes(-1, -2), c)
        np.testing.assert_array_equal(got, d, err_msg=key)


def third_party():
    name = os.environ.get("HWSIM_GOLDEN_DIR")
    return sorted(Path(name).glob("*_*.npz")) if name else []


@pytest.mark.skipif(not third_party(), reason="HWSIM_GOLDEN_DIR is not set, or holds no captures DEVICE_FORMAT.npz")
@pytest.mark.parametrize("path", third_party(), ids=[path.stem for path in third_party()])
def test_captures_by_others(path):
    chip, fmt = path.stem.split("_")
    data, device = np.load(path), load(chip.lower())
    short = {"fp16": "f16"}.get(fmt, fmt)
    k = {"tf32": 8, "e4m3": 32, "e5m2": 32}.get(fmt, 16)
    checked = 0
    for d, c, of in (("d32", "c", "f32"), ("d16", "c16", "f16")):
        if d not in data.files:
            continue
        start = data[c]
        name = f"mma.m16n8k{k}.{of}.{short}.{short}.{of}"
        if chip == "V100":
            name = f"mma.m8n8k4.{of}.{short}.{short}.{of}"
        elif chip == "MI300X":
            name = "v_mfma_f32_16x16x32_fp8_fp8"
        elif chip in ("H100", "H200") and k == 32 and of == "f32":  # by wgmma, with a zero accumulator
            name, start = f"wgmma.m64n8k32.f32.{short}.{short}", np.zeros_like(start)
        np.testing.assert_array_equal(device.dot(name, data["a"], data["b"], start), data[d], err_msg=name)
        checked += data[d].size
    assert checked > 0


def test_the_example_of_a_device_of_ones_own(capsys):
    import runpy

    folder = Path(__file__).parents[2] / "examples"
    chip = devices.load(folder.parent / "configs" / "templates" / "matrix_unit.yaml")
    assert {devices.instruction(chip, name).d for name in chip.native.values()} == {"fp32"}
    runpy.run_path(str(folder / "custom_device.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert "dot.m8nNk16.f32.A.B" in said
    errors = [float(line.split()[-1]) for line in said.splitlines() if "fraction bits kept" in line]
    assert errors == sorted(errors, reverse=True)
    assert said.endswith("0x3f800000\n")
