"""Stream-K: beside whole tiles of C, tiles whose K several CTAs share; which core takes which part, and who adds it.

The sums of parts meet in a binary tree: a CTA whose number is odd at a level stores its sum in a workspace in global
memory, and its neighbour, which waits for that, adds it to its own; CTA 0 has the whole sum and the epilogue. It knows
the regions of a schedule, grids of tiles and cores; no instruction and no buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hwsim.dataflows.protocol import Features
from hwsim.dataflows.rectangles import rectangles
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
from hwsim.errors import UnsupportedError
from hwsim.gemm import refusals
from hwsim.gemm.summation import Chain, Range, Reduction
from hwsim.program.ir import CORE, Affine, one_of, variable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hwsim.gemm.record import Gemm
    from hwsim.gemm.schedule import Schedule
    from hwsim.gemm.summation import Region
    from hwsim.program.builder import StreamBuilder

FEATURES = Features(stacks=True)
KPart = tuple[int, int]
SumTree = Chain | Reduction


@dataclass(frozen=True, slots=True)
class SharedTiles:
    """Which tiles are shared (rows x columns of tiles), and (start, length) of the part of K of each CTA of a tile."""

    is_shared: NDArray[np.bool_]
    parts: tuple[KPart, ...]


def has_shared_tiles(schedule: Schedule) -> bool:
    """Whether the K of any tile is cut in parts."""
    return any(_count(region.sum) > 1 for region in schedule.regions)


def shared_tiles(schedule: Schedule, sizes: tuple[int, int, int], tile: tuple[int, int]) -> SharedTiles:
    """The shared tiles of a schedule's regions; no parts where none is. sizes: m, n, k; tile: its (m, n).

    Raises UnsupportedError for regions that are no tiles, or whose sums are no tree of parts of K in one order.
    """
    m, n, k = sizes
    sums: list[SumTree] = []
    owner = np.full((-(-m // tile[0]), -(-n // tile[1])), -1)  # of each tile the place of its sum in `sums`; -1: whole

    def overlapped(region: Region) -> bool:
        """Whether an earlier region shares a tile that this one, which holds instead, has elements of."""
        spans = ((part.start // step, -(-part.stop // step)) for part, step in _along(region, tile))
        (top, bottom), (left, right) = spans
        return bool((owner[top:bottom, left:right] >= 0).any())

    for region in schedule.regions:
        is_shared = _count(region.sum) > 1
        if not is_shared:
            if _spans(region.sum) != ((0, k),):
                raise UnsupportedError("a region whose sum is not of all of K in order: programs carry no such chain")
            if not overlapped(region):
                continue
        elif region.sum not in sums:
            sums.append(region.sum)
        (top, bottom), (left, right) = _tiles_of(region, (m, n), tile)
        owner[top:bottom, left:right] = sums.index(region.sum) if is_shared else -1
    held = [sums[place] for place in np.unique(owner[owner >= 0])]  # later regions may have taken back all of a sum's
    if len(held) > 1:
        raise UnsupportedError(f"regions with {len(held)} orders of summation: programs carry one for all shared tiles")
    parts = [(start, stop - start) for total in held for start, stop in _spans(total)]
    return SharedTiles(owner >= 0, tuple(parts))


def _along(region: Region, tile: KPart) -> Iterator[tuple[Range, int]]:
    """A region's rows with the tile's m, and its columns with the tile's n."""
    return zip((region.rows, region.cols), tile, strict=True)


def _count(total: SumTree) -> int:
    return 1 if isinstance(total, Chain) else len(total.parts)


