"""Tile schedulers: which tiles of C a core computes, in which order (rasterisation).

Tiles are numbered in bands of columns (for locality in L2), one wave of all cores after another. Tiles of one size form
a grid: full tiles, the last row of tiles, the last column, the corner, each once per length of slice of
K, and per strip of columns where there are several. Grids share one numbering; tile t goes to core t mod cores, as
with a persistent kernel's static scheduler and with a grid of CTAs in waves. It knows no memory, no operand and no
device but its number of cores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise, product
from typing import Protocol

from hwsim.program.builder import Derivations, StreamBuilder
from hwsim.program.ir import CORE, ZERO, Affine, Derived, Sync, derive, evaluate, variable
from hwsim.program.quick import quick


@dataclass(frozen=True, slots=True)
class Slices:
    """`count` slices of K of `length` elements each, beginning with slice number `first`, at element `start`."""

    first: int
    count: int
    start: int
    length: int


@quick
@dataclass(frozen=True, slots=True)
class TileGrid:
    """A grid of tiles of m x n elements and one length of K: `depth` (batch times slices) layers of rows x cols tiles.

    first: number of the first tile. row, col: first element. band: width of a rasterisation band, in tiles. cluster:
    consecutive tiles of one column on neighbouring cores; rows is a multiple. across, along: tiles of one row, and of
    one column, that cores are at together, those of other grids among them: an edge's tiles count as whole ones.
    """

    first: int
    depth: int
    rows: int
    cols: int
    band: int
    cluster: int
    row: int
    col: int
    m: int
    n: int
    slices: Slices
    across: int
    along: int

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return self.depth * self.rows * self.cols


@quick
@dataclass(frozen=True, slots=True)
class CoreWaves:
    """Consecutive cores first .. first + count - 1 with equal work: `waves[i]` tiles of grid i each."""

    first: int
    count: int
    waves: tuple[int, ...]


@quick
@dataclass(frozen=True, slots=True)
class Stored:
    """A sum of a tile in the workspace of shared tiles: its first row there, and what says that it is stored."""

    row: Affine
    flag: Sync


@quick
@dataclass(frozen=True, slots=True)
class TileShare:
    """What a CTA does with its part of a tile whose K is shared: the sums of others that it adds to its own, in order,
    and where it stores that (None: it has the whole sum then, and writes the result). is_followed: other tiles may
    follow on its core.
    """

    stored: Stored | None
    added: tuple[Stored, ...]
    is_followed: bool = False


@quick
@dataclass(frozen=True, slots=True)
class WorkTile:
    """One tile of C to compute (or one of a loop's): first element within its matrix, sizes, matrix of the batch, K.

    share: where other CTAs compute parts of the same sum. runs: (start, length) of the runs of K that are one K here,
    in order; none: K is in one. adds: a sum that another plan's kernel has left is added.
    """

    row: Affine
    col: Affine
    m: int
    n: int
    batch: Affine
    slice: Affine  # number of the slice
    start: Affine  # first element of K
    k: int
    cluster: int  # cores with the same columns of B at the same time, as a cluster
    across: int  # as TileGrid has them
    along: int
    share: TileShare | None = None
    runs: tuple[tuple[int, int], ...] = ()
    adds: bool = False


def slices_of(lengths: Sequence[int]) -> list[Slices]:
    """Slices of K, grouped into runs of equal length."""
    groups: list[Slices] = []
    start = 0
    for i, length in enumerate(lengths):
        last = groups[-1] if groups else None
        if last is not None and last.length == length:
            groups[-1] = Slices(last.first, last.count + 1, last.start, length)
        else:
            groups.append(Slices(i, 1, start, length))
        start += length
    return groups


def band_of(cores: int, tile_m: int, tile_n: int, cols: int) -> int:
    """The band width, a power of two, that makes the data read by a wave of all cores nearly square."""
    wanted = math.sqrt(cores * tile_m / tile_n)
    return min(1 << round(math.log2(max(wanted, 1))), cols)


def tile_grids(
    m: int,
    n: int,
    slices: Sequence[Slices],
    batch: int,
    tile: tuple[int, int],
    band: int,
    cores: int,
    cluster: int = 1,
    strips: int = 1,
) -> list[TileGrid]:
    """The grids that cover C[m, n]. tile: its (m, n). band: 0: chosen (see `band_of`). cluster: see TileGrid.

    strips: most strips of whole bands, each of at least a wave, in which all rows come before the next strip's. The
    last row of tiles, which is a grid of its own, then reads B together with the rows above it, or soon after.
    """
    tile_m, tile_n = tile
    whole_rows, rest_m = divmod(m, tile_m)
    whole_cols, rest_n = divmod(n, tile_n)
    chosen = min(band or band_of(cores, tile_m, tile_n, max(whole_cols, 1)), max(whole_cols, 1))
    banded = whole_cols // chosen * chosen
    clustered = whole_rows // cluster * cluster
    # rows or columns: first element, number, size of each, rows of a cluster or band
    along_m = [
        (0, clustered, tile_m, cluster),
        (clustered * tile_m, whole_rows - clustered, tile_m, 1),
        (whole_rows * tile_m, 1 if rest_m else 0, rest_m, 1),
    ]
    least = -(-cores // (chosen * -(-m // tile_m)))  # bands of a wave
    wide = max(-(-banded // (chosen * strips)), least) * chosen
    if sum(rows > 0 for _, rows, _, _ in along_m) == 1:
        wide = max(banded, 1)
    along_n = [
        *((col * tile_n, min(wide, banded - col), tile_n, chosen) for col in range(0, banded, wide)),
        (banded * tile_n, whole_cols - banded, tile_n, whole_cols - banded),
        (whole_cols * tile_n, 1 if rest_n else 0, rest_n, 1),
    ]
    order = product(along_m, along_n) if wide >= banded else ((x, y) for y, x in product(along_n, along_m))
    grids: list[TileGrid] = []
    first, all_rows, left_over = 0, -(-m // tile_m), -(-n // tile_n) - banded
    for part, ((row, rows, size_m, beside), (col, cols, size_n, width)) in product(slices, order):
        if rows and cols:
            depth = batch * part.count
            is_banded = col < banded * tile_n
            together = min(cores, depth * all_rows * (cols if is_banded else left_over))
            across = min(width if is_banded else left_over, together)
            grids.append(
                TileGrid(
                    first=first,
                    depth=depth,
                    rows=rows,
                    cols=cols,
                    band=width,
                    cluster=beside,
                    row=row,
                    col=col,
                    m=size_m,
                    n=size_n,
                    slices=part,
                    across=across,
                    along=min(all_rows, max(1, together // across)),
                )
            )
            first += grids[-1].tiles
    return grids


def tile_grids_at(grids: Sequence[TileGrid], row: int, col: int, first: int) -> list[TileGrid]:
    """The grids moved to other places of C, numbered on from `first`."""
    return [replace(grid, first=grid.first + first, row=grid.row + row, col=grid.col + col) for grid in grids]


def distribute(grids: Sequence[TileGrid], cores: int) -> list[CoreWaves]:
    """The number of tiles of each grid per core, for groups of cores with equal work; cores without any are left
    out.
    """

    def waves(core: int) -> tuple[int, ...]:
        counts = []
        for grid in grids:
            place = (core - grid.first) % cores
            counts.append(-(-(grid.tiles - place) // cores) if place < grid.tiles else 0)
        return tuple(counts)

    # The counts change only at the cores that take a grid's first tile, and the first after its last.
    edges = sorted({0, *(x % cores for grid in grids for x in (grid.first, grid.first + grid.tiles))})
    groups: list[CoreWaves] = []
    for start, stop in pairwise([*edges, cores]):
        counts = waves(start)
        if groups and groups[-1].first + groups[-1].count == start and groups[-1].waves == counts:
            groups[-1] = CoreWaves(groups[-1].first, stop - groups[-1].first, counts)
        elif any(counts):
            groups.append(CoreWaves(start, stop - start, counts))
    return groups


def places(
    stream: StreamBuilder,
    grids: Sequence[TileGrid],
    group: CoreWaves,
    cores: int,
    batch: int,
    begun: Sequence[int] = (),
) -> Iterator[WorkTile]:
    """The tiles of `group`, in one stream: a loop over each grid's waves, whose body is emitted once.

    begun: waves of each grid that come before those of `group`; none: 0 each.
    """
    for grid, waves, before in zip(grids, group.waves, begun or (0,) * len(grids), strict=True):
        if not waves:
            continue
        turn = stream.begin("tile")
        place, derived = _place(grid, turn, stream.derived, cores, batch, before)
        stream.adopt(derived)
        yield place
        stream.end(turn, waves)


@lru_cache(maxsize=256)
def _place(
    grid: TileGrid, turn: str, before: int, cores: int, batch: int, begun: int
) -> tuple[WorkTile, tuple[Derived, ...]]:
    """The work tile of a grid in a stream with `before` derived variables, and the derived variables that it adds.

    turn: name of the loop over waves, of which `begun` come before the first. Cached, because the streams of a core and
    the kernels of a program share grids.
    """
    stream = Derivations(before)
    offset, place = grid.first % cores, variable(CORE)
    if offset:
        _, place = stream.derive("place", place + (cores - offset), cores)
    number = variable(turn) * cores + place + begun * cores
    layer = ZERO
    if grid.depth > 1:
        layer, number = stream.derive("layer", number, grid.rows * grid.cols)
    left = ZERO
    if grid.band < grid.cols:
        left, number = stream.derive("band", number, grid.rows * grid.band)
        left = left * grid.band
    lane = ZERO
    if grid.cluster > 1:
        number, lane = stream.derive("cluster", number, grid.cluster)
    if grid.band == 1:
        row, col = number, left
    elif grid.rows == grid.cluster:
        row, col = ZERO, left + number
    else:
        row, within = stream.derive("row", number, grid.band)
        col = left + within
    row = row * grid.cluster + lane
    in_batch, which = ZERO, ZERO
    if batch > 1 and grid.slices.count > 1:
        in_batch, which = stream.derive("batch", layer, grid.slices.count)
    elif batch > 1:
        in_batch = layer
    else:
        which = layer
    tile = WorkTile(
        row=row * grid.m + grid.row,
        col=col * grid.n + grid.col,
        m=grid.m,
        n=grid.n,
        batch=in_batch,
        slice=which + grid.slices.first,
        start=which * grid.slices.length + grid.slices.start,
        k=grid.slices.length,
        cluster=grid.cluster,
        across=grid.across,
        along=grid.along,
    )
    return tile, tuple(stream.derived)


def element_of(grid: TileGrid, number: int) -> tuple[int, int]:
    """The first row and column of the tile of that number of a grid of one layer."""
    tile, derived = _place(grid, "tile", 0, 1, 1, 0)  # of one core alone, whose turn is the number
    values = {"tile": number, CORE: 0}
    derive(derived, values)
    return evaluate(tile.row, values), evaluate(tile.col, values)


class TileScheduler(Protocol):
    """Interface: which tiles of C a core computes, in which order, and over which K."""

    @property
    def tile_count(self) -> int:
        """Number of tiles of the kernel, over all slices of K and matrices of a batch."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Names of the semaphores of peers that its shares name."""

    def cores(self) -> list[CoreWaves]:
        """Groups of cores with equal work; cores without any are left out."""

    def tiles(self, stream: StreamBuilder, cores: CoreWaves) -> Iterator[WorkTile]:
        """The tiles of a group, in one stream; code for them is emitted once, within loops."""


@dataclass(frozen=True, slots=True)
class StaticTileScheduler:
    """The static scheduler: tile t goes to core t mod cores, in bands of columns, as in a persistent kernel or CTAs in
    waves.

    grids: the tiles (see `tile_grids`). device_cores: cores of the device. matrices: batch size.
    """

    grids: tuple[TileGrid, ...]
    device_cores: int
    matrices: int

    @property
    def tile_count(self) -> int:
        """Number of tiles of the kernel."""
        return sum(grid.tiles for grid in self.grids)

    @property
    def raster_width(self) -> int:
        """Width of a rasterisation band, in tiles."""
        return max(grid.band for grid in self.grids)

    @property
    def workspace_rows(self) -> int:
        """Rows of the workspace of shared tiles: 0, as no tile is shared."""
        return 0

    @property
    def flags(self) -> tuple[str, ...]:
        """Names of semaphores of peers: (), as no tile is shared."""
        return ()

    def cores(self) -> list[CoreWaves]:
        """Groups of cores with equal work."""
        return distribute(self.grids, self.device_cores)

    def tiles(self, stream: StreamBuilder, cores: CoreWaves) -> Iterator[WorkTile]:
        """The tiles of a group."""
        yield from places(stream, self.grids, cores, self.device_cores, self.matrices)
