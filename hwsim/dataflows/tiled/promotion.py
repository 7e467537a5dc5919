"""Promotion: partial sums of runs of K leave the matrix unit and are added up by the elementwise lanes.

Either each term to a sum of its own, or the joined terms to one sum, or terms joined one after another through one
accumulator; within a block of K or after several blocks, by the promotion interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from hwsim.dataflows.elementwise import VectorOps
from hwsim.dataflows.expression_ops import depth, evaluate
from hwsim.dataflows.tiled.accumulators import RegisterAccumulators, RowChunk, TmemAccumulators
from hwsim.dataflows.tiled.buffers import Allocation, Barrier, RingBuffer
from hwsim.dataflows.tiled.context import KernelContext, chunks
from hwsim.dataflows.tiled.design import SHORT_SUMS, KernelDesign
from hwsim.dataflows.tiled.factor_feed import FactorFeed, feed_of, starts_within
from hwsim.dataflows.tiled.factors import multiply_add
from hwsim.dataflows.tiles import WorkTile
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm import refusals
from hwsim.gemm.record import Gemm
from hwsim.program.builder import StreamBuilder
from hwsim.program.ir import Affine, LocalTile


class Promotion(Protocol):
    """Interface: how partial sums are added up."""

    def within_block(self, s: StreamBuilder, ops: VectorOps, place: WorkTile, k: Affine, size: int) -> None:
        """Emit the promotions within a block of `size` of K that begins at k."""

    def after_run(self, s: StreamBuilder, ops: VectorOps, place: WorkTile, k: Affine) -> None:
        """Emit the promotions at the end of a run of several blocks that begins at k."""


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums outside the unit: whole tiles in registers."""

    context: KernelContext

    def fill(self, ops: VectorOps, place: WorkTile) -> None:
        """Emit their initialisation with +0."""
        for t in self.context.buffers.sums:
            ops.op("fill", self._tile(t, place), scalar=0.0)

    def rows(self, t: int, place: WorkTile, start: int, count: int) -> LocalTile:
        """Some rows of a sum."""
        return self._tile(t, place).part(start, count)

    def _tile(self, t: int, place: WorkTile) -> LocalTile:
        return self.context.buffers.sums[t].whole(place.m, place.n)


@dataclass(frozen=True, slots=True)
class SeparateSums:
    """Promotion of each term to a sum of its own."""

    context: KernelContext
    accumulators: RegisterAccumulators | TmemAccumulators
    sums: Sums
    factors: FactorFeed | None

    def within_block(self, s: StreamBuilder, ops: VectorOps, place: WorkTile, k: Affine, size: int) -> None:
        design = self.context.design
        for begin, step in chunks(size, design.step_k):
            for t in (t for t, short in enumerate(design.promotes_in_block) if short):
                for start in starts_within(design, t, step):
                    self._add(s, ops, place, [t], design.part_rows, k + (begin + start))

    def after_run(self, s: StreamBuilder, ops: VectorOps, place: WorkTile, k: Affine) -> None:
        if self.context.design.terms_across_blocks:
            self._add(s, ops, place, self.context.design.terms_across_blocks, place.m, k)

    def _add(
        self, s: StreamBuilder, ops: VectorOps, place: WorkTile, terms: Sequence[int], part: int, k: Affine
    ) -> None:
        """Emit the addition of accumulators of `part` rows each, of a run of K from k on, to their sums."""
        if self.factors is not None:
            self.factors.wait(ops)
        for row, rows in chunks(place.m, part):
            self.accumulators.wait(ops, terms)
            converted, chunk_rows = self.context.buffers.converted, self.context.design.chunk_rows
            at_a_time = self.accumulators.rows_at_a_time(rows, chunk_rows)
            if converted is not None or self.factors is not None:
                at_a_time = min(at_a_time, chunk_rows)
            for start, count in chunks(rows, at_a_time):
                chunk = RowChunk(start, count, start == 0, start + count == rows)
                values = self.accumulators.values(s, ops, terms, place, chunk)
                for t in terms:
                    total, value = self.sums.rows(t, place, row + start, count), values[t]
                    if converted is not None:
                        value = converted.whole(count, place.n)
                        ops.op("cast", value, values[t])
                    if self.factors is not None:
                        self._add_scaled(ops, self.factors, place, (row + start, count), k, total, value)
                        continue
                    ops.op("add", total, total, value)
                self.accumulators.read(s, ops, terms)
            self.accumulators.give_back(ops, terms)
            for t in terms:
                self.context.buffers.accumulators[t].ring.popped(s)
        if self.factors is not None:
            self.factors.done(s, ops)

    def _add_scaled(
        self,
        ops: VectorOps,
        factors: FactorFeed,
        place: WorkTile,
        rows: tuple[int, int],
        k: Affine,
        total: LocalTile,
        value: LocalTile,
    ) -> None:
        ring = self.context.buffers.factor
        assert ring is not None
        multiply_add(ops, factors.factors.order, factors.tiles(place, rows, k), total, value, ring.whole)


