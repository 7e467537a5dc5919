"""CUDA's tanhf, erff, sinf and cosf: by fractions of integers, within CUDA's bounds, at special values."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import hwsim
from hwsim.arithmetic.cuda_math import CudaMath
from hwsim.devices.special_functions import nvidia_tables

scipy_special = pytest.importorskip("scipy.special")
MATH = CudaMath(nvidia_tables())
Single = np.float32
PLACES = 24
TWO_OVER_PI = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041  # its first 192 bits


def nearest(x: Fraction) -> Fraction:
    """x rounded to fp32, ties to even; no overflow."""
    if not x:
        return x
    exponent = max(abs(x).numerator.bit_length() - abs(x).denominator.bit_length(), -126)
    while abs(x) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while abs(x) < Fraction(2) ** exponent and exponent > -126:
        exponent -= 1
    step = Fraction(2) ** (exponent - PLACES + 1)
    return round(x / step) * step  # Python rounds ties to even


def of(word: int) -> Fraction:
    return Fraction(float(np.array([word], np.uint32).view(np.float32)[0]))


def polynomial(x: Fraction, words: tuple[int, ...]) -> Fraction:
    total = of(words[0])
    for word in words[1:]:
        total = nearest(total * x + of(word))
    return total


def power_of_two(x: Fraction) -> Fraction:
    return Fraction(float(MATH.exp2f(np.array([float(x)], np.float32))[0]))


def tanh(x: Fraction) -> Fraction:
    size = abs(x)
    if size < of(0x3F19999A):
        square = nearest(x * x)
        total = polynomial(square, (0x3C80F082, 0xBD563CAE, 0x3E085941, 0xBEAAA9ED))
        return nearest(nearest(total * square) * x + x)
    if size >= of(0x41102CB4):
        return Fraction(1 if x > 0 else -1)
    power = nearest(power_of_two(nearest(size * of(0x4038AA3B))) + 1)
    inverse = Fraction(float(MATH.rcp(np.array([float(power)], np.float32))[0]))
    far = nearest(1 - 2 * inverse)
    return far if x > 0 else -far


def erf(x: Fraction) -> Fraction:
    size = abs(x)
    if size < of(0x3F8060FE):
        words = (0x38B1E96A, 0xBA574D20, 0x3BAAD5EA, 0xBCDC1BE7, 0x3DE718AF, 0xBEC093AC, 0x3E0375D3)
        return nearest(polynomial(nearest(x * x), words) * x + x)
    words = (0x38EB4C3A, 0xBAAE005B, 0x3C09919F, 0xBD24D99A, 0x3E235519, 0x3F69B4F9, 0x3F210A14)
    far = nearest(1 - power_of_two(nearest(-size * polynomial(size, words) - size)))
    return far if x > 0 else -far


def reduced(x: Fraction) -> tuple[int, Fraction]:
    """Quarters of a turn, and the rest."""
    if abs(x) < of(0x47CE4780):
        quarters = round(nearest(x * of(0x3F22F983)))
        rest = x
        for word in (0xBFC90FDA, 0xB3A22168, 0xA7C234C5):
            rest = nearest(quarters * of(word) + rest)
        return quarters, rest
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    significand = int(size / Fraction(2) ** (exponent - 31))  # 32 bits, of which the lowest 8 are 0
    product = significand * TWO_OVER_PI  # 224 bits; the point of x 2/pi stands `exponent + 1` bits below the highest
    passed, shift = (exponent + 127 - 128) // 32, (exponent + 127) % 32
    window = (
        (product >> 32 * (4 - passed)) & (1 << 96) - 1
        if passed <= 4
        else (product << 32 * (passed - 4)) & (1 << 96) - 1
    )
    bits = (window << shift) >> 32 & (1 << 64) - 1
    fraction = bits << 2 & (1 << 64) - 1
    is_below = fraction >> 63
    quarters = (bits >> 62) + is_below
    of_fraction = fraction ^ (1 << 64) - 1 if is_below else fraction
    scaled = float(of_fraction) * float(np.array([0x3BF921FB54442D19], np.uint64).view(np.float64)[0])
    rest = Fraction(float(Single(scaled)))
    if is_below:
        rest = -rest
    return (quarters, rest) if x > 0 else (-quarters, -rest)


def sine_of(quarters: int, rest: Fraction) -> Fraction:
    square = nearest(rest * rest)
    if quarters % 2:
        result = polynomial(square, (0x37CBAC00, 0xBAB607ED, 0x3D2AAABB, 0xBEFFFFFF))
        result = nearest(result * square + 1)
    else:
        result = polynomial(square, (0xB94D4153, 0x3C0885E4, 0xBE2AAAA8))
        result = nearest(result * nearest(square * rest) + rest)
    return -result if quarters & 2 else result


REFERENCES = {
    "tanhf": tanh,
    "erff": erf,
    "sinf": lambda x: sine_of(*reduced(x)),
    "cosf": lambda x: sine_of(reduced(x)[0] + 1, reduced(x)[1]),
}
#: Largest difference to the rounded exact value, in ulp (CUDA C++ Programming Guide, mathematical functions).
EXACT = {"tanhf": (np.tanh, 2), "erff": (scipy_special.erf, 2), "sinf": (np.sin, 2), "cosf": (np.cos, 2)}


def drawn(seed: int, count: int) -> np.ndarray:
    """Half of usual size, half any finite pattern."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    return np.concatenate([(rng.standard_normal(count) * 4).astype(np.float32), words[np.isfinite(words)]])


