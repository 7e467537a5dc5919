"""Operands at the bounds of the kernels' fast ways: where a bound is one binade too wide, a last place is lost here."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from test_dot_models import CDNA2, NVIDIA, SATURATE, SPECS, VARIANTS, Codes, check, operands

from hwsim._kernels import gemm
from hwsim.numerics.units import CompositeUnit, DotSpec, ExactUnit, FusedUnit, Specials, TwoLevelUnit

IEEE = Specials(zero="ieee")
MINUS_ZERO = 0x80000000


def bf16(sign: Codes, exponent: Codes, fraction: Codes) -> Codes:
    """Codes of (-1)^sign (1 + fraction / 128) 2^exponent."""
    return (np.asarray(sign) << 15 | (np.asarray(exponent) + 127) << 7 | np.asarray(fraction)).astype(np.uint16)


@pytest.mark.parametrize("terms", [16, 200, 256])
def test_a_term_more_than_a_hundred_binades_below_many(terms: int) -> None:
    """The sum of all is near the width of the integers that the general way adds in."""
    spec = DotSpec(ExactUnit(terms), "bf16", "bf16", "fp32", "fp32")
    for exponent in range(-60, -45):
        a = np.full((2, terms), bf16(0, 0, 127))
        b = np.full((terms, 3), bf16(0, 0, 127))
        a[:, 5], b[5] = bf16(0, exponent, 1), bf16(1, exponent, [1, 0, 127])
        check(spec, a, b, np.zeros((2, 3), np.uint32))


@pytest.mark.parametrize("rounding", ["RD", "RU", "RZ", "RNE"])
@pytest.mark.parametrize("start", [0, MINUS_ZERO])
def test_sign_of_a_zero_sum_by_rounding(rounding: str, start: int) -> None:
    """All terms +0 or -0, both, and terms that cancel: by columns and rows."""
    spec = DotSpec(ExactUnit(4, rounding, IEEE), "fp16", "fp16", "fp32", "fp32")  # type: ignore[arg-type]
    a = np.array([[0] * 4, [0x8000] * 4, [0x3C00, 0xBC00, 0, 0], [0, 0x8000, 0, 0x8000]], np.uint16)
    b = np.array([[0x3C00, 0xBC00], [0x3C00, 0xBC00], [0x3C00, 0xBC00], [0x3C00, 0xBC00]], np.uint16)
    c = np.full((4, 2), start, np.uint32)
    check(spec, a, b, c)
    got = gemm(spec, a, b, c)
    assert got[0, 0] == start if rounding == "RD" or start == 0 else got[0, 0] == 0
    assert got[2, 0] == (MINUS_ZERO if rounding == "RD" else 0)


def test_the_last_of_54_places_decides_a_tie() -> None:
    """A product in 32 to 64 of 22 bits, half a last place of binary32, and 2^-48: the 54th place."""
    spec = DotSpec(ExactUnit(16), "fp16", "fp16", "fp32", "fp32")
    rng = np.random.default_rng(11)
    a, b = np.zeros((40, 16), np.uint16), np.zeros((16, 40), np.uint16)
    high = lambda size: (17 << 10 | rng.integers(512, 1024, size)).astype(np.uint16)  # noqa: E731 (6 to 8)
    a[:, 0], b[0] = high(40), high(40)
    a[:, 1], b[1] = 6 << 10, 5 << 10  # 2^-9 and 2^-10: together half an ulp of 32 to 64
    a[:, 2], b[2] = rng.integers(0, 2, 40) << 15 | 1, 1  # the least subnormals
    check(spec, a, b, np.zeros((40, 40), np.uint32))


def test_an_accumulator_far_below_the_products_decides_a_tie() -> None:
    """Products of 2^24 and 1 or 3, half a last place of binary32, and accumulators that end 64 places below."""
    spec = DotSpec(ExactUnit(4), "fp16", "fp16", "fp32", "fp32")
    a, b = np.zeros((6, 4), np.uint16), np.zeros((4, 8), np.uint16)
    a[:, 0], b[0] = 27 << 10, 27 << 10  # 2^12
    a[:, 1], b[1] = [0x3C00, 0x4200] * 3, 0x3C00  # 1 and 3
    c = np.full((6, 8), (127 - 40) << 23, np.uint32)
    c[:, ::2] |= MINUS_ZERO
    check(spec, a, b, c)
    assert gemm(spec, a, b, c)[:2, :2].view(np.float32).tolist() == [[2**24, 2**24 + 2], [2**24 + 2, 2**24 + 4]]


@pytest.mark.parametrize("terms", [3, 4])
def test_the_last_place_of_accumulators_of_ones_decides_a_tie(terms: int) -> None:
    """Products of 1 + 3 * 2^-24 - 2^-29, the largest of them last, and accumulators of 2^-29 - 2^-53: 54 places."""
    spec = DotSpec(ExactUnit(terms), "fp16", "fp16", "fp32", "fp32")
    a, b = np.zeros((12, terms), np.uint16), np.zeros((terms, 16), np.uint16)
    a[:, -3:] = 0x8400, 0x0C00, 0x3C00  # -2^-14, 2^-12, 1
    b[-3:] = [[0x0200], [0x1200], [0x3C00]]  # 2^-15, 3 * 2^-12, 1
    c = np.full((12, 16), (127 - 30) << 23 | 0x7FFFFF, np.uint32)
    check(spec, a, b, c)
    assert set(gemm(spec, a, b, c).view(np.float32).ravel().tolist()) == {1 + 2**-23}


@pytest.mark.parametrize("column", range(16))
def test_one_small_number_of_a_panel_decides_a_tie(column: int) -> None:
    """64 + 3 * 2^-18, half a last place of binary32, and in one column -2^-48."""
    spec = DotSpec(ExactUnit(4), "fp16", "fp16", "fp32", "fp32")
    a, b = np.zeros((12, 4), np.uint16), np.zeros((4, 16), np.uint16)
    a[:, :3] = 0x4800, 0x1800, 1  # 8, 2^-9, 2^-24
    b[:2] = [[0x4800], [0x1E00]]  # 8, 3 * 2^-9
    b[2, column] = 0x8001  # -2^-24
    c = np.zeros((12, 16), np.uint32)
    check(spec, a, b, c)
    wanted = np.full(16, 64 + 2**-16, np.float32)
    wanted[column] = 64 + 2**-17
    assert (gemm(spec, a, b, c).view(np.float32) == wanted).all()


@pytest.mark.parametrize("terms", [5, 8, 64])
def test_products_that_take_no_part_are_not_packed(terms: int) -> None:
    """Four of a step's products take part: fewer numbers are packed than read."""
    unit = CompositeUnit(terms, FusedUnit(4, 23, -133), "fp16", terms, ((0, 1, 2, 3),), specials=NVIDIA)
    spec = DotSpec(unit, "e4m3", "e4m3", "fp32", "fp32")
    for k in (4, terms, terms + 1, 2 * terms):
        a, b, c = operands(k, spec, 3, 70, k, "near")
        check(spec, a, b, c)