@dataclass(frozen=True, slots=True)
class JoinedSum:
    """Promotion that joins the terms of a run and adds the joined value to one sum."""

    context: KernelContext
    accumulators: RegisterAccumulators | TmemAccumulators
    sums: Sums

    def within_block(self, s: StreamBuilder, ops: VectorOps, place: WorkTile, k: Affine, size: int) -> None:
        design = self.context.design
        shorts = [t for t, short in enumerate(design.promotes_in_block) if short]
        for _, step in chunks(size, design.step_k):
            run = design.kernel.promotion_intervals[shorts[0]]
            assert run is not None
            for _ in chunks(step, run):
                self._add(s, ops, place, shorts)

    def after_run(self, s: StreamBuilder, ops: VectorOps, place: WorkTile, k: Affine) -> None:
        if self.context.design.terms_across_blocks:
            self._add(s, ops, place, self.context.design.terms_across_blocks)

    def _add(self, s: StreamBuilder, ops: VectorOps, place: WorkTile, terms: Sequence[int]) -> None:
        self.accumulators.wait(ops, terms)
        for start, count in chunks(place.m, self.context.design.chunk_rows):
            chunk = RowChunk(start, count, start == 0, start + count == place.m)
            values = self.accumulators.values(s, ops, terms, place, chunk)
            self._join(ops, values, self.sums.rows(0, place, start, count), count, place.n)
            self.accumulators.read(s, ops, terms)
        self.accumulators.give_back(ops, terms)
        for t in terms:
            self.context.buffers.accumulators[t].ring.popped(s)

    def _join(self, ops: VectorOps, values: dict[int, LocalTile], total: LocalTile, rows: int, cols: int) -> None:
        epilogue = self.context.design.kernel.epilogue
        assert epilogue.value is not None
        joined, *scratch = (ring.whole(rows, cols) for ring in self.context.buffers.joins)
        evaluate(ops, epilogue.value, values, joined, scratch)
        ops.op("add", total, total, joined)


@dataclass(frozen=True, slots=True)
class SequentialJoin:
    """Promotion within a block where terms share an accumulator: each value, once complete, is joined to the previous
    ones.

    The first value starts the joined one: from TMEM it is copied directly to those registers.
    """

    context: KernelContext
    accumulators: RegisterAccumulators | TmemAccumulators
    sums: Sums

    def within_block(self, s: StreamBuilder, ops: VectorOps, place: WorkTile, k: Affine, size: int) -> None:
        design = self.context.design
        run = design.kernel.promotion_intervals[0]
        assert run is not None
        for _, step in chunks(size, design.step_k):
            for _ in chunks(step, run):
                self._run(s, ops, place)

    def after_run(self, s: StreamBuilder, ops: VectorOps, place: WorkTile, k: Affine) -> None:
        pass

    def _run(self, s: StreamBuilder, ops: VectorOps, place: WorkTile) -> None:
        """Emit one run of K of all terms."""
        context, accumulators = self.context, self.accumulators
        ring, barrier = context.buffers.joins[0], context.buffers.join_barrier
        joined = ring.whole(place.m, place.n)
        for at, turn in enumerate(context.design.sequential_joins):
            accumulators.wait(ops, [0])
            for start, count in chunks(place.m, accumulators.rows_at_a_time(place.m, context.design.chunk_rows)):
                rows = RowChunk(start, count, start == 0, start + count == place.m)
                into = joined.part(start, count)
                if at == 0 and barrier is not None and isinstance(accumulators, TmemAccumulators):
                    waits = [barrier.free] if rows.is_first else []
                    accumulators.bring(s, 0, into, place, rows, waits, [barrier.full])
                    ops.wait(barrier.full)
                    continue
                value = accumulators.values(s, ops, [0], place, rows)[0]
                if at == 0:
                    ops.op("scale", into, value, scalar=2.0**turn.term_exponent)
                else:
                    ops.op("add", into, into, value, scale_exponent=-turn.exponent)
                accumulators.read(s, ops, [0])
            accumulators.give_back(ops, [0])
            context.buffers.accumulators[0].ring.popped(s)
        total = self.sums.rows(0, place, 0, place.m)
        ops.op("add", total, total, joined)
        if barrier is not None:
            ops.signal(barrier.free)


