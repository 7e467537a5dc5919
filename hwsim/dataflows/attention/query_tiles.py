"""Tiles of queries with their blocks of keys, and which core computes which of them, in which order.

It knows sizes, blocks and cores; it knows no buffer and no instruction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from hwsim.gemm.attention_record import FusedAttention
from hwsim.program.builder import StreamBuilder
from hwsim.program.ir import CORE, Affine, variable


@dataclass(frozen=True, slots=True)
class BlockRun:
    """Blocks of keys behind one another that are computed alike: the first one's number, how many, the step from one
    to the next, keys of each, and whether some row does not see some of them.
    """

    first: int
    count: int
    step: int
    keys: int
    is_masked: bool

    def part(self, start: int, count: int) -> BlockRun:
        """`count` blocks from the start-th on."""
        return BlockRun(self.first + start * self.step, count, self.step, self.keys, self.is_masked)


@dataclass(frozen=True, slots=True)
class TileShape:
    """What tiles have in common: their rows, and the runs of blocks in order. The first run has one block. No runs: no
    keys.
    """

    rows: int
    runs: tuple[BlockRun, ...]

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return sum(run.count for run in self.runs)


@dataclass(frozen=True, slots=True)
class HeadGrid:
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


def grid_of(record: FusedAttention) -> HeadGrid:
    """The grid of a record's kernel."""
    is_swapped = record.order.swaps_heads and record.queries == 1 and record.groups > 1
    heads, rows = (record.key_heads, record.groups) if is_swapped else (record.heads, record.queries)
    return HeadGrid(heads, heads // record.key_heads, rows, record.order.rows, -(-rows // record.order.rows))


def shape_of(record: FusedAttention, grid: HeadGrid, tile: int, part: int = 0) -> TileShape:
    """The shape of a tile of a head over a part of the keys; without runs where it sees none of them."""
    order = record.order
    first = tile * grid.rows
    rows = min(grid.rows, grid.rows_of_head - first)
    blocks = -(-record.keys // order.keys)
    length = -(-blocks // order.parts)
    seen = min(record.keys, first + rows) if record.is_causal else record.keys
    numbers = range(part * length, min((part + 1) * length, blocks, -(-seen // order.keys)))
    if not numbers:
        return TileShape(rows, ())
    kinds = [
        (min(order.keys, record.keys - number * order.keys), record.is_causal and (number + 1) * order.keys > first + 1)
        for number in numbers
    ]
    step = -1 if order.descending else 1
    runs: list[BlockRun] = []
    for (keys, is_masked), of_kind in groupby(list(zip(numbers, kinds, strict=True))[::step], lambda item: item[1]):
        members = [number for number, _ in of_kind]
        runs.append(BlockRun(members[0], len(members), step, keys, is_masked))
    head = runs[0]
    rest = [head.part(1, head.count - 1)] if head.count > 1 else []
    return TileShape(rows, (head.part(0, 1), *rest, *runs[1:]))


@dataclass(frozen=True, slots=True)
class TilePlace:
    """Where a tile lies: its head, and its number in the head."""

    head: Affine
    tile: Affine


@dataclass(frozen=True, slots=True)
class Turn:
    """Tiles that a core computes side by side, `count` times behind one another.

    Tiles with the shape are numbered, head by head: `of` of a head, from its tile `start` on. first: the number of the
    first one in the first turn of core 0; core_step: more for each core; turn_step: more for each turn. part: of the
    keys.
    """

    shape: TileShape
    tiles: int
    count: int = 1
    first: int = 0
    core_step: int = 0
    turn_step: int = 0
    of: int = 1
    start: int = 0
    part: int = 0

    def places(self, s: StreamBuilder, turn: Affine) -> list[TilePlace]:
        """Where its tiles lie in a turn."""
        begin = variable(CORE) * self.core_step + turn * self.turn_step + self.first
        places = []
        for number in range(self.tiles):
            at = begin + number
            if not at.terms:
                head, tile = (Affine(x) for x in divmod(at.constant, self.of))
            elif self.of == 1:
                head, tile = at, Affine()
            else:
                head, tile = s.derive("tile", at, self.of)
            places.append(TilePlace(head, tile + self.start))
        return places


@dataclass(frozen=True, slots=True)
class CoreTurns:
    """CoreTurns behind one another that compute the same turns."""

    first: int
    count: int
    turns: tuple[Turn, ...]


def distributed(record: FusedAttention, grid: HeadGrid, cores: int, beside: int) -> list[CoreTurns]:
    """All tiles over the cores. beside: tiles that a core computes at a time, at most.

    Tiles that are alike go to the cores in turn. Under a causal mask those with the most keys come first, and each
    round goes the other way, so that the core that got least gets the next: as where each tile goes to the first core
    that is free. A core gets a second tile at a time once every core has one.
    """
    whole, rest = divmod(grid.rows_of_head, grid.rows)
    if record.is_causal:
        kinds = [(tile, 1) for tile in reversed(range(grid.tiles))]  # first tile of a head, and how many are alike
    else:
        kinds = [(0, whole)] * (whole > 0) + [(whole, 1)] * (rest > 0)
    parts = range(record.order.parts)
    is_even = len(kinds) * len(parts) == 1
    is_crowded = beside > 1 and grid.heads * grid.tiles * len(parts) > cores
    plan: list[tuple[int, int, Turn]] = []  # begin and end of its cores, turn
    place = 0  # of the next turn, in two rounds: there and back
    for start, of in kinds:
        for part in parts:
            shape, count = shape_of(record, grid, start, part), grid.heads * of
            waves, left = divmod(count, beside * cores)
            double = max(0, left - cores) if is_even else left // 2
            double = double if is_crowded else 0
            done = waves * beside * cores
            if waves:
                turn = Turn(shape, beside, count=waves, core_step=beside, turn_step=beside * cores, of=of, start=start)
                plan.append((0, cores, replace(turn, part=part)))
            for tiles, first, turns in ((2, done, double), (1, done + 2 * double, left - 2 * double)):
                turn = Turn(shape, tiles, first=first, core_step=tiles, of=of, start=start, part=part)
                plan += _placed(turn, turns, place, cores)
                place = (place + turns) % (2 * cores)
    cuts = sorted({0, cores, *(edge for begin, end, _ in plan for edge in (begin, end))})
    shares = []
    for low, high in pairwise(cuts):
        turns_of_cores = tuple(turn for begin, end, turn in plan if begin <= low < end)
        if turns_of_cores:
            shares.append(CoreTurns(low, high - low, turns_of_cores))
    return shares


def _placed(turn: Turn, count: int, place: int, cores: int) -> list[tuple[int, int, Turn]]:
    """`count` turns like this one, of the tiles behind one another, on cores from a place on. place: below `cores` a
    core; from there on back from the last core.
    """
    plan = []
    while count:
        if place < cores:
            taken, begin, step = min(count, cores - place), place, turn.tiles
            first = turn.first - step * begin
        else:
            taken, step = min(count, 2 * cores - place), -turn.tiles
            last = 2 * cores - 1 - place
            begin, first = last - taken + 1, turn.first - step * last
        plan.append((begin, begin + taken, replace(turn, first=first, core_step=step)))
        turn = replace(turn, first=turn.first + taken * turn.tiles)
        count, place = count - taken, (place + taken) % (2 * cores)
    return plan
