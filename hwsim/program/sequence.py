"""One legal order of a core's instructions, each with the places of its tiles.

It knows the text of a kernel and its semaphores; it knows no data, no time and no device.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile

from hwsim.errors import ProgramError
from hwsim.formats import code_dtype, format_of
from hwsim.program.ir import (
    CORE,
    Advance,
    AnyTile,
    CoreGroup,
    Derived,
    GlobalArray,
    GlobalTile,
    Instr,
    Kernel,
    Loop,
    StreamItem,
    derive,
    evaluate,
)

ARRAY = -1  # in place of a slot's number: the store is a global array


@dataclass(frozen=True, slots=True)
class PlacedTile:
    """Where a tile lies: rows x cols elements from (row, col) of a store.

    store: a buffer and the number of its slot, or a global array and ARRAY. width: elements per row of the store.
    size: host bytes of an element's code.
    """

    store: tuple[str, int]
    row: int
    col: int
    rows: int
    cols: int
    width: int
    size: int
    format: str

    @property
    def is_global(self) -> bool:
        """Whether the store is a global array."""
        return self.store[1] == ARRAY

    def offset(self, row: int, col: int) -> int:
        """The host byte in the store at which the code of the tile's element (row, col) begins."""
        return ((self.row + row) * self.width + self.col + col) * self.size

    def nearest(self, row: int, col: int) -> tuple[int, int]:
        """(row, col), or the tile's last where it has fewer: a row or a column counts for all."""
        return min(row, self.rows - 1), min(col, self.cols - 1)

    def element(self, offset: int) -> tuple[int, int] | None:
        """The row and column in the tile of the code at this byte of the store; None where the tile has it not."""
        index, rest = divmod(offset, self.size)
        row, col = divmod(index, self.width)
        row, col = row - self.row, col - self.col
        return (row, col) if not rest and 0 <= row < self.rows and 0 <= col < self.cols else None


def whole_array(array: GlobalArray) -> PlacedTile:
    """The tile that is all of a global array."""
    return _in_array(array, 0, 0, array.rows, array.cols)


def _in_array(array: GlobalArray, row: int, col: int, rows: int, cols: int) -> PlacedTile:
    size = code_dtype(format_of(array.format)).itemsize
    return PlacedTile(
        store=(array.name, ARRAY),
        row=row,
        col=col,
        rows=rows,
        cols=cols,
        width=array.cols,
        size=size,
        format=array.format,
    )


@dataclass(frozen=True, slots=True)
class PlacedInstr:
    """One instruction of one core as it is executed. sources: the tiles that it reads, in the order of its roles.
    starts_at_zero: of mma, it does not accumulate. number: in the kernel, counted in its text. turn: how often the core
    has executed it before.
    """

    instr: Instr
    target: PlacedTile
    sources: tuple[PlacedTile, ...]
    starts_at_zero: bool
    number: int
    turn: int

    @property
    def operands(self) -> Iterator[tuple[str, PlacedTile]]:
        """The role and the place of each tile that it reads."""
        return zip(self.instr.roles, self.sources, strict=True)


def issued(
    body: tuple[StreamItem, ...], derived: tuple[Derived, ...], values: dict[str, int]
) -> Iterator[tuple[Instr, dict[str, int]]]:
    """Yield the instructions of a stream in order of issue, each with the values of its variables."""
    return ((instr, current) for _, instr, current in _numbered(body, derived, values, 0))


def _numbered(
    body: tuple[StreamItem, ...], derived: tuple[Derived, ...], values: dict[str, int], first: int
) -> Iterator[tuple[int, Instr, dict[str, int]]]:
    """The same, each with its number in the text, in which the first has the number `first`."""
    number = first
    for node in body:
        if isinstance(node, Loop):
            for i in range(node.count):
                values[node.name] = i
                yield from _numbered(node.body, derived, values, number)
            number += _length(node)
        elif isinstance(node, Advance):
            values[node.counter] = values.get(node.counter, 0) + node.by
        else:
            derive(derived, values)
            yield number, node, dict(values)
            number += 1


def _length(node: StreamItem) -> int:
    """Instructions in the text of a node; loops that are not executed have none."""
    if isinstance(node, Loop):
        return sum(map(_length, node.body)) if node.count else 0
    return int(isinstance(node, Instr))


