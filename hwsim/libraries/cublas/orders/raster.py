"""In which order clusters of an xmma kernel for Hopper take the tiles of C: blocks of rows or columns, in turn.

The rule was found on tiles compared one by one on an H100 (lab/tools/record/shared_tiles.py, 2026-11-23); its
numbers are data (configs/libraries/*.sums.yaml). The module knows grids of clusters, rows and columns being those of
the kernel's own product; no K and no bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grid:
    """Clusters over C: `rows` of them along m, `columns` along n; a cluster has cluster[0] x cluster[1] tiles (n, m) of
    tile[0] x tile[1] results (n, m). narrow: up to so many tiles along m, or along n, columns are walked whatever the
    cluster's shape."""

    rows: int
    columns: int
    tile: tuple[int, int]
    cluster: tuple[int, int]
    narrow: tuple[int, int]

    @property
    def is_wide(self) -> bool:
        """Whether clusters are wider than high."""
        return self.cluster[0] > self.cluster[1]

    @property
    def is_by_rows(self) -> bool:
        """Whether blocks are of rows, and columns are walked; else the reverse."""
        wide, high = self.cluster
        most_rows, most_columns = self.narrow
        is_narrow = self.rows * high <= most_rows or self.columns * wide <= most_columns
        return not self.is_wide or is_narrow

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
    halved = not (grid.is_wide and grid.is_by_rows)

    def read(width: int) -> int:
        return _read(_heights(blocked, width, halved), walked, at_once, high, wide)

    return min(widths, key=lambda width: (read(width), -width))


def _read(heights: Iterable[int], walked: int, at_once: int, high: int, wide: int) -> int:
    """Rows of A and columns of B that all waves read, in results of C along each side, where blocks are so high."""
    total = rows = columns = clusters = 0  # clusters: of this wave so far
    for height in heights:
        at, size = 0, height * walked
        while at < size:
            stop = min(size, at + at_once - clusters)
            steps = (stop - 1) // height - at // height
            columns = max(columns, steps + 1)
            if steps == 0:
                rows += stop - at
            else:
                rows += height if steps > 1 else min(height, height - at % height + (stop - 1) % height + 1)
            clusters, at = clusters + stop - at, stop
            if clusters == at_once:
                total, rows, columns, clusters = total + rows * high + columns * wide, 0, 0, 0
    return total + rows * high + columns * wide


def _heights(blocked: int, width: int, halved: bool) -> Iterator[int]:
    """Blocks of `width`, then what is left: one block, as it is walked, or, halved, falling powers of two.

    The library's estimate halves it, but for wide clusters that walk columns: so say all tiles that were compared.
    """
    while blocked:
        width = min(width, 1 << (blocked.bit_length() - 1) if halved else blocked)
        yield width
        blocked -= width


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


def grid_of(m: int, n: int, tile: tuple[int, int], cluster: tuple[int, int], narrow: tuple[int, int]) -> Grid:
    """The grid over C[m, n]; tile, cluster: (n, m); narrow: tiles (m, n), as of `Grid`."""
    rows, columns = (
        math.ceil(math.ceil(size / side) / group)
        for size, side, group in ((m, tile[1], cluster[1]), (n, tile[0], cluster[0]))
    )
    return Grid(rows, columns, tile, cluster, narrow)
