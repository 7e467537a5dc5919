"""Operand splits in the kernel: pieces of a block of K, made by the lanes on the way to the matrix unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from hwsim.dataflows.elementwise import VectorOps
from hwsim.dataflows.operand_passes import residual_format, split_ops
from hwsim.dataflows.tiled.buffers import Allocation, RingBuffer
from hwsim.dataflows.tiled.context import KernelContext, chunks
from hwsim.dataflows.tiled.design import KernelDesign
from hwsim.dataflows.tiled.loads import StageMove, fill_stage
from hwsim.dataflows.tiled.model import SIDES
from hwsim.dataflows.tiles import WorkTile
from hwsim.errors import UnsupportedError
from hwsim.gemm import refusals
from hwsim.gemm.record import Gemm
from hwsim.program.builder import StreamBuilder


class Splitter(Protocol):
    """Interface: where the pieces of operands are made."""

    def block(self, s: StreamBuilder, ops: VectorOps, place: WorkTile, sweep: int, size: int) -> None:
        """Emit the split of `size` of K of both operands."""


@dataclass(frozen=True, slots=True)
class SplitOnLoad:
    """Splits in the registers that loads pass through, before the stage."""

    context: KernelContext

    def block(self, s: StreamBuilder, ops: VectorOps, place: WorkTile, sweep: int, size: int) -> None:
        moves = []
        for side, operand in enumerate(self.context.buffers.operands):
            rows, cols = (place.m, size) if side == 0 else (size, place.n)
            raw, targets = operand.raw_landing, {p: operand.pieces[p] for p in self.context.used(side, sweep)}
            assert raw is not None
            ops.wait(raw.full, *(ring.free for ring in targets.values()))
            make_pieces(self.context, ops, side, raw, targets, rows, cols, 1)
            ops.signal(raw.free, *(ring.full for ring in targets.values()))
            raw.popped(s)
            for p, ring in targets.items():
                ring.pushed(s)
                moves.append(StageMove(side, ring, operand.stages[p], rows, cols))
        fill_stage(self.context, s, moves)


@dataclass(frozen=True, slots=True)
class SplitStages:
    """Splits in registers, from stages of unsplit operands; pieces stay there or are stored where the unit reads
    them.
    """

    context: KernelContext

    def block(self, s: StreamBuilder, ops: VectorOps, place: WorkTile, sweep: int, size: int) -> None:
        steps = list(chunks(size, self.context.design.step_k))
        for at, (start, k) in enumerate(steps):
            for side in range(2):
                self._step(s, ops, place, sweep, side, (start, k, size), is_first=at == 0, is_last=at + 1 == len(steps))
            if at + 1 == len(steps):
                for operand in self.context.buffers.operands:
                    assert operand.raw_stage is not None
                    operand.raw_stage.popped(s)

    def _step(
        self,
        s: StreamBuilder,
        ops: VectorOps,
        place: WorkTile,
        sweep: int,
        side: int,
        span: tuple[int, int, int],
        *,
        is_first: bool,
        is_last: bool,
    ) -> None:
        """Emit the split of one operand: `k` of K from `start` of a block of `size`."""
        context, (start, k, size) = self.context, span
        operand, stage = context.buffers.operands[side], context.buffers.stage
        raw, source, ready = operand.raw, operand.raw_stage, operand.ready
        assert raw is not None and source is not None and ready is not None
        rows, cols = (place.m, k) if side == 0 else (k, place.n)
        if side == 0:
            tile = source.pop(rows, cols, col=start, width=size)
        else:
            tile = source.pop(rows, cols, row=start, width=cols)
        stays = not operand.pieces
        repeat = context.fragment_reads(side, place) if context.design.repeats_fragments else 1
        waits = [raw.free, *([stage.full] if is_first and side == 0 else [])]
        signals = [raw.full]
        if is_last and side == 1 and not context.design.is_serial:
            signals.append(stage.free)
        engine, target = context.engine(context.shared, context.registers), raw.push(rows, cols)
        s.emit(engine, "copy", target, [tile], waits, signals, repeat=repeat, label=SIDES[side])
        raw.pushed(s)
        used = context.used(side, sweep)
        targets = {p: (operand.taken if stays else operand.pieces)[p] for p in used}
        ops.wait(raw.full)
        ops.wait(*([ready.free] if stays else [ring.free for ring in targets.values()]))
        make_pieces(context, ops, side, raw, targets, rows, cols, repeat)
        ops.signal(raw.free, *([ready.full] if stays else [ring.full for ring in targets.values()]))
        raw.popped(s)
        for ring in targets.values():
            ring.pushed(s)
        if not stays:
            self._store(s, side, used, rows, cols)

    def _store(self, s: StreamBuilder, side: int, used: Sequence[int], rows: int, cols: int) -> None:
        """Emit the stores from registers to where the unit reads the pieces."""
        context, operand = self.context, self.context.buffers.operands[side]
        engine, ready = context.engine(context.registers, context.design.places[side]), operand.ready
        assert ready is not None
        for at, p in enumerate(used):
            pieces_made, taken = operand.pieces[p], operand.taken[p]
            waits = [pieces_made.full, *([ready.free] if at == 0 else [])]
            signals = [pieces_made.free, *([ready.full] if at + 1 == len(used) else [])]
            target, source = taken.push(rows, cols), pieces_made.pop(rows, cols)
            s.emit(engine, "copy", target, [source], waits, signals, label=SIDES[side])
            pieces_made.popped(s)
            taken.pushed(s)


def make_pieces(
    context: KernelContext,
    ops: VectorOps,
    side: int,
    raw: RingBuffer,
    targets: dict[int, RingBuffer],
    rows: int,
    cols: int,
    repeat: int,
) -> None:
    """Emit the split of a tile of A or B to its pieces, `repeat` times."""
    pushed = {p: ring.push(rows, cols) for p, ring in targets.items()}
    scratch = [ring.whole(rows, cols) for ring in context.buffers.split_scratch]
    split_ops(ops, raw.pop(rows, cols), context.design.kernel.operands[side].rules, pushed, scratch, repeat)


class SplitBuffers(NamedTuple):
    """The buffers of A or B that the split reads and fills, as OperandBuffers has them."""

    raw: RingBuffer | None
    pieces: dict[int, RingBuffer]


def allocate(space: Allocation, side: int) -> SplitBuffers:
    """In registers: A (0) or B (1) unsplit, and its new pieces where the unit does not read them there."""
    design, family, blocking = space.design, space.family, space.blocking
    letter, operand = SIDES[side], space.kernel.operands[side]
    if operand.raw is None:
        return SplitBuffers(None, {})
    raw, size = None, design.extent(side, blocking.k)
    if not family.through_registers:
        size = design.extent(side, design.step_k)
        raw = space.ring(f"{letter}raw.rf", family.registers, 2, size, operand.raw.format, synced=True)
    stays = not family.through_registers and design.places[side] == family.registers
    formats = {} if stays else operand.formats
    return SplitBuffers(
        raw,
        {p: space.ring(f"{letter}{p}.new", family.registers, 1, size, fmt, synced=True) for p, fmt in formats.items()},
    )


def allocate_scratch(space: Allocation) -> tuple[RingBuffer, ...]:
    """Scratch tiles in registers as split_ops needs them; fragments shared by warps are split by each of them."""
    design, kernel = space.design, space.kernel
    if not kernel.splits_operands:
        return ()
    whole = space.family.through_registers and space.family.staged
    k = space.blocking.k if whole else design.step_k
    size = max(design.extent(side, k) for side in range(2))
    dropped = any(
        [piece.number for piece in operand.pieces] != list(range(len(operand.pieces))) for operand in kernel.operands
    )
    count = 4 if design.repeats_fragments else 3 if dropped or design.k_sweeps > 1 else 2
    source = next(operand.raw.format for operand in kernel.operands if operand.raw is not None)
    form = residual_format(source)
    return tuple(space.ring(f"split{i}", space.family.registers, 1, size, form) for i in range(count))


def check_streams(design: KernelDesign, longest_k: int) -> None:
    """Raise UnsupportedError where the lanes that split also multiply."""
    if design.on_vector and design.kernel.splits_operands:
        raise UnsupportedError(f"{design.kernel.unit} shares its lanes with a split in the kernel; split in a pass")


def refuses(gemm: Gemm) -> str:
    """What of a record the splits do not carry: another rounding than the plan's pieces have."""
    rounding, plan = gemm.schedule.operand_rounding, gemm.single
    roundings = {piece.rounding for piece in (*plan.a_pieces, *plan.b_pieces)}
    return refusals.named({"operand_rounding": rounding is not None and roundings != {rounding}})