@pytest.mark.parametrize("drop", [1, 3, 13, 14, 25])
def test_a_small_accumulator_outlasts_a_step_without_products(drop: int) -> None:
    """A sum of -2^-104 in scaled lines, then a step whose products are zero, which drops nothing."""
    spec = DotSpec(TwoLevelUnit(4, accumulator_drop_bits=drop), "bf16", "bf16", "fp32", "fp32")
    a, b = np.zeros((3, 12), np.uint16), np.zeros((12, 40), np.uint16)
    a[:, :2] = bf16([0, 1], [-45, -45], [1, 2])
    b[:2] = bf16(0, [[-45], [-45]], [[1], [0]])
    a[:, 4], b[5] = bf16(0, 0, 0), bf16(0, 0, 0)
    c = np.zeros((3, 40), np.uint32)
    check(spec, a, b, c)
    assert (gemm(spec, a, b, c) != 0).all()


@pytest.mark.parametrize("k", [257, 267])
@pytest.mark.parametrize("name", ["exact16-fp16", "exact8-tf32", "exact2-bf16"])
def test_what_is_packed_beyond_k_counts_as_zero(name: str, k: int) -> None:
    """Whole tiles over a last chunk of few products, packed where the chunk before it was."""
    a, b, c = operands(k, SPECS[name], 12, 16, k, "near")
    check(SPECS[name], a, b, c)


@pytest.mark.parametrize("start", [0, MINUS_ZERO])
@pytest.mark.parametrize("products", [-164, *range(-153, -146)])
def test_a_sum_that_underflows_to_minus_zero_stays_one(products: int, start: int) -> None:
    """Two products that differ by 2^products, then a step in which every product is -0."""
    pairs = itertools.product(range(129, 256, 2), repeat=2)
    by_product = {x * y: (x, y) for x, y in pairs}
    first = next(p for p in sorted(by_product) if p + 2 in by_product)  # both odd: they differ by two
    (x, y), (z, w) = by_product[first], by_product[first + 2]
    spec = DotSpec(ExactUnit(8, specials=IEEE), "bf16", "bf16", "fp32", "fp32")
    a, b = np.zeros((3, 16), np.uint16), np.full((16, 5), 0x8000, np.uint16)
    one = (products - 1) // 2
    two = products - 1 - one
    a[:, 0], a[:, 1] = bf16(0, one + 7, x - 128), bf16(1, one + 7, z - 128)
    b[0], b[1] = bf16(0, two + 7, y - 128), bf16(0, two + 7, w - 128)
    b[2:8] = 0x8000
    a[:, 8:], b[8:] = 0, bf16(1, 0, 0)
    check(spec, a, b, np.full((3, 5), start, np.uint32))


