"""Trees, two levels, integers, block scaling and composites: by NumPy where it can say, else by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from silicon_specs import CDNA3_FP8, CDNA3_FP16, NAN, fp8_by_fp16

from hwsim.errors import InputError
from hwsim.formats import Exact, array_of, decode, encode, format_of, round_to
from hwsim.numerics.block_scaled import BlockScaledStages
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.reference import dot, gemm, stages, step
from hwsim.numerics.two_level import TwoLevelStages
from hwsim.numerics.units import BlockScaledUnit, DotSpec, IntegerUnit, PairwiseUnit, Specials

MINUS_ZERO = 0x80000000


def code(name: str, value: float) -> int:
    """Code of a value that the format holds exactly."""
    numerator, denominator = abs(value).as_integer_ratio()
    return encode(format_of(name), Exact("finite", int(np.signbit(value)), numerator, 1 - denominator.bit_length()))


def codes(name: str, *values: float) -> list[int]:
    return [code(name, value) for value in values]


def s(value: float) -> int:
    return code("fp32", value)


# --- pairwise -----------------------------------------------------------------------------------------------

CDNA2 = Specials(zero="ieee", flush_operands=True, flush_results=True)


def flush32(x: np.ndarray) -> np.ndarray:
    """Subnormal binary32 to zero of its sign."""
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x).astype(np.float32)


@pytest.mark.parametrize("fmt", ["fp16", "bf16"])
@pytest.mark.parametrize("terms", [2, 4, 16])
@pytest.mark.parametrize("flush", [False, True])
def test_pairwise_is_numpys_float32_tree(fmt: str, terms: int, flush: bool) -> None:
    """All finite codes, products in binary32 (fp16's are exact), neighbours added level by level, then c."""
    rng = np.random.default_rng(terms)
    f = format_of(fmt)
    cases = 60
    magnitudes = rng.integers(0, f.largest_magnitude + 1, (2, cases, terms))
    magnitudes[:, :20] = rng.integers(0, 4 << f.fraction_bits, (2, 20, terms))  # small and subnormal
    magnitudes[0, 20:40] = (f.bias << f.fraction_bits) + rng.integers(-99, 99, (20, terms))
    a, b = (magnitudes | rng.integers(0, 2, magnitudes.shape) << f.bits - 1).astype(np.uint16)
    c = (rng.integers(0, 255 << 23, cases) | rng.integers(0, 2, cases) << 31).astype(np.uint32)
    c[:10] &= 0x80FFFFFF
    keep = flush32 if flush else lambda x: x
    with np.errstate(all="ignore"):
        x, y = (array_of(z, f).astype(np.float32) for z in (a, b))
        z = c.view(np.float32)
        if flush:
            least = np.float32(2.0**f.min_exponent)
            x, y = (np.where(np.abs(v) < least, np.float32(0), v) for v in (x, y))
            z = np.where(np.abs(z) < np.float32(2.0**-126), np.float32(0), z)
        level = keep(x * y)
        while level.shape[1] > 1:
            level = keep(level[:, 0::2] + level[:, 1::2])
        expected = keep(z + level[:, 0]).astype(np.float32)
    spec = DotSpec(PairwiseUnit(terms, specials=CDNA2 if flush else Specials(zero="ieee")), fmt, fmt, "fp32", "fp32")
    assert np.isfinite(expected).sum() > 20
    for case in range(cases):
        got = step(spec, DotOperands(a[case].tolist(), b[case].tolist(), int(c[case])))
        if np.isnan(expected[case]):
            assert got == 0x7FC00000
        else:
            assert got == int(expected[case].view(np.uint32)), case


def test_pairwise_order_and_late_accumulator() -> None:
    spec = DotSpec(PairwiseUnit(4), "fp16", "fp16", "fp32", "fp32")
    one, tiny = 1.0, 2.0**-12
    # 1 + 2^-24 rounds to 1, -1 + 2^-24 is exact: one of the two tiny ones is lost.
    assert step(spec, DotOperands(codes("fp16", one, tiny, -one, tiny), codes("fp16", one, tiny, one, tiny), 0)) == s(
        2.0**-24
    )
    assert step(spec, DotOperands(codes("fp16", one, -one, tiny, tiny), codes("fp16", one, one, tiny, tiny), 0)) == s(
        2.0**-23
    )
    # c meets the finished tree: 2^-23 is kept beside 1 although each half alone would be lost.
    assert step(spec, DotOperands(codes("fp16", tiny, tiny), codes("fp16", tiny, tiny), s(1))) == s(1 + 2.0**-23)


def test_pairwise_products_overflow() -> None:
    spec = DotSpec(PairwiseUnit(2), "bf16", "bf16", "fp32", "fp32")
    huge = code("bf16", 2.0**127)
    assert step(spec, DotOperands([huge], [huge], 0)) == 0x7F800000
    assert step(spec, DotOperands([huge, huge], [huge, huge | 0x8000], 0)) == 0x7FC00000


# --- two levels ---------------------------------------------------------------------------------------------


def test_products_are_cut_toward_zero_at_24_bits() -> None:
    a, b = codes("fp16", 1, 2.0**-12, -(2.0**-12)), codes("fp16", 1, 1.5 * 2.0**-12, 1.5 * 2.0**-12)
    result = stages(CDNA3_FP16, DotOperands(a, b, 0))
    assert isinstance(result, TwoLevelStages)
    assert result.product_exponent == 0
    assert (result.partial_sums[0].value, result.partial_sums[0].last_place) == (1 << 24, -24)
    assert result.result == s(1)


def test_a_small_accumulator_is_cut_downward() -> None:
    """-2^-40 beside 1 counts as -2^-24; +2^-40 as 0."""
    one = codes("fp16", 1)
    assert dot(CDNA3_FP16, DotOperands(one, one, s(-(2.0**-40)))) == s(1 - 2.0**-24)
    assert dot(CDNA3_FP16, DotOperands(one, one, s(2.0**-40))) == s(1)


def test_the_sum_beside_a_large_accumulator_is_cut_downward_at_32_bits() -> None:
    tiny = codes("fp16", -(2.0**-12))
    result = stages(CDNA3_FP16, DotOperands(tiny, codes("fp16", 2.0**-12), s(2.0**10)))
    assert isinstance(result, TwoLevelStages)
    assert result.top_exponent == 10
    assert (result.product_sum.value, result.product_sum.last_place) == (-1, -22)  # -2^-24 down to -2^-22
    assert result.result == s(2.0**10)


def test_two_level_rounds_to_nearest_after_the_cuts() -> None:
    one = codes("fp16", 1)
    assert dot(CDNA3_FP16, DotOperands(one, one, s(2.0**24))) == s(2.0**24)
    three = codes("fp16", 3)
    assert dot(CDNA3_FP16, DotOperands(one, three, s(2.0**24))) == s(2.0**24 + 4)


def test_two_level_huge_products_are_infinities() -> None:
    spec = DotSpec(CDNA3_FP16.unit, "bf16", "bf16", "fp32", "fp32")
    huge = code("bf16", 2.0**64)
    assert dot(spec, DotOperands([huge], [huge | 0x8000], 0)) == 0xFF800000
    assert dot(spec, DotOperands([huge] * 2, [huge, huge | 0x8000], 0)) == 0x7FC00000
    assert dot(spec, DotOperands([huge], [code("bf16", 2.0**63)], 0)) == s(2.0**127)


def test_two_level_zeros_and_subnormals() -> None:
    assert dot(CDNA3_FP16, DotOperands([0x8000], [0x3C00], MINUS_ZERO)) == 0
    assert dot(CDNA3_FP16, DotOperands([0], [0], 1)) == 1
    assert dot(CDNA3_FP16, DotOperands([0], [0], 0x80000001)) == 0x80000001
    assert dot(CDNA3_FP16, DotOperands([1], [1], 0)) == s(2.0**-48)


def test_interleaved_halves_and_the_dropped_accumulator() -> None:
    """GTR: even and odd elements align apart; c below E - 25 is dropped, not cut down."""
    one, small = code("e4m3fnuz", 1), code("e4m3fnuz", 2.0**-10)
    result = stages(CDNA3_FP8, DotOperands([one, small], [one, small], 0))
    assert isinstance(result, TwoLevelStages)
    assert [part.last_place for part in result.partial_sums] == [-24, -38]  # 2^-10 is subnormal: exponent -7
    assert result.result == s(1 + 2.0**-20)
    assert dot(CDNA3_FP8, DotOperands([one], [one], s(-(2.0**-25)))) == s(1 - 2.0**-24)
    assert dot(CDNA3_FP8, DotOperands([one], [one], s(-(2.0**-26)))) == s(1)
    assert dot(CDNA3_FP8, DotOperands([0x80], [one], 0)) == 0x7FC00000


# --- integers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("a_format", "b_format"), [("int8", "int8"), ("uint8", "int8"), ("int4", "int4")])
@pytest.mark.parametrize("k", [1, 3, 67])
def test_integers_are_exact_and_wrap(a_format: str, b_format: str, k: int) -> None:
    rng = np.random.default_rng(k)
    a = rng.integers(0, 1 << format_of(a_format).bits, k).tolist()
    b = rng.integers(0, 1 << format_of(b_format).bits, k).tolist()
    value = sum(
        int(decode(format_of(a_format), x).fraction * decode(format_of(b_format), y).fraction)
        for x, y in zip(a, b, strict=True)
    )
    for c in (0, 0x7FFFFFFF, 0x80000000):
        signed = c - (1 << 32) if c >> 31 else c
        for terms in (1, 16, 32):
            wrap = DotSpec(IntegerUnit(terms), a_format, b_format, "int32", "int32")
            assert dot(wrap, DotOperands(a, b, c)) == (signed + value) % (1 << 32)
    saturate = DotSpec(IntegerUnit(128, "saturate"), a_format, b_format, "int32", "int32")
    clamped = min(max((1 << 31) - 1 + value, -(1 << 31)), (1 << 31) - 1)
    assert dot(saturate, DotOperands(a, b, 0x7FFFFFFF)) == clamped % (1 << 32)


# --- block scaling ------------------------------------------------------------------------------------------

MXF4 = DotSpec(
    BlockScaledUnit(64, 16, 35, -139, -139, specials=Specials(nan_code=NAN["fp32"])),
    "e2m1",
    "e2m1",
    "fp32",
    "fp32",
    "ue8m0",
    32,
)
NVF4 = DotSpec(
    BlockScaledUnit(64, 16, 35, -139, -139, specials=Specials(nan_code=NAN["fp32"])),
    "e2m1",
    "e2m1",
    "fp32",
    "fp32",
    "ue4m3",
    16,
)


def test_groups_add_exactly_under_their_scales() -> None:
    six = codes("e2m1", *[6] * 64)
    assert step(MXF4, DotOperands(six, six, 0, scale_a=[127, 127], scale_b=[127, 127])) == s(2304)
    assert step(MXF4, DotOperands(six, six, 0, scale_a=[128, 127], scale_b=[127, 120])) == s(1152 * 2 + 9)
    half = codes("e2m1", 0.5)
    assert step(MXF4, DotOperands(half, half, s(1), scale_a=[127], scale_b=[127])) == s(1.25)


def test_the_size_of_a_group_sum_does_not_enter_the_alignment() -> None:
    six = codes("e2m1", *[6] * 16)
    result = stages(NVF4, DotOperands(six, six, s(2.0**-35), scale_a=[code("e4m3", 1.5)], scale_b=[code("e4m3", 2)]))
    assert isinstance(result, BlockScaledStages)
    assert result.top_exponent == 1
    assert result.groups[0].significand * Fraction(2) ** result.groups[0].last_place == 576 * 3
    assert result.cut_terms == (576 * 3 << 34, 0)  # 2^-35 lies below 2^(1 - 35)


def test_a_cancelled_group_raises_the_top_and_a_zero_one_does_not() -> None:
    a = codes("e2m1", 1, -1, *[0] * 14, 1, *[0] * 15)
    b = codes("e2m1", 1, 1, *[0] * 14, 1, *[0] * 15)
    scales = codes("e4m3", 256, 2.0**-9)
    result = stages(NVF4, DotOperands(a, b, 0, scale_a=scales, scale_b=scales))
    assert isinstance(result, BlockScaledStages)
    assert result.top_exponent == 16
    assert result.cut_terms == (0, 1 << 1, 0)
    assert result.result == s(2.0**-18)
    zeros = stages(NVF4, DotOperands([0] * 16 + a[16:], b, 0, scale_a=scales, scale_b=scales))
    assert isinstance(zeros, BlockScaledStages)
    assert zeros.groups[0].exponent == -139
    assert zeros.top_exponent == -12  # a subnormal scale has the lowest exponent, -6
    no_scale = stages(NVF4, DotOperands(a, b, 0, scale_a=[0, scales[1]], scale_b=scales))
    assert isinstance(no_scale, BlockScaledStages)
    assert no_scale.groups[0].exponent == -139


def test_cuts_at_35_bits() -> None:
    one = codes("e2m1", 1) + [0] * 31 + codes("e2m1", 1)
    for exponent, kept in [(-35, 1), (-36, 0)]:
        result = stages(MXF4, DotOperands(one, one, 0, scale_a=[127, 127 + exponent], scale_b=[127, 127]))
        assert isinstance(result, BlockScaledStages)
        assert result.cut_terms == (1 << 35, 0, kept, 0)


def test_scale_specials_and_masks() -> None:
    one = codes("e2m1", 1)
    assert step(NVF4, DotOperands(one, one, 0, scale_a=[0x7F], scale_b=[0x38])) == NAN["fp32"]
    assert step(NVF4, DotOperands([0], one, 0, scale_a=[0xFF], scale_b=[0x38])) == NAN["fp32"]
    assert step(NVF4, DotOperands(one, one, 0, scale_a=[0xB8], scale_b=[0x38])) == s(1)  # the sign bit is ignored
    assert step(MXF4, DotOperands(one, one, 0xFFC00000, scale_a=[127], scale_b=[127])) == NAN["fp32"]
    assert step(MXF4, DotOperands(one, one, 0x7F800000, scale_a=[127], scale_b=[127])) == 0x7F800000
    assert step(MXF4, DotOperands([8], one, MINUS_ZERO, scale_a=[127], scale_b=[127])) == 0
    with pytest.raises(InputError):
        step(MXF4, DotOperands(one, one, 0))


def test_a_chain_moves_along_the_scales() -> None:
    ones = codes("e2m1", *[1] * 128)
    scales = [127, 128, 129, 130]
    assert dot(MXF4, DotOperands(ones, ones, 0, scale_a=scales, scale_b=[127] * 4)) == s(32 * (1 + 2 + 4 + 8))


def test_gemm_hands_each_element_its_scales() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.integers(0, 16, (2, 80)).astype(np.uint8), rng.integers(0, 16, (80, 3)).astype(np.uint8)
    c = np.zeros((2, 3), np.uint32)
    scale_a, scale_b = (rng.integers(120, 135, shape).astype(np.uint8) for shape in ((2, 3), (3, 3)))
    d = gemm(MXF4, DotOperands(a, b, c, scale_a=scale_a, scale_b=scale_b))
    for i, j in np.ndindex(2, 3):
        assert d[i, j] == dot(
            MXF4,
            DotOperands(
                a[i].tolist(), b[:, j].tolist(), 0, scale_a=scale_a[i].tolist(), scale_b=scale_b[:, j].tolist()
            ),
        )
    with pytest.raises(InputError, match="scale_b"):
        gemm(MXF4, DotOperands(a, b, c, scale_a=scale_a, scale_b=scale_b.T[:, :2]))
    with pytest.raises(InputError, match="scale_a"):
        gemm(MXF4, DotOperands(a, b, c))


# --- composite ----------------------------------------------------------------------------------------------


def composite(d: str) -> DotSpec:
    return DotSpec(fp8_by_fp16(d), "e4m3", "e4m3", d, d)


def test_composite_takes_pairs_in_turn_and_the_accumulator_last() -> None:
    """2^16 and -2^16 in the first selection, 2^-18 in the second: kept; all in one: cut away."""
    big, small = 2.0**8, 2.0**-9
    first = codes("e4m3", big, -big, small)
    other = codes("e4m3", big, big, small)
    assert step(composite("fp32"), DotOperands(first, other, 0)) == s(2.0**-18)
    # Element 4 is in the first selection again: beside 2^16 it is lost (F = 25).
    first, other = codes("e4m3", big, -big, 0, 0, small), codes("e4m3", big, big, 0, 0, small)
    assert step(composite("fp32"), DotOperands(first, other, 0)) == 0
    # Two steps, toward zero; the accumulator joins by nearest even: 1 + 2^-24 + 2^-24 is 1 + 2^-23 if added before.
    half_place = codes("e4m3", *[2.0**-9, 0, 2.0**-9])
    weights = codes("e4m3", *[2.0**-9, 0, 2.0**-9])
    assert step(composite("fp32"), DotOperands(half_place, weights, s(64))) == s(64 + 2.0**-17)
    assert step(composite("fp32"), DotOperands(codes("e4m3", 1), codes("e4m3", 1), s(2.0**24 + 2))) == s(2.0**24 + 4)
    assert step(composite("fp32"), DotOperands(codes("e4m3", 1), codes("e4m3", 1), s(2.0**24))) == s(2.0**24)


def test_composite_specials() -> None:
    one = codes("e4m3", 1)
    assert step(composite("fp32"), DotOperands([0x7F], one, 0)) == NAN["fp32"]
    assert step(composite("fp32"), DotOperands(one, one, 0xFFFFFFFF)) == NAN["fp32"]
    assert step(composite("fp32"), DotOperands(one, one, 0xFF800000)) == 0xFF800000
    assert step(composite("fp32"), DotOperands([0x80], one, MINUS_ZERO)) == 0
    assert step(composite("fp16"), DotOperands(codes("e4m3", 256), codes("e4m3", 256), 0x7C00)) == 0x7C00
    assert step(composite("fp16"), DotOperands(codes("e4m3", 256), codes("e4m3", 256), 0xFC00)) == NAN["fp16"]
    e5m2 = DotSpec(fp8_by_fp16("fp32"), "e5m2", "e5m2", "fp32", "fp32")
    assert step(e5m2, DotOperands([0x7C], [0xBC], 0)) == 0xFF800000
    assert step(e5m2, DotOperands([0x7C], [0x00], 0)) == NAN["fp32"]


def test_composite_rounds_partial_sums_to_fp16() -> None:
    """2048 + 1 is a tie in fp16 and goes to 2048; then 1 more in the second step does too; c comes last."""
    a, b = codes("e4m3", 64, 1, 1), codes("e4m3", 32, 1, 1)
    assert step(composite("fp16"), DotOperands(a, b, code("fp16", 2))) == code("fp16", 2050)


def test_models_without_scales_refuse_them() -> None:
    pair = DotSpec(PairwiseUnit(2), "fp16", "fp16", "fp32", "fp32")
    for spec in (pair, CDNA3_FP16, composite("fp32")):
        with pytest.raises(InputError, match="takes no scale"):
            step(spec, DotOperands([0], [0], 0, scale_d=1))


def test_rounding_of_a_code_helper_is_exact() -> None:
    """`code` must not round: a value between two codes is refused."""
    with pytest.raises(InputError):
        code("e4m3", 1 + 2.0**-5)
    assert round_to(format_of("e4m3"), Exact("finite", 0, 33, -5), "RNE") == code("e4m3", 1)
