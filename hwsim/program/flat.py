"""A kernel of a program as integer tables, which the compiled interpreters read instead of Python objects.

Everything is int64. Names become indices: engines, memories and arrays in the order given by the caller, buffers and
semaphores in the order of the kernel; loops, counters and derived variables (and CORE, variable 0) per stream.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.program.identity_cache import IdentityCache
from hwsim.program.ir import (
    CORE,
    Affine,
    Buffer,
    GlobalArray,
    GlobalTile,
    Instr,
    Kernel,
    LocalTile,
    Loop,
    Node,
    Stream,
    Tile,
)

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
_OPCODE = {name: i for i, name in enumerate(OPCODES)}


@dataclass(frozen=True, slots=True)
class FlatStream:
    """One stream as tables. nodes: NODE_COLUMNS; variables: names, CORE first; derived: DERIVED_COLUMNS, in order of
    evaluation.

    Indices of instructions and of affine expressions refer to the kernel's tables.
    """

    nodes: Table
    variables: tuple[str, ...]
    derived: Table


@dataclass(frozen=True, slots=True)
class FlatKernel:
    """One kernel as tables. `instrs[i]` is the Instr of row i of `instr`.

    affine: rows (constant, first term, number of terms); term: (variable index in its stream, coefficient).
    sync: (semaphore, count). zero_at: -1 always accumulate, else row of `zero_list` (first, number) whose
    entries in `zero_variable` are loop variables; none: never accumulate. `streams[g][s]`: group g, stream s.
    sizes: instructions of each group. kinds: of each instruction, what kind it is (see `kind_of`), numbered from 0.
    walked: by name, the tables that the compiled walkers take, those of all streams in one: node, derived and stream
    (first node, nodes, variables, first derived, derived).
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
    sizes: tuple[int, ...]
    kinds: tuple[int, ...]
    walked: Mapping[str, Table]


def flatten(
    kernel: Kernel,
    engines: Mapping[str, int],
    arrays: Mapping[str, int],
    column_major: Collection[str] = (),
    kinds: Iterable[int] | None = None,
) -> FlatKernel:
    """The tables of `kernel`; tiles of arrays in `column_major` have rows and columns exchanged.

    kinds: as of FlatKernel, where they are known. Raises KeyError for a name that the checker should have refused.
    """
    return _Flattener(kernel, engines, arrays, column_major).flatten(kinds)


def flattened(
    kernel: Kernel, arrays: tuple[GlobalArray, ...], engines: Mapping[str, object], kinds: Iterable[int] | None = None
) -> tuple[tuple[str, ...], FlatKernel]:
    """The engines that a kernel uses, in the device's order, and its tables with those; cached.

    Tiles of column-major arrays have rows and columns exchanged.
    """
    found = _CACHE.get(kernel, arrays, engines)
    if found is None:
        named = {instr.engine for instr in kernel.instrs()}
        used = tuple(name for name in engines if name in named) or tuple(engines)
        column_major = [one.name for one in arrays if one.order == "columns"]
        by_name = {one.name: i for i, one in enumerate(arrays)}
        flat = flatten(kernel, {name: i for i, name in enumerate(used)}, by_name, column_major, kinds)
        found = used, flat
        _CACHE.put(found, len(flat.instrs), kernel, arrays, engines)
    return found


# at most so many kernels, and instructions of all of them
_CACHE: IdentityCache[tuple[tuple[str, ...], FlatKernel]] = IdentityCache(1024, 1 << 16)


def _all_but(of: type, *names: str) -> Callable[[object], Any]:
    return attrgetter(*(field.name for field in fields(of) if field.name not in names))


_INSTR_KEY = _all_but(Instr, "writes", "reads", "waits", "signals", "zero_at", "scalar", "label")
_GLOBAL_KEY, _LOCAL_KEY = _all_but(GlobalTile, "row", "col"), _all_but(LocalTile, "slot")


_ARRAY_KEY, _BUFFER_KEY = _all_but(GlobalArray, "name"), _all_but(Buffer, "name")