class CoreText:
    """The instructions of one kernel's cores, with places. arrays: of the program, by name."""

    def __init__(self, kernel: Kernel, arrays: Mapping[str, GlobalArray]) -> None:
        self.kernel, self.arrays = kernel, arrays
        self.slots = {buffer.name: buffer.slots for buffer in kernel.buffers}

    def sequence(self, group: CoreGroup, core: int) -> list[PlacedInstr]:
        """The instructions of a core but `sync`, in a legal order. What cores of earlier turns signal has happened
        (hwsim.program.peers). Raises ProgramError for a deadlock.
        """
        before = takewhile(lambda earlier: earlier is not group, self.kernel.groups)
        first = sum(_length(node) for earlier in before for stream in earlier.streams for node in stream.body)
        streams: list[Iterator[tuple[int, Instr, dict[str, int]]]] = []
        for stream in group.streams:
            streams.append(_numbered(stream.body, stream.derived, {CORE: core}, first))
            first += sum(map(_length, stream.body))
        turns: Counter[int] = Counter()
        counts: dict[str, float] = {
            semaphore.name: math.inf if semaphore.peers else semaphore.initial for semaphore in self.kernel.semaphores
        }
        queues: dict[str, deque[tuple[int, Instr, dict[str, int]]]] = {}
        sequence: list[PlacedInstr] = []
        while streams or any(queues.values()):
            is_stuck = True
            for queue in queues.values():
                while queue and all(counts[wait.semaphore] >= wait.count for wait in queue[0][1].waits):
                    number, instr, values = queue.popleft()
                    for wait in instr.waits:
                        counts[wait.semaphore] -= wait.count
                    for signal in instr.signals:
                        counts[signal.semaphore] += signal.count
                    if instr.writes:
                        sequence.append(self._placed(number, instr, values, turns[number]))
                    turns[number] += 1
                    is_stuck = False
            if is_stuck and not streams:
                raise ProgramError(f"kernel {self.kernel.name}, core {core}: the engines wait for each other")
            if is_stuck:
                for issue in tuple(streams):
                    item = next(issue, None)
                    if item is None:
                        streams.remove(issue)
                    else:
                        queues.setdefault(item[1].engine, deque()).append(item)
        return sequence

    def stores(self, group: CoreGroup, core: int, names: Collection[str]) -> Iterator[PlacedTile]:
        """The tiles of these global arrays that a core writes."""
        for stream in group.streams:
            body = _stores_of(stream.body, names) if _has_store(stream.body, names) else ()
            if body:
                for instr, values in issued(body, stream.derived, {CORE: core}):
                    yield self._place(instr.writes[0], values)

    def _placed(self, number: int, instr: Instr, values: Mapping[str, int], turn: int) -> PlacedInstr:
        starts_at_zero = instr.zero_at is not None and all(values[name] == 0 for name in instr.zero_at)
        target, *sources = [self._place(tile, values) for tile in (*instr.writes, *instr.reads)]
        return PlacedInstr(instr, target, tuple(sources), starts_at_zero, number, turn)

    def _place(self, tile: AnyTile, values: Mapping[str, int]) -> PlacedTile:
        if isinstance(tile, GlobalTile):
            row, col = evaluate(tile.row, values), evaluate(tile.col, values)
            return _in_array(self.arrays[tile.array], row, col, tile.rows, tile.cols)
        return PlacedTile(
            store=(tile.buffer, evaluate(tile.slot, values) % self.slots[tile.buffer]),
            row=tile.row,
            col=tile.col,
            rows=tile.rows,
            cols=tile.cols,
            width=tile.width or tile.cols,
            size=code_dtype(format_of(tile.format)).itemsize,
            format=tile.format,
        )


def _stores_of(body: tuple[StreamItem, ...], names: Collection[str]) -> tuple[StreamItem, ...]:
    """The part of a stream that writes these global arrays, with the counters that places depend on."""
    stores: list[StreamItem] = []
    for node in body:
        if isinstance(node, Loop):
            inner = _stores_of(node.body, names)
            if inner:
                stores.append(Loop(node.name, node.count, inner))
        elif isinstance(node, Advance) or any(isinstance(x, GlobalTile) and x.array in names for x in node.writes):
            stores.append(node)
    return tuple(stores)


def has_store(group: CoreGroup, names: Collection[str]) -> bool:
    """Whether the cores of a group write one of these global arrays."""
    return any(_has_store(stream.body, names) for stream in group.streams)


def _has_store(body: tuple[StreamItem, ...], names: Collection[str]) -> bool:
    return any(
        _has_store(node.body, names)
        if isinstance(node, Loop)
        else isinstance(node, Instr) and any(isinstance(x, GlobalTile) and x.array in names for x in node.writes)
        for node in body
    )
