"""The epilogue of a tile: combine terms, alpha, beta, C and bias, convert to the output format, store to global
memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from hwsim.dataflows.elementwise import VectorOps
from hwsim.dataflows.expression_ops import evaluate
from hwsim.dataflows.protocol import Features
from hwsim.dataflows.tiled.accumulators import (
    RegisterAccumulators,
    RowChunk,
    TmemAccumulators,
    accumulator_rows,
    adds_sums,
    is_complete,
    row_chunks,
)
from hwsim.dataflows.tiled.buffers import Allocation, RingBuffer
from hwsim.dataflows.tiled.context import KernelContext, chunks
from hwsim.dataflows.tiled.epilogue_writer import EpilogueWriter
from hwsim.dataflows.tiled.factor_feed import FactorFeed, feed_of
from hwsim.dataflows.tiled.factors import multiply
from hwsim.dataflows.tiled.model import AddendRole, MatrixRef
from hwsim.dataflows.tiled.promotion import Sums
from hwsim.dataflows.tiled.shared_epilogue import SharedEpilogue
from hwsim.dataflows.tiled.split_k_reduction import add_c, add_previous, conversion
from hwsim.dataflows.tiles import WorkTile
from hwsim.gemm import refusals
from hwsim.gemm.plan import Expression, OperandSum, TermValue
from hwsim.gemm.record import Gemm
from hwsim.program.builder import StreamBuilder
from hwsim.program.ir import ZERO, Affine, AnyTile, GlobalTile, LocalTile, Sync

FEATURES = Features(epilogue=True)


@dataclass(frozen=True, slots=True)
class ResultStore:
    """Stores results from registers to global memory, through shared memory where the family does so."""

    context: KernelContext

    def write(
        self,
        s: StreamBuilder,
        source: LocalTile,
        target: GlobalTile,
        waits: list[Sync],
        signals: list[Sync],
        *,
        is_tile_end: bool,
    ) -> None:
        """Emit the store of some rows. is_tile_end: the tile is finished, and the next CTA may begin."""
        context, cta, staging = self.context, self.context.buffers.cta, self.context.buffers.staging
        gate = [cta.free] if is_tile_end and cta is not None else []
        if staging is None:
            engine = context.engine(context.registers, "GM")
            s.emit(engine, "copy", target, [source], waits, [*signals, *gate], label="C")
            return
        engine, staged = context.engine(context.registers, context.shared), staging.push(source.rows, source.cols)
        s.emit(engine, "copy", staged, [source], [*waits, staging.free], [*signals, staging.full], label="C")
        staging.pushed(s)
        engine, staged = context.engine(context.shared, "GM"), staging.pop(source.rows, source.cols)
        s.emit(engine, "copy", target, [staged], [staging.full], [staging.free, *gate], label="C")
        staging.popped(s)


@dataclass(frozen=True, slots=True)
class StoreAccumulators:
    """The epilogue that stores accumulators unchanged."""

    context: KernelContext
    store: ResultStore

    def load(self, s: StreamBuilder, place: WorkTile) -> None:
        pass

    def write(self, s: StreamBuilder, ops: VectorOps, place: WorkTile) -> None:
        design = self.context.design
        outputs = _outputs(self.context)
        for index, (terms, matrix) in enumerate(outputs):
            for rows in row_chunks(place, design.chunk_rows):
                target = _target(self.context, place, matrix, rows)
                is_last = rows.is_last and index + 1 == len(outputs)
                self._rows(s, place, terms[0], rows, target, is_tile_end=is_last)
            for t in terms:
                self.context.buffers.accumulators[t].ring.popped(s)

    def _rows(
        self, s: StreamBuilder, place: WorkTile, t: int, rows: RowChunk, target: GlobalTile, *, is_tile_end: bool
    ) -> None:
        context, accumulator = self.context, self.context.buffers.accumulators[t]
        source = accumulator_rows(context, t, place, rows)
        full = [is_complete(context, t, place)] if rows.is_first else []
        free = [accumulator.ring.free] if rows.is_last else []
        ring = accumulator.read
        if ring is None:
            self.store.write(s, source, target, full, free, is_tile_end=is_tile_end)
            return
        engine = context.engine(context.design.c_memory, context.registers)
        into = ring.push(rows.count, place.n)
        s.emit(engine, "copy", into, [source], [ring.free, *full], [ring.full, *free], label="C")
        ring.pushed(s)
        self.store.write(s, ring.pop(rows.count, place.n), target, [ring.full], [ring.free], is_tile_end=is_tile_end)
        ring.popped(s)


@dataclass(frozen=True, slots=True)
class ElementwiseEpilogue:
    """The epilogue that computes the result from the terms' values on the lanes, some rows at a time."""

    context: KernelContext
    accumulators: RegisterAccumulators | TmemAccumulators
    sums: Sums
    store: ResultStore
    factors: FactorFeed | None

    def load(self, s: StreamBuilder, place: WorkTile) -> None:
        """Emit the loads of factors, of C and of a previous sum, from global memory to registers."""
        context, addends = self.context, self._addends(place)
        if self.factors is not None:
            self.factors.load(s, place, ZERO)
        if not addends:
            return
        engine = context.engine("GM", context.registers)
        for start, rows in chunks(place.m, context.design.chunk_rows):
            for _, matrix, ring in addends:
                row = context.rows_of(place, 0) + place.row + start
                tile = GlobalTile(matrix.name, row, place.col, rows, place.n)
                s.emit(engine, "copy", ring.push(rows, place.n), [tile], [ring.free], [ring.full], label="C")
                ring.pushed(s)

    def _addends(self, place: WorkTile) -> list[tuple[AddendRole, MatrixRef, RingBuffer]]:
        """What is added to a tile's value: its role, matrix and ring."""
        roles, rings = self.context.design.kernel.epilogue.addend_roles, self.context.buffers.addends
        every = zip(roles, rings, strict=True)
        return [(role, matrix, ring) for (role, matrix), ring in every if role != "earlier" or place.adds]

    def write(self, s: StreamBuilder, ops: VectorOps, place: WorkTile) -> None:
        design, out, in_registers = self.context.design, self.context.buffers.out, self.context.design.in_registers
        assert out is not None
        outputs = _outputs(self.context)
        for index, (terms, matrix) in enumerate(outputs):
            waiting = [t for t in terms if not design.promoted[t]]
            rings = [self.context.buffers.accumulators[t].ring for t in waiting]
            for rows in row_chunks(place, design.chunk_rows):
                if rows.is_first and not adds_sums(place):  # else the lanes have waited for them
                    self.accumulators.wait(ops, waiting)
                values = self.accumulators.values(s, ops, waiting, place, rows)
                for t in terms:
                    if design.promoted[t] and not design.kernel.joined:
                        values[t] = self.sums.rows(t, place, rows.start, rows.count)
                ops.wait(out.free)
                self._form(s, ops, place, values, terms[0], rows)
                self.accumulators.read(s, ops, waiting)
                freed = [ring.free for ring in rings] if in_registers and rows.is_last else []
                ops.signal(out.full, *freed)
                out.pushed(s)
                target = _target(self.context, place, matrix, rows)
                is_last = rows.is_last and index + 1 == len(outputs)
                result = out.pop(rows.count, place.n)
                self.store.write(s, result, target, [out.full], [out.free], is_tile_end=is_last)
                out.popped(s)
            for ring in rings:
                ring.popped(s)

    def _form(
        self, s: StreamBuilder, ops: VectorOps, place: WorkTile, values: dict[int, LocalTile], term: int, rows: RowChunk
    ) -> None:
        """Emit the elementwise operations from the terms' values to some rows of the result."""
        present, out = self._addends(place), self.context.buffers.out
        assert out is not None
        target = out.push(rows.count, place.n)
        rings = [ring for _, _, ring in present]
        addends = {role: ring.pop(rows.count, place.n) for role, _, ring in present}
        ops.wait(*(ring.full for ring in rings))
        if self.factors is not None and rows.is_first:
            self.factors.wait(ops)
        self._blend(ops, values, target, addends, term, rows, place)
        if rings:
            ops.signal(*(ring.free for ring in rings))
        for ring in rings:
            ring.popped(s)
        if self.factors is not None and rows.is_last:
            self.factors.done(s, ops)

    def _blend(
        self,
        ops: VectorOps,
        values: dict[int, LocalTile],
        target: LocalTile,
        addends: Mapping[AddendRole, LocalTile],
        term: int,
        rows: RowChunk,
        place: WorkTile,
    ) -> None:
        """Emit target = cast(alpha * (earlier + (value + scale * previous) * powers) + beta * C + bias)."""
        epilogue = self.context.design.kernel.epilogue
        epilogue = epilogue if place.share is None else epilogue.of_shared_tile
        scratch = [ring.whole(rows.count, place.n) for ring in self.context.buffers.scratch]
        is_scaled = epilogue.alpha != 1 and epilogue.fused != "alpha"
        is_apart = epilogue.value is not None and epilogue.join_format != epilogue.format
        joins, temps = (scratch[2:4], scratch[4:]) if is_apart else (scratch[:2], scratch[2:])
        steps = [
            name
            for name, is_needed in (
                ("previous", "previous" in addends),
                ("power", epilogue.powers is not None),
                ("convert", is_apart),
                ("factors", epilogue.factors is not None),
                ("earlier", "earlier" in addends),
                ("alpha", is_scaled),
                ("round", bool(epilogue.product_format)),
                ("c", "c" in addends),
                ("bias", epilogue.bias),
            )
            if is_needed
        ]
        end = target if target.format == epilogue.format or not scratch else scratch[1]
        if self.context.design.kernel.joined:
            value = self.sums.rows(0, place, rows.start, rows.count)
        elif epilogue.value is None:
            value = values[term]
        elif isinstance(epilogue.value, TermValue) and self._is_joined(values, epilogue.value):
            value = values[epilogue.value.term]
        else:
            value = joins[0] if is_apart else end if not steps or not scratch else scratch[0]
            evaluate(ops, epilogue.value, values, value, temps, self._extra(place, rows))
        for at, step in enumerate(steps):
            into = end if at + 1 == len(steps) else scratch[0]
            if step == "alpha":
                ops.op("scale", into, value, scalar=epilogue.alpha, label="C")
            elif step == "round":
                narrow = replace(scratch[-1], format=epilogue.product_format)
                ops.op("cast", narrow, value, label="C")
                ops.op("cast", into, narrow, label="C")
            elif step == "previous":
                into = joins[0] if is_apart else into
                add_previous(ops, epilogue, into, value, addends["previous"], joins[1], label="C")
            elif step == "power":
                into = joins[0] if is_apart else into
                self._multiply(ops, into, value, place, rows)
            elif step == "convert":
                ops.op("cast", into, value, label="C")
            elif step == "factors":
                self._scale(ops, into, value, place, rows)
            elif step == "earlier":
                ops.op("add", into, addends["earlier"], value, label="C")
            elif step == "c":
                add_c(ops, epilogue, into, value, addends["c"], scratch[1], label="C")
            else:
                row = GlobalTile(epilogue.bias_row, Affine(), place.col, 1, place.n)
                ops.op("add_row", into, value, row, label="C")
            value = into
        if value is not target:
            opcode = conversion(value.format, target.format)
            ops.op(opcode, target, value, rounding=epilogue.rounding, label="C")

    def _is_joined(self, values: dict[int, LocalTile], value: TermValue) -> bool:
        """Whether a term's value is in the format of sums already."""
        return values[value.term].format == self.context.design.kernel.epilogue.join_format

    def _extra(self, place: WorkTile, rows: RowChunk) -> dict[Expression, AnyTile | float]:
        """What the value contains besides terms: parts of arrays of one number for each row or column, and numbers."""
        return {
            node: part if isinstance(part, float) else self._vector(part, place, rows, of_rows=_is_of_a(node))
            for node, part in self.context.design.kernel.epilogue.extra
        }

    def _vector(self, array: str, place: WorkTile, rows: RowChunk, *, of_rows: bool) -> GlobalTile:
        """The part for some rows of a tile of an array of one number for each row of A, or column of B."""
        if of_rows:
            row = self.context.rows_of(place, 0) + place.row + rows.start
            return GlobalTile(array, row, Affine(), rows.count, 1)
        return GlobalTile(array, place.batch, place.col, 1, place.n)

    def _multiply(self, ops: VectorOps, target: LocalTile, value: LocalTile, place: WorkTile, rows: RowChunk) -> None:
        """Emit the multiplication by the powers of two of its rows and columns."""
        powers, ring = self.context.design.kernel.epilogue.powers, self.context.buffers.powers
        assert powers is not None and ring is not None
        exponents = ring.whole(rows.count, place.n)
        of_rows, of_cols = (self._vector(array, place, rows, of_rows=side == 0) for side, array in enumerate(powers))
        ops.op("add", exponents, of_rows, of_cols, label="C")
        ops.op("ldexp", target, value, exponents, scalar=1.0, label="C")

    def _scale(self, ops: VectorOps, target: LocalTile, value: LocalTile, place: WorkTile, rows: RowChunk) -> None:
        """Emit the multiplication by the factors of its rows and columns."""
        ring, factors = self.context.buffers.factor, self.factors
        assert ring is not None and factors is not None
        pair = factors.tiles(place, (rows.start, rows.count), ZERO)
        multiply(ops, factors.factors.order, pair, target, value, ring.whole)


