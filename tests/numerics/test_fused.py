"""The fused step on cases worked out by hand from the numerics reference, one rule each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from silicon_specs import fp8_fourteen_bits, fused, hopper

from hwsim.errors import InputError
from hwsim.formats import Exact, format_of, round_to
from hwsim.numerics import terms
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.fused import FusedStages
from hwsim.numerics.reference import chain, dot, gemm, stages, step
from hwsim.numerics.units import DotSpec, FusedUnit, Specials

NAN32 = 0x7FFFFFFF
HOPPER = hopper("wgmma.m64n8k16.f32.f16.f16")
HOPPER_F16 = hopper("wgmma.m64n8k16.f16.f16.f16")
HOPPER_BF16 = hopper("wgmma.m64n8k16.f32.bf16.bf16")
HOPPER_FP8 = hopper("wgmma.m64n8k32.f32.e4m3.e4m3")


def code(name: str, value: float) -> int:
    """Code of a value that the format holds exactly or that is rounded to nearest even."""
    numerator, denominator = abs(value).as_integer_ratio()
    exact = Exact("finite", int(np.signbit(value)), numerator, 1 - denominator.bit_length())
    return round_to(format_of(name), exact, "RNE")


def codes(name: str, *values: float) -> list[int]:
    return [code(name, value) for value in values]


def h(*values: float) -> list[int]:
    return codes("fp16", *values)


def s(value: float) -> int:
    return code("fp32", value)


def test_small_terms_are_cut_one_by_one() -> None:
    """Many products of 2^-26 beside 1 vanish at F = 25, though they add to 15 * 2^-26; those of 2^-25 stay."""
    tiny, kept = [2.0**-13] * 15, [2.0**-13] * 15
    assert dot(HOPPER, DotOperands(h(1, *tiny), h(1, *tiny), 0)) == s(1)
    result = stages(HOPPER, DotOperands(h(1, *kept), h(1, *([2.0**-12] * 15)), 0))
    assert isinstance(result, FusedStages)
    assert (result.top_exponent, result.cut_last_place) == (0, -25)
    assert result.cut_terms == (1 << 25, *[1] * 15, 0)
    assert result.total == (1 << 25) + 15
    assert result.result == s(1 + 3 * 2.0**-23)  # 15 * 2^-25, toward zero to 2^-23


def test_magnitudes_are_cut_not_twos_complement() -> None:
    """-1.5 * 2^-25 beside 1 is cut to -2^-25, toward zero: the sum is 1 - 2^-25, which rounds toward zero."""
    result = stages(HOPPER, DotOperands(h(1, -1.5 * 2.0**-13), h(1, 2.0**-12), 0))
    assert isinstance(result, FusedStages)
    assert result.cut_terms[1] == -1
    assert result.result == s(1 - 2.0**-24)
    assert dot(HOPPER, DotOperands(h(1, -1.5 * 2.0**-14), h(1, 2.0**-12), 0)) == s(1)


def test_products_are_not_normalised() -> None:
    """1.5 * 1.5 = 2.25 has exponent 0, so a term of 2^-25 beside it stays."""
    result = stages(HOPPER, DotOperands(h(1.5, 2.0**-12), h(1.5, 2.0**-13), 0))
    assert isinstance(result, FusedStages)
    assert result.top_exponent == 0
    assert result.cut_terms[:2] == (9 << 23, 1)


def test_the_accumulator_is_aligned_like_a_product() -> None:
    c = s(1 + 2.0**-23)
    assert dot(HOPPER, DotOperands(h(4), h(4), c)) == s(17)  # 2^-23 and 16: kept to 2^-21, then 24 bits
    result = stages(HOPPER, DotOperands(h(2.0**4), h(2.0**4), c))
    assert isinstance(result, FusedStages)
    assert result.top_exponent == 8
    assert result.cut_terms[-1] == 1 << 17  # 1 + 2^-23 in units of 2^-17 loses its last bit


def test_zero_products_do_not_raise_the_top() -> None:
    """0 * 2^127 beside 2^-30: the product's exponent of -126 + 127 would push everything out."""
    a, b = codes("bf16", 0, 2.0**-15), codes("bf16", 2.0**127, 2.0**-15)
    assert dot(HOPPER_BF16, DotOperands(a, b, 0)) == s(2.0**-30)


def test_a_subnormal_has_the_lowest_normal_exponent() -> None:
    """2^-24 (fp16 subnormal) times 1 has exponent -14, not -24."""
    result = stages(HOPPER, DotOperands([0x0001], h(1), 0))
    assert isinstance(result, FusedStages)
    assert result.top_exponent == -14
    assert result.result == s(2.0**-24)


