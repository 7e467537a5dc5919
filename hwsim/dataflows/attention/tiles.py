"""Tiles of queries with their blocks of keys, and which core computes which of them, in which order.

It knows sizes, blocks and cores; it knows no buffer and no instruction.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from hwsim.gemm.attention import Attention
from hwsim.program.builder import StreamBuilder
from hwsim.program.ir import CORE, Affine, variable


@dataclass(frozen=True, slots=True)
class Run:
    """Blocks of keys behind one another that are computed alike: the first one's number, how many, the step from one
    to the next, keys of each, and whether some row does not see some of them.
    """

    first: int
    count: int
    step: int
    keys: int
    is_masked: bool

    def part(self, start: int, count: int) -> Run:
        """`count` blocks from the start-th on."""
        return Run(self.first + start * self.step, count, self.step, self.keys, self.is_masked)


@dataclass(frozen=True, slots=True)
class Shape:
    """What tiles have in common: their rows, and the runs of blocks in order. The first run has one block. No runs: no keys."""

    rows: int
    runs: tuple[Run, ...]

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return sum(run.count for run in self.runs)


@dataclass(frozen=True, slots=True)
class Grid:
    """The kernel's grid: tiles of a head, heads. swapped: the heads that share a head of the key are the rows of one
    (FlashAttention-2 with one query).
    """

    heads: int
    groups: int
    rows_of_head: int
    rows: int
    tiles: int

    def row(self, head: Affine, tile: Affine) -> Affine:
        """The first row of a tile in the stack of all heads."""
        return head * self.rows_of_head + tile * self.rows


def grid_of(record: Attention) -> Grid:
    """The grid of a record's kernel."""
    is_swapped = record.order.swaps_heads and record.queries == 1 and record.groups > 1
    heads, rows = (record.key_heads, record.groups) if is_swapped else (record.heads, record.queries)
    return Grid(heads, heads // record.key_heads, rows, record.order.rows, -(-rows // record.order.rows))


def shape_of(record: Attention, grid: Grid, tile: int, part: int = 0) -> Shape:
    """The shape of a tile of a head over a part of the keys; without runs where it sees none of them."""
    order = record.order
    first = tile * grid.rows
    rows = min(grid.rows, grid.rows_of_head - first)
    blocks = -(-record.keys // order.keys)
    length = -(-blocks // order.parts)
    seen = min(record.keys, first + rows) if record.is_causal else record.keys
    numbers = range(part * length, min((part + 1) * length, blocks, -(-seen // order.keys)))
    if not numbers:
        return Shape(rows, ())
    kinds = [
        (min(order.keys, record.keys - number * order.keys), record.is_causal and (number + 1) * order.keys > first + 1)
        for number in numbers
    ]
    step = -1 if order.descending else 1
    runs: list[Run] = []
    for (keys, is_masked), of_kind in groupby(list(zip(numbers, kinds, strict=True))[::step], lambda item: item[1]):
        members = [number for number, _ in of_kind]
        runs.append(Run(members[0], len(members), step, keys, is_masked))
    head = runs[0]
    rest = [head.part(1, head.count - 1)] if head.count > 1 else []
    return Shape(rows, (head.part(0, 1), *rest, *runs[1:]))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tile lies: its head, and its number in the head."""

    head: Affine
    tile: Affine


@dataclass(frozen=True, slots=True)
class Turn:
    """Tiles that a core computes side by side, `count` times behind one another. first: the number of the first tile in
    the first turn (of those with this shape, heads behind one another) plus core_step for each core; turn_step: from turn
    to turn. tile: of a head, where all are the same one. of: tiles of a head with the shape. part: of the keys.
    """

    shape: Shape
    tiles: int
    count: int
    first: int
    core_step: int
    turn_step: int
    of: int
    start: int
    part: int = 0

    def places(self, s: StreamBuilder, turn: Affine) -> list[Place]:
        """Where its tiles lie in a turn."""
        begin = variable(CORE) * self.core_step + turn * self.turn_step + self.first
        found = []
        for number in range(self.tiles):
            at = begin + number
            if not at.terms:
                head, tile = (Affine(x) for x in divmod(at.constant, self.of))
            elif self.of == 1:
                head, tile = at, Affine()
            else:
                head, tile = s.derive("tile", at, self.of)
            found.append(Place(head, tile + self.start))
        return found


@dataclass(frozen=True, slots=True)
class Cores:
    """Cores behind one another that compute the same turns."""

    first: int
    count: int
    turns: tuple[Turn, ...]


def distributed(record: Attention, grid: Grid, cores: int, beside: int) -> list[Cores]:
    """All tiles over the cores, in the order of the grid. beside: tiles that a core computes at a time, at most.

    Tiles that are alike go to the cores in turn. Tiles that are not (a causal mask) go each to the core that is free
    first, as the chip's scheduler deals out CTAs; two that share a core are of neighbouring heads.
    """
    if record.is_causal and grid.tiles > 1:
        return _dealt(record, grid, cores, beside)
    return _in_turn(record, grid, cores, beside)


def _in_turn(record: Attention, grid: Grid, cores: int, beside: int) -> list[Cores]:
    whole, rest = divmod(grid.rows_of_head, grid.rows)
    kinds = [(0, whole)] * (whole > 0) + [(whole, 1)] * (rest > 0)  # first tile of a head, tiles of a head
    plans: list[list[tuple[int, int, Turn]]] = []  # by kind: begin, end (places of cores), turn
    offset = 0
    for start, of in kinds:
        for part in range(record.order.parts):
            shape = shape_of(record, grid, start, part)
            count = grid.heads * of
            waves, left = divmod(count, beside * cores)
            double = max(0, left - cores) if beside > 1 else 0
            plan = []
            if waves:
                plan.append((0, cores, Turn(shape, beside, waves, 0, beside, beside * cores, of, start, part)))
            done = waves * beside * cores
            if double:
                plan.append((0, double, Turn(shape, 2, 1, done, 2, 0, of, start, part)))
            if left - 2 * double:
                first = done + 2 * double - double  # the core's number counts from 0
                plan.append((double, left - double, Turn(shape, 1, 1, first, 1, 0, of, start, part)))
            plans.append(_rotated(plan, offset, cores))
            offset = (offset + (left - double if left else 0)) % cores
    cuts = sorted({0, cores, *(edge for plan in plans for begin, end, _ in plan for edge in (begin, end))})
    found = []
    for first, last in zip(cuts, cuts[1:], strict=False):
        turns = tuple(turn for plan in plans for begin, end, turn in plan if begin <= first < end)
        if turns:
            found.append(Cores(first, last - first, turns))
    return found


def _rotated(plan: list[tuple[int, int, Turn]], offset: int, cores: int) -> list[tuple[int, int, Turn]]:
    """The same with core `offset` in the place of core 0, and so on."""
    moved = []
    for begin, end, turn in plan:
        for shift, low, high in ((offset, 0, cores - offset), (offset - cores, cores - offset, cores)):
            first, last = max(begin, low), min(end, high)
            if first < last:
                start = turn.first - shift * turn.core_step
                moved.append((first + shift, last + shift, _moved(turn, start)))
    return moved


def _moved(turn: Turn, first: int) -> Turn:
    return Turn(
        turn.shape, turn.tiles, turn.count, first, turn.core_step, turn.turn_step, turn.of, turn.start, turn.part
    )


def _dealt(record: Attention, grid: Grid, cores: int, beside: int) -> list[Cores]:
    free = [(0, core) for core in range(cores)]
    turns: list[list[Turn]] = [[] for _ in range(cores)]
    for head, tile, part, count in _items(record, grid, cores, beside):
        shape = shape_of(record, grid, tile, part)
        load, core = heapq.heappop(free)
        heapq.heappush(free, (load + count * shape.blocks, core))
        turns[core].append(Turn(shape, count, 1, head, 0, 0, 1, tile, part))
    return [Cores(core, 1, tuple(of_core)) for core, of_core in enumerate(turns) if of_core]


def _items(record: Attention, grid: Grid, cores: int, beside: int) -> Iterator[tuple[int, int, int, int]]:
    """(head, tile of the head, part of the keys, tiles side by side) in the order of the grid."""
    parts = record.order.parts
    is_double = beside > 1 and grid.heads * grid.tiles * parts > cores
    head = 0
    while head < grid.heads:
        count = 2 if is_double and head + 1 < grid.heads else 1
        for part in range(parts):
            for tile in range(grid.tiles):
                yield head, tile, part, count
        head += count