def kind_of(instr: Instr) -> tuple[Hashable, ...]:
    """Everything in an instruction except tile positions, waits, signals and scalars, as a hashable key.

    Within one kernel on one device, instructions of a kind have the same cost and the same shape rules.
    """
    tiles = [(_GLOBAL_KEY if type(t) is GlobalTile else _LOCAL_KEY)(t) for t in (*instr.writes, *instr.reads)]
    return _INSTR_KEY(instr), len(instr.writes), *tiles


def form_of(
    instr: Instr, kind: tuple[Any, ...], arrays: Mapping[str, Hashable], buffers: Mapping[str, Hashable]
) -> Hashable:
    """The kind of an instruction (see `kind_of`) with the properties of its arrays and buffers in place of their names.

    On one device, instructions of a form have the same cost and the same shape rules, in any kernel. arrays, buffers:
    of the program and the kernel, as given by `unnamed`. None where an array or a buffer is missing.
    """
    form: list[Hashable] = [*kind[:2]]
    for tile, key in zip((*instr.writes, *instr.reads), kind[2:], strict=True):
        is_global = isinstance(tile, GlobalTile)
        found = (arrays if is_global else buffers).get(key[0])
        if found is None:
            return None
        form += (is_global, found, key[1:])
    return tuple(form)


def unnamed(objects: Iterable[GlobalArray] | Iterable[Buffer]) -> dict[str, Hashable]:
    """The properties of arrays or buffers, without their names, by name."""
    return {one.name: (_ARRAY_KEY if isinstance(one, GlobalArray) else _BUFFER_KEY)(one) for one in objects}


_Rows = tuple[list[tuple[int, ...]], tuple[str, ...], list[tuple[int, ...]]]  # nodes, variables, derived of a stream


