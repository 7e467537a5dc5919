"""The exact unit's long steps: kernel, integer reference and Python's fractions, on operands made of bit fields."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import hwsim
from hwsim import _kernels
from hwsim._kernels import gemm
from hwsim.devices.templates import new_device_file
from hwsim.errors import UnsupportedError
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import DotSpec, ExactUnit, FusedUnit, Specials

MOST = 4096  # products of an exact step
WAYS = (*_kernels.variants, "scalar")


def spec(terms: int, rounding: str = "RNE") -> DotSpec:
    unit = ExactUnit(terms, rounding, Specials(zero="ieee"))  # type: ignore[arg-type]
    return DotSpec(unit, "fp64", "fp64", "fp64", "fp64")


def drawn(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """fp64 values: of all exponents ("bits"), of a few ("close"), or subnormal and tiny ("small")."""
    low, high = {"bits": (0, 2047), "close": (1020, 1028), "small": (0, 600)}[kind]
    fields = rng.integers(0, 1 << 52, shape, dtype=np.uint64) | rng.integers(low, high, shape).astype(np.uint64) << 52
    return (fields | rng.integers(0, 2, shape).astype(np.uint64) << 63).view(np.float64)


def rounded(row: np.ndarray, column: np.ndarray) -> float:
    """The dot product, rounded once by Python's own division of integers."""
    total = sum((Fraction(x) * Fraction(y) for x, y in zip(row.tolist(), column.tolist(), strict=True)), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


@pytest.mark.covering("kind", "k")
@pytest.mark.parametrize("kind", ["bits", "close", "small"])
@pytest.mark.parametrize("k", [1, 257, 1000, MOST - 1, MOST])
def test_one_rounding_whatever_the_exponents(kind: str, k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = drawn(rng, (3, k), kind), drawn(rng, (k, 2), kind)
    a[1], b[: k // 2, 0] = -a[0], b[k - k // 2 :, 0]  # and equal magnitudes
    if k > 1:
        a[2, : k // 2] = -a[2, k - k // 2 :]  # whose products cancel, all or all but one
    codes, others = a.view(np.uint64), b.view(np.uint64)
    wanted = np.array([[rounded(row, column) for column in b.T] for row in a])
    assert np.array_equal(
        reference.gemm(spec(MOST), DotOperands(codes, others, np.zeros((3, 2), np.uint64))).view(np.float64), wanted
    )
    for way in WAYS:
        got = gemm(spec(MOST), codes, others, _variant=way).view(np.float64)
        assert np.array_equal(got, wanted), way


def test_sums_about_the_width_that_fits_128_bits() -> None:
    """A span of exponents from 100 to 130, filled with the largest significands of one sign."""
    for span in range(100, 131, 2):
        a, b = np.full((1, MOST), 2.0 - 2.0**-52), np.full((MOST, 1), 2.0 - 2.0**-52)
        a[0, -1] = 2.0 ** -(span - 106)
        b[-1, 0] = 1.0
        got = gemm(spec(MOST), a.view(np.uint64), b.view(np.uint64)).view(np.float64)[0, 0]
        assert got == rounded(a[0], b[:, 0]), span


def test_a_longer_sum_is_rounded_after_each_step() -> None:
    rng = np.random.default_rng(3)
    a, b = drawn(rng, (1, MOST + 10), "close"), drawn(rng, (MOST + 10, 1), "close")
    first = rounded(a[0, :MOST], b[:MOST, 0])
    wanted = rounded(np.append(a[0, MOST:], first), np.append(b[MOST:, 0], 1.0))
    assert gemm(spec(MOST), a.view(np.uint64), b.view(np.uint64)).view(np.float64)[0, 0] == wanted


@pytest.mark.parametrize("rounding", ["RNE", "RZ", "RD", "RU"])
@pytest.mark.parametrize("terms", [3, 64, MOST])
def test_padding_counts_as_zeros_of_either_sign(rounding: str, terms: int) -> None:
    """-0 alone stays -0 where no step is padded; padding is +0."""
    minus, one = np.full((1, terms), -0.0).view(np.uint64), np.ones((terms, 1)).view(np.uint64)
    start = np.array([[-0.0]]).view(np.uint64)
    for k in (terms - 1, terms):
        wanted = reference.gemm(spec(terms, rounding), DotOperands(minus[:, :k], one[:k], start))
        for way in WAYS:
            assert np.array_equal(gemm(spec(terms, rounding), minus[:, :k], one[:k], start, _variant=way), wanted)


def test_how_long_a_step_may_be() -> None:
    x, y = np.zeros((1, 2), np.uint64), np.zeros((2, 1), np.uint64)
    with pytest.raises(UnsupportedError, match="1 to 4096 products"):
        gemm(spec(MOST + 1), x, y)
    narrow = DotSpec(FusedUnit(257, 25, -133), "fp16", "fp16", "fp32", "fp32")
    with pytest.raises(UnsupportedError, match="1 to 256 products"):
        gemm(narrow, x.astype(np.uint16), y.astype(np.uint16))


def test_the_template_rounds_a_dot_product_once(tmp_path: Path) -> None:
    device = new_device_file(tmp_path / "exact.yaml", "exact_fp64")
    rng = np.random.default_rng(8)
    for k in (1, 5, 300):
        a, b = drawn(rng, (4, k), "close"), drawn(rng, (k, 3), "close")
        wanted = np.array([[rounded(row, column) for column in b.T] for row in a])
        assert np.array_equal(hwsim.matmul(a, b, device=device), wanted)
        stack = hwsim.matmul(np.stack([a, -a]), np.stack([b, b]), device=device)
        assert np.array_equal(stack, np.stack([wanted, -wanted]))
