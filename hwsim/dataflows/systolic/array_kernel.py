"""Writes the kernel of a sum of products on a systolic array: fill, stream, drain. It knows no plan and no time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hwsim.dataflows.elementwise import link_engine
from hwsim.dataflows.systolic.pe_array import MEMORIES, PE, SLOTS, PeArray
from hwsim.dataflows.term_kernels import PieceArrays, PieceStages
from hwsim.devices.device import Device
from hwsim.gemm.mapping import Tile
from hwsim.program.builder import KernelBuilder, Ring, Span, StreamBuilder, blocks_of_share, distribute
from hwsim.program.ir import Affine, GlobalArray, GlobalTile, Kernel, Sync

INSIDE = Ring(PE)  # the operand that stays
BESIDE = {operand: Ring(memory) for operand, memory in MEMORIES.items()}
SUMS_LEAVE = Sync("SUMS.full")  # the array begins to give out the sums of a tile


@dataclass(frozen=True, slots=True)
class ArrayKernel:
    """target = the sum of the products of pieces of A and B: stage after stage over all of K, in a stage fold by fold.

    A fold is one tile: of K with weights or inputs in the PEs, of C with outputs there. tile: its sides. pe_tiles:
    tiles that the PEs hold; with two, one is filled or drained while the array works on the other.
    """

    name: str
    device: Device
    array: PeArray
    tile: Tile
    pe_tiles: int
    stages: PieceStages
    target: GlobalArray

    def kernel(self) -> Kernel:
        """The device kernel. Arrays share the columns of C, or its rows where inputs stay."""
        kernel, array, cores = KernelBuilder(self.name), self.array, self.device.cores
        for operand, ring in BESIDE.items():
            kernel.buffer(ring.name, MEMORIES[operand], SLOTS, array.bytes_in(operand, self.tile))
            kernel.semaphore(ring.free.semaphore, SLOTS)
            kernel.semaphore(ring.full.semaphore, pieces=True)  # rows are handed over as they come
        kernel.buffer(INSIDE.name, PE, self.pe_tiles, array.bytes_in(array.stays, self.tile))
        kernel.semaphore(INSIDE.free.semaphore, self.pe_tiles)
        kernel.semaphore(INSIDE.full.semaphore)  # filled before the first row streams, drained after the last
        kernel.semaphore(SUMS_LEAVE.semaphore)
        rows_are_shared = array.stays == "a"
        extents = (self.target.rows, self.tile.m), (self.target.cols, self.tile.n)
        shared, other = extents if rows_are_shared else extents[::-1]
        for share in distribute(*shared, cores):
            stream = StreamBuilder("main")
            for span in blocks_of_share(stream, "shared", share, shared[1], cores):
                for across in stream.blocks("other", *other):
                    self._tile(stream, *((span, across) if rows_are_shared else (across, span)))
            kernel.group(share.first, share.count, stream)
        return kernel.finish()

    def _tile(self, stream: StreamBuilder, rows: Span, cols: Span) -> None:
        """One tile of C: all folds into one slot of sums, then out."""
        array, sums, stages = self.array, self._ring("c"), self.stages
        stream.emit(array.engine, "sync", waits=[sums.free])
        for s, stage in enumerate(stages):
            for fold in self._folds(stream):
                for p, product in enumerate(stage):
                    self._load(stream, product, (rows, cols, fold))
                    is_last = fold.last and fold.loop is None and s == len(stages) - 1 and p == len(stage) - 1
                    if is_last and array.stays != "c":  # the last fold's sums leave while its rows stream
                        stream.emit(array.engine, "sync", signals=[SUMS_LEAVE])
                    is_first = s == p == fold.start.constant == 0
                    zero_at = ((fold.loop,) if fold.loop else ()) if is_first else None
                    self._multiply(stream, product[0].format, (rows, cols, fold), zero_at)
        leaving = [SUMS_LEAVE] if array.stays == "c" else []
        stream.emit(array.engine, "sync", signals=[sums.full, *leaving])
        stream.pushed(sums)
        self._store(stream, rows, cols)

    def _folds(self, stream: StreamBuilder) -> Iterator[Span]:
        """K in tiles: a loop over all but the last one, then the last."""
        extent, size = self.stages[0][0][0].cols, self.tile.k
        before = (extent - 1) // size
        yield from stream.blocks("k", before * size, size)
        yield Span(Affine(before), Affine(before * size), extent - before * size, None, last=True)

    def _load(self, stream: StreamBuilder, product: PieceArrays, spans: tuple[Span, Span, Span]) -> None:
        """A and B of a fold from global memory, and into the PEs what stays there."""
        rows, cols, fold = spans
        for operand, source, sides in (("a", product[0], (rows, fold)), ("b", product[1], (fold, cols))):
            beside, shape = BESIDE[operand], (sides[0].size, sides[1].size, source.format)
            load = link_engine(self.device, "GM", MEMORIES[operand])
            place, near = self._place(source, *sides), beside.tile("push", *shape)
            stream.emit(load, "copy", near, [place], [beside.free], [beside.full], label=f"load {beside.name}")
            stream.pushed(beside)
            if operand == self.array.stays:
                fill, inside = link_engine(self.device, MEMORIES[operand], PE), INSIDE.tile("push", *shape)
                waits, signals = [beside.full, INSIDE.free], [beside.free, INSIDE.full]
                stream.emit(fill, "copy", inside, [beside.tile("pop", *shape)], waits, signals, label="fill")
                stream.popped(beside)
                stream.pushed(INSIDE)

    def _multiply(
        self, stream: StreamBuilder, format: str, spans: tuple[Span, Span, Span], zero_at: tuple[str, ...] | None
    ) -> None:
        """What streams passes what stays."""
        rows, cols, fold = spans
        left, right, array = self._ring("a"), self._ring("b"), self.array
        operands = [left.tile("pop", rows.size, fold.size, format), right.tile("pop", fold.size, cols.size, format)]
        sums = self._ring("c").tile("push", rows.size, cols.size, self.target.format)
        waits, signals = [left.full, right.full], [left.free, right.free]
        stream.emit(
            array.engine, "mma", sums, operands, waits, signals, unit=array.unit, zero_at=zero_at, label="stream"
        )
        stream.popped(left)
        stream.popped(right)

    def _store(self, stream: StreamBuilder, rows: Span, cols: Span) -> None:
        """A tile's sums out of the PEs, if they are there, and to global memory."""
        out, beside, shape = self.target, BESIDE["c"], (rows.size, cols.size, self.target.format)
        if self.array.stays == "c":
            drain = link_engine(self.device, PE, MEMORIES["c"])
            waits, signals = [INSIDE.full, beside.free], [INSIDE.free, beside.full]
            source, near = INSIDE.tile("pop", *shape), beside.tile("push", *shape)
            stream.emit(drain, "copy", near, [source], waits, signals, label="drain")
            stream.popped(INSIDE)
            stream.pushed(beside)
        store, place = link_engine(self.device, MEMORIES["c"], "GM"), self._place(out, rows, cols)
        stream.emit(store, "sync", waits=[SUMS_LEAVE])
        stream.emit(store, "copy", place, [beside.tile("pop", *shape)], [beside.full], [beside.free], label="store")
        stream.popped(beside)

    def _ring(self, operand: str) -> Ring:
        """Where the array reads A and B, and adds C."""
        return INSIDE if operand == self.array.stays else BESIDE[operand]

    @staticmethod
    def _place(array: GlobalArray, rows: Span, cols: Span) -> GlobalTile:
        return GlobalTile(array.name, rows.start, cols.start, rows.size, cols.size)
