"""The main loop over K of a tile: loads, operand feed, products, promotion.

It is written as the streams of specialised warps. The vector engine's instructions are all in one stream, in an order
in which none waits for a later one: where there is a pipeline, pieces for the next block of K are made before the
products of this block are promoted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hwsim.dataflows.elementwise import VectorOps
from hwsim.dataflows.tiled import loads, operand_feed, products, promotion, split
from hwsim.dataflows.tiled.accumulators import RegisterAccumulators, TmemAccumulators, acquire, release
from hwsim.dataflows.tiled.context import KernelContext, chunks
from hwsim.dataflows.tiled.factor_feed import FactorFeed, feed_of, starts_within
from hwsim.dataflows.tiled.fragments import FragmentLoader, SplitFragments
from hwsim.dataflows.tiled.loads import KBlock, Loader, RegisterLoader, SharedLoader
from hwsim.dataflows.tiled.operand_feed import FragmentFeed, StageFeed
from hwsim.dataflows.tiled.products import Products
from hwsim.dataflows.tiled.promotion import Promotion, Sums, promotion_of
from hwsim.dataflows.tiled.scale_feed import ScaleFeed
from hwsim.dataflows.tiled.spill import Spill
from hwsim.dataflows.tiled.split import SplitOnLoad, SplitStages, Splitter
from hwsim.dataflows.tiles import WorkTile
from hwsim.errors import UnsupportedError
from hwsim.gemm import refusals
from hwsim.gemm.record import Gemm
from hwsim.program.builder import Span, StreamBuilder
from hwsim.program.ir import ZERO, Affine


@dataclass(frozen=True, slots=True)
class MainLoop:
    """The main loop, composed of its parts. splitter: None where operands are not split in the kernel."""

    context: KernelContext
    loader: Loader
    splitter: Splitter | None
    products: Products
    promotion: Promotion
    sums: Sums
    spill: Spill
    factors: FactorFeed | None

    @property
    def shares_lanes(self) -> bool:
        """Whether products run on the vector engine, in one stream with elementwise work."""
        return self.context.design.on_vector

    def load(self, s: StreamBuilder, place: WorkTile) -> None:
        """Emit the loads of one tile."""
        if place.runs:
            self._load_runs(s, place)
            return
        for run in self._runs(s, place.k):
            for factors, k in self._factors_of_run(place, run):
                factors.load(s, place, k)
            for sweep in range(self.context.design.k_sweeps):
                if self.spill.is_on:
                    self._load_ahead(s, place, place.start + run.start, run.size, sweep)
                    continue
                for block in self._blocks_of(s, run.size):
                    start = place.start + run.start + block.start
                    for factors, k in self._factors_within(place, run, sweep, block):
                        factors.load(s, place, k)
                    self._block(s, place, start, block.size, sweep)

    def _factors_of_run(self, place: WorkTile, run: Span) -> Iterator[tuple[FactorFeed, Affine]]:
        """The factors of a run that is promoted after several blocks: their feed, and the run's first element of K."""
        if self.factors is not None and self.context.design.terms_across_blocks:
            yield self.factors, self._first_of_k(place, run.start)

    def _factors_within(
        self, place: WorkTile, run: Span, sweep: int, block: Span
    ) -> Iterator[tuple[FactorFeed, Affine]]:
        """The same of the runs within a block, in the order in which they are promoted."""
        design = self.context.design
        if self.factors is None or sweep:
            return
        for begin, step in chunks(block.size, design.step_k):
            for t in (t for t, short in enumerate(design.promotes_in_block) if short):
                for start in starts_within(design, t, step):
                    yield self.factors, self._first_of_k(place, run.start + block.start) + (begin + start)

    def _block(self, s: StreamBuilder, place: WorkTile, start: Affine, size: int, sweep: int) -> None:
        self.loader.block(s, place, KBlock(((start, size),), size), sweep)

    def _load_runs(self, s: StreamBuilder, place: WorkTile) -> None:
        """Emit the loads of a tile whose K is several runs: the same blocks of the joined K as `multiply` takes.

        Whole blocks behind one another in one run are a loop.
        """
        if self.spill.is_on:
            raise UnsupportedError("spill: tiles whose K is several runs keep their accumulators in registers")
        for sweep, blocks in self._blocks_of_runs(place):
            (first, _), size = blocks[0].runs[0], blocks[0].size
            if len(blocks) == 1:
                self.loader.block(s, place, blocks[0], sweep)
                continue
            with s.loop("k", len(blocks)) as (_, index):
                self._block(s, place, first + index * size, size, sweep)

    def _blocks_of_runs(self, place: WorkTile) -> Iterator[tuple[int, list[KBlock]]]:
        """(sweep, blocks of K in order): several blocks where each begins where the one before ended."""
        design = self.context.design
        joined = KBlock(tuple([(Affine(start), length) for start, length in place.runs]), place.k)
        alike: list[KBlock] = []
        last = 0
        for at, extent in chunks(place.k, design.run_across_blocks or place.k):
            for sweep in range(design.k_sweeps):
                for start, size in chunks(extent, design.blocking.k):
                    block = joined.part(at + start, size)
                    if alike and (sweep != last or not _follows(alike[-1], block)):
                        yield last, alike
                        alike = []
                    alike.append(block)
                    last = sweep
        yield last, alike

    def _load_ahead(self, s: StreamBuilder, place: WorkTile, start: Affine, k: int, sweep: int) -> None:
        """Emit the loads of K one block ahead of the reloads of spilled accumulators."""
        size = self.context.design.blocking.k
        whole, rest = divmod(k, size)
        self._block(s, place, start, size if whole else rest, sweep)
        if whole > 1:
            with s.loop("k", whole - 1) as (_, index):
                self._block(s, place, start + size + index * size, size, sweep)
                self.spill.reload(s, place)
        if whole and rest:
            self._block(s, place, start + whole * size, rest, sweep)
            self.spill.reload(s, place)
        self.spill.reload(s, place)

    def multiply(self, s: StreamBuilder, place: WorkTile) -> None:
        """Emit the products of one tile."""
        context, design = self.context, self.context.design
        acquire(context, s, design.chained)
        for run in self._runs(s, place.k):
            acquire(context, s, design.terms_across_blocks)
            for factors, k in self._factors_of_run(place, run):
                factors.copy(s, place, k)
            for sweep in range(design.k_sweeps):
                for block in self._blocks_of(s, run.size):
                    self._products(s, place, run, sweep, block)
            release(context, s, design.terms_across_blocks, place)
        self.spill.settle(s)
        release(context, s, design.chained, place)

    def _products(self, s: StreamBuilder, place: WorkTile, run: Span, sweep: int, block: Span) -> None:
        """Emit the products of a block of K, after the copies of the factors of their sums."""
        for factors, k in self._factors_within(place, run, sweep, block):
            factors.copy(s, place, k)
        self.products.block(s, place, run, sweep, block)

    def elementwise(self, s: StreamBuilder, ops: VectorOps, place: WorkTile) -> None:
        """Emit the splits and promotions of one tile, and its products where they share the lanes."""
        context, design = self.context, self.context.design
        self.sums.fill(ops, place)
        if self.shares_lanes:
            acquire(context, s, design.chained)
        for run in self._runs(s, place.k):
            if self.shares_lanes:
                acquire(context, s, design.terms_across_blocks)
                for factors, k in self._factors_of_run(place, run):
                    factors.copy(s, place, k)
            for sweep in range(design.k_sweeps):
                promotes = any(design.promotes_in_block) and sweep == 0
                if self.splitter is not None or promotes or self.shares_lanes or self.spill.is_on:
                    self._blocks(s, ops, place, run, sweep, promotes)
            if self.shares_lanes:
                release(context, s, design.terms_across_blocks, place)
            self.promotion.after_run(s, ops, place, self._first_of_k(place, run.start))
        if self.shares_lanes:
            self.spill.settle(s)
            release(context, s, design.chained, place)

    def _blocks(self, s: StreamBuilder, ops: VectorOps, place: WorkTile, run: Span, sweep: int, promotes: bool) -> None:
        """Emit the elementwise work of a run, block by block."""
        if self.splitter is not None and promotes and not self.shares_lanes and not self.context.design.is_serial:
            self._split_ahead(s, ops, place, run, sweep, self.splitter)
            return
        for block in self._blocks_of(s, run.size):
            if self.splitter is not None:
                self.splitter.block(s, ops, place, sweep, block.size)
            if self.shares_lanes:
                self._products(s, place, run, sweep, block)
            if promotes:
                self.promotion.within_block(s, ops, place, self._first_of_k(place, run.start + block.start), block.size)
            self.spill.store(s, place)

    def _first_of_k(self, place: WorkTile, start: Affine) -> Affine:
        """The first element of K of what begins at `start` of the tile's K; meant for scales alone."""
        if place.runs and self.context.design.kernel.factors is not None:
            raise UnsupportedError("scales of blocks of K: tiles whose K is several runs have none")
        return place.start + start

    def _split_ahead(
        self, s: StreamBuilder, ops: VectorOps, place: WorkTile, run: Span, sweep: int, splitter: Splitter
    ) -> None:
        """Emit the splits one block of K ahead of the promotions."""
        size = self.context.design.blocking.k
        whole, rest = divmod(run.size, size)
        first = self._first_of_k(place, run.start)
        splitter.block(s, ops, place, sweep, size if whole else rest)
        if whole > 1:
            with s.loop("k", whole - 1) as (_, index):
                splitter.block(s, ops, place, sweep, size)
                self.promotion.within_block(s, ops, place, first + index * size, size)
        if whole and rest:
            splitter.block(s, ops, place, sweep, rest)
            self.promotion.within_block(s, ops, place, first + (whole - 1) * size, size)
        last = whole if rest else whole - 1
        self.promotion.within_block(s, ops, place, first + last * size, rest or size)

    def _blocks_of(self, s: StreamBuilder, k: int) -> Iterator[Span]:
        """The blocks of K of a run, in their order."""
        size, rest_first_of = self.context.design.blocking.k, self.context.design.kernel.rest_first_of
        rest = k % rest_first_of if rest_first_of is not None else 0
        if not 0 < rest < k:
            yield from s.blocks("k", k, size)
            return
        for block in s.blocks("k", rest, size):
            yield replace(block, last=False)
        for block in s.blocks("k", k - rest, size):
            yield replace(block, start=block.start + rest, continues=True)

    def _runs(self, s: StreamBuilder, k: int) -> Iterator[Span]:
        """The runs of K for terms promoted after several blocks; one run over all of K where there are none."""
        run_across_blocks = self.context.design.run_across_blocks
        if run_across_blocks is None:
            yield Span(ZERO, ZERO, k, None, True)
        else:
            yield from s.blocks("run", k, run_across_blocks)


