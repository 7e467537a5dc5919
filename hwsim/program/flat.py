"""A kernel of a program as integer tables, which the compiled interpreters read instead of Python objects.

Everything is int64. Names become indices: engines, memories and arrays in the order given by the caller, buffers and
semaphores in the order of the kernel; loops, counters and derived variables (and CORE, variable 0) per stream.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from struct import error as struct_error
from struct import pack

import numpy as np
from numpy.typing import NDArray

from hwsim.program.forms import FormReader
from hwsim.program.identity_cache import IdentityCache
from hwsim.program.ir import (
    CORE,
    Advance,
    Affine,
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
from hwsim.program.rename import has_like_arrays

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
    """One stream as tables. nodes: NODE_COLUMNS; variables: their numbers, CORE first; derived: DERIVED_COLUMNS, in
    order of evaluation.

    Indices of instructions and of affine expressions refer to the kernel's tables.
    """

    nodes: Table
    variables: range
    derived: Table


@dataclass(frozen=True, slots=True)
class FlatKernel:
    """One kernel as tables. kernel: what they were made from; `instrs[i]` is the Instr of row i of `instr`.

    affine: rows (constant, first term, number of terms); term: (variable index in its stream, coefficient).
    sync: (semaphore, count). zero_at: -1 always accumulate, else row of `zero_list` (first, number) whose
    entries in `zero_variable` are loop variables; none: never accumulate.
    `streams[g][s]`: group g, stream s.
    sizes: instructions of each group. forms: the different forms of its instructions (forms.FormReader), in order of
    first occurrence, where the arrays are known; kinds: the number of each instruction's form; firsts: the first
    instruction of each form, and `examples` those instructions. skipped: whether loops with count 0 were left out.
    walked: by name, the tables that the compiled interpreters take, with all streams concatenated: node, derived and
    stream (first node, nodes, variables, first derived, derived).
    """

    instr: Table
    tile: Table
    affine: Table
    term: Table
    sync: Table
    zero_list: Table
    zero_variable: Table
    kernel: Kernel
    buffer_slots: Table
    semaphore_initial: Table
    semaphore_pieces: Table
    sizes: tuple[int, ...]
    skipped: bool
    walked: Mapping[str, Table]
    kinds: tuple[int, ...] = ()
    firsts: tuple[int, ...] = ()
    examples: tuple[Instr, ...] = ()
    forms: tuple[Hashable, ...] = ()

    @property
    def streams(self) -> tuple[tuple[FlatStream, ...], ...]:
        """The streams of each group."""
        node, derived = self.walked["node"], self.walked["derived"]
        views = iter(
            [
                FlatStream(node[f : f + nodes], range(variables), derived[g : g + count])
                for f, nodes, variables, g, count in self.walked["stream"].tolist()
            ]
        )
        return tuple(tuple(next(views) for _ in group.streams) for group in self.kernel.groups)

    @property
    def instrs(self) -> tuple[Instr, ...]:
        """The instructions of the rows of `instr`; collected anew at every call."""
        found: list[Instr] = []
        for group in self.kernel.groups:
            for stream in group.streams:
                _collect(stream.body, found)
        return tuple(found)


def _collect(body: tuple[Node, ...], found: list[Instr]) -> None:
    for node in body:
        if type(node) is Instr:
            found.append(node)
        elif type(node) is Loop and node.count:
            _collect(node.body, found)


def flatten(
    kernel: Kernel,
    engines: Mapping[str, int],
    arrays: Mapping[str, int],
    column_major: Collection[str] = (),
    reader: FormReader | None = None,
) -> FlatKernel:
    """The tables of `kernel`; tiles of arrays in `column_major` have rows and columns exchanged. reader: of the forms,
    where they are wanted.

    Raises KeyError for a name that the checker refuses.
    """
    return _Flattener(kernel, engines, arrays, column_major, reader).flatten()


def flattened(
    kernel: Kernel, arrays: tuple[GlobalArray, ...], engines: Mapping[str, object]
) -> tuple[tuple[str, ...], FlatKernel]:
    """The engines that a kernel uses, in the device's order, and its tables with those; cached.

    Tiles of column-major arrays have rows and columns exchanged. Raises KeyError for a name that the checker refuses.
    """
    found = _CACHE.get(kernel, arrays, engines)
    if found is None and kernel.original is not None and has_like_arrays(kernel, arrays):
        used, flat = flattened(kernel.original, arrays, engines)
        found = used, _copied(flat, kernel, arrays)
        _CACHE.put(found, len(flat.instr), kernel, arrays, engines)
    elif found is None:
        column_major = [one.name for one in arrays if one.order == "columns"]
        by_name = {one.name: i for i, one in enumerate(arrays)}
        numbers, reader = {name: i for i, name in enumerate(engines)}, FormReader(arrays, kernel.buffers)
        flat = flatten(kernel, numbers, by_name, column_major, reader)
        found = _with_engines_in_use(flat, tuple(engines))
        _CACHE.put(found, len(flat.instr), kernel, arrays, engines)
    return found


def _with_engines_in_use(flat: FlatKernel, engines: tuple[str, ...]) -> tuple[tuple[str, ...], FlatKernel]:
    """The engines that a kernel uses, and its tables with engines renumbered among those."""
    column = INSTR_COLUMNS.index("engine")
    used = sorted(set(flat.instr[:, column].tolist()))
    numbers = np.zeros(len(engines), np.int64)
    numbers[used] = np.arange(len(used))
    flat.instr[:, column] = numbers[flat.instr[:, column]]
    return tuple([engines[i] for i in used]) or engines, flat


def _copied(flat: FlatKernel, kernel: Kernel, arrays: tuple[GlobalArray, ...]) -> FlatKernel:
    """The tables of `kernel`, a renamed copy of the kernel with the tables `flat`."""
    number = {one.name: i for i, one in enumerate(arrays)}
    places = np.array([number[kernel.names.get(one.name, one.name)] for one in arrays], np.int64)
    tile = flat.tile.copy()
    is_global = tile[:, 0] == TILE_GLOBAL
    tile[is_global, 1] = places[tile[is_global, 1]]
    return replace(flat, tile=tile, kernel=kernel, walked={**flat.walked, "tile": tile})


# at most so many kernels, and instructions of all of them
_CACHE: IdentityCache[tuple[tuple[str, ...], FlatKernel]] = IdentityCache(1024, 1 << 16)


class _Flattener:
    def __init__(
        self,
        kernel: Kernel,
        engines: Mapping[str, int],
        arrays: Mapping[str, int],
        column_major: Collection[str],
        reader: FormReader | None,
    ) -> None:
        self.kernel, self.engines, self.arrays, self.column_major = kernel, engines, arrays, column_major
        self.reader = reader
        self.forms: dict[Hashable, int] = {}  # the number of each form
        self.kinds: list[int] = []
        self.firsts: list[int] = []
        self.examples: list[Instr] = []
        self.buffers = {buffer.name: i for i, buffer in enumerate(kernel.buffers)}
        self.semaphores = {semaphore.name: i for i, semaphore in enumerate(kernel.semaphores)}
        self.instrs = self.tile_count = self.sync_count = 0
        self.node: list[int] = []  # row after row, as in the tables below
        self.derived: list[int] = []
        self.stream: list[int] = []
        self.instr: list[int] = []
        self.tile: list[int] = []
        self.affine: list[int] = []
        self.term: list[int] = []
        self.sync: list[int] = []
        self.zero_list: list[int] = []
        self.zero_variable: list[int] = []
        self.skipped = False
        self.variables: dict[str, int] = {}
        self.tiles: dict[int, tuple[int, ...]] = {}  # of the stream, by identity: many instructions share a slot's tile
        self.affines: dict[tuple[int, tuple[tuple[str, int], ...]], int] = {}  # of the stream: each stands once
        self.places: dict[int, int] = {}  # the same by identity: many tiles share an expression

    def flatten(self) -> FlatKernel:
        """Build the tables."""
        sizes: list[int] = []
        for group in self.kernel.groups:
            before = self.instrs
            for stream in group.streams:
                self._stream(stream)
            sizes.append(self.instrs - before)
        made = FlatKernel(
            packed(self.instr, len(INSTR_COLUMNS)),
            packed(self.tile, len(TILE_COLUMNS)),
            packed(self.affine, 3),
            packed(self.term, 2),
            packed(self.sync, 2),
            packed(self.zero_list, 2),
            packed(self.zero_variable, 1),
            self.kernel,
            np.array([b.slots for b in self.kernel.buffers], np.int64),
            np.array([s.initial for s in self.kernel.semaphores], np.int64),
            np.array([s.pieces for s in self.kernel.semaphores], np.int64),
            tuple(sizes),
            self.skipped,
            {
                "node": packed(self.node, len(NODE_COLUMNS)),
                "derived": packed(self.derived, len(DERIVED_COLUMNS)),
                "stream": packed(self.stream, 5),
            },
            tuple(self.kinds),
            tuple(self.firsts),
            tuple(self.examples),
            tuple(self.forms),
        )
        for name in ("instr", "tile", "affine", "term", "sync", "semaphore_initial", "semaphore_pieces"):
            made.walked[name] = getattr(made, name)  # type: ignore[index]
        return made

    def _stream(self, stream: Stream) -> None:
        self.variables, self.affines, self.places, self.tiles = {CORE: 0}, {}, {}, {}
        first, first_derived = len(self.node) // 4, len(self.derived) // 4
        self._nodes(stream.body, first)
        for one in stream.derived:
            index = self._variable(one.name)
            self.derived += (index, self._affine(one.of), one.divisor, int(one.part == "remainder"))
        nodes = len(self.node) // 4 - first
        self.stream += (first, nodes, len(self.variables), first_derived, len(stream.derived))

    def _variable(self, name: str) -> int:
        return self.variables.setdefault(name, len(self.variables))

    def _nodes(self, body: tuple[Node, ...], first: int) -> None:
        """Add the nodes of a body. first: the stream's first node."""
        out, variables = self.node, self.variables
        for node in body:
            kind = type(node)
            if kind is Instr:
                out += (NODE_INSTR, self._instr(node), 0, 0)  # type: ignore[arg-type]
            elif kind is Loop:
                self._loop(node, first)  # type: ignore[arg-type]
            else:
                assert isinstance(node, Advance)
                out += (NODE_ADVANCE, variables.setdefault(node.counter, len(variables)), node.by, 0)

    def _loop(self, loop: Loop, first: int) -> None:
        if loop.count == 0:
            self.skipped = True
            return
        out, index = self.node, self._variable(loop.name)
        start = len(out)
        out += (NODE_LOOP, index, loop.count, 0)
        self._nodes(loop.body, first)
        out += (NODE_END, index, loop.count, start // 4 + 1 - first)
        out[start + 3] = len(out) // 4 - first

    def _instr(self, instr: Instr) -> int:
        tile, sync, semaphores, known = self.tile, self.sync, self.semaphores, self.tiles
        first_tile, first_wait = self.tile_count, self.sync_count
        writes, reads, waits, signals, zero_loops = instr.writes, instr.reads, instr.waits, instr.signals, instr.zero_at
        for one in writes:
            tile += known.get(id(one)) or self._tile(one)
        for one in reads:
            tile += known.get(id(one)) or self._tile(one)
        for wait in waits:
            sync += (semaphores[wait.semaphore], wait.count)
        for signal in signals:
            sync += (semaphores[signal.semaphore], signal.count)
        zero_at, writing, reading, waiting, signalling = -1, len(writes), len(reads), len(waits), len(signals)
        if zero_loops is not None:
            zero_at = len(self.zero_list) // 2
            self.zero_list += (len(self.zero_variable), len(zero_loops))
            self.zero_variable += [self._variable(name) for name in zero_loops]
        self.instr += (
            self.engines[instr.engine],
            _OPCODE[instr.opcode],
            instr.repeat,
            first_tile,
            writing,
            reading,
            first_wait,
            waiting,
            first_wait + waiting,
            signalling,
            zero_at,
            instr.scale_exponent,
        )
        if self.reader is not None:
            kind = self.forms.setdefault(self.reader.form_of(instr), len(self.firsts))
            if kind == len(self.firsts):
                self.firsts.append(self.instrs)
                self.examples.append(instr)
            self.kinds.append(kind)
        self.tile_count = first_tile + writing + reading
        self.sync_count = first_wait + waiting + signalling
        self.instrs += 1
        return self.instrs - 1

    def _tile(self, tile: Tile) -> tuple[int, ...]:
        """The row of a tile that the stream has not had yet."""
        places = self.places
        made: tuple[int, ...]
        if type(tile) is LocalTile:
            slot = places.get(id(tile.slot))
            if slot is None:
                slot = self._affine(tile.slot)
            made = (TILE_LOCAL, self.buffers[tile.buffer], tile.rows, tile.cols, -1, -1, slot, tile.row, tile.col)
        else:
            assert isinstance(tile, GlobalTile)
            row, col = places.get(id(tile.row)), places.get(id(tile.col))
            if row is None:
                row = self._affine(tile.row)
            if col is None:
                col = self._affine(tile.col)
            if tile.array in self.column_major:
                made = (TILE_GLOBAL, self.arrays[tile.array], tile.cols, tile.rows, col, row, -1, 0, 0)
            else:
                made = (TILE_GLOBAL, self.arrays[tile.array], tile.rows, tile.cols, row, col, -1, 0, 0)
        self.tiles[id(tile)] = made
        return made

    def _affine(self, affine: Affine) -> int:
        terms = affine.terms
        key = affine.constant, terms
        known = self.affines.get(key)
        if known is None:
            variables = self.variables
            known = self.affines[key] = len(self.affine) // 3
            self.affine += (affine.constant, len(self.term) // 2, len(terms))
            for name, coefficient in terms:
                self.term += (variables.setdefault(name, len(variables)), coefficient)
        self.places[id(affine)] = known
        return known


def packed(values: Sequence[int], columns: int) -> Table:
    """A table of these rows, one after another; takes a half of the time of a conversion by NumPy.

    Raises OverflowError beyond 64 bits.
    """
    try:
        rows = pack(f"{len(values)}q", *values)
    except struct_error as error:
        raise OverflowError(f"an integer of a program is beyond 64 bits ({error})") from error
    return np.frombuffer(rows, np.int64).reshape(-1, columns).copy()
