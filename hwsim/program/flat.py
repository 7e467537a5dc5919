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

from hwsim._kernels.program import Flattener
from hwsim.program.forms import FormReader
from hwsim.program.identity_cache import IdentityCache
from hwsim.program.ir import (
    CORE,
    GlobalArray,
    Instr,
    Kernel,
    LocalTile,
    Loop,
    StreamItem,
)
from hwsim.program.rename import has_like_arrays
from hwsim.program.roles import OPCODES

IntTable = NDArray[np.int64]

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
_OPCODE: dict[str, int] = {name: i for i, name in enumerate(OPCODES)}


@dataclass(frozen=True, slots=True)
class FlatStream:
    """One stream as tables. nodes: NODE_COLUMNS; variables: their numbers, CORE first; derived: DERIVED_COLUMNS, in
    order of evaluation.

    Indices of instructions and of affine expressions refer to the kernel's tables.
    """

    nodes: IntTable
    variables: range
    derived: IntTable


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

    instr: IntTable
    tile: IntTable
    affine: IntTable
    term: IntTable
    sync: IntTable
    zero_list: IntTable
    zero_variable: IntTable
    kernel: Kernel
    buffer_slots: IntTable
    semaphore_initial: IntTable
    semaphore_pieces: IntTable
    semaphore_peers: IntTable
    sizes: tuple[int, ...]
    skipped: bool
    walked: Mapping[str, IntTable]
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
        return tuple([tuple([next(views) for _ in group.streams]) for group in self.kernel.groups])

    @property
    def instrs(self) -> tuple[Instr, ...]:
        """The instructions of the rows of `instr`; collected anew at every call."""
        instrs: list[Instr] = []
        for group in self.kernel.groups:
            for stream in group.streams:
                _collect(stream.body, instrs)
        return tuple(instrs)


def _collect(body: tuple[StreamItem, ...], instrs: list[Instr]) -> None:
    for node in body:
        if type(node) is Instr:
            instrs.append(node)
        elif type(node) is Loop and node.count:
            _collect(node.body, instrs)


def flatten(
    kernel: Kernel,
    engines: dict[str, int],
    arrays: dict[str, int],
    column_major: Collection[str] = (),
    reader: FormReader | None = None,
) -> FlatKernel:
    """The tables of `kernel`; tiles of arrays in `column_major` have rows and columns exchanged. reader: of the forms,
    where they are wanted.

    Raises KeyError for a name that the checker refuses.
    """
    flattener = Flattener(
        (Instr, Loop, LocalTile),
        _OPCODE,
        engines,
        arrays,
        {buffer.name: i for i, buffer in enumerate(kernel.buffers)},
        {semaphore.name: i for i, semaphore in enumerate(kernel.semaphores)},
        frozenset(column_major),
        reader,
    )
    sizes: list[int] = []
    try:
        for group in kernel.groups:
            before = flattener.count
            for stream in group.streams:
                flattener.stream(stream.body, stream.derived, CORE)
            sizes.append(flattener.count - before)
    except OverflowError as error:
        raise OverflowError(f"an integer of a program is beyond 64 bits ({error})") from error
    tables = flattener.tables()
    tables["semaphore_initial"] = np.array([s.initial for s in kernel.semaphores], np.int64)
    tables["semaphore_pieces"] = np.array([s.pieces for s in kernel.semaphores], np.int64)
    tables["semaphore_peers"] = np.array([s.peers for s in kernel.semaphores], np.int64)
    return FlatKernel(
        instr=tables["instr"],
        tile=tables["tile"],
        affine=tables["affine"],
        term=tables["term"],
        sync=tables["sync"],
        zero_list=tables.pop("zero_list"),
        zero_variable=tables.pop("zero_variable"),
        kernel=kernel,
        buffer_slots=np.array([b.slots for b in kernel.buffers], np.int64),
        semaphore_initial=tables["semaphore_initial"],
        semaphore_pieces=tables["semaphore_pieces"],
        semaphore_peers=tables["semaphore_peers"],
        sizes=tuple(sizes),
        skipped=flattener.skipped,
        walked=tables,
        kinds=tuple(flattener.kinds),
        firsts=tuple(flattener.firsts),
        examples=tuple(flattener.examples),
        forms=tuple(flattener.forms),
    )


def flattened(
    kernel: Kernel, arrays: tuple[GlobalArray, ...], engines: Mapping[str, object]
) -> tuple[tuple[str, ...], FlatKernel]:
    """The engines that a kernel uses, in the device's order, and its tables with those; cached.

    Tiles of column-major arrays have rows and columns exchanged. Raises KeyError for a name that the checker refuses.
    """
    tables = _CACHE.get(kernel, arrays, engines)
    if tables is None and kernel.original is not None and has_like_arrays(kernel, arrays):
        used, flat = flattened(kernel.original, arrays, engines)
        tables = used, _copied(flat, kernel, arrays)
        _CACHE.put(tables, len(flat.instr), kernel, arrays, engines)
    elif tables is None:
        column_major = [array.name for array in arrays if array.order == "columns"]
        by_name = {array.name: i for i, array in enumerate(arrays)}
        numbers, reader = {name: i for i, name in enumerate(engines)}, FormReader(arrays, kernel.buffers)
        flat = flatten(kernel, numbers, by_name, column_major, reader)
        tables = _with_engines_in_use(flat, tuple(engines))
        _CACHE.put(tables, len(flat.instr), kernel, arrays, engines)
    return tables


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
    number = {array.name: i for i, array in enumerate(arrays)}
    places = np.array([number[kernel.names.get(array.name, array.name)] for array in arrays], np.int64)
    tile = flat.tile.copy()
    is_global = tile[:, 0] == TILE_GLOBAL
    tile[is_global, 1] = places[tile[is_global, 1]]
    return replace(flat, tile=tile, kernel=kernel, walked={**flat.walked, "tile": tile})


# at most so many kernels, and instructions of all of them
_CACHE: IdentityCache[tuple[tuple[str, ...], FlatKernel]] = IdentityCache(1024, 1 << 16)


def packed(values: Sequence[int], columns: int) -> IntTable:
    """A table of these rows, one after another; takes a half of the time of a conversion by NumPy.

    Raises OverflowError beyond 64 bits.
    """
    try:
        rows = pack(f"{len(values)}q", *values)
    except struct_error as error:
        raise OverflowError(f"an integer of a program is beyond 64 bits ({error})") from error
    return np.frombuffer(rows, np.int64).reshape(-1, columns).copy()
