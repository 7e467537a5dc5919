"""The epilogue of a tile whose K several CTAs share: sums of others are added, then stored for another, or the result.

It knows what a Share says of a CTA's part; not which tiles are shared, and not what the result's own epilogue does.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwsim.dataflows.elementwise import VectorOps
from hwsim.dataflows.tiled.accumulators import accumulator_rows, is_complete, row_chunks
from hwsim.dataflows.tiled.buffers import Allocation, SharedSums
from hwsim.dataflows.tiled.context import KernelContext
from hwsim.dataflows.tiled.design import KernelDesign
from hwsim.dataflows.tiled.epilogue_writer import EpilogueWriter
from hwsim.dataflows.tiles import Stored, WorkTile
from hwsim.errors import UnsupportedError
from hwsim.program.builder import StreamBuilder
from hwsim.program.ir import LANE_FORMATS, ZERO, GlobalTile, one_of

TERM = 0  # of the only one, as is checked before (hwsim.dataflows.tiled.dataflow)


@dataclass(frozen=True, slots=True)
class SharedEpilogue:
    """Of all tiles of a kernel in which some are shared.

    own: of a tile that is not shared, or whose whole sum is there.
    """

    context: KernelContext
    writer: EpilogueWriter
    sums: SharedSums

    def load(self, s: StreamBuilder, place: WorkTile) -> None:
        """Emit the loads of others' sums, once they are stored, and of C where the result is written."""
        engine, ring = self.context.engine("GM", self.context.registers), self.sums.part
        for other in place.share.added if place.share is not None else ():
            for rows in row_chunks(place, self.context.design.chunk_rows):
                waits = [ring.free, other.flag] if rows.is_first else [ring.free]
                source = self._workspace(other, place, rows.start, rows.count)
                s.emit(engine, "copy", ring.push(rows.count, place.n), [source], waits, [ring.full], label="C")
                ring.pushed(s)
        if place.share is None or place.share.stored is None:
            self.writer.load(s, place)

    def write(self, s: StreamBuilder, ops: VectorOps, place: WorkTile) -> None:
        """Emit the additions, and the store of the sum or the result."""
        if place.share is not None:
            self._add(s, ops, place)
        if place.share is None or place.share.stored is None:
            self.writer.write(s, ops, place)
        else:
            self._store(s, ops, place, place.share.stored)

    def _add(self, s: StreamBuilder, ops: VectorOps, place: WorkTile) -> None:
        assert place.share is not None
        context, ring = self.context, self.sums.part
        others = len(place.share.added)
        is_copied = place.share.stored is not None or context.design.stores_accumulators
        for number in range(others):
            for rows in row_chunks(place, context.design.chunk_rows):
                if number == 0 and rows.is_first:
                    ops.wait(self.sums.addend)
                ops.wait(ring.full)
                accumulated = accumulator_rows(context, TERM, place, rows)
                ops.op("add", accumulated, accumulated, ring.pop(rows.count, place.n), label="C")
                is_end = number + 1 == others and rows.is_last
                ops.signal(ring.free, *([self.sums.whole] if is_copied and is_end else []))
                ring.popped(s)

    def _store(self, s: StreamBuilder, ops: VectorOps, place: WorkTile, at: Stored) -> None:
        assert place.share is not None
        context, ring = self.context, self.context.buffers.accumulators[TERM].ring
        engine = context.engine(context.registers, "GM")
        freeing = self._freeing(ops) if place.share.is_followed and ring.slots > 1 else engine
        freed = ring.free if freeing == engine else self.sums.stored
        cta = context.buffers.cta
        for rows in row_chunks(place, context.design.chunk_rows):
            waits = [is_complete(context, TERM, place)] if rows.is_first else []
            signals = [at.flag, freed] if rows.is_last else []
            if rows.is_last and cta is not None:
                signals.append(cta.free)
            target = self._workspace(at, place, rows.start, rows.count)
            s.emit(engine, "copy", target, [accumulator_rows(context, TERM, place, rows)], waits, signals, label="C")
        if freeing != engine:
            s.emit(freeing, "sync", None, (), [self.sums.stored], [ring.free])
        ring.popped(s)

    def _freeing(self, ops: VectorOps) -> str:
        """The engine that frees accumulators of other tiles, which frees those of stored sums too, in their order."""
        context = self.context
        if not context.design.stores_accumulators:
            return ops.engine
        return context.engine(context.registers, "GM" if context.buffers.staging is None else context.shared)

    def _workspace(self, at: Stored, place: WorkTile, start: int, rows: int) -> GlobalTile:
        matrix = self.context.design.kernel.workspace
        assert matrix is not None
        return GlobalTile(matrix.name, at.row + start, ZERO, rows, place.n)


def allocate(space: Allocation) -> SharedSums | None:
    """In registers: some rows of another CTA's sum; None where no CTAs share tiles."""
    workspace = space.kernel.workspace
    if workspace is None:
        return None
    size = space.design.chunk_rows * space.blocking.n
    part = space.ring("part", space.family.registers, 2, size, workspace.format, synced=True)
    return SharedSums(part, *(one_of(name) for name in ("own.full", "addend.full", "whole.full", "stored.full")))


def check(design: KernelDesign) -> None:
    """Raise UnsupportedError where the lanes cannot add sums of others to the accumulator."""
    workspace = design.kernel.workspace
    if workspace is None:
        return
    if not design.in_registers:
        raise UnsupportedError(
            f"tiles whose K CTAs share: the accumulators of {design.unit_name} are in {design.c_memory}"
        )
    if workspace.format not in LANE_FORMATS["add"]:
        raise UnsupportedError(
            f"tiles whose K CTAs share: programs add sums in {', '.join(LANE_FORMATS['add'])}, "
            f"and {design.unit_name} gives {workspace.format}"
        )
