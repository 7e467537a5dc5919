"""Formats against NumPy, ml_dtypes and MPFR: every code up to 16 bits, structured values beyond."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from hwsim.errors import InputError
from hwsim.formats import (
    FORMATS,
    ROUNDINGS,
    Exact,
    Format,
    Rounding,
    array_dtype,
    array_of,
    code_dtype,
    codes_of,
    decode,
    encode,
    format_of,
    round_shift,
    round_to,
)

SMALL = [name for name, fmt in FORMATS.items() if fmt.bits <= 16]
SMALL_FLOATS = [name for name in SMALL if not FORMATS[name].is_integer]
IEEE_LIKE = ["fp16", "bf16", "fp32", "e8m13", "tf32", "hf32", "fp64"]


def as_float(exact: Exact) -> float:
    """The value as binary64 (exact for every format here but the widest sums)."""
    if exact.kind == "nan":
        return math.nan
    if exact.kind == "infinity":
        return -math.inf if exact.sign else math.inf
    return math.copysign(float(abs(exact.fraction)), -1 if exact.sign else 1)


def same(x: float, y: float) -> bool:
    """Equal with the sign of zero, or both NaN."""
    return (math.isnan(x) and math.isnan(y)) or (x == y and math.copysign(1, x) == math.copysign(1, y))


@pytest.mark.parametrize("name", SMALL)
def test_every_code_decodes_as_numpy_has_it(name: str) -> None:
    fmt = format_of(name)
    codes = np.arange(1 << fmt.bits).astype(code_dtype(fmt))
    if name == "ue4m3":  # the sign bit of ml_dtypes' e4m3 is ignored
        expected = array_of(codes & 0x7F, fmt).astype(np.float64)
    else:
        with np.errstate(invalid="ignore"):
            expected = array_of(codes, fmt).astype(np.float64)
    wrong = [code for code in range(1 << fmt.bits) if not same(as_float(decode(fmt, code)), float(expected[code]))]
    assert wrong == []


@pytest.mark.parametrize("name", SMALL)
def test_every_code_survives_decode_and_encode(name: str) -> None:
    fmt = format_of(name)
    for code in range(1 << fmt.bits):
        value = decode(fmt, code)
        if value.kind == "nan":
            assert decode(fmt, encode(fmt, value)).kind == "nan"
            continue
        expected = code & 0x7F if name == "ue4m3" else code
        assert encode(fmt, value) == expected
        roundings = ROUNDINGS if fmt.bits <= 8 else ROUNDINGS[code % len(ROUNDINGS) :][:1]
        assert {round_to(fmt, value, rounding, overflow="ieee") for rounding in roundings} == {expected}


@pytest.mark.parametrize("name", [name for name in SMALL if FORMATS[name].bits <= 8])
def test_named_codes(name: str) -> None:
    fmt = format_of(name)
    finite = [decode(fmt, code) for code in range(1 << fmt.bits)]
    finite = [value for value in finite if value.kind == "finite"]
    largest = decode(fmt, fmt.largest_code())
    assert largest.fraction == max(value.fraction for value in finite)
    if not fmt.is_integer:
        assert 2 ** Fraction(fmt.max_exponent) <= largest.fraction < 2 ** Fraction(fmt.max_exponent + 1)
        assert {value.exponent + fmt.fraction_bits >= fmt.min_exponent for value in finite} == {True}
    if fmt.signed:
        assert decode(fmt, fmt.largest_code(1)).fraction == min(value.fraction for value in finite)


@pytest.mark.parametrize(
    ("name", "nan", "infinity", "largest"),
    [
        ("fp64", 0x7FF8 << 48, 0x7FF << 52, (0x7FF << 52) - 1),
        ("fp32", 0x7FC00000, 0x7F800000, 0x7F7FFFFF),
        ("tf32", 0x7FC00000, 0x7F800000, 0x7F7FE000),
        ("hf32", 0x7FC00000, 0x7F800000, 0x7F7FF000),
        ("e8m13", 0x7FC00000, 0x7F800000, 0x7F7FFC00),
        ("fp16", 0x7E00, 0x7C00, 0x7BFF),
        ("bf16", 0x7FC0, 0x7F80, 0x7F7F),
        ("e5m2", 0x7E, 0x7C, 0x7B),
    ],
)
def test_codes_from_the_standards(name: str, nan: int, infinity: int, largest: int) -> None:
    fmt = format_of(name)
    assert (fmt.nan_code, fmt.infinity_code(), fmt.largest_code()) == (nan, infinity, largest)
    assert fmt.infinity_code(1) == infinity | 1 << fmt.bits - 1


def binary32_values(fraction_bits: int, exponents: range) -> Iterator[int]:
    """fp32 codes that straddle a cut to `fraction_bits`: exact, tie, next to a tie, carries, both signs."""
    cut = 23 - fraction_bits
    kepts = {0, 1, 2, (1 << fraction_bits) - 1, (1 << fraction_bits) // 2, (1 << fraction_bits) // 3}
    half = 1 << (cut - 1)
    rests = {0, 1, half - 1, half, half + 1, (1 << cut) - 1}
    for exponent, kept, rest, sign in itertools.product(exponents, kepts, rests, (0, 1)):
        yield sign << 31 | exponent << 23 | kept << cut | rest


@pytest.mark.parametrize("name", SMALL_FLOATS)
def test_nearest_even_is_ml_dtypes_cast(name: str) -> None:
    fmt, fp32 = format_of(name), format_of("fp32")
    low, high = fmt.min_exponent - fmt.fraction_bits - 3 + 127, fmt.max_exponent + 3 + 127
    near = {e for e in range(max(low, 0), min(high, 255)) if e - low < 16 or high - e < 6 or abs(e - 127) < 3}
    codes = np.array(
        sorted({code for e in near for code in binary32_values(fmt.fraction_bits, range(e, e + 1))}), np.uint32
    )
    if name == "ue4m3":
        codes = codes[codes < 1 << 31]
    if name == "ue8m0":  # ml_dtypes takes the subnormal 0x400001, just above 2^-127, to 2^-126, which is not nearest
        codes = codes[codes << 1 >> 24 > 0]
    with np.errstate(all="ignore"):
        expected = codes.view(np.float32).astype(array_dtype(fmt))
    assert len(codes) > 200
    wrong = []
    for code, want in zip(codes.tolist(), expected.view(code_dtype(fmt)).tolist(), strict=True):
        got = round_to(fmt, decode(fp32, code), "RNE")
        if got != want and decode(fmt, want).kind != "nan":
            wrong.append((hex(code), hex(got), hex(want)))
        if decode(fmt, want).kind == "nan":
            assert decode(fmt, got).kind == "nan", hex(code)
    assert wrong == []


def structured(fmt: Format) -> Iterator[Exact]:
    """Values around every edge of a format: underflow, subnormals, ties, carries, overflow."""
    p = fmt.precision
    lowest = fmt.min_exponent - fmt.fraction_bits
    middle = [lowest - 2, lowest - 1, lowest, lowest + 1, lowest + p // 2, fmt.min_exponent - 1, fmt.min_exponent]
    leads = [*middle, fmt.min_exponent + 1, -1, 0, 1, fmt.max_exponent - 1, fmt.max_exponent, fmt.max_exponent + 1]
    extra = 5
    tails = [0, 1, 15, 16, 17, 31]
    kepts = {1 << p - 1, (1 << p) - 1, (1 << p) - 2, (1 << p - 1) + 1, (1 << p - 1) | (1 << p) // 5}
    for lead, kept, tail, sign in itertools.product(leads, sorted(kepts), tails, (0, 1)):
        yield Exact("finite", sign, kept << extra | tail, lead - (p - 1) - extra)


def test_all_roundings_against_mpfr() -> None:
    gmpy2 = pytest.importorskip("gmpy2")
    mpfr_round = {
        "RNE": gmpy2.RoundToNearest,
        "RZ": gmpy2.RoundToZero,
        "RU": gmpy2.RoundUp,
        "RD": gmpy2.RoundDown,
        "away": gmpy2.RoundAwayZero,
    }
    wide = gmpy2.context(precision=200, emax=1 << 20, emin=-(1 << 20))
    for name in IEEE_LIKE:
        fmt = format_of(name)
        narrow = {
            mode: gmpy2.context(
                precision=fmt.precision,
                emax=fmt.max_exponent + 1,
                emin=fmt.min_exponent - fmt.fraction_bits + 1,
                subnormalize=True,
                round=rounding,
            )
            for mode, rounding in mpfr_round.items()
        }
        count = 0
        for exact in structured(fmt):
            with wide:
                value = gmpy2.mpfr(gmpy2.mpq(exact.significand) * gmpy2.mpq(2) ** exact.exponent)
                value = -value if exact.sign else value
            results = {mode: context.plus(value) for mode, context in narrow.items()}
            for mode in ("RNE", "RZ", "RU", "RD"):
                got = decode(fmt, round_to(fmt, exact, mode, overflow="ieee"))
                assert_is_mpfr(got, results[mode], (name, mode, exact))
            got = decode(fmt, round_to(fmt, exact, "RNA", overflow="ieee"))
            inner, outer = abs(magnitude(fmt, results["RZ"])), abs(magnitude(fmt, results["away"]))
            up = abs(exact.fraction) - inner >= outer - abs(exact.fraction)
            if inner == decode(fmt, fmt.largest_code()).fraction:  # beyond it, compare with the next binade
                up = abs(exact.fraction) - inner >= 2 ** Fraction(fmt.max_exponent + 1) - abs(exact.fraction)
            assert_is_mpfr(got, results["away" if up else "RZ"], (name, "RNA", exact))
            count += 1
        assert count > 500


def magnitude(fmt: Format, value: object) -> Fraction:
    """MPFR's result as a fraction; an infinity as the power of two that it begins at."""
    import gmpy2

    return 2 ** Fraction(fmt.max_exponent + 1) if gmpy2.is_infinite(value) else Fraction(*value.as_integer_ratio())