class _Flattener:
    def __init__(
        self, kernel: Kernel, engines: Mapping[str, int], arrays: Mapping[str, int], column_major: Collection[str]
    ) -> None:
        self.kernel, self.engines, self.arrays, self.column_major = kernel, engines, arrays, column_major
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
        self.affines: dict[tuple[int, tuple[tuple[str, int], ...]], int] = {}  # of the stream: each stands once

    def flatten(self, kinds: Iterable[int] | None) -> FlatKernel:
        """Build the tables; kinds: as in FlatKernel, or None to compute them."""
        parts: list[list[_Rows]] = []
        sizes: list[int] = []
        for group in self.kernel.groups:
            before = len(self.instrs)
            parts.append([self._stream(stream) for stream in group.streams])
            sizes.append(len(self.instrs) - before)
        if kinds is None:
            numbers: dict[Hashable, int] = {}
            kinds = [numbers.setdefault(kind_of(instr), len(numbers)) for instr in self.instrs]
        every = [one for group in parts for one in group]
        node = _table([row for nodes, _, _ in every for row in nodes], len(NODE_COLUMNS))
        derived = _table([row for _, _, rows in every for row in rows], len(DERIVED_COLUMNS))
        first = [0, *accumulate(len(nodes) for nodes, _, _ in every)]
        first_derived = [0, *accumulate(len(rows) for _, _, rows in every)]
        table = [
            (first[i], len(nodes), len(variables), first_derived[i], len(rows))
            for i, (nodes, variables, rows) in enumerate(every)
        ]
        views = iter(
            FlatStream(node[f : f + n], every[i][1], derived[g : g + d]) for i, (f, n, _, g, d) in enumerate(table)
        )
        made = FlatKernel(
            _table(self.instr, len(INSTR_COLUMNS)),
            _table(self.tile, len(TILE_COLUMNS)),
            _table(self.affine, 3),
            _table(self.term, 2),
            _table(self.sync, 2),
            _table(self.zero_list, 2),
            _table(self.zero_variable, 1),
            tuple(self.instrs),
            tuple(tuple(next(views) for _ in group) for group in parts),
            np.array([b.slots for b in self.kernel.buffers], np.int64),
            np.array([s.initial for s in self.kernel.semaphores], np.int64),
            np.array([s.pieces for s in self.kernel.semaphores], np.int64),
            tuple(sizes),
            tuple(kinds),
            {"node": node, "derived": derived, "stream": _table(table, 5)},
        )
        for name in ("instr", "tile", "affine", "term", "sync", "semaphore_initial", "semaphore_pieces"):
            made.walked[name] = getattr(made, name)  # type: ignore[index]
        return made

    def _stream(self, stream: Stream) -> _Rows:
        self.variables, self.affines = {CORE: 0}, {}
        nodes: list[tuple[int, ...]] = []
        self._nodes(stream.body, nodes)
        derived: list[tuple[int, ...]] = [
            (self._variable(one.name), self._affine(one.of), one.divisor, int(one.part == "remainder"))
            for one in stream.derived
        ]
        return nodes, tuple(self.variables), derived

    def _variable(self, name: str) -> int:
        return self.variables.setdefault(name, len(self.variables))

    def _nodes(self, body: tuple[Node, ...], out: list[tuple[int, ...]]) -> None:
        for node in body:
            if isinstance(node, Instr):
                out.append((NODE_INSTR, self._instr(node), 0, 0))
            elif isinstance(node, Loop):
                if node.count == 0:
                    continue
                index, start = self._variable(node.name), len(out)
                out.append((NODE_LOOP, index, node.count, 0))
                self._nodes(node.body, out)
                out.append((NODE_END, index, node.count, start + 1))
                out[start] = (NODE_LOOP, index, node.count, len(out))
            else:
                out.append((NODE_ADVANCE, self._variable(node.counter), node.by, 0))

    def _instr(self, instr: Instr) -> int:
        tile, sync, semaphores = self.tile, self.sync, self.semaphores
        first_tile, first_wait = len(tile), len(sync)
        for one in instr.writes:
            tile.append(self._tile(one))
        for one in instr.reads:
            tile.append(self._tile(one))
        for wait in instr.waits:
            sync.append((semaphores[wait.semaphore], wait.count))
        for signal in instr.signals:
            sync.append((semaphores[signal.semaphore], signal.count))
        zero_at, waits = -1, len(instr.waits)
        if instr.zero_at is not None:
            zero_at = len(self.zero_list)
            self.zero_list.append((len(self.zero_variable), len(instr.zero_at)))
            for name in instr.zero_at:
                self.zero_variable.append((self._variable(name),))
        self.instr.append(
            (
                self.engines[instr.engine],
                _OPCODE[instr.opcode],
                instr.repeat,
                first_tile,
                len(instr.writes),
                len(instr.reads),
                first_wait,
                waits,
                first_wait + waits,
                len(instr.signals),
                zero_at,
                instr.scale_exponent,
            )
        )
        self.instrs.append(instr)
        return len(self.instr) - 1

    def _tile(self, tile: Tile) -> tuple[int, ...]:
        if isinstance(tile, LocalTile):
            slot = self._affine(tile.slot)
            return (TILE_LOCAL, self.buffers[tile.buffer], tile.rows, tile.cols, -1, -1, slot, tile.row, tile.col)
        row, col = self._affine(tile.row), self._affine(tile.col)
        if tile.array in self.column_major:
            return (TILE_GLOBAL, self.arrays[tile.array], tile.cols, tile.rows, col, row, -1, 0, 0)
        return (TILE_GLOBAL, self.arrays[tile.array], tile.rows, tile.cols, row, col, -1, 0, 0)

    def _affine(self, affine: Affine) -> int:
        key = affine.constant, affine.terms
        known = self.affines.get(key)
        if known is None:
            first = len(self.term)
            self.term.extend([(self._variable(name), coefficient) for name, coefficient in affine.terms])
            known = self.affines[key] = len(self.affine)
            self.affine.append((affine.constant, first, len(affine.terms)))
        return known


def _table(rows: Sequence[tuple[int, ...]], columns: int) -> Table:
    values = np.array(array("q", chain.from_iterable(rows)), np.int64)
    return values.reshape(len(rows), columns)
