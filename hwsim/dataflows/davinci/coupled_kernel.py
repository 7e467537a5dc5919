"""The GEMM kernel of a coupled DaVinci core: A stationary in L1, B streamed, C accumulated in global memory through UB.

Blocks of C, and slices of K, are dealt over a grid of cores (core_grid). L0C is released as soon as the vector unit has
copied it out, UB's one block of C (Eq. 10) when it is stored. The block of C still delays the cube: MTE2 works in
order, so the next blocks of B wait behind the read of C.

A is read from global memory as pieces in the unit's format, or, as Algorithm 1 has it, as it was given: then the vector
unit splits its blocks in UB, and MTE3 puts the pieces into L1, once per group of blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hwsim.dataflows.davinci.core_grid import CoreGrid, GridShare, KSlice
from hwsim.dataflows.davinci.coupled_plan import C_BYTES, CoupledPlan, OperandSweep, slot_bytes
from hwsim.dataflows.davinci.coupled_tiling import Tiling
from hwsim.dataflows.davinci.panels import Panels
from hwsim.dataflows.elementwise import VectorOps, bytes_of, link_engine, vector_of
from hwsim.dataflows.expression_ops import evaluate
from hwsim.dataflows.operand_passes import split_ops
from hwsim.gemm.plan import TermValue
from hwsim.program.builder import CoreShare, KernelBuilder, Ring, Span, StreamBuilder, blocks_of_share
from hwsim.program.ir import Affine, GlobalArray, GlobalTile, Kernel, LocalTile, Sync, variable

if TYPE_CHECKING:
    from hwsim.devices.device import Device


@dataclass(frozen=True, slots=True)
class ColumnBlock:
    """One block of C (a block row and a block column), for one group of blocks of A in L1.

    part: the slice of K. group: K of the blocks of A. is_first: the core
    uses this A for the first time, and loads it; is_last: the A is released after this block of C.
    """

    sweep: OperandSweep
    part: KSlice
    row: Span
    group: Span
    col: Span
    is_first: bool
    is_last: bool


@dataclass(frozen=True, slots=True)
class DepthBlock:
    """One block of K of a `ColumnBlock`.

    stage: of the sweep, a number. size: its K. start: its first element of K. slot: of its first piece of A in L1.
    zero_at: the loops at whose first iteration its first product starts from zero (see ir.Instr).
    """

    of: ColumnBlock
    stage: int
    size: int
    start: Affine
    slot: Affine
    zero_at: tuple[str, ...] | None

    @property
    def frees_a(self) -> bool:
        """Whether the blocks of A are not needed after this stage."""
        return self.of.is_last and self.stage + 1 == len(self.of.sweep.stages)


class CoupledKernel:
    """Writes the GEMM kernel for the terms in the core's sweeps.

    a: its pieces by number, or the array of A itself, whose blocks this kernel splits. b: its pieces. A piece is an
    array, or panels as wide as a block. targets: of each term, or of C where terms are combined after every step of K;
    slice i of K has the rows from i m on. promotion_interval: K that is accumulated from zero, where they are. grid: of
    cores. slice_lengths: of the slices of K, in order.
    """

    def __init__(
        self,
        core: CoupledPlan,
        tiling: Tiling,
        promotion_interval: int,
        device: Device,
        a: GlobalArray | Mapping[int, GlobalArray | Panels],
        b: Mapping[int, GlobalArray | Panels],
        targets: list[GlobalArray],
        sizes: tuple[int, int, int],
        grid: CoreGrid,
        slice_lengths: Sequence[int],
        name: str = "gemm",
    ) -> None:
        self.core, self.plan, self.tiling, self.promotion_interval, self.device = (
            core,
            core.plan,
            tiling,
            promotion_interval,
            device,
        )
        self.a, self.b, self.targets, self.sizes = a, b, targets, sizes
        self.grid, self.slice_lengths = grid, slice_lengths
        memory = vector_of(device).memory
        self.mte2 = link_engine(device, "GM", "L1")
        self.mte1_a = link_engine(device, "L1", "L0A")
        self.mte1_b = link_engine(device, "L1", "L0B")
        self.load_c = link_engine(device, "GM", memory)
        self.store_c = link_engine(device, memory, "GM")
        self.vector = link_engine(device, "L0C", memory)
        self.stage_a = link_engine(device, memory, "L1") if isinstance(a, GlobalArray) else ""
        self.cube = device.matrix_instructions[core.unit].engine
        self.builder = KernelBuilder(name)
        self._declare(memory)

    def _declare(self, ub: str) -> None:
        """Declare buffers and semaphores."""
        t, kernel, element = self.tiling, self.builder, bytes_of(self.core.operand)

        def size(memory: str, elements: int, element_bytes: int = element) -> int:
            return slot_bytes(self.device, memory, elements, element_bytes)

        a_slots = t.n_fused * self.core.resident
        kernel.buffer("A", "L1", a_slots, size("L1", t.b_m * t.b_k))
        self.a_free, self.a_full = kernel.semaphore("A.free", a_slots), kernel.semaphore("A.full")
        self.c_done = kernel.semaphore("C.done")
        reserved = self.core.conversion_room(t, self.device) if isinstance(self.a, GlobalArray) else 0
        self.chunk = self.core.scratch_rows(t, self.device, reserved)
        self.scratch = [
            kernel.buffer(f"P{i}", ub, 1, size("UB", self.chunk * t.b_n, bytes_of(format)))
            for i, format in enumerate(self.core.scratch_formats)
        ]
        self.b_l1 = kernel.ring("B", "L1", t.buffers, size("L1", t.b_k * t.b_n))
        self.l0a = self._l0_rings("L0A", self.core.at_once(0), size("L0A", t.b_m * t.b_k))
        self.l0b = self._l0_rings("L0B", self.core.at_once(1), size("L0B", t.b_k * t.b_n))
        self.l0c = kernel.ring("L0C", "L0C", self.core.accumulators, size("L0C", t.b_m * t.b_n, C_BYTES))
        self.c = kernel.ring("C", ub, 1, size("UB", t.b_m * t.b_n, self.core.total_bytes))
        if isinstance(self.a, GlobalArray):
            self._declare_conversion(self.a, ub)

    def _l0_rings(self, memory: str, pieces: int, slot_bytes: int) -> list[Ring]:
        """The rings of L0A or L0B, one for each piece that is there at the same time."""
        names = [memory, *(f"{memory}.{piece}" for piece in range(2, pieces + 1))]
        return [self.builder.ring(name, memory, self.tiling.buffers, slot_bytes) for name in names]

    def _declare_conversion(self, source: GlobalArray, ub: str) -> None:
        """Declare what the conversion of A needs in UB: its source, its pieces, temporaries."""
        t, core, kernel = self.tiling, self.core, self.builder
        self.converted_rows = core.conversion_rows(t, self.device)

        def size(format: str) -> int:
            return slot_bytes(self.device, "UB", self.converted_rows * t.b_k, bytes_of(format))

        self.a_source = kernel.ring("A.source", ub, t.buffers, size(source.format))
        self.a_split = [kernel.ring(f"A.split{i}", ub, t.buffers, size(core.operand)) for i in range(core.resident)]
        count = core.conversion_temporaries
        self.a_temps = [kernel.buffer(f"A.temp{i}", ub, 1, size("fp32")) for i in range(count)]

    def kernel(self) -> Kernel:
        """The complete kernel, for all cores."""
        t, (m, n, _) = self.tiling, self.sizes
        for share in self.grid.shares(m, n, (t.b_m, t.b_n), self.slice_lengths):
            stream = StreamBuilder("main")
            self._core(stream, share)
            self.builder.group(share.first, share.count, stream)
        return self.builder.finish()

    def _core(self, s: StreamBuilder, share: GridShare) -> None:
        """The stream of one core: every sweep of terms over its slices of K and its block rows of A."""
        t, grid = self.tiling, self.grid
        place, col_place = grid.place(s)
        columns = list(_peeled(share.cols))
        for sweep in self.core.k_sweeps:
            for part in share.slices:
                for row in blocks_of_share(s, "row", share.rows, t.b_m, grid.rows, place):
                    for group in s.blocks("group", part.length, t.n_fused * t.b_k):
                        for i, (first, count, rest) in enumerate(columns):
                            is_last = i == len(columns) - 1
                            with s.loop("column", count) as (_, j):
                                index = j * grid.cols + first * grid.cols + col_place
                                col = Span(index, index * t.b_n, rest or t.b_n, None, is_last)
                                at = ColumnBlock(
                                    sweep, part=part, row=row, group=group, col=col, is_first=i == 0, is_last=is_last
                                )
                                self._column(s, at)
                        s.advance("A.base", -(-group.size // t.b_k) * len(sweep.a_pieces))

    def _column(self, s: StreamBuilder, at: ColumnBlock) -> None:
        """Emit one block of C for one group of A blocks."""
        is_joined, leaves_each, count = self.core.is_joined, at.sweep.leaves_each, len(at.sweep.terms)
        c_tile, c_global = self._c_tile(at), self._c_global(at)
        if is_joined or leaves_each:
            self._load_c(s, c_tile, c_global)
            s.emit(self.vector, "sync", waits=[self.c.full])
        for run in s.blocks("join", at.group.size, self.promotion_interval if is_joined else at.group.size):
            if not leaves_each:
                s.emit(self.cube, "sync", waits=[replace(self.l0c.free, count=count)])
            for stage in range(len(at.sweep.stages)):
                for block in s.blocks("k", run.size, self.tiling.b_k):
                    self._depth_block(s, self._located(at, stage, run, block))
            if not leaves_each:
                s.emit(self.cube, "sync", signals=[replace(self.l0c.full, count=count)])
            if is_joined:
                self._join(s, at, c_tile)
        if is_joined or leaves_each:
            s.emit(self.vector, "sync", signals=[self.c_done])
        else:
            self._load_c(s, c_tile, c_global)
            self._add(s, at, c_tile)
        s.emit(self.store_c, "copy", c_global, [c_tile], [self.c_done], [self.c.free], label="C")

    def _target(self, at: ColumnBlock) -> GlobalArray:
        return self.targets[0 if self.core.is_joined else at.sweep.terms[0]]

    def _c_tile(self, at: ColumnBlock) -> LocalTile:
        """The block of C in UB."""
        return LocalTile(self.c.name, at.row.size, at.col.size, self._target(at).format)

    def _c_global(self, at: ColumnBlock) -> GlobalTile:
        """The block of C in global memory."""
        first_row = at.row.start + at.part.number * self.sizes[0]
        return GlobalTile(self._target(at).name, first_row, at.col.start, at.row.size, at.col.size)

    def _located(self, at: ColumnBlock, stage: int, run: Span, block: Span) -> DepthBlock:
        """The `DepthBlock` of a block of K within a run of K of a group of blocks of A."""
        before = run.index * (self.promotion_interval // self.tiling.b_k) if self.core.is_joined else Affine()
        slot = (block.index + before) * len(at.sweep.a_pieces)
        start, zero_at = at.group.start + run.start + block.start + at.part.start, None if stage else block.zero_at
        return DepthBlock(at, stage, block.size, start, slot, zero_at)

    def _load_c(self, s: StreamBuilder, c_tile: LocalTile, c_global: GlobalTile) -> None:
        s.emit(self.load_c, "copy", c_tile, [c_global], [self.c.free], [self.c.full], label="C")

    def _depth_block(self, s: StreamBuilder, at: DepthBlock) -> None:
        """Emit one block of K: load A (in the first column) and B, move them to L0, multiply."""
        sweep, is_fresh = at.of.sweep, at.of.is_first and not at.stage
        if is_fresh:
            if isinstance(self.a, GlobalArray):
                self._convert_a(s, at, self.a)
            else:
                for a in sweep.a_pieces:
                    self._load_a(s, at, self.a[a], a)
        # Loads of A that have not been waited for: of terms that join, one by one, else all together.
        count = 0 if not is_fresh else 1 if len(sweep.terms) > 1 else len(sweep.a_pieces)
        if sweep.is_in_parts:
            self._in_parts(s, at, count)
        else:
            self._one_by_one(s, at, count)

    def _one_by_one(self, s: StreamBuilder, at: DepthBlock, loads: int) -> None:
        """Emit the products of one block of K, each whole; those that share a piece of B follow one another.

        loads: of A that the first use of a piece waits for.
        """
        products = at.of.sweep.stages[at.stage]
        fresh = set(at.of.sweep.a_pieces) if loads else set()
        for number, (slot, a, b) in enumerate(products):
            takes_b = number == 0 or products[number - 1][2] != b
            leaves_b = number + 1 == len(products) or products[number + 1][2] != b
            if takes_b:
                self._load_b(s, at, b, self.l0b[0])
            frees_a = at.frees_a and number + 1 == len(products)
            self._move_a(s, at, a, self.l0a[0], loads if a in fresh else 0, frees_a)
            fresh.discard(a)
            self._multiply(s, at, slot, takes_b, leaves_b)

    def _in_parts(self, s: StreamBuilder, at: DepthBlock, loads: int) -> None:
        """Emit the products of one block of K, for the K of each instruction all of them in order.

        loads: of A that the first move waits for. Where the sums leave the cube after each instruction, they are added
        to C.
        """
        sweep, cols = at.of.sweep, at.of.col.size
        products = sweep.stages[at.stage]
        a_pieces, b_pieces = (sorted({product[side] for product in products}) for side in (1, 2))
        for b, ring in zip(b_pieces, self.l0b, strict=False):
            self._load_b(s, at, b, ring)
        for number, (a, ring) in enumerate(zip(a_pieces, self.l0a, strict=False)):
            frees_a = at.frees_a and number + 1 == len(a_pieces)
            self._move_a(s, at, a, ring, 0 if number else loads, frees_a)
        rings = [*self.l0a[: len(a_pieces)], *self.l0b[: len(b_pieces)]]
        for start in range(0, at.size, self.core.depth):
            depth = min(self.core.depth, at.size - start)
            for number, (_, a, b) in enumerate(products):
                is_first, is_last = number == 0, number + 1 == len(products)
                waits = [ring.full for ring in rings] if is_first and start == 0 else []
                signals = [ring.free for ring in rings] if is_last and start + depth == at.size else []
                zero_at = at.zero_at if is_first and start == 0 else None
                if sweep.leaves_each:
                    waits += [self.l0c.free] if is_first else []
                    signals += [self.l0c.full] if is_last else []
                    zero_at = () if is_first else None
                left = self.l0a[a_pieces.index(a)].tile("pop", at.of.row.size, depth, self.core.operand)
                right = self.l0b[b_pieces.index(b)].tile("pop", depth, cols, self.core.operand)
                s.emit(
                    self.cube,
                    "mma",
                    self._accumulator(at.of, 0),
                    [replace(left, col=start, width=at.size), replace(right, row=start, width=cols)],
                    waits,
                    signals,
                    unit=self.core.unit,
                    zero_at=zero_at,
                )
            if sweep.leaves_each:
                self._join(s, at.of, self._c_tile(at.of))
        for ring in rings:
            s.popped(ring)

    def _a_tile(self, at: DepthBlock, a: int) -> LocalTile:
        """The tile of piece a of A in L1."""
        place = at.slot + at.of.sweep.a_pieces.index(a) + variable("A.base")
        return LocalTile("A", at.of.row.size, at.size, self.core.operand, place)

    def _convert_a(self, s: StreamBuilder, at: DepthBlock, array: GlobalArray) -> None:
        """Emit the conversion of a block of A, in chunks of rows: global memory -> UB, split there -> L1."""
        row, held = at.of.row, at.of.sweep.a_pieces
        rings, source = self.a_split[: len(held)], self.a_source
        for start in range(0, row.size, self.converted_rows):
            rows = min(self.converted_rows, row.size - start)
            taken = source.tile("push", rows, at.size, array.format)
            origin = GlobalTile(array.name, row.start + start, at.start, rows, at.size)
            s.emit(self.load_c, "copy", taken, [origin], [source.free], [source.full], label="A")
            s.pushed(source)
            ops = VectorOps(s, self.vector)
            ops.wait(source.full, *(ring.free for ring in rings))
            split = [ring.tile("push", rows, at.size, self.core.operand) for ring in rings]
            temps = [LocalTile(name, rows, at.size, "fp32") for name in self.a_temps]
            unsplit = source.tile("pop", rows, at.size, array.format)
            split_ops(ops, unsplit, self.plan.a_pieces, dict(zip(held, split, strict=True)), temps)
            ops.signal(source.free, *(ring.full for ring in rings))
            s.popped(source)
            for a, ring in zip(held, rings, strict=True):
                s.pushed(ring)
                waits = [ring.full, *([self.a_free] if start == 0 else [])]
                signals = [ring.free, *([self.a_full] if start + rows == row.size else [])]
                target = self._a_tile(at, a).part(start, rows)
                piece = ring.tile("pop", rows, at.size, self.core.operand)
                s.emit(self.stage_a, "copy", target, [piece], waits, signals, label="A")
                s.popped(ring)

    def _load_a(self, s: StreamBuilder, at: DepthBlock, stored: GlobalArray | Panels, a: int) -> None:
        """Emit the load of a piece of A: global memory -> L1."""
        row = at.of.row
        if isinstance(stored, Panels):
            source = stored.tile(row.index, at.start, row.size, at.size)
        else:
            source = GlobalTile(stored.name, row.start, at.start, row.size, at.size)
        s.emit(self.mte2, "copy", self._a_tile(at, a), [source], [self.a_free], [self.a_full], label="A")

    def _load_b(self, s: StreamBuilder, at: DepthBlock, b: int, l0: Ring) -> None:
        """Emit the load of B: global memory -> L1 -> L0B."""
        col, shape = at.of.col, (at.size, at.of.col.size, self.core.operand)
        stored = self.b[b]
        if isinstance(stored, Panels):
            source = stored.tile(col.index, at.start, at.size, col.size)
        else:
            source = GlobalTile(stored.name, at.start, col.start, at.size, col.size)
        l1 = self.b_l1
        s.emit(self.mte2, "copy", l1.tile("push", *shape), [source], [l1.free], [l1.full], label="B")
        s.pushed(l1)
        waits, signals = [l1.full, l0.free], [l1.free, l0.full]
        s.emit(self.mte1_b, "copy", l0.tile("push", *shape), [l1.tile("pop", *shape)], waits, signals, label="B")
        s.popped(l1)
        s.pushed(l0)

    def _move_a(self, s: StreamBuilder, at: DepthBlock, a: int, l0: Ring, loads: int, frees_a: bool) -> None:
        """Emit the move of A: L1 -> L0A.

        loads: of A that it waits for. frees_a: slots of L1 are released, all pieces of the block together, in the order
        in which they were filled.
        """
        waits, signals = [l0.free], [l0.full]
        if loads:
            waits.append(replace(self.a_full, count=loads))
        if frees_a:
            signals.append(replace(self.a_free, count=len(at.of.sweep.a_pieces)))
        target = l0.tile("push", at.of.row.size, at.size, self.core.operand)
        s.emit(self.mte1_a, "copy", target, [self._a_tile(at, a)], waits, signals, label="A")
        s.pushed(l0)

    def _multiply(self, s: StreamBuilder, at: DepthBlock, slot: int, takes_b: bool, leaves_b: bool) -> None:
        """Emit the product of the blocks in L0A and L0B into one slot of L0C."""
        operand, row, col, l0a, l0b = self.core.operand, at.of.row, at.of.col, self.l0a[0], self.l0b[0]
        s.emit(
            self.cube,
            "mma",
            self._accumulator(at.of, slot),
            [l0a.tile("pop", row.size, at.size, operand), l0b.tile("pop", at.size, col.size, operand)],
            [l0a.full, *([l0b.full] if takes_b else [])],
            [l0a.free, *([l0b.free] if leaves_b else [])],
            unit=self.core.unit,
            zero_at=at.zero_at,
        )
        s.popped(l0a)
        if leaves_b:
            s.popped(l0b)

    def _accumulator(self, at: ColumnBlock, slot: int) -> LocalTile:
        return LocalTile(self.l0c.name, at.row.size, at.col.size, self.core.sum_format, Affine(slot))

    def _chunks(self, rows: int) -> Iterator[tuple[int, int]]:
        for start in range(0, rows, self.chunk):
            yield start, min(self.chunk, rows - start)

    def _scratch(self, at: ColumnBlock, rows: int) -> list[LocalTile]:
        """The scratch blocks, for a chunk of rows."""
        formats = self.core.scratch_formats
        return [LocalTile(name, rows, at.col.size, fmt) for name, fmt in zip(self.scratch, formats, strict=True)]

    def _add_part(self, ops: VectorOps, c_part: LocalTile, value: LocalTile, scratch: LocalTile) -> None:
        """Emit C += value for a chunk, in the format of C. scratch: takes a value of another format."""
        if value.format != c_part.format:
            ops.op("cast", scratch, value, label="C")
            value = scratch
        ops.op("add", c_part, c_part, value, label="C")

    def _add(self, s: StreamBuilder, at: ColumnBlock, c_tile: LocalTile) -> None:
        """Emit C += the group's result, in chunks through UB."""
        ops = VectorOps(s, self.vector)
        ops.wait(self.l0c.full)
        for start, rows in self._chunks(at.row.size):
            scratch = self._scratch(at, rows)
            freed: list[Sync] = [self.l0c.free] if start + rows == at.row.size else []
            ops.op("copy", scratch[0], self._accumulator(at, 0).part(start, rows), signals=freed, label="C")
            if start == 0:
                ops.wait(self.c.full)
            self._add_part(ops, c_tile.part(start, rows), scratch[0], scratch[-1])
        ops.signal(self.c_done)

    def _join(self, s: StreamBuilder, at: ColumnBlock, c_tile: LocalTile) -> None:
        """Emit C += the combined terms of this run of K, computed on the vector unit, in chunks through UB."""
        count, value = len(at.sweep.terms), at.sweep.value
        ops = VectorOps(s, self.vector)
        ops.wait(replace(self.l0c.full, count=count))
        for start, rows in self._chunks(at.row.size):
            scratch = self._scratch(at, rows)
            for i in range(count):
                ops.op("copy", scratch[i], self._accumulator(at, i).part(start, rows), label="C")
            total = scratch[0]
            if not isinstance(value, TermValue):
                total = scratch[count]
                evaluate(ops, value, dict(enumerate(scratch[:count])), total, scratch[count + 1 :])
            self._add_part(ops, c_tile.part(start, rows), total, scratch[-1])
        ops.signal(replace(self.l0c.free, count=count))


def _peeled(share: CoreShare) -> Iterator[tuple[int, int, int]]:
    """(first block, blocks, elements of a partial one or 0) of a core's block columns, with the first and the last
    separate.
    """
    blocks = share.whole + bool(share.rest)
    yield 0, 1, share.rest if blocks == 1 else 0
    if blocks > 2:
        yield 1, blocks - 2, 0
    if blocks > 1:
        yield blocks - 1, 1, share.rest