def assert_is_mpfr(got: Exact, expected: object, where: object) -> None:
    import gmpy2

    assert got.sign == gmpy2.is_signed(expected), where
    assert (got.kind == "infinity") == gmpy2.is_infinite(expected), where
    if got.kind == "finite":
        assert got.fraction == Fraction(*expected.as_integer_ratio()), where


LARGE = Exact("finite", 0, 3, 5000)
MINUS_LARGE = Exact("finite", 1, 3, 5000)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_overflow_rules(rounding: Rounding) -> None:
    fmt = format_of("fp32")
    up = rounding in ("RNE", "RNA", "RU")
    down = rounding in ("RNE", "RNA", "RD")
    assert round_to(fmt, LARGE, rounding, overflow="ieee") == (0x7F800000 if up else 0x7F7FFFFF)
    assert round_to(fmt, MINUS_LARGE, rounding, overflow="ieee") == (0xFF800000 if down else 0xFF7FFFFF)
    assert round_to(fmt, LARGE, rounding, overflow="infinity") == 0x7F800000
    assert round_to(fmt, MINUS_LARGE, rounding, overflow="saturate") == 0xFF7FFFFF


def test_infinities_where_a_format_has_none() -> None:
    infinity = Exact("infinity", 1)
    assert round_to(format_of("e4m3"), infinity, "RNE") == 0x7F
    assert round_to(format_of("e4m3"), infinity, "RNE", overflow="saturate") == 0xFE
    assert round_to(format_of("e5m2"), infinity, "RNE", overflow="saturate") == 0xFB
    assert round_to(format_of("e4m3fnuz"), infinity, "RNE") == 0x80
    assert round_to(format_of("e2m1"), infinity, "RNE") == 0xF
    assert round_to(format_of("int8"), infinity, "RNE") == 0x80
    assert round_to(format_of("uint8"), infinity, "RNE") == 0
    assert round_to(format_of("ue8m0"), infinity, "RNE", overflow="saturate") == 0xFF


