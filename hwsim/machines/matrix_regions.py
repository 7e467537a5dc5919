"""Rectangles of a matrix, cut, moved and joined. The module knows no arrays and no programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np


class MatrixRegion(NamedTuple):
    """rows x cols elements from (row, col)."""

    row: int
    col: int
    rows: int
    cols: int

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.rows * self.cols

    def moved(self, rows: int, cols: int) -> MatrixRegion:
        """The region so many rows and columns on."""
        return MatrixRegion(self.row + rows, self.col + cols, self.rows, self.cols)

    def meet(self, other: MatrixRegion) -> MatrixRegion | None:
        """What both have in common."""
        row, col = max(self.row, other.row), max(self.col, other.col)
        rows = min(self.row + self.rows, other.row + other.rows) - row
        cols = min(self.col + self.cols, other.col + other.cols) - col
        return MatrixRegion(row, col, rows, cols) if rows > 0 and cols > 0 else None

    def covers(self, other: MatrixRegion) -> bool:
        """Whether it contains the other."""
        return (
            self.row <= other.row
            and self.col <= other.col
            and self.row + self.rows >= other.row + other.rows
            and self.col + self.cols >= other.col + other.cols
        )

    def panels(self, rows: int, cols: int) -> Iterator[MatrixRegion]:
        """The region in parts of at most so many rows and columns, of nearly equal size."""
        for row, height in _shares(self.rows, rows):
            for col, width in _shares(self.cols, cols):
                yield MatrixRegion(self.row + row, self.col + col, height, width)


def _shares(length: int, most: int) -> Iterator[tuple[int, int]]:
    """(first, number) of nearly equal parts of a length."""
    count = -(-length // most)
    for i in range(count):
        first = i * length // count
        yield first, (i + 1) * length // count - first


def union(regions: Iterable[MatrixRegion]) -> tuple[MatrixRegion, ...]:
    """The regions as few that do not overlap, by row and column."""
    different = list(dict.fromkeys(regions))
    if len(different) == 1:
        return (different[0],)
    return tuple(visible(different, [0] * len(different)).get(0, ()))


def visible(regions: Sequence[MatrixRegion], owners: Sequence[int]) -> dict[int, list[MatrixRegion]]:
    """What each owner, 0 or a larger number, has in the end where later regions lie over earlier ones: as few regions
    as their rows allow, which do not overlap.
    """
    rows = sorted({edge for rect in regions for edge in (rect.row, rect.row + rect.rows)})
    cols = sorted({edge for rect in regions for edge in (rect.col, rect.col + rect.cols)})
    row_of, col_of = ({edge: i for i, edge in enumerate(edges)} for edges in (rows, cols))
    grid = np.full((len(rows), len(cols)), -1, np.int64)  # the last row and column lie outside
    for rect, owner in zip(regions, owners, strict=True):
        grid[row_of[rect.row] : row_of[rect.row + rect.rows], col_of[rect.col] : col_of[rect.col + rect.cols]] = owner
    parts_of: dict[int, list[MatrixRegion]] = {}
    open_at: dict[tuple[int, int, int], int] = {}  # by owner, first and last column: the first row
    is_new_row = np.ones(len(rows), bool)
    is_new_row[1:] = (grid[1:] != grid[:-1]).any(1)
    for i in np.flatnonzero(is_new_row).tolist():
        runs = {(owner, cols[first], cols[last]) for first, last, owner in _runs(grid[i]) if owner >= 0}
        for run in [run for run in open_at if run not in runs]:
            owner, first, last = run
            begin = open_at.pop(run)
            parts_of.setdefault(owner, []).append(MatrixRegion(begin, first, rows[i] - begin, last - first))
        for run in sorted(runs - open_at.keys()):
            open_at[run] = rows[i]
    return {owner: sorted(parts) for owner, parts in sorted(parts_of.items())}


def _runs(owners: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """(first, end, owner) of equal neighbours."""
    starts = np.flatnonzero(np.diff(owners, prepend=-2)).tolist()
    for first, last in zip(starts, [*starts[1:], len(owners)], strict=True):
        yield first, min(last, len(owners) - 1), int(owners[first])
