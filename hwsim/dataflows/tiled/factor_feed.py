"""Factors outside the instruction on their way to the lanes: from global memory, of each run of K or each tile of C.

Factors of runs go through shared memory beside the stages where a family has any, ahead of the products; factors of
rows and columns are loaded once a tile. One number for all of an operand is read where it lies, as alpha is. The module
knows tiles of factors; it knows no arithmetic and no accumulator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hwsim.dataflows.elementwise import VectorOps
from hwsim.dataflows.tiled.buffers import Allocation, FactorBuffers, RingBuffer
from hwsim.dataflows.tiled.context import KernelContext, chunks
from hwsim.dataflows.tiled.design import KernelDesign
from hwsim.dataflows.tiled.factors import Factors
from hwsim.dataflows.tiled.model import SIDES, GemmKernel
from hwsim.dataflows.tiles import WorkTile
from hwsim.errors import UnsupportedError
from hwsim.program.builder import StreamBuilder
from hwsim.program.ir import Affine, AnyTile

SLOTS = 2  # of registers: one is filled while the other is read


@dataclass(frozen=True, slots=True)
class FactorFeed:
    """The way of the factors of A and B in one kernel."""

    context: KernelContext
    factors: Factors

    def load(self, s: StreamBuilder, place: WorkTile, k: Affine) -> None:
        """Emit the loads of the factors of a tile, of the run of K from k on."""
        context, sources = self.context, self._sources(place, (0, place.m), k)
        for side, buffers in enumerate(context.buffers.factors):
            source = sources[side]
            ring = buffers.registers if buffers.shared is None else buffers.shared
            engine, target = context.engine("GM", ring.memory), ring.push(source.rows, source.cols)
            s.emit(engine, "copy", target, [source], [ring.free], [ring.full], label=SIDES[side])
            ring.pushed(s)

    def copy(self, s: StreamBuilder, place: WorkTile, k: Affine) -> None:
        """Emit their copies from shared memory to registers, in the stream that copies fragments: an engine of both
        takes them in the order of K.
        """
        sources = self._sources(place, (0, place.m), k)
        for side, (shared, registers) in enumerate(self.context.buffers.factors):
            if shared is None:
                continue
            engine, size = (
                self.context.engine(shared.memory, registers.memory),
                (sources[side].rows, sources[side].cols),
            )
            waits, signals = [shared.full, registers.free], [shared.free, registers.full]
            s.emit(engine, "copy", registers.push(*size), [shared.pop(*size)], waits, signals, label=SIDES[side])
            shared.popped(s)
            registers.pushed(s)

    def wait(self, ops: VectorOps) -> None:
        """Make the next operation wait for the factors of its run or tile."""
        ops.wait(*(buffers.registers.full for buffers in self.context.buffers.factors))

    def tiles(self, place: WorkTile, rows: tuple[int, int], k: Affine) -> tuple[AnyTile, AnyTile]:
        """The factors of some rows of a tile, and of all its columns. rows: the first one and their number."""
        if not self.context.buffers.factors:
            return self._sources(place, rows, k)
        of_a, of_b = (buffers.registers for buffers in self.context.buffers.factors)
        left, right = self._sources(place, (0, place.m), k)
        start, count = (0, 1) if left.rows == 1 else rows
        return of_a.pop(count, 1, row=start, width=1), of_b.pop(1, right.cols)

    def done(self, s: StreamBuilder, ops: VectorOps) -> None:
        """Give the registers back."""
        rings = [buffers.registers for buffers in self.context.buffers.factors]
        if rings:
            ops.signal(*(ring.free for ring in rings))
        for ring in rings:
            ring.popped(s)

    def _sources(self, place: WorkTile, rows: tuple[int, int], k: Affine) -> tuple[AnyTile, AnyTile]:
        return self.factors.tiles(self.context.design.blocking.tile, place, rows, k)


def feed_of(context: KernelContext, factors: Factors | None) -> FactorFeed | None:
    """The feed of factors, where there are any."""
    return None if factors is None else FactorFeed(context, factors)


def starts_within(design: KernelDesign, term: int, size: int) -> Iterator[int]:
    """Where runs of a term begin within `size` of K, of a step."""
    run = design.kernel.promotion_intervals[term]
    assert run is not None
    for start, _ in chunks(size, run):
        yield start


def allocate(space: Allocation) -> tuple[FactorBuffers, ...]:
    """For A and for B: as many slots of shared memory as there are stages, and two of registers; none where one factor
    counts for all.
    """
    factors, family = _factors(space.kernel), space.family
    if factors is None or factors.extents == (None, None):
        return ()
    is_staged = space.kernel.factors is not None and family.staged and not family.through_registers
    buffers = []
    for side, letter in enumerate(SIDES):
        extent = space.blocking.tile[side]
        size = factors.count(side, extent, 0, extent)
        shared: RingBuffer | None = None
        if is_staged:
            shared = space.ring(f"{letter}.factor.sh", family.shared, space.blocking.stages, size, "fp32", synced=True)
        registers = space.ring(f"{letter}.factor", family.registers, SLOTS, size, "fp32", synced=True)
        buffers.append(FactorBuffers(shared, registers))
    return tuple(buffers)


def check(design: KernelDesign) -> None:
    """Raise UnsupportedError for spilled accumulators beside factors of runs, whose loads have another order."""
    if design.kernel.factors is not None and design.blocking.spilled:
        raise UnsupportedError("spill: accumulators of products with scales of blocks of K stay in registers")


def _factors(kernel: GemmKernel) -> Factors | None:
    return kernel.epilogue.factors if kernel.factors is None else kernel.factors
