"""The two-level kernels where its cuts and its rounding decide: every build against scalar code and reference."""

from __future__ import annotations

import numpy as np
import pytest
from test_dot_models import VARIANTS, Codes, build, check

from hwsim._kernels import gemm
from hwsim.formats import format_of
from hwsim.numerics.units import DotSpec, Specials, TwoLevelUnit

IEEE = Specials(zero="ieee")
SPECS = {
    "fp16": DotSpec(TwoLevelUnit(8, specials=IEEE), "fp16", "fp16", "fp32", "fp32"),
    "fp16-4": DotSpec(TwoLevelUnit(4, specials=IEEE), "fp16", "fp16", "fp32", "fp32"),
    "bf16": DotSpec(TwoLevelUnit(8, specials=IEEE), "bf16", "bf16", "fp32", "fp32"),
    "bf16-5": DotSpec(TwoLevelUnit(5), "bf16", "bf16", "fp32", "fp32"),
    "tf32": DotSpec(TwoLevelUnit(4, specials=IEEE), "tf32", "tf32", "fp32", "fp32"),
    "fp8": DotSpec(
        TwoLevelUnit(16, interleaved=True, accumulator_drop_bits=25, specials=IEEE),
        "e4m3fnuz",
        "e5m2fnuz",
        "fp32",
        "fp32",
    ),
    "fp8-6": DotSpec(
        TwoLevelUnit(6, interleaved=True, accumulator_drop_bits=3, specials=IEEE), "e5m2fnuz", "e5m2fnuz", *["fp32"] * 2
    ),
    "dropped": DotSpec(TwoLevelUnit(8, accumulator_drop_bits=9), "fp16", "bf16", "fp32", "fp32"),
    "other-widths": DotSpec(TwoLevelUnit(8, 20, 30, 22, 27), "fp16", "fp16", "fp32", "fp32"),
}


def agree(spec: DotSpec, a: Codes, b: Codes, c: Codes) -> None:
    expected = gemm(spec, a, b, c, _variant="scalar")
    for variant in VARIANTS:
        got = gemm(spec, a, b, c, _variant=variant)
        wrong = np.argwhere(got != expected)
        assert not len(wrong), (variant, len(wrong), wrong[0], got[tuple(wrong[0])], expected[tuple(wrong[0])])


def aimed(rng: np.random.Generator, spec: DotSpec, shape: tuple[int, int]) -> Codes:
    """Accumulators from 45 binades below to 45 above 1, with fractions at both ends and between."""
    exponent = rng.integers(-45, 46, shape) + 127
    fraction = rng.choice([0, 1, 2, 3, 0x7FFFFF, 0x7FFFFE, 0x400000, 0x400001, 0x2AAAAA], shape)
    return (rng.integers(0, 2, shape) << 31 | exponent << 23 | fraction).astype(np.uint32)


@pytest.mark.parametrize("name", SPECS)
def test_accumulators_of_every_distance(name: str) -> None:
    spec = SPECS[name]
    rng = np.random.default_rng(21)
    for kind in ("near", "wide", "small"):
        for k in (1, 3, spec.unit.terms, 67):
            a = build(rng, format_of(spec.a), (40, k), kind)
            b = build(rng, format_of(spec.b), (k, 150), kind)
            agree(spec, a, b, aimed(rng, spec, (40, 150)))
    a, b = build(rng, format_of(spec.a), (5, 19), "near"), build(rng, format_of(spec.b), (19, 40), "near")
    check(spec, a, b, aimed(rng, spec, (5, 40)))


@pytest.mark.parametrize("name", ["fp16", "fp16-4", "fp8"])
def test_totals_at_the_edges_of_the_last_cut(name: str) -> None:
    """The accumulator's and the products' last bits fall on ties, one unit beside them and on powers of two.

    One large product and one small one of chosen distance give S its last bit; accumulators within a few places
    of a power of two make totals that just reach, or just miss, the next binade.
    """
    spec = SPECS[name]
    rng = np.random.default_rng(22)
    fa, fb = format_of(spec.a), format_of(spec.b)

    def powers(fmt: object, shape: tuple[int, ...], low: int, high: int) -> Codes:
        f = format_of(spec.a) if fmt is fa else fb
        exponent = rng.integers(f.bias + low, f.bias + high + 1, shape)
        fraction = rng.choice([0, 1, (1 << f.fraction_bits) - 1], shape)
        sign = rng.integers(0, 2, shape) << f.magnitude_bits
        return (sign | exponent << f.fraction_bits | fraction).astype(np.uint16 if f.bits == 16 else np.uint8)

    terms = spec.unit.terms
    depth = 7 if fa.bits == 8 else 13
    a, b = np.zeros((60, terms), powers(fa, (1,), 0, 0).dtype), np.zeros((terms, 200), powers(fb, (1,), 0, 0).dtype)
    a[:, 0], b[0] = powers(fa, (60,), -1, 1), powers(fb, (200,), -1, 1)
    a[:, 1], b[1] = powers(fa, (60,), -depth, 0), powers(fb, (200,), -depth, 0)
    a[:, 2], b[2] = powers(fa, (60,), -depth, -depth + 2), powers(fb, (200,), -depth, 0)
    for distance in range(12):
        place = rng.integers(-4, 5, (60, 200))
        c = (rng.integers(0, 2, (60, 200)) << 31) + ((127 + distance) << 23) + place
        agree(spec, a, b, c.astype(np.uint32))


