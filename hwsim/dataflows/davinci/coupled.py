"""The dataflow of a coupled DaVinci core (cube, vector unit and all buffers in one core).

Algorithm 1 of SGEMM-cube (arXiv 2507.23387): block rows of A over the cores; groups of N_fused blocks of A
stay in L1 while B streams past through L1, L0A and L0B with one or two buffers each; a finished block of C
goes through UB to global memory by read, add, write. It knows plans and devices, not how a scheme splits.

Each group is accumulated in L0C from zero and added to C by the vector unit. L0C is given back as soon as the
vector pipe has copied it out, UB's one block of C (Eq. 10) when it is stored. The block of C still costs the cube
time: MTE2 works in order, so the next blocks of B wait behind the read of C.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hwsim.dataflows.davinci.coupled_tiling import Limits, Tiling, check, choose, n_fused
from hwsim.dataflows.elementwise import (
    WORD_BITS,
    VectorOps,
    bytes_of,
    combine_pass,
    depth,
    evaluate,
    link_engine,
    lower_pass,
    operand_passes,
    stand_in_pass,
    vector_of,
    zero_pass,
)
from hwsim.dataflows.expressions import has_integer_parts, operations
from hwsim.devices import instruction
from hwsim.errors import InputError, UnsupportedError, nearest
from hwsim.evaluate.evaluator import instruction_for
from hwsim.formats import format_of
from hwsim.gemm.plan import Piece, Plan, Side, TermValue
from hwsim.program.builder import KernelBuilder, Ring, Share, Span, StreamBuilder, deal, dealt_blocks
from hwsim.program.ir import Affine, GlobalArray, GlobalTile, Kernel, LocalTile, Program, Sync, variable

if TYPE_CHECKING:
    from hwsim.devices.model import Device

CHOOSES_K_GROUP = True
CHOOSERS = ("eq11",)
TILE_KEYS = ("m", "k", "n")  # the paper's order: (b_m, b_k, b_n)
OPTIONS = ("tile", "n_fused", "buffering")
BUFFERS = {"single": 1, "double": 2}


def lower(plan: Plan, device: Device, m: int, n: int, k: int, options: Mapping[str, object]) -> Program:
    """Return the program that computes C[m, n] = A[m, k] B[k, n] by `plan` on `device`.

    options: tile {"m": b_m, "k": b_k, "n": b_n}, n_fused, buffering "single" or "double"; absent or None:
    chosen. Raises InputError for a blocking that the device cannot hold, UnsupportedError for a plan that
    its units cannot carry. `facts` of the program: tile, n_fused, buffering, k_group, unit.
    """
    return _Lowering(plan, device, m, n, k, options).program()


@dataclass(frozen=True, slots=True)
class _Parts:
    """Names shared by the pieces of the gemm kernel."""

    mte2: str  # global memory -> L1
    mte1a: str  # L1 -> L0A
    mte1b: str
    load_c: str  # global memory -> UB
    store_c: str
    vector: str
    cube: str
    b: Ring
    l0a: Ring
    l0b: Ring
    l0c: Ring
    c: Ring
    c_done: Sync
    a_full: Sync
    a_free: Sync
    temps: tuple[str, ...]
    chunk: int


class _Lowering:
    def __init__(self, plan: Plan, device: Device, m: int, n: int, k: int, options: Mapping[str, object]) -> None:
        self.plan, self.device, self.m, self.n, self.k = plan, device, m, n, k
        self.operand = plan.a_pieces[0].format
        formats = {p.format for p in (*plan.a_pieces, *plan.b_pieces)}
        if len(formats) > 1:
            raise UnsupportedError(f"the davinci dataflow takes one operand format, the plan has {sorted(formats)}")
        if any(len(term.products) > 1 for term in plan.terms):
            raise UnsupportedError("the davinci dataflow takes one product of pieces per term, not a chain of several")
        if any(term.k_group is not None for term in plan.terms):
            raise UnsupportedError("the davinci dataflow adds all terms up after one length of K, the plan's k_group")
        self.unit = instruction_for(device, self.operand, self.operand)
        self.sum = instruction(device, self.unit).d
        single = isinstance(plan.combine, TermValue) and len(plan.terms) == 1
        # Operations per element that stand for joins which the vector unit's fp32 cannot form.
        is_fp32 = self.sum == "fp32" and plan.arithmetic == "fp32" and not has_integer_parts(plan.combine)
        self.stand_ins = 0 if single or is_fp32 else operations(plan.combine)
        if plan.join == "group" and not is_fp32:
            raise UnsupportedError("the davinci dataflow joins terms step by step in fp32 only")
        self.element = bytes_of(self.operand)
        self.limits = Limits.of(device, self.element)
        self.joined = plan.join == "group"
        self.accumulators = len(plan.terms) if self.joined else 1
        self.together = [list(range(len(plan.terms)))] if self.joined else [[i] for i in range(len(plan.terms))]
        self.resident = max(self._resident(terms) for terms in self.together)
        self.tiling = tiling = self._tiling(options)
        self.k_group = self.plan.k_group or (tiling.b_k if self.joined else tiling.n_fused * tiling.b_k)
        self.a_pieces = self._arrays("A", m, k, plan.a_pieces, {a for t in plan.terms for a, _ in t.products})
        self.b_pieces = self._arrays("B", k, n, plan.b_pieces, {b for t in plan.terms for _, b in t.products})
        self.output = GlobalArray("C", m, n, self.sum if single and plan.arithmetic == "fp32" else plan.output_format)
        self.terms = (
            [self.output]
            if single or self.joined
            else [GlobalArray(f"T{i + 1}", m, n, self.sum) for i in range(len(plan.terms))]
        )

    def _choose(self) -> tuple[int, int, int]:
        """A first choice of blocks: b_k a power of two, or what k_group can be made of."""
        group, limits = self.plan.k_group, self.limits

        def fits(b_m: int, b_k: int, b_n: int) -> bool:
            if group is not None:
                return group % b_k == 0 and (
                    self.joined or group // b_k <= n_fused(limits, b_m, b_k, b_n, self.resident)
                )
            # Joined step by step, the default step is the cube's own: a longer one adds in blocks, which is
            # more accurate than any one chain and would turn the paper's comparison of the two orders around.
            return b_k == limits.depth if self.joined else b_k & (b_k - 1) == 0 and b_k > limits.depth

        blocks = choose(self.device, self.unit, limits, (self.m, self.n, self.k), fits, self.accumulators)
        if blocks is None:
            raise InputError(
                f"k_group = {group}: no block b_k divides it into as many blocks as L1 holds; allowed: multiples of "
                f"{limits.depth} up to about {limits.l1 // limits.rows}"
            )
        return blocks

    def _resident(self, terms: Sequence[int]) -> int:
        """Pieces of A that stay in L1 while `terms` are computed."""
        return len({a for i in terms for a, _ in self.plan.terms[i].products})

    def _tiling(self, options: Mapping[str, object]) -> Tiling:
        buffering = options.get("buffering") or "double"
        if buffering not in BUFFERS:
            raise InputError(
                f"buffering: got {buffering!r}; allowed: single, double{nearest(str(buffering), list(BUFFERS))}"
            )
        tile = options.get("tile")
        if tile is None:
            blocks = self._choose()
        else:
            assert isinstance(tile, Mapping)
            blocks = (int(tile["m"]), int(tile["k"]), int(tile["n"]))
        check(self.limits, blocks, self.accumulators)
        most = n_fused(self.limits, *blocks, self.resident)
        group = self.plan.k_group
        wanted = options.get("n_fused")
        fused = most if wanted is None else wanted
        if group is not None:
            if group <= 0 or group % blocks[1]:
                raise InputError(
                    f"k_group = {group} is not a positive multiple of b_k = {blocks[1]}; choose the tile to fit"
                )
            steps = group // blocks[1]
            if self.joined:
                fused = max(steps, most // steps * steps) if wanted is None else wanted
                if isinstance(fused, int) and fused % steps:
                    raise InputError(f"n_fused = {fused} is not a multiple of k_group / b_k = {steps}")
            elif wanted is not None and wanted != steps:
                raise InputError(
                    f"k_group = {group} is {steps} blocks of b_k = {blocks[1]}, n_fused = {wanted}: give one of them"
                )
            else:
                fused = steps
        if not isinstance(fused, int) or not 1 <= fused <= most:
            raise InputError(
                f"n_fused = {fused}: L1 holds 1 to {most} blocks of A of {blocks[0]} x {blocks[1]} "
                "beside two of B (Eq. 8)"
            )
        return Tiling(*blocks, fused, BUFFERS[buffering])

    @staticmethod
    def _arrays(name: str, rows: int, cols: int, pieces: Sequence[Piece], used: set[int]) -> dict[int, GlobalArray]:
        plain = len(pieces) == 1
        return {
            i: GlobalArray(name if plain else f"{name}{i + 1}", rows, cols, piece.format)
            for i, piece in enumerate(pieces)
            if i in used
        }

    def program(self) -> Program:
        """All kernels: splits, zero, gemm, combine."""
        plan, kernels, arrays, inputs = self.plan, [], [], []
        for name, pieces, split, rows, cols in (
            ("A", plan.a_pieces, self.a_pieces, self.m, self.k),
            ("B", plan.b_pieces, self.b_pieces, self.k, self.n),
        ):
            if len(pieces) == 1 and pieces[0].format == plan.input_format and not pieces[0].scale_exponent:
                inputs.append(split[0].name)
            else:
                source = GlobalArray(f"{name}.in", rows, cols, plan.input_format)
                arrays.append(source)
                inputs.append(source.name)
                side: Side = "a" if name == "A" else "b"
                kernels += [lower_pass(work, self.device) for work in operand_passes(plan, side, source, split)]
            arrays.extend(split.values())
        kernels.append(lower_pass(zero_pass("zero", self.terms), self.device))
        kernels.append(self._gemm())
        if self.terms[0] is not self.output:
            words = 2 if format_of(self.output.format).bits > WORD_BITS or plan.arithmetic == "exact" else 1
            joins = (
                stand_in_pass("combine", self.terms, [self.output], self.stand_ins, words)
                if self.stand_ins
                else combine_pass("combine", plan.combine, self.terms, self.output)
            )
            kernels.append(lower_pass(joins, self.device))
            arrays.extend(self.terms)
        arrays.append(self.output)
        tiling = self.tiling
        facts = {
            "tile": dict(zip(TILE_KEYS, tiling.tile, strict=True)),
            "n_fused": tiling.n_fused,
            "buffering": next(name for name, count in BUFFERS.items() if count == tiling.buffers),
            "k_group": self.k_group,
            "unit": self.unit,
        }
        forms = not self.stand_ins and plan.split == "round" and plan.specials == "unit" and not plan.clamp
        narrow = format_of(plan.input_format).bits <= WORD_BITS or not kernels[0].name.startswith("split")
        return Program(tuple(arrays), tuple(kernels), tuple(inputs), self.output.name, facts, computes=forms and narrow)

    def _gemm(self) -> Kernel:
        t, device, kernel = self.tiling, self.device, KernelBuilder("gemm")
        vector = vector_of(device)
        align = {name: memory.align_bytes for name, memory in device.memories.items()}

        def size(memory: str, elements: int, element_bytes: int) -> int:
            return -(-elements * element_bytes // align[memory]) * align[memory]

        kernel.buffer("A", "L1", t.n_fused * self.resident, size("L1", t.b_m * t.b_k, self.element))
        kernel.semaphore("A.free", t.n_fused * self.resident)
        kernel.semaphore("A.full")
        kernel.semaphore("C.done")
        c_bytes = size("UB", t.b_m * t.b_n, 4)
        needed = len(self.plan.terms) + depth(self.plan.combine) + 1 if self.joined else 1
        rows = self.limits.rows
        room = (self.limits.ub_bytes - c_bytes) // (needed * t.b_n * 4)
        chunk = min(t.b_m, room // rows * rows)
        if chunk < rows:
            raise InputError(
                f"tile {t.tile}: UB ({self.limits.ub_bytes} bytes) has no room for {needed} scratch blocks "
                f"of {rows} x {t.b_n} "
                f"beside the block of C ({c_bytes} bytes); take a smaller b_m or b_n"
            )
        temps = tuple(kernel.buffer(f"P{i}", vector.memory, 1, size("UB", chunk * t.b_n, 4)) for i in range(needed))
        parts = _Parts(
            link_engine(device, "GM", "L1"),
            link_engine(device, "L1", "L0A"),
            link_engine(device, "L1", "L0B"),
            link_engine(device, "GM", vector.memory),
            link_engine(device, vector.memory, "GM"),
            link_engine(device, "L0C", vector.memory),
            device.matrix_instructions[self.unit].engine,
            kernel.ring("B", "L1", t.buffers, size("L1", t.b_k * t.b_n, self.element)),
            kernel.ring("L0A", "L0A", t.buffers, size("L0A", t.b_m * t.b_k, self.element)),
            kernel.ring("L0B", "L0B", t.buffers, size("L0B", t.b_k * t.b_n, self.element)),
            kernel.ring("L0C", "L0C", self.accumulators, size("L0C", t.b_m * t.b_n, 4)),
            kernel.ring("C", vector.memory, 1, c_bytes),
            Sync("C.done"),
            Sync("A.full"),
            Sync("A.free"),
            temps,
            chunk,
        )
        for share in deal(self.m, t.b_m, device.cores):
            stream = StreamBuilder("main")
            self._core(stream, share, parts)
            kernel.group(share.first, share.count, stream)
        return kernel.finish()

    def _core(self, s: StreamBuilder, share: Share, parts: _Parts) -> None:
        """All work of one core: every term (or all terms together) over its block rows of A."""
        t = self.tiling
        for terms in self.together:
            for row in dealt_blocks(s, "row", share, t.b_m, self.device.cores):
                for group in s.blocks("group", self.k, t.n_fused * t.b_k):
                    columns = list(_peeled(self.n, t.b_n))
                    for i, (start, count, width) in enumerate(columns):
                        first, last = i == 0, i == len(columns) - 1
                        with s.loop("column", count) as (_, j):
                            col = Span(j, j * t.b_n + start, width, None, last)
                            self._column(s, parts, terms, row, group, col, first, last)
                    s.advance("A.base", -(-group.size // t.b_k) * self._resident(terms))

    def _column(
        self, s: StreamBuilder, p: _Parts, terms: list[int], row: Span, group: Span, col: Span, first: bool, last: bool
    ) -> None:
        """One block of C for one group of A blocks."""
        target = self.output if self.joined else self.terms[terms[0]]
        c_tile = LocalTile(p.c.name, row.size, col.size, target.format)
        c_global = GlobalTile(target.name, row.start, col.start, row.size, col.size)
        if self.joined:
            self._load_c(s, p, c_tile, c_global)
            s.emit(p.vector, "sync", waits=[p.c.full])
        step = self.k_group if self.joined else group.size
        for inner in s.blocks("join", group.size, step):
            s.emit(p.cube, "sync", waits=[replace(p.l0c.free, count=len(terms))])
            for block in s.blocks("k", inner.size, self.tiling.b_k):
                self._block(s, p, terms, row, group, inner, block, col, first, last)
            s.emit(p.cube, "sync", signals=[replace(p.l0c.full, count=len(terms))])
            if self.joined:
                self._join(s, p, row, col, c_tile)
        if self.joined:
            s.emit(p.vector, "sync", signals=[p.c_done])
        else:
            self._load_c(s, p, c_tile, c_global)
            self._add(s, p, row, col, c_tile)
        s.emit(p.store_c, "copy", c_global, [c_tile], [p.c_done], [p.c.free], label="C")

    def _load_c(self, s: StreamBuilder, p: _Parts, c_tile: LocalTile, c_global: GlobalTile) -> None:
        s.emit(p.load_c, "copy", c_tile, [c_global], [p.c.free], [p.c.full], label="C")

    def _block(
        self,
        s: StreamBuilder,
        p: _Parts,
        terms: list[int],
        row: Span,
        group: Span,
        inner: Span,
        block: Span,
        col: Span,
        first: bool,
        last: bool,
    ) -> None:
        """One block of K: bring A (in the first column) and B, move them to L0, multiply."""
        t, pieces = self.tiling, self.a_pieces
        products = [(slot, a, b) for slot, i in enumerate(terms) for a, b in self.plan.terms[i].products]
        resident = sorted({a for _, a, _ in products})
        blocks_before = inner.index * (self.k_group // t.b_k) if self.joined else Affine()
        k_start = group.start + inner.start + block.start

        def a_slot(a: int) -> LocalTile:
            position = (block.index + blocks_before) * len(resident) + resident.index(a) + variable("A.base")
            return LocalTile("A", row.size, block.size, self.operand, position)

        if first:
            for a in resident:
                s.emit(
                    p.mte2,
                    "copy",
                    a_slot(a),
                    [GlobalTile(pieces[a].name, row.start, k_start, row.size, block.size)],
                    [p.a_free],
                    [p.a_full],
                    label="A",
                )
        order = sorted(products, key=lambda x: x[2])
        for at, (slot, a, b) in enumerate(order):
            fresh = at == 0 or order[at - 1][2] != b
            leaves = at + 1 == len(order) or order[at + 1][2] != b
            if fresh:
                b_tile = p.b.tile("push", block.size, col.size, self.operand)
                s.emit(
                    p.mte2,
                    "copy",
                    b_tile,
                    [GlobalTile(self.b_pieces[b].name, k_start, col.start, block.size, col.size)],
                    [p.b.free],
                    [p.b.full],
                    label="B",
                )
                s.pushed(p.b)
                s.emit(
                    p.mte1b,
                    "copy",
                    p.l0b.tile("push", block.size, col.size, self.operand),
                    [p.b.tile("pop", block.size, col.size, self.operand)],
                    [p.b.full, p.l0b.free],
                    [p.b.free, p.l0b.full],
                    label="B",
                )
                s.popped(p.b)
                s.pushed(p.l0b)
            waits, signals = [p.l0a.free], [p.l0a.full]
            if first and not any(x[1] == a for x in order[:at]):
                waits.append(p.a_full)
            if last and at + 1 == len(order):
                # Slots are given back in the order in which they were filled.
                signals.append(replace(p.a_free, count=len(resident)))
            s.emit(
                p.mte1a,
                "copy",
                p.l0a.tile("push", row.size, block.size, self.operand),
                [a_slot(a)],
                waits,
                signals,
                label="A",
            )
            s.pushed(p.l0a)
            s.emit(
                p.cube,
                "mma",
                self._accumulator(p, slot, row, col),
                [
                    p.l0a.tile("pop", row.size, block.size, self.operand),
                    p.l0b.tile("pop", block.size, col.size, self.operand),
                ],
                [p.l0a.full, *([p.l0b.full] if fresh else [])],
                [p.l0a.free, *([p.l0b.free] if leaves else [])],
                unit=self.unit,
                zero_at=_zero_at(block),
            )
            s.popped(p.l0a)
            if leaves:
                s.popped(p.l0b)

    def _accumulator(self, p: _Parts, slot: int, row: Span, col: Span) -> LocalTile:
        return LocalTile(p.l0c.name, row.size, col.size, self.sum, Affine(slot))

    def _chunks(self, rows: int, chunk: int) -> Iterator[tuple[int, int]]:
        for start in range(0, rows, chunk):
            yield start, min(chunk, rows - start)

    def _add(self, s: StreamBuilder, p: _Parts, row: Span, col: Span, c_tile: LocalTile) -> None:
        """C += the group's result, chunk by chunk through UB."""
        ops = VectorOps(s, p.vector)
        ops.wait(p.l0c.full)
        for start, rows in self._chunks(row.size, p.chunk):
            scratch = LocalTile(p.temps[0], rows, col.size, c_tile.format)
            freed = [p.l0c.free] if start + rows == row.size else []
            ops.op("copy", scratch, self._accumulator(p, 0, row, col).part(start, rows), signals=freed, label="C")
            if start == 0:
                ops.wait(p.c.full)
            ops.op("add", c_tile.part(start, rows), c_tile.part(start, rows), scratch, label="C")
        ops.signal(p.c_done)

    def _join(self, s: StreamBuilder, p: _Parts, row: Span, col: Span, c_tile: LocalTile) -> None:
        """C += the terms of this step of K, joined on the vector unit, chunk by chunk through UB."""
        count = len(self.plan.terms)
        ops = VectorOps(s, p.vector)
        ops.wait(replace(p.l0c.full, count=count))
        for start, rows in self._chunks(row.size, p.chunk):
            scratch = [LocalTile(name, rows, col.size, c_tile.format) for name in p.temps]
            for i in range(count):
                ops.op("copy", scratch[i], self._accumulator(p, i, row, col).part(start, rows), label="C")
            evaluate(ops, self.plan.combine, dict(enumerate(scratch[:count])), scratch[count], scratch[count + 1 :])
            ops.op("add", c_tile.part(start, rows), c_tile.part(start, rows), scratch[count], label="C")
        ops.signal(replace(p.l0c.free, count=count))


def _zero_at(block: Span) -> tuple[str, ...] | None:
    """Which loops at 0 make the first product of these blocks start from zero (see ir.Instr)."""
    if block.loop is not None:
        return (block.loop,)
    return None if block.index.constant else ()


def _peeled(extent: int, block: int) -> Iterator[tuple[int, int, int]]:
    """(start, blocks, elements of each) with the first and the last block on their own."""
    starts = list(range(0, extent, block))
    yield 0, 1, min(block, extent)
    if len(starts) > 2:
        yield block, len(starts) - 2, block
    if len(starts) > 1:
        yield starts[-1], 1, extent - starts[-1]
