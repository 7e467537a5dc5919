"""What the instructions of a stream access: buffers' slots and arrays in global memory, as rectangles of elements.

It knows loops, variables and tiles; it does not know which access must await which.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hwsim.program.ir import CORE, Advance, Derived, GlobalTile, Instr, Loop, Stream, StreamItem, derive, evaluate
from hwsim.program.resolve import Scope

Rect = tuple[int, int, int, int]  # first row, row after the last, first column, column after the last


@dataclass(frozen=True, slots=True)
class Issued:
    """An instruction with its position in the kernel, and (object, slot, rectangle, written) of each tile.

    The slot of an array in global memory is -1.
    """

    index: int
    instr: Instr
    accesses: tuple[tuple[str, int, Rect, bool], ...]


@dataclass(frozen=True, slots=True)
class Accesses:
    """The accesses of a kernel's streams to some arrays in global memory, and to buffers if has_buffers is set.

    numbers: position of an instruction in the kernel, by id() of the object. counts: passes taken of a loop with that
    count.
    """

    scope: Scope
    numbers: Mapping[int, int]
    counts: Callable[[int], int]
    arrays: Collection[str]
    has_buffers: bool

    def along(self, stream: Stream, core: Any) -> Iterator[Issued]:
        """All instructions of a stream in their order, as a core issues them.

        core: its number; or those of several as NumPy integers, and bounds of rectangles are such arrays too.
        """
        slots = {buffer.name: buffer.slots for buffer in self.scope.kernel.buffers}
        return self._of(stream.body, stream.derived, {CORE: core}, slots)

    def _of(
        self,
        body: tuple[StreamItem, ...],
        derived: tuple[Derived, ...],
        values: dict[str, int],
        slots: Mapping[str, int],
    ) -> Iterator[Issued]:
        for node in body:
            if isinstance(node, Loop):
                for turn in range(self.counts(node.count)):
                    values[node.name] = turn
                    yield from self._of(node.body, derived, values, slots)
            elif isinstance(node, Advance):
                values[node.counter] = values.get(node.counter, 0) + node.by
            else:
                if self.has_buffers or self._touches(node):
                    derive(derived, values)
                yield Issued(self.numbers[id(node)], node, tuple(self._tiles(node, values, slots)))

    def _tiles(
        self, instr: Instr, values: Mapping[str, int], slots: Mapping[str, int]
    ) -> Iterator[tuple[str, int, Rect, bool]]:
        # An mma that accumulates also reads what it writes: a write covers that.
        for tiles, written in ((instr.writes, True), (instr.reads, False)):
            for tile in tiles:
                if isinstance(tile, GlobalTile):
                    if tile.array in self.arrays:
                        row, col = evaluate(tile.row, values), evaluate(tile.col, values)
                        yield tile.array, -1, (row, row + tile.rows, col, col + tile.cols), written
                elif self.has_buffers:
                    slot = evaluate(tile.slot, values) % slots[tile.buffer]
                    yield tile.buffer, slot, (tile.row, tile.row + tile.rows, tile.col, tile.col + tile.cols), written

    def _touches(self, instr: Instr) -> bool:
        """Whether any of its tiles is of the arrays."""
        tiles = (*instr.writes, *instr.reads)
        return any(isinstance(tile, GlobalTile) and tile.array in self.arrays for tile in tiles)