@pytest.mark.parametrize("name", REFERENCES)
def test_results_are_those_of_fractions(name: str) -> None:
    edges = np.array([0x3F199999, 0x3F19999A, 0x41102CB3, 0x41102CB4, 0x3F8060FD, 0x3F8060FE, 0x47CE477F, 0x47CE4780,
                      0x00000001, 0x7F7FFFFF, 0x40490FDB, 0x7E000000], np.uint32).view(np.float32)  # fmt: skip
    x = np.concatenate([drawn(1, 400), edges, -edges])
    got = hwsim.mufu(name, x)
    want = np.array([float(REFERENCES[name](Fraction(float(value)))) for value in x], np.float32)
    differing = np.nonzero(got != want)[0]
    assert not len(differing), [(float(x[i]).hex(), float(got[i]).hex(), float(want[i]).hex()) for i in differing[:3]]


@pytest.mark.parametrize("name", EXACT)
def test_results_are_within_cuda_s_bounds(name: str) -> None:
    function, bound = EXACT[name]
    x = drawn(2, 50_000)
    want = function(x.astype(np.float64))
    error = np.abs(hwsim.mufu(name, x) - want) / np.spacing(np.abs(want).astype(np.float32))
    assert 0.5 < error.max() <= bound


INF = np.inf
SPECIAL = [
    *((name, x, x) for name in ("tanhf", "erff", "sinf") for x in (0.0, -0.0)),
    *((name, x, float(np.sign(x))) for name in ("tanhf", "erff") for x in (INF, -INF, 20.0, -20.0)),
    *(("cosf", x, 1.0) for x in (0.0, -0.0)),
    *((name, x, np.nan) for name in ("sinf", "cosf") for x in (INF, -INF)),
    *((name, np.nan, np.nan) for name in REFERENCES),
]


@pytest.mark.parametrize(("name", "x", "y"), SPECIAL)
def test_special_values(name: str, x: float, y: float) -> None:
    got = hwsim.mufu(name, np.array([x], np.float32)).view(np.uint32)
    want = [0x7FFFFFFF] if np.isnan(y) else np.array([y], np.float32).view(np.uint32).tolist()
    assert got.tolist() == want


def test_fast_forms_are_instructions_where_they_are_known() -> None:
    x = drawn(3, 1000)
    for name, instruction in (("sinf", "sin"), ("cosf", "cos")):
        assert np.array_equal(hwsim.mufu(name, x, fast_math=True), hwsim.mufu(instruction, x), equal_nan=True)
    with pytest.raises(hwsim.InputError, match="mufu: tanhf has no known fast form; fast_math is of expf"):
        hwsim.mufu("tanhf", x, fast_math=True)
