"""Sums of fp32 rows as PyTorch's CUDA kernel for reductions adds them: threads, a warp, a block.

It knows arrays and the kernel's orders; it knows no tensor, no device and no file. Source: PyTorch, the header
ATen/native/cuda/Reduce.cuh (setReduceConfig, thread_reduce, block_x_reduce, block_y_reduce).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Single = NDArray[np.float32]


class SumKernel(NamedTuple):
    """threads: of a block at most. lanes: of a warp. turns: numbers that a thread adds apart where it takes no vectors.
    vector: elements that a thread takes at once, in rows of at least `least` elements. share, most: of a row, so many
    elements a thread are worth another warp, or another block; rows that several blocks add are not known.
    """

    threads: int
    lanes: int
    turns: int
    vector: int
    least: int
    share: int
    most: int


class _Launch(NamedTuple):
    """Of a row: threads side by side, and how many times these. is_in_vectors: threads take vectors. is_known: one
    block adds a row.
    """

    wide: int
    high: int
    is_in_vectors: bool
    is_known: bool


def adds_in_one_block(rows: int, width: int, kernel: SumKernel) -> bool:
    """Whether one block adds a row of (rows, width)."""
    return _launch(rows, width, kernel).is_known


def row_sums(x: Single, kernel: SumKernel, offset: int = 0) -> Single:
    """(rows,) sums of x (rows, width), fp32, stored row by row, each of which one block adds. offset: elements from an
    aligned place to x.
    """
    rows, width = x.shape
    launch = _launch(rows, width, kernel)
    if not launch.is_in_vectors:
        return _met(_in_turns(x, kernel.turns, launch))
    shifts = (offset + np.arange(rows) * width) % kernel.vector
    result = np.empty(rows, np.float32)
    for shift in np.unique(shifts):
        alike = shifts == shift
        result[alike] = _met(_in_vectors(x[alike], int(shift), kernel.vector, launch))
    return result


def _launch(rows: int, width: int, kernel: SumKernel) -> _Launch:
    is_in_vectors = width >= kernel.least
    long, many = (
        kernel.threads if count >= kernel.threads else 1 << max(count.bit_length() - 1, 0)
        for count in (width // kernel.vector if is_in_vectors else width, rows)
    )
    wide = min(long, kernel.lanes)
    high = min(many, kernel.threads // wide)
    wide = min(long, kernel.threads // high)
    if -(-width // wide) < min(high * kernel.share, kernel.most):
        return _Launch(wide, 1, is_in_vectors, is_known=True)
    return _Launch(wide, high, is_in_vectors, is_known=-(-width // (wide * high)) < kernel.most)


def _in_turns(x: Single, turns: int, launch: _Launch) -> Single:
    """Sums of each thread, (rows, high, wide): of every so many elements, `turns` apart."""
    threads = launch.wide * launch.high
    return _together(_summed(_padded(x, threads * turns).reshape(len(x), -1, turns, threads)), 1, launch)


def _in_vectors(x: Single, shift: int, vector: int, launch: _Launch) -> Single:
    """The same of vectors. shift: elements before the row's first in its first vector."""
    rows, first = len(x), (vector - shift) % vector
    head, rest = x[:, :first], x[:, first:]
    whole = rest.shape[1] // vector * vector
    threads = launch.wide * launch.high
    vectors = _padded(rest[:, :whole], threads * vector).reshape(rows, -1, threads, vector)
    begin = np.zeros((rows, threads, vector), np.float32)
    begin[:, vector - first : vector, 0] = head
    sums = _summed(vectors, begin)
    tail = rest[:, whole:]
    sums[:, : tail.shape[1], 0] += tail
    return _together(sums, 2, launch)


def _padded(x: Single, step: int) -> Single:
    """Rows with zeros up to a multiple of a length."""
    return np.pad(x, ((0, 0), (0, -x.shape[1] % step)))


def _summed(parts: Single, begin: Any = None) -> Single:
    """The sum over the second dimension in order, from zeros or `begin` on."""
    total = np.zeros((parts.shape[0], *parts.shape[2:]), np.float32) if begin is None else begin
    for at in range(parts.shape[1]):
        total = total + parts[:, at]
    return total


def _together(sums: Single, axis: int, launch: _Launch) -> Single:
    """The sums that a thread has apart, along an axis, in order."""
    apart = np.moveaxis(sums, axis, 0)
    total = apart[0]
    for other in apart[1:]:
        total = total + other
    result: Single = total.reshape(-1, launch.high, launch.wide)
    return result


def _met(sums: Single) -> Single:
    """(rows,) of (rows, high, wide): threads side by side meet, half as far away each time, then what these have."""
    for _ in range(2):
        while sums.shape[-1] > 1:
            half = sums.shape[-1] // 2
            sums = sums[..., :half] + sums[..., half:]
        sums = sums[..., 0]
    return sums