@pytest.mark.parametrize(("exponent", "expected"), [(-158, 1), (-159, 0)])
def test_the_floor_cuts_tiny_products(exponent: int, expected: int) -> None:
    """A floor of -133 keeps places down to 2^-158: sixteen of 2^-158 make 2^-154, none of 2^-159 counts."""
    a = codes("bf16", *[2.0**-80] * 16)
    b = codes("bf16", *[2.0 ** (exponent + 80)] * 16)
    result = stages(HOPPER_BF16, DotOperands(a, b, 0))
    assert isinstance(result, FusedStages)
    assert result.top_exponent == -133
    assert result.total == 16 * expected
    assert result.result == 0  # below the smallest subnormal either way, and +0


def test_results_underflow_gradually_and_toward_zero() -> None:
    assert dot(HOPPER_BF16, DotOperands(codes("bf16", 1.5), codes("bf16", 2.0**-126), 0)) == 0x00C00000
    assert dot(HOPPER_BF16, DotOperands(codes("bf16", 1.5, 1), codes("bf16", 2.0**-127, 0), 0)) == 0x00600000
    assert dot(HOPPER_BF16, DotOperands(codes("bf16", 2.0**-75), codes("bf16", 1.75 * 2.0**-74), 0)) == 1
    assert dot(HOPPER_BF16, DotOperands(codes("bf16", -(2.0**-75)), codes("bf16", 1.75 * 2.0**-75), 0)) == 0  # not -0


def test_overflow_is_infinity_though_rounding_is_toward_zero() -> None:
    large = codes("bf16", 2.0**127)
    assert dot(HOPPER_BF16, DotOperands(large, codes("bf16", 2), 0)) == 0x7F800000
    assert dot(HOPPER_BF16, DotOperands(large, codes("bf16", -2), 0)) == 0xFF800000
    # Nothing overflows inside: 2^128 - 2^127 is finite.
    assert dot(HOPPER_BF16, DotOperands(large * 2, codes("bf16", 2, -1), 0)) == s(2.0**127)


def test_zeros_are_positive() -> None:
    minus_zero = 0x80000000
    assert dot(HOPPER, DotOperands(h(-0.0), h(1), minus_zero)) == 0
    assert dot(HOPPER, DotOperands(h(3, -3), h(1, 1), 0)) == 0
    ieee = replace(HOPPER, unit=FusedUnit(1, 25, -133, specials=Specials(zero="ieee")))
    assert step(ieee, DotOperands(h(-0.0), h(1), minus_zero)) == minus_zero
    assert step(ieee, DotOperands(h(0.0), h(1), minus_zero)) == 0
    assert step(ieee, DotOperands(h(1), h(1), s(-1))) == 0


@pytest.mark.parametrize(
    ("a", "b", "c", "expected"),
    [
        (0x7E01, 0x3C00, 0, NAN32),
        (0xFC00, 0x0000, 0, NAN32),
        (0xFC00, 0x8001, 0, 0x7F800000),
        (0x7C00, 0x3C00, 0xFF800000, NAN32),
        (0xFC00, 0x3C00, 0xFF800000, 0xFF800000),
        (0x3C00, 0x3C00, 0xFFC00001, NAN32),
        (0x3C00, 0x3C00, 0xFF800000, 0xFF800000),
    ],
)
def test_specials(a: int, b: int, c: int, expected: int) -> None:
    assert dot(HOPPER, DotOperands([a], [b], c)) == expected


def test_fp16_results_round_once_to_even() -> None:
    one = code("fp16", 1)
    assert dot(HOPPER_F16, DotOperands(h(2.0**-11), h(1), one)) == one
    assert dot(HOPPER_F16, DotOperands(h(2.0**-11, 2.0**-12), h(1, 2.0**-12), one)) == one + 1  # 2^-24 above the tie
    assert dot(HOPPER_F16, DotOperands(h(3 * 2.0**-11), h(1), one)) == one + 2
    assert dot(HOPPER_F16, DotOperands(h(2.0**-13), h(-(2.0**-13)), 0)) == 0  # -2^-26 rounds to zero: +0
    assert dot(HOPPER_F16, DotOperands(h(65504), h(1), code("fp16", 16))) == 0x7C00
    assert dot(HOPPER_F16, DotOperands([0x7C00], h(0), 0)) == 0x7FFF


def test_fourteen_bit_accumulator() -> None:
    """e8m13: an accumulator of more than 14 bits is cut even if nothing is added."""
    assert dot(HOPPER_FP8, DotOperands([0], [0], s(1 + 2.0**-14 + 2.0**-23))) == s(1)
    assert dot(HOPPER_FP8, DotOperands([0], [0], s(1 + 2.0**-13 + 2.0**-14))) == s(1 + 2.0**-13)
    ones = codes("e4m3", *[1] * 32)
    assert dot(HOPPER_FP8, DotOperands(ones, ones, s(-(1 + 2.0**-13)))) == s(
        31 - 2.0**-9
    )  # 31 - 2^-13, toward zero to 14 bits
    assert dot(HOPPER_FP8, DotOperands([0x7F], [0x38], 0)) == NAN32