def _is_of_a(node: Expression) -> bool:
    return isinstance(node, OperandSum) and node.side == "a"


def epilogue_of(context: KernelContext, accumulators: RegisterAccumulators | TmemAccumulators) -> EpilogueWriter:
    """The epilogue of a kernel."""
    store = ResultStore(context)
    factors = feed_of(context, context.design.kernel.epilogue.factors)
    writer: EpilogueWriter = ElementwiseEpilogue(context, accumulators, Sums(context), store, factors)
    if context.design.stores_accumulators:
        writer = StoreAccumulators(context, store)
    shared = context.buffers.shared
    return writer if shared is None else SharedEpilogue(context, writer, shared)


def _outputs(context: KernelContext) -> list[tuple[list[int], MatrixRef]]:
    """The terms with their output matrices: one each, or one for all."""
    kernel = context.design.kernel
    if kernel.epilogue.value is None:
        return [([t], matrix) for t, matrix in enumerate(kernel.epilogue.partial)]
    return [(list(range(len(kernel.terms))), kernel.epilogue.target)]


def _target(context: KernelContext, place: WorkTile, matrix: MatrixRef, rows: RowChunk) -> GlobalTile:
    """Rows of the result; partial results of a slice are below those of the previous slice."""
    row = context.rows_of(place, 0) + place.row + rows.start
    if context.design.kernel.epilogue.partial:
        row = row + place.slice * (context.matrices * context.sizes[0])
    return GlobalTile(matrix.name, row, place.col, rows.count, place.n)


