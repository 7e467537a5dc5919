"""Access of the elementwise lanes to accumulators: in registers, or in TMEM, whose rows are first copied to
registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from hwsim.dataflows.elementwise import VectorOps, link_engine
from hwsim.dataflows.tiled.buffers import AccumulatorBuffers, Allocation, RingBuffer
from hwsim.dataflows.tiled.context import KernelContext, chunks
from hwsim.dataflows.tiled.design import SHORT_SUMS, KernelDesign
from hwsim.dataflows.tiles import WorkTile
from hwsim.formats import format_of
from hwsim.program.builder import StreamBuilder
from hwsim.program.ir import LocalTile, Sync
from hwsim.program.quick import quick

SHORT_SLOTS = 4  # accumulators of short runs, where the memory of accumulators has room: it takes long to read them


@quick
@dataclass(frozen=True, slots=True)
class RowChunk:
    """Some rows of a tile's accumulator; is_first, is_last: among the chunks that are read of it in order."""

    start: int
    count: int
    is_first: bool
    is_last: bool


def row_chunks(place: WorkTile, size: int) -> Iterator[RowChunk]:
    """All rows of a tile, `size` at a time."""
    for start, count in chunks(place.m, size):
        yield RowChunk(start, count, start == 0, start + count == place.m)


class Accumulators(Protocol):
    """Interface: how the lanes read accumulators."""

    def rows_at_a_time(self, rows: int, chunk: int) -> int:
        """The number of rows read at a time, of `rows`; chunk: the epilogue's."""

    def wait(self, ops: VectorOps, terms: Sequence[int]) -> None:
        """Make the next operation of the lanes wait for these terms' sums."""

    def values(
        self, s: StreamBuilder, ops: VectorOps, terms: Sequence[int], place: WorkTile, rows: RowChunk
    ) -> dict[int, LocalTile]:
        """Rows of accumulators, by term, where the lanes can read them."""

    def read(self, s: StreamBuilder, ops: VectorOps, terms: Sequence[int]) -> None:
        """Emit what follows when the tiles from `values` have been read."""

    def give_back(self, ops: VectorOps, terms: Sequence[int]) -> None:
        """Release the accumulators: all rows have been read."""


@dataclass(frozen=True, slots=True)
class RegisterAccumulators:
    """Accumulators in registers, which the lanes read directly."""

    context: KernelContext

    def rows_at_a_time(self, rows: int, chunk: int) -> int:
        return rows

    def wait(self, ops: VectorOps, terms: Sequence[int]) -> None:
        ops.wait(*(self.context.buffers.accumulators[t].ring.full for t in terms))

    def values(
        self, s: StreamBuilder, ops: VectorOps, terms: Sequence[int], place: WorkTile, rows: RowChunk
    ) -> dict[int, LocalTile]:
        return {t: accumulator_rows(self.context, t, place, rows) for t in terms}

    def read(self, s: StreamBuilder, ops: VectorOps, terms: Sequence[int]) -> None:
        pass

    def give_back(self, ops: VectorOps, terms: Sequence[int]) -> None:
        ops.signal(*(self.context.buffers.accumulators[t].ring.free for t in terms))


@dataclass(frozen=True, slots=True)
class TmemAccumulators:
    """Accumulators in TMEM: rows are copied to registers; the copies wait for accumulators and release them."""

    context: KernelContext

    def rows_at_a_time(self, rows: int, chunk: int) -> int:
        return chunk

    def wait(self, ops: VectorOps, terms: Sequence[int]) -> None:
        pass

    def values(
        self, s: StreamBuilder, ops: VectorOps, terms: Sequence[int], place: WorkTile, rows: RowChunk
    ) -> dict[int, LocalTile]:
        tiles = {}
        for t in terms:
            ring = self.context.buffers.accumulators[t].read
            assert ring is not None
            self.bring(s, t, ring.push(rows.count, place.n), place, rows, [ring.free], [ring.full])
            ring.pushed(s)
            ops.wait(ring.full)
            tiles[t] = ring.pop(rows.count, place.n)
        return tiles

    def bring(
        self,
        s: StreamBuilder,
        t: int,
        target: LocalTile,
        place: WorkTile,
        rows: RowChunk,
        waits: list[Sync],
        signals: list[Sync],
    ) -> None:
        """Emit the copy TMEM -> registers."""
        context, ring = self.context, self.context.buffers.accumulators[t].ring
        waits = waits + ([ring.full] if rows.is_first else [])
        signals = signals + ([ring.free] if rows.is_last else [])
        engine = context.engine(context.design.c_memory, context.registers)
        s.emit(engine, "copy", target, [accumulator_rows(context, t, place, rows)], waits, signals, label="C")

    def read(self, s: StreamBuilder, ops: VectorOps, terms: Sequence[int]) -> None:
        rings = [self.context.buffers.accumulators[t].read for t in terms]
        if not rings:
            return
        ops.signal(*(ring.free for ring in rings if ring is not None))
        for ring in rings:
            if ring is not None:
                ring.popped(s)

    def give_back(self, ops: VectorOps, terms: Sequence[int]) -> None:
        pass