def _follows(before: KBlock, other: KBlock) -> bool:
    """Whether `other` is as long as `before` and begins where that ends, both in one run."""
    is_single = len(before.runs) == len(other.runs) == 1
    return is_single and before.size == other.size and before.runs[0][0] + before.size == other.runs[0][0]


def main_loop(context: KernelContext, accumulators: RegisterAccumulators | TmemAccumulators) -> MainLoop:
    """The main loop of a kernel."""
    design = context.design
    through, splits = design.family.through_registers, design.kernel.splits_operands
    loader: Loader = RegisterLoader(context) if through else SharedLoader(context)
    splitter: Splitter | None = None
    if splits:
        splitter = SplitOnLoad(context) if through else SplitStages(context)
    if not design.family.staged:
        loader, splitter = FragmentLoader(context), SplitFragments(context) if splits else None
    ringed = design.reads_fragments or splits or not design.family.staged
    scales = ScaleFeed(context)
    feed = FragmentFeed(context, design.reads_fragments, scales) if ringed else StageFeed(context, scales)
    promotion = promotion_of(context, accumulators)
    spill = Spill(context)
    return MainLoop(
        context=context,
        loader=loader,
        splitter=splitter,
        products=Products(context, feed, scales, spill),
        promotion=promotion,
        sums=Sums(context),
        spill=spill,
        factors=feed_of(context, design.kernel.factors),
    )


def refuses(gemm: Gemm) -> str:
    """What of a record the main loop and its parts do not carry."""
    return refusals.of_parts(PARTS, gemm)


PARTS = loads.refuses, split.refuses, operand_feed.refuses, products.refuses, promotion.refuses
