"""Rectangles that cover the marked places of a grid. It knows no tile and no block."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Interval = tuple[int, int]


class Rectangle(NamedTuple):
    """Neighbouring places: the first row and column of them, and how many of each."""

    row: int
    rows: int
    col: int
    cols: int


def rectangles(mask: NDArray[np.bool_]) -> list[Rectangle]:
    """Few rectangles that cover the marked places, each once: rows with equal runs of columns, or the reverse."""
    across = [Rectangle(col, cols, row, rows) for row, rows, col, cols in _by_rows(mask.T)]
    return min(_by_rows(mask), across, key=len)


def _by_rows(mask: NDArray[np.bool_]) -> list[Rectangle]:
    open_runs: dict[Interval, int] = {}
    covered = []
    for row in range(len(mask) + 1):
        runs = _runs(mask[row]) if row < len(mask) else []
        for run in [run for run in open_runs if run not in runs]:
            first = open_runs.pop(run)
            covered.append(Rectangle(first, row - first, run[0], run[1] - run[0]))
        for run in runs:
            open_runs.setdefault(run, row)
    return covered


def _runs(marked: NDArray[np.bool_]) -> list[Interval]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], marked.astype(np.int8), [0]]))).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))
