"""In which order clusters of an xmma kernel for Hopper take the tiles of C: blocks of rows or columns, in turn.

The rule was found on tiles compared one by one on an H100 (tools/record/shared_tiles.py, CUDA 13.0, 2026-11-23). The
module knows grids of clusters; no K and no bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

MOST_ROW_TILES = 8  # up to so many tiles of C along m, columns are walked whatever the cluster's shape


@dataclass(frozen=True, slots=True)
class Grid:
    """Clusters over C: `rows` of them along m, `columns` along n; a cluster has cluster[0] x cluster[1] tiles (n, m) of
    tile[0] x tile[1] results (n, m)."""

    rows: int
    columns: int
    tile: tuple[int, int]
    cluster: tuple[int, int]

    @property
    def is_by_rows(self) -> bool:
        """Whether blocks are of rows, and columns are walked; else the reverse."""
        wide, high = self.cluster
        return wide <= high or self.rows * high <= MOST_ROW_TILES

    @property
    def extent(self) -> tuple[int, int]:
        """Results of a cluster along m and along n."""
        return self.tile[1] * self.cluster[1], self.tile[0] * self.cluster[0]

    @property
    def across(self) -> tuple[int, int]:
        """Clusters along the side that is cut in blocks, and along the one that is walked."""
        return (self.rows, self.columns) if self.is_by_rows else (self.columns, self.rows)


def block_width(grid: Grid, at_once: int, swizzle: int) -> int:
    """Rows (or columns) of a block: 1 without swizzle; else the power of two, the largest of equal ones, for which the
    waves of `at_once` clusters read the least of A and B.
    """
    if not swizzle:
        return 1
    blocked, walked = grid.across
    high, wide = grid.extent if grid.is_by_rows else grid.extent[::-1]
    widths = [1 << power for power in range(blocked.bit_length())]
    return min(widths, key=lambda width: (_read(blocked, walked, width, at_once, high, wide), -width))


def _read(blocked: int, walked: int, width: int, at_once: int, high: int, wide: int) -> int:
    """Rows of A and columns of B that all waves read, in results of C along each side."""
    total, count, block_size = 0, blocked * walked, width * walked
    for start in range(0, count, at_once):
        stop, rows, columns, at = min(start + at_once, count), 0, 0, start
        while at < stop:
            block = at // block_size
            height = min(width, blocked - block * width)
            first, last = at - block * block_size, min(stop - block * block_size, height * walked) - 1
            columns = max(columns, last // height - first // height + 1)
            steps = last // height - first // height
            if steps == 0:
                rows += last - first + 1
            else:
                rows += height if steps > 1 else min(height, height - first % height + last % height + 1)
            at = block * block_size + last + 1
        total += rows * high + columns * wide
    return total


def last_clusters(grid: Grid, width: int, count: int) -> Iterator[tuple[int, int]]:
    """(row, column) of the last `count` clusters: in blocks of `width`, every other block walked backwards."""
    blocked, walked = grid.across
    for at in range(blocked * walked - count, blocked * walked):
        block = at // (width * walked)
        height = min(width, blocked - block * width)
        step, across = divmod(at - block * width * walked, height)
        along = walked - 1 - step if block % 2 else step
        place = block * width + across
        yield (place, along) if grid.is_by_rows else (along, place)


def grid_of(m: int, n: int, tile: tuple[int, int], cluster: tuple[int, int]) -> Grid:
    """The grid over C[m, n]; tile, cluster: (n, m)."""
    rows, columns = (
        math.ceil(math.ceil(size / own) / group)
        for size, own, group in ((m, tile[1], cluster[1]), (n, tile[0], cluster[0]))
    )
    return Grid(rows, columns, tile, cluster)
