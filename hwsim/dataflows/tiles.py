"""Tiles of C dealt out to cores: numbered, in bands of columns for locality in L2, a whole round of cores at a time.

Tiles of one size form a field: full tiles, the last row of tiles, the last column, the corner, each once per length of
slice of K. Fields follow one another in one numbering; tile t goes to core t mod cores, as a persistent kernel's
scheduler and a grid of CTAs in waves both do. It knows no memory, no operand and no device but its number of cores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Protocol

from hwsim.program.builder import StreamBuilder
from hwsim.program.ir import CORE, ZERO, Affine, variable


@dataclass(frozen=True, slots=True)
class Slices:
    """`count` slices of K of `length` elements each, the first of them slice number `first`, from element `start`."""

    first: int
    count: int
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Field:
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
    """Cores first .. first + count - 1, which take `rounds[i]` tiles of field i each."""

    first: int
    count: int
    rounds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """One tile (or one of a loop's): first element of C within its matrix, sizes, batch, slice of K."""

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
    """Columns of tiles that make what a round of all cores reads nearly square, a power of two."""
    wanted = math.sqrt(cores * tile_m / tile_n)
    return min(1 << round(math.log2(max(wanted, 1))), cols)


def fields(
    m: int, n: int, slices: Sequence[Slices], batch: int, tile: tuple[int, int], band: int, cores: int, cluster: int = 1
) -> list[Field]:
    """All tiles of C[m, n]; tile: its (m, n); band 0: chosen (see `band_of`); cluster: see Field."""
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
    found: list[Field] = []
    first = 0
    for part, (row, rows, size_m, beside), (col, cols, size_n, width) in product(slices, along_m, along_n):
        if rows and cols:
            depth = batch * part.count
            found.append(Field(first, depth, rows, cols, width, beside, row, col, size_m, size_n, part))
            first += found[-1].tiles
    return found


def deal_fields(found: Sequence[Field], cores: int) -> list[Cores]:
    """Which cores take how many tiles of each field; cores without any are left out."""

    def rounds(core: int) -> tuple[int, ...]:
        places = ((field, (core - field.first) % cores) for field in found)
        return tuple(-(-(field.tiles - place) // cores) if place < field.tiles else 0 for field, place in places)

    counts = [rounds(core) for core in range(cores)]
    edges = [0, *(i for i in range(1, cores) if counts[i] != counts[i - 1]), cores]
    return [Cores(a, b - a, counts[a]) for a, b in pairwise(edges) if any(counts[a])]


def places(stream: StreamBuilder, found: Sequence[Field], group: Cores, cores: int, batch: int) -> Iterator[Place]:
    """The tiles of `group`, in one stream: a loop over each field's rounds, whose body is emitted once."""
    for field, rounds in zip(found, group.rounds, strict=True):
        if not rounds:
            continue
        with stream.loop("tile", rounds) as (_, turn):
            offset = field.first % cores
            place = variable(CORE)
            if offset:
                _, place = stream.derive("place", place + (cores - offset), cores)
            yield _place(stream, field, turn * cores + place, batch, min(cores, field.tiles))


def _place(stream: StreamBuilder, field: Field, number: Affine, batch: int, together: int) -> Place:
    layer = ZERO
    if field.depth > 1:
        layer, number = stream.derive("layer", number, field.rows * field.cols)
    left = ZERO
    if field.band < field.cols:
        left, number = stream.derive("band", number, field.rows * field.band)
        left = left * field.band
    lane = ZERO
    if field.cluster > 1:
        number, lane = stream.derive("cluster", number, field.cluster)
    if field.band == 1:
        row, col = number, left
    elif field.rows == field.cluster:
        row, col = ZERO, left + number
    else:
        row, within = stream.derive("row", number, field.band)
        col = left + within
    row = row * field.cluster + lane
    in_batch, which = ZERO, ZERO
    if batch > 1 and field.slices.count > 1:
        in_batch, which = stream.derive("batch", layer, field.slices.count)
    elif batch > 1:
        in_batch = layer
    else:
        which = layer
    return Place(
        row * field.m + field.row,
        col * field.n + field.col,
        field.m,
        field.n,
        in_batch,
        which + field.slices.first,
        which * field.slices.length + field.slices.start,
        field.slices.length,
        field.cluster,
        min(field.band, together),
        min(field.rows, max(1, together // field.band)),
    )


class TileScheduler(Protocol):
    """Which tiles of C a core works on, in which order, and over which K."""

    @property
    def tile_count(self) -> int:
        """Tiles of the kernel, those of every slice of K and every matrix of a stack counted."""

    def cores(self) -> list[Cores]:
        """Groups of cores that take as many tiles of each size, those without any left out."""

    def tiles(self, stream: StreamBuilder, cores: Cores) -> Iterator[Place]:
        """The tiles of a group, in one stream: what is emitted for each is emitted once, within loops."""


@dataclass(frozen=True, slots=True)
class StaticTileScheduler:
    """Tile t goes to core t mod cores, in bands of columns: a persistent kernel's static schedule, or CTAs in waves.

    grids: the tiles (see `fields`). device_cores: cores of the device. matrices: of the stack.
    """

    grids: tuple[Field, ...]
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
        return deal_fields(self.grids, self.device_cores)

    def tiles(self, stream: StreamBuilder, cores: Cores) -> Iterator[Place]:
        """The tiles of a group."""
        yield from places(stream, self.grids, cores, self.device_cores, self.matrices)