def test_ada_chains_sixteen_where_hopper_takes_thirty_two() -> None:
    """2^12 in the first half, 2^-3 in the second: one step keeps 2^-1 at least, a chain of two does so too."""
    ada = DotSpec(fp8_fourteen_bits("fp32", 16, 6), "e4m3", "e4m3", "fp32", "fp32")
    a = codes("e4m3", 64, *[0] * 15, *[0.25] * 16)
    b = codes("e4m3", 64, *[0] * 15, *[0.5] * 16)
    assert dot(HOPPER_FP8, DotOperands(a, b, 0)) == s(2.0**12)
    first = codes("e4m3", *[0.25] * 16, 64, *[0] * 15)
    second = codes("e4m3", *[0.5] * 16, 64, *[0] * 15)
    assert dot(HOPPER_FP8, DotOperands(first, second, 0)) == s(2.0**12)
    assert dot(ada, DotOperands(first, second, 0)) == s(
        2.0**12 + 2
    )  # the first step adds 16 * 2^-3 before the large one
    assert dot(ada, DotOperands(a, b, 0)) == s(2.0**12)


@pytest.mark.parametrize("k", [0, 1, 3, 16, 67])
def test_a_chain_is_its_steps(k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = (rng.integers(0x3000, 0x4400, k).tolist() for _ in range(2))
    steps = chain(HOPPER, DotOperands(a, b, 0x3F000000))
    assert len(steps) == max(1, -(-k // 16))
    c = 0x3F000000
    for index in range(0, k, 16):
        c = step(HOPPER, DotOperands(a[index : index + 16], b[index : index + 16], c))
    assert steps[-1].result == dot(HOPPER, DotOperands(a, b, 0x3F000000)) == c


def test_a_narrow_accumulator_widens() -> None:
    """V100 f32.f16.f16.f16: C in fp16, D in fp32; the second step's C is the first one's D."""
    spec = DotSpec(fused("fp32", 4, 23, 5), "fp16", "fp16", "fp16", "fp32")
    one = code("fp16", 1)
    assert dot(spec, DotOperands(h(2.0**-10), h(2.0**-13), one)) == s(1 + 2.0**-23)
    ones = h(*[1] * 8)
    assert dot(spec, DotOperands(ones, h(*[2.0**-13] * 8), one)) == s(1 + 2.0**-10)


def test_scale_input_d() -> None:
    tf32 = DotSpec(fused("fp32", 8, 25, 7), "tf32", "tf32", "fp32", "fp32")
    assert dot(tf32, DotOperands([s(1)], [s(1)], s(12), scale_d=3)) == s(2.5)
    # 2^-126 / 2^15 aligns at its own exponent of -141, hence at the floor of -133.
    result = stages(tf32, DotOperands([0], [0], s(2.0**-126 * 1.5), scale_d=15))
    assert isinstance(result, FusedStages)
    assert result.top_exponent == -133
    assert result.result == 3 << 7
    assert dot(tf32, DotOperands([0], [0], 0xFF800000, scale_d=4)) == 0xFF800000
    with pytest.raises(InputError, match="0 to 15"):
        dot(tf32, DotOperands([0], [0], 0, scale_d=16))


def test_scale_input_d_acts_on_c_once() -> None:
    assert dot(HOPPER, DotOperands(h(*[0] * 32), h(*[0] * 32), s(8), scale_d=1)) == s(4)


def test_mxf8_scales_raise_exponents() -> None:
    spec = DotSpec(fused("fp32", 32, 25, 7), "e4m3", "e2m1", "fp32", "fp32", "ue8m0", 32)
    a, b = codes("e4m3", 1.5), codes("e2m1", 2)
    assert dot(spec, DotOperands(a, b, s(1), scale_a=[127 + 4], scale_b=[127 - 1])) == s(25)
    assert dot(spec, DotOperands(a, b, s(1), scale_a=[0xFF], scale_b=[127])) == NAN32
    assert dot(spec, DotOperands([0], b, s(1), scale_a=[0xFF], scale_b=[127])) == NAN32
    assert dot(spec, DotOperands(a, b, s(1), scale_a=[0], scale_b=[0])) == s(1)
    twice = dot(spec, DotOperands(a * 64, b * 64, 0, scale_a=[127, 128], scale_b=[127, 127]))
    assert twice == s(32 * 3 + 32 * 6)
    with pytest.raises(InputError, match="1 codes of ue8m0 each are needed"):
        dot(spec, DotOperands(a, b, 0))
    with pytest.raises(InputError, match="got 2 and 1"):
        step(spec, DotOperands(a, b, 0, scale_a=[127, 127], scale_b=[127]))
    with pytest.raises(InputError, match="no block scales"):
        dot(HOPPER, DotOperands(h(1), h(1), 0, scale_a=[127], scale_b=[127]))


def test_saturating_specials() -> None:
    """Ascend's saturation: infinities are read as the largest finite value, NaN as 0, results saturate."""
    unit = FusedUnit(16, 30, -160, "RNE", specials=Specials("saturate", "saturate"))
    spec = DotSpec(unit, "fp16", "fp16", "fp32", "fp32")
    assert dot(spec, DotOperands([0xFC00], h(1), 0)) == s(-65504)
    assert dot(spec, DotOperands([0x7E00], [0x7C00], s(2))) == s(2)
    assert dot(spec, DotOperands(h(65504), h(65504), 0x7F7FFFFF)) == 0x7F7FFFFF
    assert dot(spec, DotOperands(h(1), h(1), 0x7F800000)) == 0x7F7FFFFF


def test_flushing() -> None:
    unit = FusedUnit(4, 25, -133, specials=Specials(zero="ieee", flush_operands=True, flush_results=True))
    spec = DotSpec(unit, "fp16", "fp16", "fp32", "fp32")
    assert step(spec, DotOperands([0x03FF], h(1), 0)) == 0
    assert step(spec, DotOperands([0x0400], h(1), 0)) == s(2.0**-14)
    assert step(spec, DotOperands(h(0), h(0), 0x80400000)) == 0
    bf16 = replace(spec, a="bf16", b="bf16")
    assert step(bf16, DotOperands(codes("bf16", -(2.0**-100)), codes("bf16", 2.0**-27), 0)) == 0x80000000


def test_operands_that_do_not_fit() -> None:
    with pytest.raises(InputError, match="at most 16"):
        step(HOPPER, DotOperands([0] * 17, [0] * 17, 0))
    with pytest.raises(InputError, match="one length"):
        dot(HOPPER, DotOperands([0], [0, 0], 0))
    with pytest.raises(InputError, match="does not fit the 16 bits"):
        dot(HOPPER, DotOperands([1 << 16], [0], 0))


def test_gemm_is_a_dot_per_element() -> None:
    rng = np.random.default_rng(7)
    a = rng.integers(0x3000, 0x4400, (3, 19)).astype(np.uint16)
    b = rng.integers(0x3000, 0x4400, (19, 2)).astype(np.uint16)
    c = rng.integers(0x3F000000, 0x40000000, (3, 2)).astype(np.uint32)
    d = gemm(HOPPER, DotOperands(a, b, c))
    assert d.dtype == np.uint32
    for i in range(3):
        for j in range(2):
            assert d[i, j] == dot(HOPPER, DotOperands(a[i].tolist(), b[:, j].tolist(), int(c[i, j])))
    with pytest.raises(InputError, match="fp16 codes"):
        gemm(HOPPER, DotOperands(a.astype(np.uint32), b, c))
    with pytest.raises(InputError, match="shapes"):
        gemm(HOPPER, DotOperands(a, b.T, c))


def test_numpy_s_integers_are_codes_and_what_is_kept_of_them_is_no_other_s():
    a = [0x3C01, 0x7BFF, 0x0001, 0xC000] * 4
    want = dot(HOPPER, DotOperands(a, a, 0))
    given = np.array([x ^ 0x8000 for x in a], np.uint16)  # codes that no other test has asked for first
    assert (
        dot(HOPPER, DotOperands(given, given, np.uint32(0)))
        == want
        == dot(HOPPER, DotOperands(given.tolist(), given.tolist(), 0))
    )


@pytest.mark.parametrize("other", [1.5, np.float32(2.5), "5", b"3", None])
def test_codes_are_integers(other):
    """A value in the place of a code is refused; true and false are integers, as everywhere in Python."""
    with pytest.raises(TypeError, match="integer"):
        dot(HOPPER, DotOperands([other], [0x3C00], 0))
    assert dot(HOPPER, DotOperands([True], [0x3C00], 0)) == dot(HOPPER, DotOperands([1], [0x3C00], 0))


def test_operands_that_are_kept_are_bounded(monkeypatch):
    monkeypatch.setattr(terms, "MOST_OPERANDS", 8)
    fp16, specials = format_of("fp16"), Specials(nan_code=0x7FFF_FFFE)  # no unit's
    codes = list(range(0x3C00, 0x3C14)) * 2
    found = [terms.read_operand(fp16, code, specials).significand for code in codes]
    assert found == [0x400 | code & 0x3FF for code in codes]
    assert 0 < len(terms.operands_of(fp16, specials)) <= 8