def test_zeros() -> None:
    minus_zero = Exact("finite", 1)
    codes = {name: round_to(format_of(name), minus_zero, "RNE") for name in FORMATS}
    assert codes["fp32"] == codes["tf32"] == 0x80000000
    assert codes["e2m1"] == 8
    assert codes["e3m2"] == 0x20
    assert codes["ue8m0"] == 0xFF
    for name in ("e4m3fnuz", "e5m2fnuz", "ue4m3", "int4", "int32", "uint8"):
        assert codes[name] == 0, name
    tiny = Exact("finite", 1, 1, -5000)
    assert round_to(format_of("e4m3fnuz"), tiny, "RNE") == 0
    assert round_to(format_of("fp16"), tiny, "RZ") == 0x8000
    assert round_to(format_of("fp16"), tiny, "RD") == 0x8001


@pytest.mark.parametrize("name", ["int4", "int8", "int16", "int32", "uint8"])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_integers_round_as_python_does_and_saturate(name: str, rounding: Rounding) -> None:
    fmt = format_of(name)
    low = -(1 << fmt.fraction_bits) if fmt.signed else 0
    high = (1 << fmt.fraction_bits) - 1
    by_python = {
        "RNE": round,
        "RZ": math.trunc,
        "RU": math.ceil,
        "RD": math.floor,
        "RNA": lambda x: int(math.copysign(math.floor(abs(x) + Fraction(1, 2)), x)),
    }[rounding]
    for quarters in [*range(-40, 41), 4 * high - 1, 4 * high + 3, 4 * low - 2, 4 * low + 1]:
        exact = Exact("finite", int(quarters < 0), abs(quarters), -2)
        expected = min(max(by_python(Fraction(quarters, 4)), low), high)
        assert round_to(fmt, exact, rounding) == expected % (1 << fmt.bits), quarters