@pytest.mark.parametrize("span", [44, 45, 46, 47, 48, 50])
def test_lines_of_a_span(span: int) -> None:
    """Rows and columns whose exponents lie exactly so many binades apart, down to sums of two spans."""
    spec = DotSpec(FusedUnit(16, 25, -133, specials=NVIDIA), "bf16", "bf16", "fp32", "fp32")
    rng = np.random.default_rng(span)
    m, n, k = 5, 20, 48
    for top in (20, 0, -20):
        a = bf16(rng.integers(0, 2, (m, k)), top - rng.integers(0, span + 1, (m, k)), rng.integers(0, 128, (m, k)))
        b = bf16(rng.integers(0, 2, (k, n)), top - rng.integers(0, span + 1, (k, n)), rng.integers(0, 128, (k, n)))
        a[:, 0], b[0] = bf16(0, top, 0), bf16(0, top - span, 3)
        a[:, 1:16], b[1] = bf16(0, top - span, 5), bf16(1, top, 7)
        b[2:16] = bf16(0, top - span, 9)
        a[::2, 0] = bf16(0, top - span, 1)
        c = rng.integers(0, 1 << 16, (m, n)).astype(np.uint32) << 12
        check(spec, a, b, c)


@pytest.mark.parametrize("terms", [15, 16, 31, 32, 48, 63, 64])
@pytest.mark.parametrize("fraction_bits", [14, 15, 16, 17, 18])
def test_sums_of_many_large_terms(terms: int, fraction_bits: int) -> None:
    """Every product is nearly 4 times its power of two, all of one sign: the sum is as large as it can be. Those of
    binary16 have places that are cut.
    """
    spec = DotSpec(FusedUnit(terms, fraction_bits, -133, specials=NVIDIA), "fp16", "fp16", "fp32", "fp32")
    rng = np.random.default_rng(terms)
    a = (15 << 10 | rng.integers(1000, 1024, (2, 2 * terms))).astype(np.uint16)
    b = (15 << 10 | rng.integers(1000, 1024, (2 * terms, 9))).astype(np.uint16)
    for sign, exponent in ((0, 0), (1, 1)):
        c = np.full((2, 9), sign << 31 | (127 + exponent) << 23 | 0x7FFFFF, np.uint32)
        check(spec, a | np.uint16(sign << 15), b, c)


@pytest.mark.parametrize("specials", [Specials(), IEEE, CDNA2, SATURATE], ids=["plain", "ieee", "flush", "saturate"])
@pytest.mark.parametrize("name", ["e4m3fnuz", "e5m2fnuz"])
def test_results_of_a_format_without_a_negative_zero(name: str, specials: Specials) -> None:
    """Products of every sign and size, from what rounds to zero to what overflows: the code of -0 is the NaN."""
    spec = DotSpec(ExactUnit(2, specials=specials), "fp16", "fp16", name, name)
    a = np.zeros((33, 2), np.uint16)
    a[:31, 0], a[31:] = np.arange(31) << 10 | 0x200, [[0x8000, 0x8000], [0x7C00, 0]]
    b = np.array([[0x3C00, 0xBC00, 0x1000, 0x9000], [0x3C00, 0x3C00, 0x3C00, 0x3C00]], np.uint16)
    c = np.zeros((33, 4), np.uint8)
    check(spec, a, b, c)
    got = gemm(spec, a, b, c)
    assert (got[0, 2:] == 0).all() and got[15, 1] == got[15, 0] | 0x80


@pytest.mark.parametrize("name", SPECS)
def test_one_row(name: str) -> None:
    """One row, and one more than lanes take at once."""
    spec = SPECS[name]
    for m in (1, 5, 7, 13):
        a, b, c = operands(m, spec, m, 3, 9, "near")
        check(spec, a, b, c)


@pytest.mark.parametrize("name", ["pairwise-fp16", "pairwise-fp16-7", "integer", "integer-16-saturate"])
def test_more_rows_than_are_packed_at_once(name: str) -> None:
    """A long K, so that few rows are packed at a time: each row has the bits that it has among few others."""
    spec = SPECS[name]
    a, b, c = operands(3, spec, 201, 19, 1100, "near")
    for variant in VARIANTS[:-1]:
        whole = gemm(spec, a, b, c, _variant=variant)
        for first in range(0, 201, 50):
            part = slice(first, first + 5)
            assert np.array_equal(whole[part], gemm(spec, a[part], b, c[part], _variant="scalar"))