def promotion_of(context: KernelContext, accumulators: RegisterAccumulators | TmemAccumulators) -> Promotion:
    """The kind of promotion of a kernel."""
    sums = Sums(context)
    if context.design.sequential_joins:
        return SequentialJoin(context, accumulators, sums)
    if context.design.kernel.joined:
        return JoinedSum(context, accumulators, sums)
    return SeparateSums(context, accumulators, sums, feed_of(context, context.design.kernel.factors))


class PromotionBuffers(NamedTuple):
    """The buffers of promotion, as KernelBuffers has them."""

    sums: dict[int, RingBuffer]
    joins: tuple[RingBuffer, ...]
    join_barrier: Barrier | None
    converted: RingBuffer | None
    factor: RingBuffer | None


def allocate(space: Allocation) -> PromotionBuffers:
    """In registers: sums of whole tiles, by term (one for joined terms); scratch for joined and converted values, and
    for products of scales.
    """
    design, kernel = space.design, space.kernel
    summed = [0] if kernel.joined else [t for t, promoted in enumerate(design.promoted) if promoted]
    size = space.blocking.m * space.blocking.n
    registers = space.family.registers
    sums = {t: space.ring(f"sum{t}", registers, 1, size, design.sum_format) for t in summed}
    joins = _allocate_joins(space)
    straight = (
        bool(design.sequential_joins) and not design.in_registers and not design.sequential_joins[0].term_exponent
    )
    barrier = space.barrier("join0", 1) if straight else None
    converted: RingBuffer | None = None
    if design.converts and any(design.promoted) and not kernel.joined:
        size = design.chunk_rows * space.blocking.n
        converted = space.ring("converted", registers, 1, size, design.sum_format)
    factor: RingBuffer | None = None
    if kernel.factors is not None or kernel.epilogue.factors is not None:
        factor = space.ring("factor", registers, 1, design.chunk_rows * space.blocking.n, "fp32")
    return PromotionBuffers(sums, joins, barrier, converted, factor)


def _allocate_joins(space: Allocation) -> tuple[RingBuffer, ...]:
    design, value, form = space.design, space.kernel.epilogue.value, space.kernel.epilogue.join_format
    registers, n = space.family.registers, space.blocking.n
    if design.sequential_joins:
        return (space.ring("join0", registers, 1, space.blocking.m * n, form),)
    if not space.kernel.joined or value is None:
        return ()
    chunk = design.chunk_rows * n
    return tuple(space.ring(f"join{i}", registers, 1, chunk, form) for i in range(depth(value, design.converts) + 1))


def check(design: KernelDesign) -> None:
    """Raise InputError or UnsupportedError for promotion intervals that do not fit together or into blocks of K."""
    intervals, family, block = design.kernel.promotion_intervals, design.family.name, design.blocking.k
    pairs = list(zip(intervals, design.promotes_in_block, strict=True))
    longs = {run for run, short in pairs if run is not None and not short}
    if len(longs) > 1:
        raise UnsupportedError(f"the {family} dataflow adds terms up after one length of K, not {sorted(longs)}")
    for run, short in pairs:
        if short and run is not None and block % run:
            raise InputError(f"tile k = {block} is not a multiple of k_group = {run}; allowed: its multiples")
    if design.kernel.factors is not None and (design.kernel.joined or design.sequential_joins):
        raise UnsupportedError(f"the {family} dataflow multiplies the sums of runs of one product by scales")
    if design.kernel.joined and (any(run != intervals[0] for run in intervals) or design.k_sweeps > 1):
        raise UnsupportedError(f"the {family} dataflow joins terms that all have one run of K and one stage")


def check_streams(design: KernelDesign, longest_k: int) -> None:
    """Raise UnsupportedError where the lanes multiply, and would form too many sums before they add them."""
    kernel, block = design.kernel, min(design.blocking.k, longest_k)
    for run, short in zip(kernel.promotion_intervals, design.promotes_in_block, strict=True):
        # The vector engine forms the products of a block of K before it adds them to the sums.
        if design.on_vector and short and isinstance(run, int) and -(-block // run) > SHORT_SUMS:
            raise UnsupportedError(
                f"{kernel.unit} shares its lanes with the sums: runs of {run} of K are too short for blocks of "
                f"{block} (at most {SHORT_SUMS} runs a block)"
            )


def refuses(gemm: Gemm) -> str:
    """What of a record the promotion does not carry: runs behind a rest of K, scales of the sums of runs."""
    plan, is_first = gemm.single, gemm.schedule.remainder == "first"
    is_promoted = bool(refusals.runs(gemm)) or plan.k_group is not None or plan.join == "group"
    return refusals.joined(
        refusals.named({"remainder='first' with promotion": is_first and is_promoted}),
        refusals.one_sided_scales(gemm.problem, {"block"}),
    )