@pytest.mark.parametrize("name", ["tf32", "hf32", "e8m13"])
def test_low_bits_of_a_word_are_ignored(name: str) -> None:
    fmt, fp32 = format_of(name), format_of("fp32")
    low = (1 << fmt.ignored_bits) - 1
    for word in (0x3F800000, 0x00000000, 0x807FE000, 0x7F7FE000, 0xFF800000):
        word &= ~low
        assert decode(fmt, word | low) == decode(fmt, word)
        assert as_float(decode(fmt, word)) == as_float(decode(fp32, word))
    # A NaN that lies in the ignored bits only is an infinity to the unit.
    assert decode(fp32, 0x7F800001).kind == "nan"
    assert decode(fmt, 0x7F800001).kind == "infinity"


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_round_shift_against_fractions(rounding: Rounding) -> None:
    by_python = {
        "RNE": round,
        "RZ": math.trunc,
        "RU": math.ceil,
        "RD": math.floor,
        "RNA": lambda x: int(math.copysign(math.floor(abs(x) + Fraction(1, 2)), x)),
    }[rounding]
    for significand, shift, sign in itertools.product(range(70), range(-2, 8), (0, 1)):
        value = Fraction(significand) / Fraction(2) ** shift * (-1) ** sign
        assert round_shift(significand, shift, rounding, sign) == abs(by_python(value))


def test_encode_refuses_what_does_not_fit() -> None:
    fp16 = format_of("fp16")
    for exact in (Exact("finite", 0, 2049), Exact("finite", 0, 1, -25), Exact("finite", 0, 1, 16)):
        with pytest.raises(InputError, match="fp16 has no code"):
            encode(fp16, exact)
    assert encode(fp16, Exact("finite", 1, 2048)) == 0xE800
    with pytest.raises(InputError):
        encode(format_of("e4m3"), Exact("infinity", 0))
    with pytest.raises(InputError):
        encode(format_of("e4m3fnuz"), Exact("finite", 1))
    with pytest.raises(InputError, match="no NaN"):
        round_to(format_of("e2m1"), Exact("nan", 0), "RNE")


def test_bad_names_and_codes_are_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'fp16'"):
        format_of("fp61")
    with pytest.raises(InputError, match="does not fit the 4 bits"):
        decode(format_of("e2m1"), 16)
    with pytest.raises(InputError):
        decode(format_of("fp16"), -1)


