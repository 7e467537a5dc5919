"""Stream-K: beside whole tiles of C, tiles whose K several CTAs share; which core takes which part, and who adds it.

Tiles with equal cuts and a tree of sums, a part to a CTA, are here: the last, partial wave of a kernel. Tiles with
other cuts are dealt in ranges (hwsim.dataflows.tiled.stream_k_ranges). It knows shared tiles, grids of tiles and cores;
no instruction and no buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hwsim.dataflows.protocol import Features
from hwsim.dataflows.rectangles import rectangles
from hwsim.dataflows.tiled.shared_tiles import KPart, SharedSum, shared_tiles
from hwsim.dataflows.tiled.stream_k_ranges import RangeScheduler, range_scheduler
from hwsim.dataflows.tiles import (
    CoreWaves,
    Slices,
    StaticTileScheduler,
    Stored,
    TileGrid,
    TileShare,
    WorkTile,
    places,
    tile_grids_at,
)
from hwsim.gemm import refusals
from hwsim.program.ir import CORE, Affine, one_of, variable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hwsim.gemm.record import Gemm
    from hwsim.gemm.schedule import Schedule
    from hwsim.program.builder import StreamBuilder

FEATURES = Features(stacks=True)


@dataclass(frozen=True, slots=True)
class _Group:
    """Cores with equal work: `whole` of whole tiles, then the part of a shared tile (share None: none)."""

    whole: CoreWaves
    grid: TileGrid | None = None
    share: TileShare | None = None


@dataclass(frozen=True)
class StreamKScheduler:
    """Whole tiles as the static scheduler deals them out; then, as if numbered on, each part of a shared tile.

    whole: of the whole tiles. shared: grids of shared tiles. total: the sum of each; no more parts than cores, as a CTA
    would wait for one that has not begun.
    """

    whole: StaticTileScheduler
    shared: tuple[TileGrid, ...]
    total: SharedSum

    @cached_property
    def _tiles(self) -> int:
        return sum(grid.tiles for grid in self.shared)

    @property
    def tile_count(self) -> int:
        """Number of tiles of the kernel; of shared ones, each part."""
        return self.whole.tile_count + self._tiles * len(self.total.parts)

    @property
    def raster_width(self) -> int:
        """Width of a rasterisation band, in tiles."""
        return max(grid.band for grid in (*self.whole.grids, *self.shared))

    @property
    def workspace_rows(self) -> int:
        """Rows of the workspace: for each CTA that stores its sum, those of its tile."""
        return (len(self.total.parts) - 1) * sum(grid.tiles * grid.m for grid in self.shared)

    @property
    def flags(self) -> tuple[str, ...]:
        """Names of the semaphores of peers that say that a sum is stored."""
        names = [group.share.stored.flag.semaphore for group in self._groups if group.share and group.share.stored]
        return tuple(dict.fromkeys(names))

    def cores(self) -> list[CoreWaves]:
        """Groups of cores with equal work."""
        return [group.whole for group in self._groups]

    def tiles(self, stream: StreamBuilder, cores: CoreWaves) -> Iterator[WorkTile]:
        """The tiles of a group: whole ones first."""
        yield from self.whole.tiles(stream, cores)
        group = next(candidate for candidate in self._groups if candidate.whole.first == cores.first)
        if group.grid is not None:
            candidate = CoreWaves(cores.first, cores.count, (1,))
            for place in places(stream, (group.grid,), candidate, self.whole.device_cores, 1):
                yield replace(place, share=group.share)

    @cached_property
    def _groups(self) -> tuple[_Group, ...]:
        """All groups, by first core."""
        count, grids = self.whole.device_cores, self.whole.grids
        nothing = (0,) * len(grids)
        waves = [nothing] * count
        for span in self.whole.cores():
            waves[span.first : span.first + span.count] = [span.waves] * span.count
        groups: list[_Group] = []
        is_taken = [False] * count
        number, row = self.whole.tile_count, 0
        for which, grid in enumerate(self.shared):
            firsts = [number + part * grid.tiles for part in range(len(self.total.parts))]
            for cut, (start, stop) in enumerate(self._intervals(firsts, grid.tiles, waves)):
                for part, first in enumerate(firsts):
                    core = (first + start) % count
                    is_taken[core : core + stop - start] = [True] * (stop - start)
                    of_part = replace(grid, first=first, slices=Slices(part, 1, *self.total.parts[part]))
                    tile = variable(CORE) + (start - core)
                    share = self._share(part, f"part{which}.{cut}", row, grid, tile)
                    groups.append(_Group(CoreWaves(core, stop - start, waves[core]), of_part, share))
            number += len(self.total.parts) * grid.tiles
            row += (len(self.total.parts) - 1) * grid.tiles * grid.m
        groups += [_Group(span) for span in _alike(waves, is_taken) if any(span.waves)]
        return tuple(sorted(groups, key=lambda group: group.whole.first))

    def _intervals(self, firsts: Sequence[int], tiles: int, waves: Sequence[tuple[int, ...]]) -> list[KPart]:
        """Runs of a grid's tiles whose CTAs of each part are neighbouring cores with equally many whole tiles."""
        count, edges = self.whole.device_cores, [0]
        for at in range(1, tiles):
            cores = [(first + at) % count for first in firsts]
            if any(core == 0 or waves[core] != waves[core - 1] for core in cores):
                edges.append(at)
        return list(zip(edges, [*edges[1:], tiles], strict=True))

    def _share(self, part: int, name: str, row: int, grid: TileGrid, tile: Affine) -> TileShare:
        """What the CTA of a part stores and adds. row: of the workspace, of the grid; tile: number of the tile."""

        def stored(of: int) -> Stored:
            return Stored(tile * grid.m + (row + (of - 1) * grid.tiles * grid.m), one_of(f"{name}.{of}"))

        added = tuple([stored(other) for other in self.total.added(part)])
        return TileShare(None if part == self.total.last else stored(part), added)


