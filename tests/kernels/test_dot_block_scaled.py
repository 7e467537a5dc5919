"""Units with block scales, and byte operands with long fused steps: every build against scalar code and reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_dot_models import NVIDIA, VARIANTS, Codes, build, scale_codes

from hwsim._kernels import gemm
from hwsim.formats import format_of
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import BlockScaledUnit, DotSpec, FusedUnit, Specials

F32 = ("fp32", "fp32")
GROUPS = BlockScaledUnit(64, 16, 35, -139, -139, specials=NVIDIA)
HALF = Specials(nan_code=0x7FFF)
LONG = FusedUnit(32, 25, -133, specials=NVIDIA)
SPECS = {
    "mxf4": DotSpec(GROUPS, "e2m1", "e2m1", *F32, "ue8m0", 32),
    "mxf4-16": DotSpec(GROUPS, "e2m1", "e2m1", *F32, "ue8m0", 16),
    "nvf4": DotSpec(GROUPS, "e2m1", "e2m1", *F32, "ue4m3", 16),
    "groups-e2m3-e3m2": DotSpec(
        BlockScaledUnit(32, 8, 24, -133, -140, specials=NVIDIA), "e2m3", "e3m2", *F32, "ue4m3", 16
    ),
    "one-group": DotSpec(BlockScaledUnit(16, 16, 30, -133, -133), "e2m1", "e2m3", *F32, "ue4m3", 16),
    "scalar-only": DotSpec(BlockScaledUnit(32, 8, 24, -133, -20), "e2m1", "e2m1", *F32, "ue4m3", 16),
    "mxf8": DotSpec(LONG, "e4m3", "e5m2", *F32, "ue8m0", 32),
    "mxf6": DotSpec(LONG, "e2m3", "e3m2", *F32, "ue8m0", 32),
    "mxf8-half-blocks": DotSpec(LONG, "e4m3", "e4m3", *F32, "ue8m0", 16),
    "mxf8-e8m13": DotSpec(
        FusedUnit(32, 13, -133, result_format="e8m13", specials=NVIDIA), "e4m3", "e2m1", *F32, "ue8m0", 32
    ),
    "mxf8-f16": DotSpec(FusedUnit(32, 25, -21, "RNE", specials=HALF), "e4m3", "e4m3", "fp16", "fp16", "ue8m0", 32),
}
PLAIN = {
    "e4m3": DotSpec(LONG, "e4m3", "e4m3", *F32),
    "e5m2-e2m1": DotSpec(LONG, "e5m2", "e2m1", *F32),
    "e3m2-f16": DotSpec(FusedUnit(32, 25, -21, "RNE", specials=HALF), "e3m2", "e4m3", "fp16", "fp16"),
    "e4m3-f16": DotSpec(FusedUnit(32, 25, -21, "RNE", specials=HALF), "e4m3", "e4m3", "fp16", "fp16"),
    "e4m3-64": DotSpec(FusedUnit(64, 25, -133, specials=NVIDIA), "e4m3", "e5m2", *F32),
    "e2m3-20": DotSpec(FusedUnit(20, 25, -133, specials=NVIDIA), "e2m3", "e2m3", *F32),
}


def agree(spec: DotSpec, a: Codes, b: Codes, c: Codes, **scales: Any) -> Codes:
    expected = gemm(spec, a, b, c, _variant="scalar", **scales)
    for variant in VARIANTS:
        for threads in (1, 2):
            got = gemm(spec, a, b, c, _variant=variant, threads=threads, **scales)
            wrong = np.argwhere(got != expected)
            assert not len(wrong), (variant, len(wrong), wrong[0], got[tuple(wrong[0])], expected[tuple(wrong[0])])
    return expected


def case(seed: int, spec: DotSpec, m: int, n: int, k: int, kind: str) -> tuple[Codes, Codes, Codes, dict[str, Codes]]:
    rng = np.random.default_rng(seed)
    a, b = build(rng, format_of(spec.a), (m, k), kind), build(rng, format_of(spec.b), (k, n), kind)
    c = build(rng, format_of(spec.c), (m, n), "near")
    if spec.scale_format is None:
        return a, b, c, {}
    blocks = -(-k // (spec.scale_block or 1))
    fmt = format_of(spec.scale_format)
    spread = "near" if kind == "near" else "wide"
    scales = scale_codes(rng, fmt, (m, blocks), spread), scale_codes(rng, fmt, (blocks, n), spread)
    return a, b, c, {"scale_a": scales[0], "scale_b": scales[1]}


@pytest.mark.covering("kind", "name")
@pytest.mark.parametrize("kind", ["near", "wide"])
@pytest.mark.parametrize("name", [*SPECS, *PLAIN])
def test_shapes_beyond_a_panel(name: str, kind: str) -> None:
    spec = {**SPECS, **PLAIN}[name]
    for m, n, k in ((5, 9, 1), (3, 33, 67), (17, 150, 330)):
        agree(spec, *(x := case(m + k, spec, m, n, k, kind))[:3], **x[3])


@pytest.mark.parametrize("name", [*SPECS, *PLAIN])
def test_lanes_equal_the_reference(name: str) -> None:
    spec = {**SPECS, **PLAIN}[name]
    for kind in ("near", "wide", "any"):
        for m, n, k in ((2, 20, 3), (2, 18, 67)):
            a, b, c, scales = case(100 + k, spec, m, n, k, kind)
            expected = reference.gemm(spec, DotOperands(a, b, c, **scales))
            assert np.array_equal(agree(spec, a, b, c, **scales), expected), (kind, k)


@pytest.mark.parametrize("name", [name for name in SPECS if name != "scalar-only"])
def test_every_scale(name: str) -> None:
    """Scales over all codes, NaN and zero among them: results overflow, vanish or become subnormal."""
    spec = SPECS[name]
    rng = np.random.default_rng(31)
    m, n, k = 128, 70, 64
    a, b, c, scales = case(32, spec, m, n, k, "near")
    blocks = scales["scale_a"].shape[1]
    scale_a = np.repeat(np.arange(256, dtype=np.uint8)[rng.permutation(256)][:m, None], blocks, 1)
    scale_b = rng.integers(0, 255, (blocks, n)).astype(np.uint8)
    scale_b[:, ::9] = 255 if spec.scale_format == "ue8m0" else 0x7F
    c[::3] = 0
    c[1::7, ::5], c[2::9, ::4] = (0xFF800000, 0x7FA00001) if spec.d == "fp32" else (0xFC00, 0x7D01)
    agree(spec, a, b, c, scale_a=scale_a, scale_b=scale_b)
    spread = 127 if spec.scale_format == "ue8m0" else 56
    balanced = (2 * spread - scale_a.astype(int)[0, 0]).clip(1, 2 * spread - 2)
    agree(spec, a, b, c, scale_a=scale_a[:1].repeat(m, 0), scale_b=np.full((blocks, n), balanced, np.uint8))


@pytest.mark.parametrize("name", ["mxf4", "mxf4-16", "nvf4", "one-group"])
def test_groups_that_cancel_or_vanish(name: str) -> None:
    """A cancelled group still takes part in the largest exponent, one of zeros or with a zero scale does not."""
    spec = SPECS[name]
    a, b, c, scales = case(33, spec, 40, 66, 128, "near")
    rng = np.random.default_rng(34)
    a[:, 1::2], b[1::2] = a[:, ::2], b[::2] ^ b.dtype.type(1 << format_of(spec.b).magnitude_bits)
    a[5, :70] = 0
    b[64:, 3] = 0
    c[:, ::2] = (rng.integers(80, 128, c[:, ::2].shape) << 23 | rng.integers(0, 1 << 23, c[:, ::2].shape)).astype("u4")
    scales["scale_a"] = scale_codes(rng, format_of(spec.scale_format or ""), scales["scale_a"].shape, "wide")
    expected = agree(spec, a, b, c, **scales)
    part = {"scale_a": scales["scale_a"][:8], "scale_b": scales["scale_b"][:, :8]}
    assert np.array_equal(expected[:8, :8], reference.gemm(spec, DotOperands(a[:8], b[:, :8], c[:8, :8], **part)))


@pytest.mark.parametrize("name", ["e4m3", "e4m3-64", "e4m3-f16"])
def test_long_sums_beyond_int32(name: str) -> None:
    """Equal products with full significands: 32 of them exceed 2^31 in units of the last place kept."""
    spec = PLAIN[name]
    for code, sign in ((0x3F, 0), (0x3F, 0x80), (0x37, 0)):
        a = np.full((4, 96), code, np.uint8)
        b = np.full((96, 37), 0x3F, np.uint8)
        a[1:3] |= sign
        a[2, ::3] = 0x0F
        a[3, 5:] = 0
        c = np.zeros((4, 37), np.uint16 if spec.d == "fp16" else np.uint32)
        expected = agree(spec, a, b, c)
        assert np.array_equal(expected[:, :2], reference.gemm(spec, DotOperands(a, b[:, :2], c[:, :2])))


@pytest.mark.parametrize("name", ["nvf4", "mxf8"])
def test_strides_of_operands_and_scales(name: str) -> None:
    spec = SPECS[name]
    a, b, c, scales = case(35, spec, 12, 70, 96, "near")
    expected = gemm(spec, a, b, c, _variant="scalar", **scales)
    turned = {key: np.ascontiguousarray(x.T).T for key, x in scales.items()}
    doubled = {key: np.repeat(np.repeat(x, 2, 0), 2, 1)[::2, ::2] for key, x in scales.items()}
    for variant in VARIANTS:
        for other in (turned, doubled):
            got = gemm(
                spec, np.ascontiguousarray(a.T).T, np.repeat(b, 3, 1)[:, ::3], c, _variant=variant, threads=2, **other
            )
            assert np.array_equal(got, expected), variant


@pytest.mark.parametrize(("places", "expected"), [(0, 0), (1, 1)])
def test_the_floor_cuts_tiny_groups(places: int, expected: int) -> None:
    """By hand, C = 0: a floor of -139 keeps 35 places, down to 2^-174. One group is 2^-149, the least fp32; another of
    -2^-174 takes it below, toward zero to 0; one of -2^-175 is cut.
    """
    spec, bias, one, minus_one = SPECS["mxf4"], format_of("ue8m0").bias, 2, 10
    a, b = np.zeros((1, 64), np.uint8), np.zeros((64, 1), np.uint8)
    a[0, 0], a[0, 32], b[0, 0], b[32, 0] = one, minus_one, one, one
    scales = np.array([[bias - 75, bias - 87]], np.uint8), np.array([[bias - 74], [bias - 87 - places]], np.uint8)
    c = np.zeros((1, 1), np.uint32)
    assert agree(spec, a, b, c, scale_a=scales[0], scale_b=scales[1])[0, 0] == expected
    own = {"scale_a": scales[0][0].tolist(), "scale_b": scales[1][:, 0].tolist()}
    assert reference.dot(spec, DotOperands(a[0].tolist(), b[:, 0].tolist(), 0, **own)) == expected


@pytest.mark.parametrize("side", ["scale_a", "scale_b"])
@pytest.mark.parametrize("exponent", [-31, -40, -70, -126])
def test_a_group_with_a_zero_scale_on_one_side_leaves_a_small_c_alone(side: str, exponent: int) -> None:
    """By hand: every product is 0, so C stays, however large the other side's scales are."""
    spec, one, least = SPECS["nvf4"], 2, np.uint32(127 + exponent << 23)
    a, b = np.full((3, 64), one, np.uint8), np.full((64, 40), one, np.uint8)
    scales = {"scale_a": np.full((3, 4), 0x7E, np.uint8), "scale_b": np.full((4, 40), 0x7E, np.uint8)}
    scales[side][:] = 0
    c = np.full((3, 40), least, np.uint32)
    assert (agree(spec, a, b, c, **scales) == c).all()
    own = {"scale_a": scales["scale_a"][0].tolist(), "scale_b": scales["scale_b"][:, 0].tolist()}
    assert reference.dot(spec, DotOperands(a[0].tolist(), b[:, 0].tolist(), int(least), **own)) == least


