"""A kernel of a program as integer tables: what the compiled interpreters walk instead of Python objects.

Everything is int64. Names become indices: engines, memories and arrays in the order given by the caller,
buffers and semaphores in the order of the kernel; loops, counters and derived variables (and CORE, variable 0)
per stream.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwsim.program.ir import CORE, Advance, Affine, GlobalTile, Instr, Kernel, Loop, Node, Stream, Tile

Table = NDArray[np.int64]

NODE_INSTR, NODE_LOOP, NODE_END, NODE_ADVANCE = range(4)
NODE_COLUMNS = (
    "kind",
    "index",
    "count",
    "jump",
)  # loop: variable, count, node after its end; end: variable, 0, first of body
TILE_GLOBAL, TILE_LOCAL = range(2)
TILE_COLUMNS = ("kind", "object", "rows", "cols", "affine_row", "affine_col", "affine_slot", "row", "col")
DERIVED_COLUMNS = ("variable", "affine", "divisor", "part")  # part: 0 quotient, 1 remainder
INSTR_COLUMNS = (
    "engine",
    "opcode",
    "repeat",
    "first_tile",
    "writes",
    "reads",
    "first_wait",
    "waits",
    "first_signal",
    "signals",
    "zero_at",
    "scale_exponent",
)
OPCODES = ("copy", "mma", "cast", "add", "sub", "mul", "scale", "fill", "sync")


@dataclass(frozen=True, slots=True)
class FlatStream:
    """nodes: NODE_COLUMNS; variables: names, CORE first; derived: DERIVED_COLUMNS, in the order of computing.

    Indices of instructions and of affine expressions are into the kernel's tables.
    """

    nodes: Table
    variables: tuple[str, ...]
    derived: Table


@dataclass(frozen=True, slots=True)
class FlatKernel:
    """Tables of one kernel. `instrs[i]` is the Instr of row i of `instr`.

    affine: rows (constant, first term, number of terms); term: (variable index in its stream, coefficient).
    sync: (semaphore, count). zero_at: -1 always accumulate, else row of `zero_list` (first, number) whose
    entries in `zero_variable` are loop variables; none: never accumulate. `streams[g][s]`: group g, stream s.
    """

    instr: Table
    tile: Table
    affine: Table
    term: Table
    sync: Table
    zero_list: Table
    zero_variable: Table
    instrs: tuple[Instr, ...]
    streams: tuple[tuple[FlatStream, ...], ...]
    buffer_slots: Table
    semaphore_initial: Table
    semaphore_pieces: Table


def flatten(
    kernel: Kernel, engines: Mapping[str, int], arrays: Mapping[str, int], turned: Collection[str] = ()
) -> FlatKernel:
    """Return the tables of `kernel`; tiles of the arrays `turned` with rows and columns exchanged.

    Raises KeyError for a name that the checker should have refused.
    """
    return _Flattener(kernel, engines, arrays, turned).flatten()


class _Flattener:
    def __init__(
        self, kernel: Kernel, engines: Mapping[str, int], arrays: Mapping[str, int], turned: Collection[str]
    ) -> None:
        self.kernel, self.engines, self.arrays, self.turned = kernel, engines, arrays, turned
        self.buffers = {buffer.name: i for i, buffer in enumerate(kernel.buffers)}
        self.semaphores = {semaphore.name: i for i, semaphore in enumerate(kernel.semaphores)}
        self.instr: list[tuple[int, ...]] = []
        self.tile: list[tuple[int, ...]] = []
        self.affine: list[tuple[int, ...]] = []
        self.term: list[tuple[int, ...]] = []
        self.sync: list[tuple[int, ...]] = []
        self.zero_list: list[tuple[int, ...]] = []
        self.zero_variable: list[tuple[int, ...]] = []
        self.instrs: list[Instr] = []
        self.variables: dict[str, int] = {}
        self.affines: dict[Affine, int] = {}  # of the stream: each stands once

    def flatten(self) -> FlatKernel:
        streams = tuple(tuple(self._stream(s) for s in group.streams) for group in self.kernel.groups)
        return FlatKernel(
            _table(self.instr, len(INSTR_COLUMNS)),
            _table(self.tile, len(TILE_COLUMNS)),
            _table(self.affine, 3),
            _table(self.term, 2),
            _table(self.sync, 2),
            _table(self.zero_list, 2),
            _table(self.zero_variable, 1),
            tuple(self.instrs),
            streams,
            np.array([b.slots for b in self.kernel.buffers], np.int64),
            np.array([s.initial for s in self.kernel.semaphores], np.int64),
            np.array([s.pieces for s in self.kernel.semaphores], np.int64),
        )

    def _stream(self, stream: Stream) -> FlatStream:
        self.variables, self.affines = {CORE: 0}, {}
        nodes: list[tuple[int, ...]] = []
        self._nodes(stream.body, nodes)
        derived: list[tuple[int, ...]] = [
            (self._variable(one.name), self._affine(one.of), one.divisor, int(one.part == "remainder"))
            for one in stream.derived
        ]
        return FlatStream(
            _table(nodes, len(NODE_COLUMNS)), tuple(self.variables), _table(derived, len(DERIVED_COLUMNS))
        )

    def _variable(self, name: str) -> int:
        return self.variables.setdefault(name, len(self.variables))

    def _nodes(self, body: tuple[Node, ...], out: list[tuple[int, ...]]) -> None:
        for node in body:
            if isinstance(node, Loop):
                if node.count == 0:
                    continue
                index, start = self._variable(node.name), len(out)
                out.append((NODE_LOOP, index, node.count, 0))
                self._nodes(node.body, out)
                out.append((NODE_END, index, node.count, start + 1))
                out[start] = (NODE_LOOP, index, node.count, len(out))
            elif isinstance(node, Advance):
                out.append((NODE_ADVANCE, self._variable(node.counter), node.by, 0))
            else:
                out.append((NODE_INSTR, self._instr(node), 0, 0))

    def _instr(self, instr: Instr) -> int:
        first_tile = len(self.tile)
        for tile in (*instr.writes, *instr.reads):
            self.tile.append(self._tile(tile))
        first_wait = len(self.sync)
        self.sync.extend((self.semaphores[w.semaphore], w.count) for w in instr.waits)
        first_signal = len(self.sync)
        self.sync.extend((self.semaphores[s.semaphore], s.count) for s in instr.signals)
        zero_at = -1
        if instr.zero_at is not None:
            zero_at = len(self.zero_list)
            self.zero_list.append((len(self.zero_variable), len(instr.zero_at)))
            self.zero_variable.extend((self._variable(name),) for name in instr.zero_at)
        self.instr.append(
            (
                self.engines[instr.engine],
                OPCODES.index(instr.opcode),
                instr.repeat,
                first_tile,
                len(instr.writes),
                len(instr.reads),
                first_wait,
                len(instr.waits),
                first_signal,
                len(instr.signals),
                zero_at,
                instr.scale_exponent,
            )
        )
        self.instrs.append(instr)
        return len(self.instr) - 1

    def _tile(self, tile: Tile) -> tuple[int, ...]:
        if isinstance(tile, GlobalTile):
            row, col = self._affine(tile.row), self._affine(tile.col)
            if tile.array in self.turned:
                return (TILE_GLOBAL, self.arrays[tile.array], tile.cols, tile.rows, col, row, -1, 0, 0)
            return (TILE_GLOBAL, self.arrays[tile.array], tile.rows, tile.cols, row, col, -1, 0, 0)
        return (
            TILE_LOCAL,
            self.buffers[tile.buffer],
            tile.rows,
            tile.cols,
            -1,
            -1,
            self._affine(tile.slot),
            tile.row,
            tile.col,
        )

    def _affine(self, affine: Affine) -> int:
        known = self.affines.get(affine)
        if known is not None:
            return known
        first = len(self.term)
        self.term.extend([(self._variable(name), coefficient) for name, coefficient in affine.terms])
        self.affine.append((affine.constant, first, len(affine.terms)))
        self.affines[affine] = len(self.affine) - 1
        return len(self.affine) - 1


def _table(rows: list[tuple[int, ...]], columns: int) -> Table:
    return np.array(rows, np.int64).reshape(len(rows), columns)