def accumulators_of(context: KernelContext) -> RegisterAccumulators | TmemAccumulators:
    """The kind of accumulators of a kernel, by their memory."""
    return RegisterAccumulators(context) if context.design.in_registers else TmemAccumulators(context)


def accumulator_rows(context: KernelContext, t: int, place: WorkTile, rows: RowChunk) -> LocalTile:
    """Rows of the accumulator of term t, in its own memory."""
    return context.buffers.accumulators[t].ring.pop(rows.count, place.n, row=rows.start, width=place.n)


def acquire(context: KernelContext, s: StreamBuilder, terms: Sequence[int]) -> None:
    """Make the matrix unit wait for free accumulators of these terms."""
    if terms:
        rings = [context.buffers.accumulators[t].ring for t in terms]
        s.emit(context.design.unit.engine, "sync", waits=[ring.free for ring in rings])


def release(context: KernelContext, s: StreamBuilder, terms: Sequence[int], place: WorkTile) -> None:
    """Signal that the accumulators of these terms are complete."""
    if terms:
        rings = [context.buffers.accumulators[t].ring for t in terms]
        shared = context.buffers.shared
        signals = [ring.full for ring in rings]
        if shared is not None and place.share is not None:
            signals = [shared.addend if adds_sums(place) else shared.tile_sum]
        s.emit(context.design.unit.engine, "sync", signals=signals)
        for ring in rings:
            ring.pushed(s)


def adds_sums(place: WorkTile) -> bool:
    """Whether a CTA adds sums of others to its accumulator."""
    return place.share is not None and bool(place.share.added)


def is_complete(context: KernelContext, t: int, place: WorkTile) -> Sync:
    """What says that the accumulator of term t has the sum that is to be stored."""
    shared = context.buffers.shared
    if shared is None or place.share is None:
        return context.buffers.accumulators[t].ring.full
    return shared.whole if adds_sums(place) else shared.tile_sum


def allocate(space: Allocation) -> tuple[AccumulatorBuffers, ...]:
    """The accumulators of all terms, and in registers the rows of them that are copied from TMEM."""
    design, kernel, blocking = space.design, space.kernel, space.blocking
    of_terms = []
    count = 1 if design.sequential_joins else len(kernel.terms)
    apart = bool(design.sequential_joins) or not kernel.joined
    for t in range(count):
        rows = design.part_rows if design.promotes_in_block[t] else blocking.m
        slots = SHORT_SUMS if design.promoted[t] and apart else blocking.accumulators
        if design.promotes_in_block[t] and not design.in_registers and apart:
            memory = design.device.memories.get(design.c_memory)
            slot_bytes = space.size(design.c_memory, rows * blocking.n, format_of(design.accumulator).bits) * count
            slots = max(slots, min(SHORT_SLOTS, (memory.capacity_bytes if memory else 0) // slot_bytes))
        size = rows * blocking.n
        away = blocking.spilled * blocking.n
        ring = space.ring(f"acc{t}", design.c_memory, slots, size, design.accumulator, synced=True, spilled=away)
        read: RingBuffer | None = None
        if not design.in_registers:
            size = design.chunk_rows * blocking.n
            slots = 4 if count == 1 else 2
            read = space.ring(f"acc{t}.rf", space.family.registers, slots, size, design.accumulator, synced=True)
        of_terms.append(AccumulatorBuffers(ring, read))
    return tuple(of_terms)


def check_streams(design: KernelDesign, longest_k: int) -> None:
    """Raise UnsupportedError where no link copies accumulators to registers."""
    if not design.in_registers:
        link_engine(design.device, design.c_memory, design.family.registers)
