"""Products of the main loop: the matrix instructions of a block of K, and the handover of accumulators to promotion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hwsim.dataflows.tiled.buffers import RingBuffer
from hwsim.dataflows.tiled.context import BlockStep, KernelContext, chunks
from hwsim.dataflows.tiled.design import KernelDesign
from hwsim.dataflows.tiled.operand_feed import OperandFeed
from hwsim.dataflows.tiled.scale_feed import ScaleFeed
from hwsim.dataflows.tiled.spill import Spill
from hwsim.dataflows.tiles import WorkTile
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm import refusals
from hwsim.gemm.plan import Stage
from hwsim.gemm.record import Gemm
from hwsim.program.builder import Span, StreamBuilder
from hwsim.program.ir import LocalTile, Sync

ZeroAt = tuple[str, ...] | None


@dataclass(slots=True)
class _Product:
    """One matrix instruction of a step. pushed: the ring buffer of an accumulator that is complete after it."""

    target: LocalTile
    operands: list[LocalTile]
    zero_at: ZeroAt
    scale_exponent: int
    waits: list[Sync] = field(default_factory=list)
    signals: list[Sync] = field(default_factory=list)
    pushed: RingBuffer | None = None
    scales: dict[str, LocalTile] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Products:
    """Writes the products of all terms."""

    context: KernelContext
    feed: OperandFeed
    scales: ScaleFeed
    spill: Spill

    def block(self, s: StreamBuilder, place: WorkTile, run: Span, sweep: int, block: Span) -> None:
        """Emit the products of one block of K. run: the run of K for terms promoted after several blocks."""
        steps = list(chunks(block.size, self.context.design.step_k))
        for at, (start, size) in enumerate(steps):
            step = BlockStep(start, size, block.size, at == 0, at + 1 == len(steps))
            self.feed.prepare(s, place, sweep, step)
            begins = sweep == 0 and step.is_first
            # Of chains over all of K, and of those over a run.
            zero = (zero_at((run, block)), zero_at((block,))) if begins else (None, None)
            products = [*self._promoted_in_block(place, sweep, step), *self._across_blocks(place, sweep, step, zero)]
            products[0].waits.extend(self.feed.waits(step) + self.spill.waits(step))
            products[-1].signals.extend(self.feed.signals(step) + self.spill.signals(step))
            for product in products:
                self._emit(s, product)
            self.feed.step_done(s, sweep)
        self.feed.block_done(s, sweep)

    def _emit(self, s: StreamBuilder, product: _Product) -> None:
        design, (a, b), target = self.context.design, product.operands, product.target
        unit = design.instruction_of(a.format, b.format, target.rows, target.cols)
        s.emit(
            design.unit.engine,
            "mma",
            target,
            {"a": a, "b": b, **product.scales} if product.scales else product.operands,
            product.waits,
            product.signals,
            unit=unit,
            zero_at=product.zero_at,
            scale_exponent=product.scale_exponent,
            swapped=design.blocking.swapped,
        )
        if product.pushed is not None:
            product.pushed.pushed(s)

    def _promoted_in_block(self, place: WorkTile, sweep: int, step: BlockStep) -> list[_Product]:
        """Products of terms promoted within a block: each run in accumulators of its own."""
        design, kernel = self.context.design, self.context.design.kernel
        shorts = [] if sweep else [t for t, short in enumerate(design.promotes_in_block) if short]
        if design.sequential_joins and shorts:
            shorts = [turn.term for turn in design.sequential_joins]
        products: list[_Product] = []
        for group in [shorts] if kernel.joined and shorts else [[t] for t in shorts]:
            run = kernel.promotion_intervals[group[0]]
            assert run is not None
            for at, length in chunks(step.size, run):
                for row, rows in chunks(place.m, design.part_rows):
                    for t in group:
                        products += self._run(t, place, step, (at, length), range(row, row + rows))
        return products

    def _run(self, t: int, place: WorkTile, step: BlockStep, span: tuple[int, int], rows: range) -> list[_Product]:
        """Products of one run of one term; span: its first element of K within the step, and its length."""
        ring = self._accumulator(t)
        products: list[_Product] = []
        for index, stage in enumerate(self.context.design.kernel.terms[t].stages):
            for which, (pair, k, depth) in enumerate(self._units(stage, span[1])):
                scale = stage.scale_exponent if index and not which else 0
                operands = self.feed.tiles(pair, step, span[0] + k, depth, rows, place.n)
                products.append(_Product(ring.push(len(rows), place.n), operands, None if products else (), scale))
        products[0].waits.append(ring.free)
        products[-1].signals.append(ring.full)
        products[-1].pushed = ring
        return products

    def _across_blocks(
        self, place: WorkTile, sweep: int, step: BlockStep, zero: tuple[ZeroAt, ZeroAt]
    ) -> list[_Product]:
        """Products of the other terms, whose accumulators continue through blocks of K."""
        design, products = self.context.design, []
        for t, term in enumerate(design.kernel.terms):
            if design.promotes_in_block[t]:
                continue
            for stage in term.stages[sweep : sweep + 1]:
                for which, (pair, k, depth) in enumerate(self._units(stage, step.size)):
                    operands = self.feed.tiles(pair, step, k, depth, range(place.m), place.n)
                    target = self._accumulator(t).push(place.m, place.n)
                    product = _Product(target, operands, None if which else zero[design.promoted[t]], 0)
                    product.scales = self.scales.tiles(step, k, depth, range(place.m), place.n)
                    products.append(product)
        return products

    def _accumulator(self, t: int) -> RingBuffer:
        """The ring buffer of the accumulator of term t."""
        return self.context.buffers.accumulators[0 if self.context.design.sequential_joins else t].ring

    def _units(self, stage: Stage, size: int) -> Iterator[tuple[tuple[int, int], int, int]]:
        """(product, first element of K, length): a single product in one piece, several alternating per instruction, or
        as the stage says.
        """
        if len(stage.products) == 1:
            yield stage.products[0], 0, size
            return
        for k, depth in chunks(size, stage.interleave or self.context.design.unit.k):
            for pair in stage.products:
                yield pair, k, depth


def zero_at(levels: tuple[Span, ...]) -> ZeroAt:
    """The loops at whose first iteration a product starts its chain from zero (None: never); see ir.Instr."""
    loops = []
    for span in levels:
        if span.continues:
            return None
        if span.loop is not None:
            loops.append(span.loop)
        elif span.index.constant:
            return None
    return tuple(loops)


def check(design: KernelDesign) -> None:
    """Raise InputError or UnsupportedError where the instruction does not fit the blocking or the terms."""
    unit, blocking = design.unit, design.blocking
    if unit.core_count != blocking.cores:
        raise InputError(
            f"cta_group = {blocking.cores}: {design.device.name} has no such instruction like {design.unit_name}"
        )
    if blocking.k % unit.k and not all(design.promotes_in_block):
        raise InputError(f"tile k = {blocking.k}; allowed: multiples of {unit.k}, as {design.unit_name} takes")
    for length in design.kernel.interleaves:
        if blocking.k % length:
            raise InputError(f"tile k = {blocking.k}; allowed: multiples of interleave = {length}")
    if unit.scale_input_d is not None:
        return
    if any(stage.scale_exponent for term in design.kernel.terms for stage in term.stages):
        raise UnsupportedError(
            f"device {design.device.name}: {design.unit_name} does not scale its accumulator (scale-input-d)"
        )


def check_streams(design: KernelDesign, longest_k: int) -> None:
    """Raise UnsupportedError for an accumulator that is scaled between blocks of K."""
    for term, short in zip(design.kernel.terms, design.promotes_in_block, strict=True):
        if not short and any(stage.scale_exponent for stage in term.stages):
            raise UnsupportedError("an accumulator is scaled between stages within one block of K only")


def refuses(gemm: Gemm) -> str:
    """What of a record the products do not carry: a sum that starts at C or is written out, scales inside the
    instruction.
    """
    schedule = gemm.schedule
    return refusals.joined(
        refusals.named({"start='c'": schedule.start == "c", "written-out sum": schedule.sum is not None}),
        refusals.one_sided_scales(gemm.problem, {"vector"}),
    )
