"""Warnings of sliced schemes about rows and columns whose exponents span more bits than are kept."""

from __future__ import annotations

import numpy as np
import pytest

import hwsim
from hwsim.schemes import scheme_of
from hwsim.schemes.span_notices import CODE, lost_elements

SLICED = ("ozaki-int8", "ozaki-fp16", "ozaki2-int8", "ozaki2-fp8")


def graded(decades: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    factors = 10.0 ** np.linspace(-decades, decades, 64)
    return rng.standard_normal((16, 64)) * factors, rng.standard_normal((64, 12)) * factors[:, None]


def notices(scheme: str, a: np.ndarray, b: np.ndarray, **options: object) -> list:
    named = scheme_of(scheme)
    return [notice for notice in named.inspect(a, b, named.complete(options)) if notice.code == CODE]


@pytest.mark.parametrize("scheme", SLICED)
def test_graded_columns_and_rows_give_a_notice_each(scheme: str) -> None:
    of_a, of_b = notices(scheme, *graded(12))
    assert (of_a.count, of_b.count) == (16, 12)
    assert of_a.message.startswith("16 rows of A span up to 8") and "small elements are lost" in of_b.message
    assert not notices(scheme, *graded(1))


def test_more_slices_and_moduli_keep_them() -> None:
    a, b = graded(12)
    assert not notices("ozaki-int8", a, b, slices=13)
    a, b = graded(9)
    assert notices("ozaki2-int8", a, b) and not notices("ozaki2-int8", a, b, moduli=20, mode="norms")


def test_an_element_is_lost_beyond_the_last_kept_bit() -> None:
    a, b = np.ones((3, 4)), np.ones((4, 2))
    a[1, 2], a[2] = 2.0**-9, (0, np.inf, np.nan, 0)
    assert not lost_elements(a, b, (10, 10), "slices")
    assert [notice.count for notice in lost_elements(a, b, (9, 9), "slices")] == [1]


def test_what_residues_keep_is_what_they_truncate() -> None:
    """The product with an element below the last bit is 0, others are not."""
    seen = set()
    for place in range(-64, -50):
        a, b = np.array([[1.0, 2.0**place]]), np.array([[0.0], [1.0]])
        is_zero = bool(hwsim.matmul(a, b, device="h200", scheme="ozaki2-int8")[0, 0] == 0)
        assert bool(notices("ozaki2-int8", a, b)) == is_zero
        seen.add(is_zero)
    assert seen == {True, False}
