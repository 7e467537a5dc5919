"""The exact step and the FMA chain against MPFR, NumPy and the rules of IEEE 754."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from hwsim.formats import Rounding, decode, format_of
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.exact import ExactStages
from hwsim.numerics.reference import dot, stages, step
from hwsim.numerics.units import DotSpec, ExactUnit, FmaChainUnit, Specials

gmpy2 = pytest.importorskip("gmpy2")

MPFR_ROUND = {
    "RNE": gmpy2.RoundToNearest,
    "RZ": gmpy2.RoundToZero,
    "RU": gmpy2.RoundUp,
    "RD": gmpy2.RoundDown,
}
QUIET_NAN = 0x7FC00000


def field_codes(rng: np.random.Generator, fmt: str, count: int, near: int | None = None) -> list[int]:
    """Finite codes made from fields: signs, exponents (all, or within 3 of `near`), structured fractions."""
    f = format_of(fmt)
    top, full = f.largest_magnitude >> f.fraction_bits, (1 << f.fraction_bits) - 1
    made = []
    for _ in range(count):
        biased = int(rng.integers(top + 1)) if near is None else int(np.clip(near + rng.integers(-3, 4), 0, top))
        one_hot, any_bits = 1 << int(rng.integers(f.fraction_bits)), int(rng.integers(full))
        fraction = int(rng.choice([0, 1, full, full ^ 1, one_hot, any_bits]))
        magnitude = min(biased << f.fraction_bits | fraction, f.largest_magnitude)
        made.append(f.word(int(rng.integers(2)), magnitude))
    return made


def mpfr_round(value: Fraction, fmt: str, rounding: str) -> object:
    """An exact non-zero sum rounded by MPFR to a format, with its exponent range and subnormals."""
    f = format_of(fmt)
    wide = gmpy2.context(precision=5000, emax=1 << 20, emin=-(1 << 20))
    with wide:
        exact = gmpy2.mpfr(gmpy2.mpq(value.numerator, value.denominator))
    assert Fraction(*exact.as_integer_ratio()) == value
    context = gmpy2.context(
        precision=f.precision,
        emax=f.max_exponent + 1,
        emin=f.min_exponent - f.fraction_bits + 1,
        subnormalize=True,
        round=MPFR_ROUND[rounding],
    )
    return context.plus(exact)


def assert_rounds(code: int, value: Fraction, fmt: str, rounding: str) -> None:
    """The code is MPFR's rounding, except that a sum of the next binade or above is an infinity in every mode."""
    f = format_of(fmt)
    got = decode(f, code)
    if value == 0:
        assert (got.kind, got.significand) == ("finite", 0)
        return
    expected = mpfr_round(value, fmt, rounding)
    if gmpy2.is_infinite(expected) or abs(value) >= Fraction(2) ** (f.max_exponent + 1):
        assert (got.kind, got.sign) == ("infinity", int(value < 0))
    else:
        assert got.fraction == Fraction(*expected.as_integer_ratio())