@pytest.mark.parametrize("exponent", range(-139, -126))
def test_a_c_of_zero_does_not_raise_the_largest_exponent(exponent: int) -> None:
    """By hand, C = 0: one group is 576 times 2^exponent, another -2^(exponent - 35), the last unit kept, or half of it.
    Rounded toward zero, the unit takes an ulp from the sum; half of it is cut.
    """
    spec, bias, six, half, minus_half = SPECS["mxf4-16"], format_of("ue8m0").bias, 7, 1, 9
    a, b = np.zeros((2, 64), np.uint8), np.zeros((64, 2), np.uint8)
    a[:, :16], b[:16] = six, six  # 576
    a[:, 16], b[16] = minus_half, half  # -2^-2
    left = exponent // 2
    scale_a = np.full((2, 4), bias, np.uint8)
    scale_b = np.full((4, 2), bias, np.uint8)
    scale_a[:, 0], scale_b[0] = bias + left, bias + exponent - left
    scale_a[:, 1], scale_b[1] = bias - 83, bias + exponent - 35 + 2 + 83
    scale_b[1, 1] -= 1
    c = np.zeros((2, 2), np.uint32)
    whole = int(np.float32(576.0 * 2.0**exponent).view(np.uint32))
    found = agree(spec, a, b, c, scale_a=scale_a, scale_b=scale_b)
    assert found.tolist() == [[whole - 1, whole]] * 2
    assert np.array_equal(reference.gemm(spec, DotOperands(a, b, c, scale_a=scale_a, scale_b=scale_b)), found)
