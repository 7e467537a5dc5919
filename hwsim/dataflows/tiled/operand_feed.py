"""Operand feed of the matrix unit: directly from a stage of shared memory, or by fragments in registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from hwsim.dataflows.tiled.buffers import Allocation, Barrier, RingBuffer
from hwsim.dataflows.tiled.context import BlockStep, KernelContext
from hwsim.dataflows.tiled.model import SIDES
from hwsim.dataflows.tiled.scale_feed import ScaleFeed
from hwsim.dataflows.tiles import WorkTile
from hwsim.gemm import refusals
from hwsim.gemm.layouts import K_MAJOR
from hwsim.gemm.record import Gemm
from hwsim.program.builder import StreamBuilder
from hwsim.program.ir import LocalTile, Sync


class OperandFeed(Protocol):
    """Interface: where products read their operands."""

    def prepare(self, s: StreamBuilder, place: WorkTile, sweep: int, step: BlockStep) -> None:
        """Emit what precedes the products of a step."""

    def waits(self, step: BlockStep) -> list[Sync]:
        """The waits of the first product of a step."""

    def signals(self, step: BlockStep) -> list[Sync]:
        """The signals of the last product of a step."""

    def tiles(self, pair: tuple[int, int], step: BlockStep, k: int, depth: int, rows: range, n: int) -> list[LocalTile]:
        """The tiles of A and B of one product: `depth` of K from `k` of the step on, some rows of A, n columns of B."""

    def step_done(self, s: StreamBuilder, sweep: int) -> None:
        """Advance to the next step."""

    def block_done(self, s: StreamBuilder, sweep: int) -> None:
        """Advance to the next block of K."""


@dataclass(frozen=True, slots=True)
class StageFeed:
    """The unit reads operands from the stages of shared memory (wgmma, tcgen05.mma)."""

    context: KernelContext
    scales: ScaleFeed

    def prepare(self, s: StreamBuilder, place: WorkTile, sweep: int, step: BlockStep) -> None:
        """Emit the copies of scales, which then wait for the stage."""
        self.scales.copy(s, place, step, self._filled(step))

    def waits(self, step: BlockStep) -> list[Sync]:
        return self.scales.waits or self._filled(step)

    def signals(self, step: BlockStep) -> list[Sync]:
        return [*([self.context.buffers.stage.free] if step.is_last else []), *self.scales.signals]

    def _filled(self, step: BlockStep) -> list[Sync]:
        return [self.context.buffers.stage.full] if step.is_first else []

    def tiles(self, pair: tuple[int, int], step: BlockStep, k: int, depth: int, rows: range, n: int) -> list[LocalTile]:
        rings = [operand.stages[p] for operand, p in zip(self.context.buffers.operands, pair, strict=True)]
        first, second = (operand.order for operand in self.context.design.kernel.operands)
        at = step.start + k
        a = rings[0].pop(len(rows), depth, row=rows.start, col=at, width=step.block, order=first)
        return [a, rings[1].pop(depth, n, row=at, width=n, order=second)]

    def step_done(self, s: StreamBuilder, sweep: int) -> None:
        self.scales.step_done(s)

    def block_done(self, s: StreamBuilder, sweep: int) -> None:
        for side, operand in enumerate(self.context.buffers.operands):
            for p in self.context.used(side, sweep):
                operand.stages[p].popped(s)
        self.scales.block_done(s)


@dataclass(frozen=True, slots=True)
class FragmentFeed:
    """The unit reads fragments in registers, one step of K at a time.

    copies: whether they are copied from stages (ldmatrix); otherwise the kernel's split has made them, or each warp has
    loaded its own.
    """

    context: KernelContext
    copies: bool
    scales: ScaleFeed

    def prepare(self, s: StreamBuilder, place: WorkTile, sweep: int, step: BlockStep) -> None:
        """Emit the copies shared memory -> registers, of scales first."""
        if not self.copies:
            return
        context, stage = self.context, self.context.buffers.stage
        opening = self.scales.copy(s, place, step, [stage.full] if step.is_first else [])
        engine = context.engine(context.shared, context.registers)
        wanted = [(side, p) for side in range(2) for p in context.used(side, sweep)]
        for at, (side, p) in enumerate(wanted):
            operand = context.buffers.operands[side]
            begins = at == 0 or wanted[at - 1][0] != side
            is_last = at + 1 == len(wanted) or wanted[at + 1][0] != side
            source, fragments = operand.stages[p], operand.taken[p]
            ready = operand.ready
            assert ready is not None
            if side == 0:
                part = source.pop(place.m, step.size, col=step.start, width=step.block)
                target = fragments.push(place.m, step.size)
            else:
                part = source.pop(step.size, place.n, row=step.start, width=place.n)
                target = fragments.push(step.size, place.n)
            waits = [*(opening if at == 0 else []), *([ready.free] if begins else [])]
            signals = [ready.full] if is_last else []
            if step.is_last and at + 1 == len(wanted) and not context.design.is_serial:
                signals.append(stage.free)
            reads = context.fragment_reads(side, place)
            s.emit(engine, "copy", target, [part], waits, signals, repeat=reads, label=SIDES[side])
            fragments.pushed(s)
            if step.is_last:
                source.popped(s)

    def waits(self, step: BlockStep) -> list[Sync]:
        waits = [operand.ready.full for operand in self.context.buffers.operands if operand.ready is not None]
        return waits + self.scales.waits

    def signals(self, step: BlockStep) -> list[Sync]:
        signals = [operand.ready.free for operand in self.context.buffers.operands if operand.ready is not None]
        signals += self.scales.signals
        if step.is_last and self.context.design.is_serial and self.context.design.family.staged:
            signals.append(self.context.buffers.stage.free)
        return signals

    def tiles(self, pair: tuple[int, int], step: BlockStep, k: int, depth: int, rows: range, n: int) -> list[LocalTile]:
        rings = [operand.taken[p] for operand, p in zip(self.context.buffers.operands, pair, strict=True)]
        first, second = K_MAJOR
        a = rings[0].pop(len(rows), depth, row=rows.start, col=k, width=step.size, order=first)
        return [a, rings[1].pop(depth, n, row=k, width=n, order=second)]

    def step_done(self, s: StreamBuilder, sweep: int) -> None:
        for side, operand in enumerate(self.context.buffers.operands):
            for p in self.context.used(side, sweep):
                operand.taken[p].popped(s)
        self.scales.step_done(s)

    def block_done(self, s: StreamBuilder, sweep: int) -> None:
        self.scales.block_done(s)


class FeedBuffers(NamedTuple):
    """The buffers from which the unit reads A or B, as OperandBuffers has them."""

    taken: dict[int, RingBuffer]
    ready: Barrier | None


def allocate(space: Allocation, side: int) -> FeedBuffers:
    """Fragments of A (0) or B (1) where the unit reads them; none where it reads the stages."""
    design, family = space.design, space.family
    letter, operand = SIDES[side], space.kernel.operands[side]
    if operand.raw is not None and not family.through_registers:
        memory = design.places[side]
        slots = 2 * -(-space.blocking.k // design.step_k) if any(design.promoted) else 2
    elif design.reads_fragments:
        memory, slots = family.registers, 2
    else:
        return FeedBuffers({}, None)
    size = design.extent(side, design.step_k)
    bits = operand.element_bits
    taken = {
        p: space.ring(f"{letter}{p}.op", memory, slots, size, fmt, element_bits=bits)
        for p, fmt in operand.formats.items()
    }
    return FeedBuffers(taken, space.barrier(f"{letter}.op", slots))


def refuses(gemm: Gemm) -> str:
    """What of a record the feed does not carry: scales of one operand alone, which no instruction reads."""
    return refusals.one_sided_scales(gemm.problem, {"vector"})
