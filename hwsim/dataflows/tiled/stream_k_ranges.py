"""Stream-K in ranges: each CTA takes a run of neighbouring parts of K over consecutive tiles, then its whole tiles.

A CTA takes the parts of its range from the last to the first, as CUTLASS 3 does (sm90_tile_scheduler_stream_k.hpp): the
part whose sum completes a tile, which waits for the CTAs before, comes last. It knows shared tiles, grids of tiles and
cores; no instruction and no buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from hwsim.dataflows.tiles import (
    CoreWaves,
    Stored,
    TileGrid,
    TileShare,
    WorkTile,
    element_of,
    places,
)
from hwsim.errors import UnsupportedError
from hwsim.program.ir import ZERO, Affine, one_of

if TYPE_CHECKING:
    from hwsim.dataflows.tiled.shared_tiles import KPart, SharedTiles
    from hwsim.program.builder import StreamBuilder


@dataclass(frozen=True, slots=True)
class TilePart:
    """A part of K of a tile, that one CTA sums: the tile's number, its grid and first element, (start, length) of K."""

    number: int
    grid: TileGrid
    element: tuple[int, int]
    k: KPart
    share: TileShare | None

    @property
    def work(self) -> WorkTile:
        """What the CTA computes. CTAs of a cluster are at other elements of K, and share no columns of B."""
        row, col = self.element
        grid, (start, length) = self.grid, self.k
        return WorkTile(
            row=Affine(row),
            col=Affine(col),
            m=grid.m,
            n=grid.n,
            batch=ZERO,
            slice=ZERO,
            start=Affine(start),
            k=length,
            cluster=1,
            across=grid.across,
            along=grid.along,
            share=self.share,
        )


@dataclass(frozen=True)
class RangeScheduler:
    """The first tiles in ranges, one to each core; then whole waves of the others, as the static scheduler deals them.

    grids: of all tiles. ranges: the parts of each core, in order of tiles. first: number of the first tile that is in
    no range. workspace_rows: of the sums that CTAs store.
    """

    grids: tuple[TileGrid, ...]
    device_cores: int
    ranges: tuple[tuple[TilePart, ...], ...]
    first: int
    workspace_rows: int

    @property
    def tile_count(self) -> int:
        """Number of tiles of the kernel; of shared ones, each part."""
        return sum(grid.tiles for grid in self.grids) - self.first + sum(map(len, self.ranges))

    @property
    def raster_width(self) -> int:
        """Width of a rasterisation band, in tiles."""
        return max(grid.band for grid in self.grids)

    @property
    def flags(self) -> tuple[str, ...]:
        """Names of the semaphores of peers that say that a sum is stored."""
        parts = [part for of_core in self.ranges for part in of_core]
        return tuple([part.share.stored.flag.semaphore for part in parts if part.share and part.share.stored])

    def cores(self) -> list[CoreWaves]:
        """Each core that has work: no other has the same."""
        return list(self._waves.values())

    def tiles(self, stream: StreamBuilder, cores: CoreWaves) -> Iterator[WorkTile]:
        """The parts of a core's range, the last one first, and its whole tiles."""
        for part in reversed(self.ranges[cores.first] if cores.first < len(self.ranges) else ()):
            yield part.work
        yield from places(stream, self.grids, cores, self.device_cores, 1, self._before[cores.first])

    @cached_property
    def _waves(self) -> dict[int, CoreWaves]:
        """The waves of whole tiles of each core that has work."""
        count = sum(grid.tiles for grid in self.grids)
        waves = {}
        for core in range(self.device_cores):
            every = self._below(count, core)
            left = tuple([tiles - begun for tiles, begun in zip(every, self._before[core], strict=True)])
            if any(left) or core < len(self.ranges):
                waves[core] = CoreWaves(core, 1, left)
        return waves

    @cached_property
    def _before(self) -> list[tuple[int, ...]]:
        """Of each core the waves of each grid whose tiles are in ranges."""
        return [self._below(self.first, core) for core in range(self.device_cores)]

    def _below(self, number: int, core: int) -> tuple[int, ...]:
        """Tiles of each grid with numbers below `number` that the static scheduler deals to a core."""
        counts = []
        for grid in self.grids:
            place, tiles = (core - grid.first) % self.device_cores, min(max(number - grid.first, 0), grid.tiles)
            counts.append(-(-(tiles - place) // self.device_cores) if place < tiles else 0)
        return tuple(counts)


def range_scheduler(
    grids: Sequence[TileGrid], shared: SharedTiles, k: int, tile: tuple[int, int, int], cores: int
) -> RangeScheduler:
    """The scheduler of tiles of which some are shared. grids: of all tiles, in one layer; tile: its (m, n, k).

    Ranges go to the last shared tile, and as far beyond it as leaves whole waves. Raises UnsupportedError where K is
    cut in as many places as there are cores, as each cut ends a core's range.
    """
    count = sum(grid.tiles for grid in grids)
    places_of_tiles = [(grid, element_of(grid, number)) for grid in grids for number in range(grid.tiles)]
    owners = [int(shared.owner[row // tile[0], col // tile[1]]) for _, (row, col) in places_of_tiles]
    last = max(number for number, owner in enumerate(owners) if owner >= 0)
    first = count - (count - last - 1) // cores * cores
    parts: list[TilePart] = []
    rows = 0
    for number, ((grid, element), owner) in enumerate(zip(places_of_tiles[:first], owners, strict=False)):
        if owner < 0:
            parts.append(TilePart(number, grid, element, (0, k), None))
            continue
        total = shared.sums[owner]
        order = total.by_waiting
        first_row = {part: rows + i * grid.m for i, part in enumerate(order)}  # the last one stores nothing
        rows += (len(order) - 1) * grid.m
        stored = {part: Stored(Affine(row), one_of(f"tile{number}.part{part}")) for part, row in first_row.items()}
        for part in order:
            added = tuple([stored[other] for other in total.added(part)])
            share = TileShare(None if part == total.last else stored[part], added, is_followed=True)
            parts.append(TilePart(number, grid, element, total.parts[part], share))
    ranges = _ranges(parts, [-(-part.k[1] // tile[2]) for part in parts], cores)
    return RangeScheduler(tuple(grids), cores, ranges, first, rows)


def _ranges(parts: Sequence[TilePart], blocks: Sequence[int], cores: int) -> tuple[tuple[TilePart, ...], ...]:
    """The parts in runs of neighbours, at most one to a core, of which the longest has the fewest blocks of K.

    Two parts of one tile are in two runs.
    """
    cuts = sum(a.number == b.number for a, b in pairwise(parts))
    if cuts >= cores:
        raise UnsupportedError(
            f"the K of shared tiles is cut in {cuts} places, on {cores} cores: CTAs that wait for one another must run "
            f"at once; allowed: at most {cores - 1} cuts"
        )
    least, most = max(blocks), sum(blocks)
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if len(_runs(parts, blocks, middle)) <= cores else (middle + 1, most)
    edges = [0, *accumulate(_runs(parts, blocks, least))]
    return tuple([tuple(parts[start:stop]) for start, stop in pairwise(edges)])


def _runs(parts: Sequence[TilePart], blocks: Sequence[int], most: int) -> list[int]:
    """Lengths of the fewest runs of at most so many blocks of K."""
    runs: list[int] = []
    filled = 0
    for at, (part, size) in enumerate(zip(parts, blocks, strict=True)):
        if not runs or filled + size > most or parts[at - 1].number == part.number:
            runs.append(0)
            filled = 0
        runs[-1] += 1
        filled += size
    return runs
