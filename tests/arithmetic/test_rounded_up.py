"""Sums and squares rounded up equal rational numbers rounded up; GEMMul8's binary places at their steps."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hwsim.arithmetic.residue_places import places_of_largest, places_of_squares
from hwsim.arithmetic.rounded_up import added_up, narrowed_up, product_added_up, squares_added_up

Floats = NDArray[Any]


def up(number: Fraction, dtype: Any) -> Any:
    """The least number of the dtype that is not below."""
    found = dtype(float(number))
    while Fraction(float(found)) < number:
        found = np.nextafter(found, dtype(np.inf))
    while Fraction(float(below := np.nextafter(found, dtype(-np.inf)))) >= number:
        found = below
    return found


def drawn(kind: str, dtype: Any) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(300) * 2.0 ** rng.integers(-20, 20, 300)
    if kind == "near":
        return x.astype(dtype), (x * x).astype(dtype)
    if kind == "ties":
        return rng.integers(0, 8, 300).astype(dtype), (
            rng.integers(0, 8, 300) * 2.0 ** -rng.integers(0, 60, 300)
        ).astype(dtype)
    return x.astype(dtype), np.abs(rng.standard_normal(300) * 2.0 ** rng.integers(-60, 60, 300)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["wide", "near", "ties"])
def test_sums_and_squares_are_rounded_up_once(kind: str, dtype: Any) -> None:
    x, addend = drawn(kind, dtype)
    sums, squares = added_up(x, addend), product_added_up(x, x, addend)
    for one, other, total, square in zip(x, addend, sums, squares, strict=True):
        assert total == up(Fraction(float(one)) + Fraction(float(other)), dtype)
        assert square == up(Fraction(float(one)) ** 2 + Fraction(float(other)), dtype)
    assert (squares > x * x + addend).any() or kind == "ties"


def test_a_tiny_square_still_rounds_up() -> None:
    x, one = np.array([2.0**-600]), np.ones(1)
    assert product_added_up(x, x, one)[0] == np.nextafter(1.0, 2.0) and product_added_up(x, x, np.zeros(1))[0] > 0


def test_fp64_numbers_become_fp32_ones_upward() -> None:
    assert narrowed_up(np.array([1 + 2.0**-40]))[0] == np.nextafter(np.float32(1), np.float32(2))
    assert narrowed_up(np.array([-1 - 2.0**-40, 0.5])).tolist() == [-1, 0.5]


def test_lanes_meet_within_warps_first() -> None:
    """Squares 1 of one lane and tiny ones: each addition of a tiny one adds a last place."""
    last = 2.0**-52
    x = np.zeros((3, 512))
    x[:, 0] = 1
    x[0, 256] = 2.0**-40  # the same lane
    x[1, [16, 8]] = 2.0**-40  # two additions of the same warp
    x[2, [32, 33]] = 2.0**-40  # added to one another first
    assert squares_added_up(x, 256).tolist() == [1 + last, 1 + 2 * last, 1 + last]
    assert squares_added_up(x[:, :32], 32).tolist() == [1, 1 + 2 * last, 1]


def test_places_fall_by_one_for_a_factor_of_four() -> None:
    """The bound of 15 moduli of INT8; below a sum of 4 the maximum with 1 holds."""
    bound = 58.391586303710938
    for dtype in (np.float64, np.float32):
        found = [int(places_of_squares(np.array([4.0**i], dtype), bound)[0]) for i in range(-3, 8)]
        assert found == [55] * 5 + [54, 53, 52, 51, 50, 49]
        assert places_of_squares(np.array([0, np.inf], dtype), bound).tolist() == [55, -(2**20)]
    assert places_of_largest(np.array([0, 4, 4.0**5], np.float32), bound).tolist() == [0, 57, 53]
