"""Renamed copies of kernels: other names for arrays, buffers and counters, with a link to the original.

The renaming is one-to-one, so the copy has the tables, the costs and the verdict of the checker of the original,
provided that the arrays have the same shape, format and order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from hwsim.program.ir import (
    Advance,
    Affine,
    AnyTile,
    CoreGroup,
    Derived,
    GlobalArray,
    GlobalTile,
    Instr,
    Kernel,
    LocalTile,
    Loop,
    Stream,
    StreamItem,
    Sync,
)


def renamed(kernel: Kernel, name: str, arrays: Mapping[str, str], buffers: Mapping[str, str]) -> Kernel:
    """A copy of `kernel` called `name`. arrays, buffers: new names by old ones; anything else keeps its name.

    The counters `<buffer>.push` and `<buffer>.pop` and the semaphores `<buffer>.free` and `<buffer>.full` of a ring
    buffer are renamed with it. The copy has no `original` if two names would become one.
    """
    renaming = _Renaming(arrays, buffers)
    copies = tuple([replace(x, name=buffers.get(x.name, x.name)) for x in kernel.buffers])
    semaphores = tuple([replace(x, name=renaming.semaphores.get(x.name, x.name)) for x in kernel.semaphores])
    is_one_to_one = _keeps_arrays_apart(kernel, arrays) and all(
        len({part.name for part in named}) == len(named) for named in (copies, semaphores)
    )
    groups = [
        CoreGroup(x.first, x.count, tuple([_later(stream, renaming) for stream in x.streams])) for x in kernel.groups
    ]
    copy = Kernel(name, tuple(groups), copies, semaphores)
    if is_one_to_one:
        object.__setattr__(copy, "original", kernel)
        object.__setattr__(copy, "names", dict(arrays))
    return copy


def _keeps_arrays_apart(kernel: Kernel, arrays: Mapping[str, str]) -> bool:
    """Whether the arrays that tiles of `kernel` name still have distinct names."""
    met = {
        tile.array for instr in kernel.instrs() for tile in instr.writes + instr.reads if isinstance(tile, GlobalTile)
    }
    return len({arrays.get(name, name) for name in met}) == len(met)


def has_like_arrays(kernel: Kernel, arrays: tuple[GlobalArray, ...]) -> bool:
    """Whether each array of a copied kernel equals the array that it replaces, except for the name."""
    by_name = {array.name: (array.rows, array.cols, array.format, array.order) for array in arrays}
    return all(a in by_name and b in by_name and by_name[a] == by_name[b] for a, b in kernel.names.items())


class _RenamedStream(Stream):
    """A stream of a copy: equal to a Stream, but its nodes are made when they are first read, as timing reads the
    tables of the original and not them.
    """

    __slots__ = ("_made",)
    _made: Callable[[str], object]  # a field by its name

    def __getattr__(self, name: str) -> object:
        # called for what has no value yet
        if name not in ("body", "derived"):
            raise AttributeError(name)
        value = self._made(name)
        object.__setattr__(self, name, value)
        return value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream):
            return NotImplemented
        return (self.name, self.body, self.derived) == (other.name, other.body, other.derived)

    def __hash__(self) -> int:
        return hash((self.name, self.body, self.derived))


def _later(stream: Stream, renaming: _Renaming) -> Stream:
    """The copy of a stream, which is made when it is first read."""
    copy = object.__new__(_RenamedStream)
    object.__setattr__(copy, "name", stream.name)
    object.__setattr__(copy, "_made", lambda field: getattr(renaming, field)(stream))
    return copy


class _Renaming:
    """Copies the parts of a kernel; a tile shared by several instructions is copied once."""

    def __init__(self, arrays: Mapping[str, str], buffers: Mapping[str, str]) -> None:
        self.arrays, self.buffers = arrays, buffers
        self.counters = {f"{a}.{side}": f"{b}.{side}" for a, b in buffers.items() for side in ("push", "pop")}
        self.semaphores = {f"{a}.{end}": f"{b}.{end}" for a, b in buffers.items() for end in ("free", "full")}
        self.tiles: dict[int, AnyTile] = {}

    def body(self, stream: Stream) -> tuple[StreamItem, ...]:
        """The nodes of a stream, renamed."""
        return self._body(stream.body)

    def derived(self, stream: Stream) -> tuple[Derived, ...]:
        """The derived variables of a stream, renamed."""
        return tuple([Derived(x.name, self._affine(x.of), x.divisor, x.part) for x in stream.derived])

    def _body(self, body: tuple[StreamItem, ...]) -> tuple[StreamItem, ...]:
        return tuple([self._node(node) for node in body])

    def _node(self, node: StreamItem) -> StreamItem:
        if isinstance(node, Instr):
            return self._instr(node)
        if isinstance(node, Loop):
            return Loop(node.name, node.count, self._body(node.body))
        counter = self.counters.get(node.counter)
        return node if counter is None else Advance(counter, node.by)

    def _instr(self, of: Instr) -> Instr:
        writes = tuple([self._tile(tile) for tile in of.writes])
        reads = tuple([self._tile(tile) for tile in of.reads])
        waits, signals = self._syncs(of.waits), self._syncs(of.signals)
        return replace(of, writes=writes, reads=reads, waits=waits, signals=signals)

    def _syncs(self, syncs: tuple[Sync, ...]) -> tuple[Sync, ...]:
        if all(sync.semaphore not in self.semaphores for sync in syncs):
            return syncs
        return tuple([Sync(self.semaphores.get(sync.semaphore, sync.semaphore), sync.count) for sync in syncs])

    def _tile(self, tile: AnyTile) -> AnyTile:
        known = self.tiles.get(id(tile))
        if known is None:
            known = self.tiles[id(tile)] = self._copy(tile)
        return known

    def _copy(self, tile: AnyTile) -> AnyTile:
        if isinstance(tile, GlobalTile):
            array, row, col = self.arrays.get(tile.array), self._affine(tile.row), self._affine(tile.col)
            if array is None and row is tile.row and col is tile.col:
                return tile
            return GlobalTile(array or tile.array, row, col, tile.rows, tile.cols)
        buffer, slot = self.buffers.get(tile.buffer), self._affine(tile.slot)
        if buffer is None and slot is tile.slot:
            return tile
        of = tile
        return LocalTile(
            buffer=buffer or of.buffer,
            rows=of.rows,
            cols=of.cols,
            format=of.format,
            slot=slot,
            row=of.row,
            col=of.col,
            width=of.width,
            order=of.order,
        )

    def _affine(self, of: Affine) -> Affine:
        if all(name not in self.counters for name, _ in of.terms):
            return of
        return Affine(of.constant, tuple([(self.counters.get(name, name), factor) for name, factor in of.terms]))
