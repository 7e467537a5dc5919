"""Sums of rows in the order of PyTorch's reduction: thread by thread, one number at a time."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from hwsim.arithmetic.row_sums import SumKernel, adds_in_one_block, row_sums

Single = np.float32
KERNEL = SumKernel(512, 32, 4, 4, 128, 16, 256)
SMALL = SumKernel(16, 4, 2, 2, 8, 2, 40)  # all ways of it within few elements


def power_below(count: int, most: int) -> int:
    power = 1
    while power * 2 <= min(count, most):
        power *= 2
    return power


def of_thread(row: np.ndarray, begin: int, step: int, kernel: SumKernel) -> np.float32:
    """Without vectors: element after element into numbers apart, then these in order."""
    apart = [Single(0)] * kernel.turns
    for turn, at in enumerate(range(begin, len(row), step)):
        apart[turn % kernel.turns] += row[at]
    total = apart[0]
    for other in apart[1:]:
        total += other
    return total


def of_thread_in_vectors(
    row: np.ndarray, begin: int, step: int, kernel: SumKernel, shift: int, lane: int | None
) -> np.float32:
    """lane: of a thread that also takes single elements before and behind the vectors."""
    apart = [Single(0)] * kernel.vector
    first = (kernel.vector - shift) % kernel.vector
    rest = row[first:]
    if lane is not None and shift and shift <= lane < kernel.vector:
        apart[0] += row[lane - shift]
    for vector in range(begin, len(rest) // kernel.vector, step):
        for place in range(kernel.vector):
            apart[place] += rest[vector * kernel.vector + place]
    behind = len(rest) - len(rest) % kernel.vector
    if lane is not None and behind + lane < len(rest):
        apart[0] += rest[behind + lane]
    total = apart[0]
    for other in apart[1:]:
        total += other
    return total


def of_block(values: dict[tuple[int, int], np.float32], wide: int, high: int) -> np.float32:
    half = wide // 2
    while half:
        for y, x in product(range(high), range(half)):
            values[y, x] += values[y, x + half]
        half //= 2
    half = high // 2
    while half:
        for y in range(half):
            values[y, 0] += values[y + half, 0]
        half //= 2
    return values[0, 0]


def summed(row: np.ndarray, rows: int, shift: int, kernel: SumKernel) -> np.float32:
    width = len(row)
    is_in_vectors = width >= kernel.least
    long = power_below(width // kernel.vector if is_in_vectors else width, kernel.threads)
    many = power_below(rows, kernel.threads)
    wide = min(long, kernel.lanes)
    high = min(many, kernel.threads // wide)
    wide = min(long, kernel.threads // high)
    if -(-width // wide) < min(high * kernel.share, kernel.most):
        high = 1
    values = {}
    for y, x in product(range(high), range(wide)):
        begin, step = y * wide + x, wide * high
        if is_in_vectors:
            values[y, x] = of_thread_in_vectors(row, begin, step, kernel, shift, x if y == 0 else None)
        else:
            values[y, x] = of_thread(row, begin, step, kernel)
    return of_block(values, wide, high)


@pytest.mark.parametrize("kernel", [KERNEL, SMALL])
def test_rows_are_added_as_threads_do(kernel: SumKernel) -> None:
    rng, differing = np.random.default_rng(5), 0
    widths = (1, 3, 7, 8, 9, 30, 67, 127, 128, 131, 300, 1000, 2050) if kernel is KERNEL else (*range(1, 70), 150, 400)
    for width, rows, offset in product(widths, (1, 3, 20), (0, 1)):
        x = (rng.standard_normal((rows, width)) * 2.0 ** rng.integers(-8, 8, (rows, width))).astype(np.float32)
        got = row_sums(x, kernel, offset)
        shifts = [(offset + at * width) % kernel.vector for at in range(rows)]
        want = [summed(row, rows, shift, kernel) for row, shift in zip(x, shifts, strict=True)]
        assert got.tolist() == [float(value) for value in want], (width, rows, offset)
        differing += int((got != x.sum(1)).sum())
    assert differing  # the order matters


def test_a_long_row_has_several_blocks() -> None:
    assert adds_in_one_block(1, 512 * 255, KERNEL) and not adds_in_one_block(1, 512 * 256, KERNEL)
    assert adds_in_one_block(128, 50_257, KERNEL)


def test_zeros_keep_no_sign_and_what_is_not_finite_stays() -> None:
    x = np.zeros((4, 200), np.float32)
    x[0] = -0.0
    x[1, 3], x[2, 5], x[3, 7], x[3, 9] = np.inf, np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        got = row_sums(x, KERNEL)
    assert got[:1].view(np.uint32).tolist() == [0] and got[1] == np.inf and np.isnan(got[2:]).all()