def stream_k(
    schedule: Schedule,
    sizes: tuple[int, int, int],
    tile: tuple[int, int, int],
    grids: Callable[[int, int], list[TileGrid]],
    cores: int,
) -> StaticTileScheduler | StreamKScheduler | RangeScheduler:
    """The scheduler of a schedule with regions. sizes: m, n, k; tile: its (m, n, k); grids: those over rows x
    columns of C.

    Raises UnsupportedError for regions that no program carries.
    """
    shared = shared_tiles(schedule, sizes, tile[:2])
    if not shared.sums:
        return StaticTileScheduler(tuple(grids(*sizes[:2])), cores, 1)
    total, tiles = shared.sums[0], int(shared.is_shared.sum())
    if len(shared.sums) > 1 or not total.is_tree or tiles * len(total.parts) > cores:
        return range_scheduler(grids(*sizes[:2]), shared, sizes[2], tile, cores)

    def over(marked: NDArray[np.bool_]) -> tuple[TileGrid, ...]:
        grids_over: list[TileGrid] = []
        for rectangle in rectangles(marked):
            row, col = rectangle.row * tile[0], rectangle.col * tile[1]
            extent = min(rectangle.rows * tile[0], sizes[0] - row), min(rectangle.cols * tile[1], sizes[1] - col)
            grids_over += tile_grids_at(grids(*extent), row, col, sum(grid.tiles for grid in grids_over))
        return tuple(grids_over)

    whole = StaticTileScheduler(over(~shared.is_shared), cores, 1)
    return StreamKScheduler(whole, over(shared.is_shared), total)


def _alike(waves: Sequence[tuple[int, ...]], is_taken: Sequence[bool]) -> list[CoreWaves]:
    """Runs of cores that take no part of a shared tile, with equally many whole tiles."""
    runs: list[CoreWaves] = []
    for core, counts in enumerate(waves):
        if is_taken[core]:
            continue
        last = runs[-1] if runs else None
        if last is not None and last.first + last.count == core and last.waves == counts:
            runs[-1] = CoreWaves(last.first, last.count + 1, counts)
        else:
            runs.append(CoreWaves(core, 1, counts))
    return runs


def refuses(gemm: Gemm) -> str:
    """What of a record with regions no program carries, by name."""
    return refusals.named({f"regions with {name}": True for name in unshareable(gemm)}) if gemm.schedule.regions else ""


def unshareable(gemm: Gemm) -> tuple[str, ...]:
    """What of a record tiles whose K CTAs share do not carry: they are of one product, in one chain a part."""
    problem, schedule, plan = gemm.problem, gemm.schedule, gemm.single
    asked = {
        "stacks": problem.matrices > 1,
        "images": problem.image is not None,
        "slices of K": len(schedule.slice_lengths(problem.k)) > 1,
        "several products": plan.products > 1,
        "promotion": schedule.promotion_k is not None or plan.k_group is not None,
    }
    return tuple([name for name, is_asked in asked.items() if is_asked])