@pytest.mark.parametrize("name", ["bf16", "bf16-5", "tf32"])
def test_ties_that_one_dropped_bit_decides(name: str) -> None:
    """The total lies half-way between two results but for single bits of S at, and beyond, the last place that counts.

    The accumulator is 2^(5 + places) to just below twice that, the largest product 1, so that the last place of S is
    2^-24. A product of half the result's last place makes the tie, two of 2^(places - 24 - dropped) decide it; sums
    below, at and above the accumulator's power of two keep one bit more or less.
    """
    spec = SPECS[name]
    wide = spec.a == "tf32"
    rows = [
        (places, first, second, signs)
        for places in range(9)
        for first in range(1, 5)
        for second in (first, 3, 20)
        for signs in range(8)
    ]

    def codes(x: np.ndarray) -> Codes:
        bits = x.astype(np.float32).view(np.uint32)
        return bits if wide else (bits >> 16).astype(np.uint16)

    a = np.zeros((len(rows), 4), np.float32)
    for row, (places, first, second, signs) in zip(a, rows, strict=True):
        exponents = 0, 5 + places - 24 - signs % 2, places - 24 - first, places - 24 - second
        row[:] = [(-1) ** (signs >> i & 1) * 2.0**e for i, e in enumerate(exponents)]
    fractions = np.array([0, 1, 2, 0x400000, 0x7FFFFE, 0x7FFFFF], np.uint32)
    signs = np.array([[0], [1 << 31]], np.uint32)
    exponents = np.array([5 + places + 127 for places, *_ in rows], np.uint32) << 23
    c = exponents[:, None] | (fractions | signs).reshape(1, -1)
    b = np.ones((4, c.shape[1]), np.float32)
    b[1:, ::5] = -1
    agree(spec, codes(a), codes(b), c)
    check(spec, codes(a[::31]), codes(b), c[::31])


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp8"])
def test_largest_sums_and_cancellation(name: str) -> None:
    """All products as large as the format has them, or in pairs that cancel, with and without an accumulator."""
    spec = SPECS[name]
    rng = np.random.default_rng(23)
    fa, fb = format_of(spec.a), format_of(spec.b)
    ones = (fa.bias << fa.fraction_bits) | ((1 << fa.fraction_bits) - 1)
    other = (fb.bias << fb.fraction_bits) | ((1 << fb.fraction_bits) - 1)
    a = np.full((6, 64), ones, build(rng, fa, (1,), "near").dtype)
    b = np.full((64, 70), other, build(rng, fb, (1,), "near").dtype)
    a[1::2] |= a.dtype.type(1 << fa.magnitude_bits)
    a[4:, 1::2] ^= a.dtype.type(1 << fa.magnitude_bits)
    b[:, 5] = 0
    a[3, 8:24] = 0
    for c in (np.zeros((6, 70), np.uint32), aimed(rng, spec, (6, 70))):
        agree(spec, a, b, c)


@pytest.mark.parametrize("name", ["fp16", "bf16", "tf32", "fp8"])
def test_accumulators_the_lanes_leave_to_scalar_code(name: str) -> None:
    """-0, subnormal, tiny, huge, infinite and NaN accumulators among ordinary ones."""
    spec = SPECS[name]
    rng = np.random.default_rng(24)
    a, b = build(rng, format_of(spec.a), (9, 40), "near"), build(rng, format_of(spec.b), (40, 75), "near")
    pool = [
        0,
        1 << 31,
        1,
        0x807FFFFF,
        0x00800000,
        0x0D000000,
        0x7F7FFFFF,
        0xFF7FFFFF,
        0x7F800000,
        0xFF800000,
        0x7FC00001,
    ]
    c = rng.choice(np.array([*pool, *[0x3F800000] * 20], np.uint32), (9, 75))
    agree(spec, a, b, c)
    zeros = np.zeros_like(a)
    agree(spec, zeros, b, c)
    check(spec, a[:2, :9], b[:9, :20], c[:2, :20])


@pytest.mark.parametrize(
    ("name", "a", "b", "c", "expected"),
    [
        ("tf32", [0x3B801D3A], [0x7B0013BF], 0x97A25313, 0x76FFFFFF),
        ("tf32", [0xB750D204, 0xB750D204], [0xF40030AB, 0x740030AB], 0x909A3686, 0xDF800000),
        ("bf16", [0xC4A0, 0xC4A0], [0xEB00, 0x6B00], 0x8FC1CA4E, 0xE4000000),
    ],
)
def test_negative_accumulators_far_below_the_products_count_as_minus_one(name, a, b, c, expected) -> None:
    """Cutting rounds down: what lies hundreds of binades below still takes one off the last place. Found at random."""
    spec = SPECS[name]
    dtype = np.uint32 if name == "tf32" else np.uint16
    left, right = np.array([a], dtype), np.array([b], dtype).T
    columns = np.repeat(right, 40, axis=1)
    for variant in (*VARIANTS, "scalar"):
        got = gemm(spec, left, columns, np.full((1, 40), c, np.uint32), _variant=variant)
        assert (got == expected).all(), variant