@pytest.mark.parametrize("name", FORMATS)
def test_array_views(name: str) -> None:
    fmt = format_of(name)
    codes = np.arange(1, 9).astype(code_dtype(fmt)).reshape(2, 4)
    typed = array_of(codes, fmt)
    assert typed.dtype == array_dtype(fmt)
    back = codes_of(typed, fmt)
    assert (back == codes).all()
    assert np.shares_memory(back, codes) == (name != "int4")
    assert (codes_of(typed.T, fmt) == codes.T).all()
    with pytest.raises(InputError, match="dtype"):
        codes_of(np.zeros(3, np.complex64), fmt)
    with pytest.raises(InputError, match="dtype"):
        array_of(np.zeros(3, np.complex64), fmt)


def test_negative_nibbles_have_clear_high_bits() -> None:
    int4 = format_of("int4")
    assert codes_of(np.array([-1, -8, 7]).astype(array_dtype(int4)), int4).tolist() == [15, 8, 7]
    assert codes_of(np.array([0xF9], np.uint8).view(array_dtype(int4)), int4).tolist() == [9]


@pytest.mark.parametrize("is_typed", [False, True])
@pytest.mark.parametrize("name", [name for name, fmt in FORMATS.items() if fmt.bits < 8])
def test_a_code_wider_than_its_format_is_refused(name: str, is_typed: bool) -> None:
    fmt = format_of(name)
    dtype = array_dtype(fmt) if is_typed else code_dtype(fmt)
    whole = np.arange(1 << fmt.bits, dtype=np.uint8).reshape(2, -1)
    assert np.array_equal(codes_of(whole.view(dtype), fmt), whole)
    assert codes_of(np.zeros((0, 3), dtype), fmt).shape == (0, 3)
    copies_of_sign = range(0x100 - (1 << fmt.fraction_bits), 0x100) if is_typed and fmt.is_integer else ()
    for code in range(1 << fmt.bits, 0x100):
        codes = whole.copy()
        codes[1, 3] = code
        if code in copies_of_sign:
            assert codes_of(codes.view(dtype), fmt)[1, 3] == code & 15
            continue
        with pytest.raises(InputError, match=rf"0x{code:02x} at \[1, 3\] is no code of {name}.* {fmt.bits} bits"):
            codes_of(codes.view(dtype), fmt)
    with pytest.raises(InputError, match=f"^0xff is no code of {name}|^0x7f is no code"):
        codes_of(np.array(0x7F if is_typed else 0xFF, np.uint8).view(dtype), fmt)


def test_what_unpacks_two_codes_of_a_byte_does() -> None:
    x = np.array([[0x21, 0x43], [0x65, 0x87]], np.uint8)
    with pytest.raises(InputError) as refused:
        codes_of(x, format_of("e2m1"))
    expression = str(refused.value).partition("; np.")[2].partition(" unpacks")[0]
    unpacked = eval(f"np.{expression}", {"np": np, "x": x})
    assert unpacked.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    with pytest.raises(InputError) as refused:
        codes_of(np.array([0x40], np.uint8), format_of("e3m2"))
    assert "unpacks" not in str(refused.value)


def test_which_formats_have_the_values_of_others():
    """Against all codes of both formats: -0 and infinities count for `holds`, and for finite numbers they do not."""
    values: dict[str, set[tuple[str, int, Fraction | None]]] = {}
    numbers: dict[str, set[Fraction | None]] = {}
    for name in SMALL:
        codes = [decode(FORMATS[name], code) for code in range(1 << FORMATS[name].bits)]
        finite = [(x.kind, x.sign, x.fraction if x.kind == "finite" else None) for x in codes if x.kind != "nan"]
        values[name], numbers[name] = set(finite), {x for kind, _, x in finite if kind == "finite"}
    for wide, narrow in itertools.product(SMALL, SMALL):
        outer, inner = FORMATS[wide], FORMATS[narrow]
        is_float = not outer.is_integer and not inner.is_integer
        assert outer.holds(inner) == (is_float and values[narrow] <= values[wide]), (wide, narrow)
        assert outer.has_numbers_of(inner) == (numbers[narrow] <= numbers[wide]), (wide, narrow)
    fp64 = FORMATS["fp64"]
    assert all(fp64.holds(format_of(name)) for name in IEEE_LIKE) and not format_of("tf32").holds(format_of("hf32"))
    assert fp64.has_numbers_of(format_of("int32")) and not format_of("fp32").has_numbers_of(format_of("int32"))
