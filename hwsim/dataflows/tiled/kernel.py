"""One tiled GEMM kernel: operands through a ring of stages to the matrix unit, sums outside it, the epilogue.

Each core runs a stream of loads, one of products and one of elementwise work, as warps with different roles do; the
vector engine's instructions are all in one stream, in an order in which none waits for a later one: pieces for the next
block of K are made before the products of this block are added up.
"""

from __future__ import annotations

from collections.abc import Sequence

from hwsim.dataflows.elementwise import VectorOps
from hwsim.dataflows.tiled.epilogue import Ends
from hwsim.dataflows.tiled.layout import Layout
from hwsim.dataflows.tiled.products import Products
from hwsim.dataflows.tiles import Cores, Field, Place, deal_fields
from hwsim.program.builder import Span, StreamBuilder
from hwsim.program.ir import Kernel, LocalTile


def gemm_kernel(layout: Layout, found: Sequence[Field], batch: int, sizes: tuple[int, int, int]) -> Kernel:
    """The kernel over the tiles `found`; sizes: m, n, k of one matrix of the batch."""
    return _Kernel(layout, found, batch, sizes).kernel()


class _Kernel(Products, Ends):
    """All streams of the kernel."""

    def kernel(self) -> Kernel:
        for group in deal_fields(self.fields, self.layout.device.cores):
            streams = [self._loads(group)]
            if not self.merged:
                streams.append(self._products(group))
            streams.append(self._elementwise(group))
            self.builder.group(group.first, group.count, *streams)
        return self.builder.finish()

    def _elementwise(self, group: Cores) -> StreamBuilder:
        s = StreamBuilder("vector")
        ops = VectorOps(s, self.layout.vector, attach=True)
        sums = [name for name in self.layout.slots if name.startswith("sum")]
        short = any(self.layout.short)
        chained = [t for t, p in enumerate(self.layout.promoted) if not p]
        for place in self._places(s, group):
            for name in sums:
                ops.op("fill", LocalTile(name, place.m, place.n * self._sum_words(), self._sum_format()), scalar=0.0)
            if self.merged:
                self._hand_over(s, chained, "free")
            for run in self._runs(s, place.k):
                if self.merged:
                    self._hand_over(s, self._long(), "free")
                for sweep in range(self.layout.sweeps):
                    promotes = short and sweep == 0
                    if self.work.in_kernel or promotes or self.merged:
                        self._pipeline(s, ops, place, run, sweep, promotes)
                if self.merged:
                    self._hand_over(s, self._long(), "full", advance=True)
                if self._long():
                    self._promote(s, ops, place, self._long(), place.m)
            if self.merged:
                self._hand_over(s, chained, "full", advance=True)
            self._epilogue(s, ops, place)
        return s

    def _pipeline(self, s: StreamBuilder, ops: VectorOps, place: Place, run: Span, sweep: int, promotes: bool) -> None:
        """Pieces of the next block of K, then the sums of this one."""

        def make(size: int) -> None:
            if self.work.in_kernel:
                self._split(s, ops, place, sweep, size)

        def add(size: int) -> None:
            if promotes:
                self._promote_short(s, ops, place, size)

        if self.merged or not (self.work.in_kernel and promotes):
            for block in s.blocks("k", run.size, self.b.k):
                make(block.size)
                if self.merged:
                    self._product_block(s, place, run, sweep, block)
                add(block.size)
            return
        whole, rest = divmod(run.size, self.b.k)
        sizes = [self.b.k] * min(whole, 1) + ([rest] if rest else [])
        make(sizes[0])
        if whole > 1:
            with s.loop("k", whole - 1):
                make(self.b.k)
                add(self.b.k)
        if whole and rest:
            make(rest)
            add(self.b.k)
        add(sizes[-1])