class EpilogueBuffers(NamedTuple):
    """The buffers of the epilogue, as KernelBuffers has them."""

    out: RingBuffer | None
    scratch: tuple[RingBuffer, ...]
    addends: tuple[RingBuffer, ...]
    powers: RingBuffer | None
    staging: RingBuffer | None


def allocate(space: Allocation) -> EpilogueBuffers:
    """Some rows of C: in registers the result, scratch and addends; in shared memory where results go through it."""
    design, end, registers = space.design, space.kernel.epilogue, space.family.registers
    size = design.chunk_rows * space.blocking.n
    out: RingBuffer | None = None
    scratch: tuple[RingBuffer, ...] = ()
    addends: tuple[RingBuffer, ...] = ()
    powers: RingBuffer | None = None
    staging: RingBuffer | None = None
    if not design.stores_accumulators:
        out = space.ring("out", registers, 2, size, design.out_format, synced=True)
        scratch = tuple(space.ring(f"end{i}", registers, 1, size, fmt) for i, fmt in enumerate(design.epilogue_scratch))
        if end.powers is not None:
            powers = space.ring("power", registers, 1, size, "int32")
        addends = tuple(
            space.ring(name, registers, 2, size, matrix.format, synced=True)
            for name, matrix in zip(("c", "c.in", "c.in2"), end.addends, strict=False)
        )
    if space.family.store_shared:
        staged = design.accumulator if design.stores_accumulators else end.target.format
        staging = space.ring("out.sh", space.family.shared, 2, size, staged, synced=True)
    return EpilogueBuffers(out, scratch, addends, powers, staging)


def refuses(gemm: Gemm) -> str:
    """What of a record the epilogue does not carry: scales of one operand's whole sums."""
    return refusals.one_sided_scales(gemm.problem, refusals.SUMS)