@pytest.mark.parametrize("operands", ["fp16", "bf16", "e4m3", "tf32"])
@pytest.mark.parametrize("rounding", ["RNE", "RZ", "RU", "RD"])
@pytest.mark.parametrize("near", [None, "middle", "low"])
def test_exact_is_one_rounding_by_mpfr(operands: str, rounding: Rounding, near: str | None) -> None:
    rng = np.random.default_rng(11)
    spec = DotSpec(ExactUnit(4, rounding), operands, operands, "fp32", "fp32")
    bias = format_of(operands).bias
    place = {None: None, "middle": bias, "low": max(bias // 2 - 4, 1)}[near]
    c_place = {None: None, "middle": 127, "low": 8}[near]
    for k in [1, 3, 4] * 12:
        a, b = field_codes(rng, operands, k, place), field_codes(rng, operands, k, place)
        c = field_codes(rng, "fp32", 1, c_place)[0]
        value = sum(
            (
                decode(format_of(operands), x).fraction * decode(format_of(operands), y).fraction
                for x, y in zip(a, b, strict=True)
            ),
            decode(format_of("fp32"), c).fraction,
        )
        assert_rounds(step(spec, DotOperands(a, b, c)), value, "fp32", rounding)


@pytest.mark.parametrize("fmt", ["fp32", "fp64", "fp16"])
@pytest.mark.parametrize("rounding", ["RNE", "RZ", "RU", "RD"])
def test_fma_is_one_rounding_by_mpfr(fmt: str, rounding: Rounding) -> None:
    rng = np.random.default_rng(13)
    spec = DotSpec(FmaChainUnit(rounding), fmt, fmt, fmt, fmt)
    f = format_of(fmt)
    for near, c_near in [(None, None), (f.bias, f.bias), (max(f.bias // 2 - f.fraction_bits // 2, 1), 1)] * 15:
        a, b = field_codes(rng, fmt, 1, near), field_codes(rng, fmt, 1, near)
        c = field_codes(rng, fmt, 1, c_near)[0]
        value = decode(f, a[0]).fraction * decode(f, b[0]).fraction + decode(f, c).fraction
        assert_rounds(step(spec, DotOperands(a, b, c)), value, fmt, rounding)


@pytest.mark.parametrize("k", [1, 3, 67])
@pytest.mark.parametrize("fmt", ["fp32", "fp64"])
def test_fma_chain_goes_by_k(fmt: str, k: int) -> None:
    """Each step rounded, in order: MPFR's fma on the exact operands, started at c."""
    rng = np.random.default_rng(k)
    f = format_of(fmt)
    a, b = field_codes(rng, fmt, k, f.bias), field_codes(rng, fmt, k, f.bias)
    c = field_codes(rng, fmt, 1, f.bias)[0]
    context = gmpy2.context(precision=f.precision)
    value = gmpy2.mpfr(decode(f, c).fraction, f.precision)
    for x, y in zip(a, b, strict=True):
        operands = [gmpy2.mpfr(decode(f, code).fraction, f.precision) for code in (x, y)]
        value = context.fma(*operands, value)
    got = decode(f, dot(DotSpec(FmaChainUnit(), fmt, fmt, fmt, fmt), DotOperands(a, b, c)))
    assert got.fraction == Fraction(*value.as_integer_ratio())


FP32 = DotSpec(FmaChainUnit(), "fp32", "fp32", "fp32", "fp32")
ONE, ZERO, MINUS_ZERO, INFINITY = 0x3F800000, 0, 0x80000000, 0x7F800000
INTERESTING = [ZERO, MINUS_ZERO, ONE, ONE | 1 << 31, INFINITY, INFINITY | 1 << 31, 0x7FC00000, 0x00000001]


def test_fma_specials_and_signs_of_zero() -> None:
    """With these operands the product is exact in fp32, so NumPy's a * b + c obeys the same rules."""
    for a, b, c in itertools.product(INTERESTING, repeat=3):
        if 1 in (a, b) and a & b & 1:
            continue
        with np.errstate(all="ignore"):
            x, y, z = (np.array(code, np.uint32).view(np.float32) for code in (a, b, c))
            expected = np.float32(x * y + z)
        got = step(FP32, DotOperands([a], [b], c))
        if np.isnan(expected):
            assert got == QUIET_NAN
        else:
            assert got == int(expected.view(np.uint32)), (hex(a), hex(b), hex(c))


def test_cancellation_toward_minus_infinity_gives_minus_zero() -> None:
    down = DotSpec(FmaChainUnit("RD"), "fp32", "fp32", "fp32", "fp32")
    assert step(down, DotOperands([ONE], [ONE], ONE | 1 << 31)) == MINUS_ZERO
    assert step(down, DotOperands([ZERO], [ONE], ZERO)) == ZERO
    assert step(FP32, DotOperands([ONE], [ONE], ONE | 1 << 31)) == ZERO


def test_subnormal_fma_results_are_kept() -> None:
    assert step(FP32, DotOperands([0x00800000], [0x3F000000], 1)) == 0x00400001
    flushing = DotSpec(FmaChainUnit(specials=Specials(zero="ieee", flush_results=True)), "fp32", "fp32", "fp32", "fp32")
    assert step(flushing, DotOperands([0x80800000], [0x3F000000], ZERO)) == MINUS_ZERO


def test_exact_zeros() -> None:
    positive = DotSpec(ExactUnit(2), "fp16", "fp16", "fp32", "fp32")
    ieee = DotSpec(ExactUnit(2, specials=Specials(zero="ieee")), "fp16", "fp16", "fp32", "fp32")
    all_minus = ([0x8000, 0x8000], [0x3C00, 0x3C00], MINUS_ZERO)
    assert step(positive, DotOperands(*all_minus)) == ZERO
    assert step(ieee, DotOperands(*all_minus)) == MINUS_ZERO
    assert step(ieee, DotOperands([0x8000], [0x3C00], MINUS_ZERO)) == ZERO  # the missing product is +0
    assert step(ieee, DotOperands([0x3C00, 0xBC00], [0x3C00, 0x3C00], MINUS_ZERO)) == ZERO


def test_exact_holds_what_a_rounding_adder_loses() -> None:
    """2^30 + 2^-48 - 2^30 is 2^-48 (the largest and the smallest fp16 powers of two, squared)."""
    spec = DotSpec(ExactUnit(4), "fp16", "fp16", "fp32", "fp32")
    big, tiny = 0x7800, 0x0001
    result = stages(spec, DotOperands([big, tiny, big | 0x8000], [big, tiny, big], 0))
    assert isinstance(result, ExactStages)
    assert (result.total, result.last_place, result.special) == (1, -48, None)
    assert result.result == (127 - 48) << 23


def test_exact_products_may_exceed_the_result_format() -> None:
    spec = DotSpec(ExactUnit(2), "bf16", "bf16", "fp32", "fp32")
    huge = 0x7F00  # 2^127
    assert step(spec, DotOperands([huge, huge], [huge, huge | 0x8000], ONE)) == ONE
    assert step(spec, DotOperands([huge], [huge], ONE)) == INFINITY


def test_ascend_saturation() -> None:
    specials = Specials(operands="saturate", overflow="saturate")
    spec = DotSpec(ExactUnit(16, specials=specials), "fp16", "fp16", "fp32", "fp32")
    assert step(spec, DotOperands([0x7C00], [0x3C00], 0)) == 0x477FE000
    assert step(spec, DotOperands([0xFE00], [0x3C00], ONE)) == ONE
    assert step(spec, DotOperands([0x7C00] * 2, [0x3C00, 0xBC00], INFINITY)) == 0x7F7FFFFF
    assert step(spec, DotOperands([0x7BFF], [0x7BFF], 0x7F7FFFFF)) == 0x7F7FFFFF
    assert step(spec, DotOperands([0x7BFF], [0xFBFF], 0xFF7FFFFF)) == 0xFF7FFFFF


@pytest.mark.parametrize("fmt", ["fp16", "bf16"])
def test_nan_code_is_data(fmt: str) -> None:
    plain = DotSpec(ExactUnit(2), fmt, fmt, "fp32", "fp32")
    nvidia = DotSpec(ExactUnit(2, specials=Specials(nan_code=0x7FFFFFFF)), fmt, fmt, "fp32", "fp32")
    nan = format_of(fmt).nan_code
    assert step(plain, DotOperands([nan], [0], 0)) == QUIET_NAN
    assert step(nvidia, DotOperands([nan], [0], 0)) == 0x7FFFFFFF