def _tiles_of(region: Region, sizes: KPart, tile: KPart) -> tuple[KPart, KPart]:
    """The first tile of a region and that after the last, along m and n."""
    spans = []
    for part, size, step in zip((region.rows, region.cols), sizes, tile, strict=True):
        is_whole = part.step == part.block and not part.start % step and (not part.stop % step or part.stop == size)
        if not is_whole or part.stop > size:
            raise UnsupportedError(
                f"a region of {part} of C: programs carry regions of whole tiles, here of {tile[0]} x {tile[1]}"
            )
        spans.append((part.start // step, -(-part.stop // step)))
    return spans[0], spans[1]


def _spans(total: SumTree) -> tuple[KPart, ...]:
    """(start, stop) of the parts of K, in the order in which a tree adds neighbours. Raises UnsupportedError."""
    if isinstance(total, Reduction):
        level = "workspace" if _count(total) > 1 else total.level  # a single part meets none
        plain = Reduction(total.parts, "pairwise", level=level)
        if total != plain or not all(isinstance(part, Chain) for part in total.parts):
            raise UnsupportedError(
                f"parts of K that are added {total.order} (level {total.level}): programs add a tree of neighbours "
                "(pairwise) through a workspace"
            )
        return tuple([_spans(part)[0] for part in total.parts])
    if len(total.ranges) != 1 or not _is_run(total.ranges[0]):
        raise UnsupportedError("a part of K that is no run of neighbours: no program carries it")
    return ((total.ranges[0].start, total.ranges[0].stop),)


def _is_run(part: Range) -> bool:
    return part.step == part.block and part.start < part.stop


@dataclass(frozen=True, slots=True)
class _Group:
    """Cores with equal work: `whole` of whole tiles, then the part of a shared tile (share None: none)."""

    whole: CoreWaves
    grid: TileGrid | None = None
    share: TileShare | None = None


@dataclass(frozen=True)
class StreamKScheduler:
    """Whole tiles as the static scheduler deals them out; then, as if numbered on, each part of a shared tile.

    whole: of the whole tiles. shared: grids of shared tiles. parts: (start, length) of K by number of the CTA.
    Raises UnsupportedError where there are more parts than cores, as a CTA would wait for one that has not begun.
    """

    whole: StaticTileScheduler
    shared: tuple[TileGrid, ...]
    parts: tuple[KPart, ...]

    def __post_init__(self) -> None:
        count, cores = self._tiles * len(self.parts), self.whole.device_cores
        if count > cores:
            raise UnsupportedError(f"{count} parts of shared tiles on {cores} cores: CTAs that wait must run at once")

    @cached_property
    def _tiles(self) -> int:
        return sum(grid.tiles for grid in self.shared)

    @property
    def tile_count(self) -> int:
        """Number of tiles of the kernel; of shared ones, each part."""
        return self.whole.tile_count + self._tiles * len(self.parts)

    @property
    def raster_width(self) -> int:
        """Width of a rasterisation band, in tiles."""
        return max(grid.band for grid in (*self.whole.grids, *self.shared))

    @property
    def workspace_rows(self) -> int:
        """Rows of the workspace: for each CTA that stores its sum, those of its tile."""
        return (len(self.parts) - 1) * sum(grid.tiles * grid.m for grid in self.shared)

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
            firsts = [number + part * grid.tiles for part in range(len(self.parts))]
            for cut, (start, stop) in enumerate(self._intervals(firsts, grid.tiles, waves)):
                for part, first in enumerate(firsts):
                    core = (first + start) % count
                    is_taken[core : core + stop - start] = [True] * (stop - start)
                    of_part = replace(grid, first=first, slices=Slices(part, 1, *self.parts[part]))
                    tile = variable(CORE) + (start - core)
                    share = self._share(part, f"part{which}.{cut}", row, grid, tile)
                    groups.append(_Group(CoreWaves(core, stop - start, waves[core]), of_part, share))
            number += len(self.parts) * grid.tiles
            row += (len(self.parts) - 1) * grid.tiles * grid.m
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

        step, added = 1, []
        while part % (2 * step) == 0 and step < len(self.parts):
            if part + step < len(self.parts):
                added.append(stored(part + step))
            step *= 2
        return TileShare(stored(part) if part else None, tuple(added))


def stream_k(
    schedule: Schedule,
    sizes: tuple[int, int, int],
    tile: tuple[int, int],
    grids: Callable[[int, int], list[TileGrid]],
    cores: int,
) -> StaticTileScheduler | StreamKScheduler:
    """The scheduler of a schedule with regions. sizes: m, n, k; tile: its (m, n); grids: those over rows x columns
    of C.

    Raises UnsupportedError for regions that no program carries.
    """
    shared = shared_tiles(schedule, sizes, tile)
    if not shared.parts:
        return StaticTileScheduler(tuple(grids(*sizes[:2])), cores, 1)

    def over(marked: NDArray[np.bool_]) -> tuple[TileGrid, ...]:
        grids_over: list[TileGrid] = []
        for rectangle in rectangles(marked):
            row, col = rectangle.row * tile[0], rectangle.col * tile[1]
            extent = min(rectangle.rows * tile[0], sizes[0] - row), min(rectangle.cols * tile[1], sizes[1] - col)
            grids_over += tile_grids_at(grids(*extent), row, col, sum(grid.tiles for grid in grids_over))
        return tuple(grids_over)

    whole = StaticTileScheduler(over(~shared.is_shared), cores, 1)
    return StreamKScheduler(whole, over(shared.is_shared), shared.parts)


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
    """What of a record tiles whose K CTAs share do not carry: they are of one product, in one chain a part."""
    problem, schedule, plan = gemm.problem, gemm.schedule, gemm.single
    if not schedule.regions:
        return ""
    return refusals.named(
        {
            "regions of stacks": problem.matrices > 1,
            "regions of images": problem.image is not None,
            "regions of slices": len(schedule.slice_lengths(problem.k)) > 1,
            "regions of several products": plan.products > 1,
            "regions with promotion": schedule.promotion_k is not None or plan.k_group is not None,
        }
    )
