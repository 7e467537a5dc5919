"""Tile schedulers: which tiles of C a core works on, in which order.

Tiles are numbered in bands of columns (a swizzle, for locality in L2), one wave of all cores after the other. Tiles of
one size form a grid: full tiles, the last row of tiles, the last column, the corner, each once per length of slice of
K. Grids follow one another in one numbering; tile t goes to core t mod cores, as a persistent kernel's static scheduler
and a grid of CTAs in waves both do. It knows no memory, no operand and no device but its number of cores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from typing import Protocol

from hwsim.program.builder import Derivations, StreamBuilder
from hwsim.program.ir import CORE, ZERO, Affine, Derived, variable


@dataclass(frozen=True, slots=True)
class Slices:
    """`count` slices of K of `length` elements each, the first of them slice number `first`, from element `start`."""

    first: int
    count: int
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class TileGrid:
    """Tiles of m x n elements and one length of K: `depth` (batches times slices) grids of rows x cols tiles.

    first: number of the first tile. row, col: first element. band: columns of tiles gone through together. cluster:
    rows of tiles that follow one another in the numbering, one column, on cores beside each other; rows is a multiple.
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

    @property
    def tiles(self) -> int:
        """How many tiles there are."""
        return self.depth * self.rows * self.cols


@dataclass(frozen=True, slots=True)
class Cores:
    """Cores first .. first + count - 1, which take `waves[i]` tiles of grid i each."""

    first: int
    count: int
    waves: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WorkTile:
    """One tile of C to work on (or one of a loop's): first element within its matrix, sizes, matrix of the stack, K."""

    row: Affine
    col: Affine
    m: int
    n: int
    batch: Affine
    slice: Affine  # number of the slice
    start: Affine  # first element of K
    k: int
    cluster: int  # cores with the same columns of B at the same time, as a cluster
    across: int  # tiles of one row, and of one column, that cores are at together
    along: int


def slices_of(lengths: Sequence[int]) -> list[Slices]:
    """Slices of K as runs of equal ones."""
    found: list[Slices] = []
    start = 0
    for i, length in enumerate(lengths):
        last = found[-1] if found else None
        if last is not None and last.length == length:
            found[-1] = Slices(last.first, last.count + 1, last.start, length)
        else:
            found.append(Slices(i, 1, start, length))
        start += length
    return found


def band_of(cores: int, tile_m: int, tile_n: int, cols: int) -> int:
    """Columns of tiles that make what a wave of all cores reads nearly square, a power of two."""
    wanted = math.sqrt(cores * tile_m / tile_n)
    return min(1 << round(math.log2(max(wanted, 1))), cols)


def tile_grids(
    m: int, n: int, slices: Sequence[Slices], batch: int, tile: tuple[int, int], band: int, cores: int, cluster: int = 1
) -> list[TileGrid]:
    """All tiles of C[m, n]; tile: its (m, n); band 0: chosen (see `band_of`); cluster: see TileGrid."""
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
    along_n = [
        (0, banded, tile_n, chosen),
        (banded * tile_n, whole_cols - banded, tile_n, whole_cols - banded),
        (whole_cols * tile_n, 1 if rest_n else 0, rest_n, 1),
    ]
    found: list[TileGrid] = []
    first = 0
    for part, (row, rows, size_m, beside), (col, cols, size_n, width) in product(slices, along_m, along_n):
        if rows and cols:
            depth = batch * part.count
            found.append(TileGrid(first, depth, rows, cols, width, beside, row, col, size_m, size_n, part))
            first += found[-1].tiles
    return found


def distribute(grids: Sequence[TileGrid], cores: int) -> list[Cores]:
    """Which cores take how many tiles of each grid; cores without any are left out."""

    def waves(core: int) -> tuple[int, ...]:
        counts = []
        for grid in grids:
            place = (core - grid.first) % cores
            counts.append(-(-(grid.tiles - place) // cores) if place < grid.tiles else 0)
        return tuple(counts)

    # The counts change only at the cores that take a grid's first tile, and the first after its last.
    edges = sorted({0, *(x % cores for grid in grids for x in (grid.first, grid.first + grid.tiles))})
    found: list[Cores] = []
    for start, stop in pairwise([*edges, cores]):
        counts = waves(start)
        if found and found[-1].first + found[-1].count == start and found[-1].waves == counts:
            found[-1] = Cores(found[-1].first, stop - found[-1].first, counts)
        elif any(counts):
            found.append(Cores(start, stop - start, counts))
    return found


def places(
    stream: StreamBuilder, grids: Sequence[TileGrid], group: Cores, cores: int, batch: int
) -> Iterator[WorkTile]:
    """The tiles of `group`, in one stream: a loop over each grid's waves, whose body is emitted once."""
    for grid, waves in zip(grids, group.waves, strict=True):
        if not waves:
            continue
        with stream.loop("tile", waves) as (turn, _):
            place, derived = _place(grid, turn, stream.derived, cores, batch)
            stream.adopt(derived)
            yield place


@lru_cache(maxsize=256)
def _place(grid: TileGrid, turn: str, before: int, cores: int, batch: int) -> tuple[WorkTile, tuple[Derived, ...]]:
    """The tiles of a grid in a stream with `before` derived variables, and those that it adds.

    turn: the loop over waves. Streams of one core, and kernels of one program, go over the same tiles.
    """
    stream = Derivations(before)
    offset, place, together = grid.first % cores, variable(CORE), min(cores, grid.tiles)
    if offset:
        _, place = stream.derive("place", place + (cores - offset), cores)
    number = variable(turn) * cores + place
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
        row * grid.m + grid.row,
        col * grid.n + grid.col,
        grid.m,
        grid.n,
        in_batch,
        which + grid.slices.first,
        which * grid.slices.length + grid.slices.start,
        grid.slices.length,
        grid.cluster,
        min(grid.band, together),
        min(grid.rows, max(1, together // grid.band)),
    )
    return tile, tuple(stream.made)


class TileScheduler(Protocol):
    """Which tiles of C a core works on, in which order, and over which K."""

    @property
    def tile_count(self) -> int:
        """Tiles of the kernel, those of every slice of K and every matrix of a stack counted."""

    def cores(self) -> list[Cores]:
        """Groups of cores that take as many tiles of each size, those without any left out."""

    def tiles(self, stream: StreamBuilder, cores: Cores) -> Iterator[WorkTile]:
        """The tiles of a group, in one stream: what is emitted for each is emitted once, within loops."""


@dataclass(frozen=True, slots=True)
class StaticTileScheduler:
    """Tile t goes to core t mod cores, in bands of columns: a persistent kernel's static schedule, or CTAs in waves.

    grids: the tiles (see `tile_grids`). device_cores: cores of the device. matrices: of the stack.
    """

    grids: tuple[TileGrid, ...]
    device_cores: int
    matrices: int

    @property
    def tile_count(self) -> int:
        """Tiles of the kernel."""
        return sum(grid.tiles for grid in self.grids)

    @property
    def swizzle(self) -> int:
        """Tiles in a band of columns that is gone through together."""
        return max(grid.band for grid in self.grids)

    def cores(self) -> list[Cores]:
        """Groups of cores that take as many tiles of each size."""
        return distribute(self.grids, self.device_cores)

    def tiles(self, stream: StreamBuilder, cores: Cores) -> Iterator[WorkTile]:
        """The tiles of a group."""
        yield from places(stream, self.grids, cores, self.device_cores, self.matrices)
