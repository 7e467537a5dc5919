"""Loads of the main loop: blocks of K of A and B from global memory into the stages of shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from hwsim.dataflows.protocol import Features
from hwsim.dataflows.tiled.buffers import Allocation, RingBuffer
from hwsim.dataflows.tiled.context import KernelContext
from hwsim.dataflows.tiled.factors import divided
from hwsim.dataflows.tiled.model import SIDES, MatrixRef
from hwsim.dataflows.tiles import WorkTile
from hwsim.gemm import refusals
from hwsim.gemm.record import Gemm
from hwsim.program.builder import StreamBuilder
from hwsim.program.ir import Affine, GlobalTile, Sync
from hwsim.program.quick import quick
from hwsim.program.roles import Opcode

FEATURES = Features(images=True)
Rings = tuple[dict[int | None, RingBuffer], dict[int | None, RingBuffer]]


@quick
@dataclass(frozen=True, slots=True)
class KBlock:
    """A block of K of `size` elements: the first element and the length of each run that it is made of, in order."""

    runs: tuple[tuple[Affine, int], ...]
    size: int

    def part(self, start: int, size: int) -> KBlock:
        """The elements start .. start + size - 1 of the block."""
        runs, before = [], 0
        for first, length in self.runs:
            low, high = max(start, before), min(start + size, before + length)
            if low < high:
                runs.append((first + (low - before), high - low))
            before += length
        return KBlock(tuple(runs), size)


class Loader(Protocol):
    """Interface: how a block of K is loaded from global memory."""

    def block(self, s: StreamBuilder, place: WorkTile, k: KBlock, sweep: int) -> None:
        """Emit the loads of a block of K of both operands."""


@quick
@dataclass(frozen=True, slots=True)
class TileLoad:
    """The load of a rows x cols tile of A or B into a ring buffer, run of K by run.

    piece: its number, None: the unsplit operand. tiles: of the runs, each with its first place in K in the tile.
    """

    side: int
    piece: int | None
    ring: RingBuffer
    rows: int
    cols: int
    tiles: tuple[tuple[int, GlobalTile], ...]
    format: str


@dataclass(frozen=True, slots=True)
class SharedLoader:
    """Loads directly into a stage of shared memory, asynchronously (TMA, cp.async)."""

    context: KernelContext

    def block(self, s: StreamBuilder, place: WorkTile, k: KBlock, sweep: int) -> None:
        stage = self.context.buffers.stage
        loads = [
            *_loads(self.context, place, k, sweep, in_registers=False),
            *_scale_loads(self.context, place, k),
        ]
        for at, load in enumerate(loads):
            waits = [stage.free] if at == 0 else []
            signals = [stage.full] if at + 1 == len(loads) else []
            emit_load(self.context, s, place, load, waits, signals)
            load.ring.pushed(s)


@dataclass(frozen=True, slots=True)
class RegisterLoader:
    """Loads into registers, and from there into a stage unless the operands are split on the way (see split.py)."""

    context: KernelContext

    def block(self, s: StreamBuilder, place: WorkTile, k: KBlock, sweep: int) -> None:
        context, stage = self.context, self.context.buffers.stage
        loads = _loads(context, place, k, sweep, in_registers=True)
        for at, load in enumerate(loads):
            waits = [load.ring.free]
            if at == 0 and context.design.is_serial:
                waits.append(stage.free)
            emit_load(context, s, place, load, waits, [load.ring.full])
            load.ring.pushed(s)
        if context.design.kernel.splits_operands:
            return
        moves = []
        for load in loads:
            assert load.piece is not None
            target = context.buffers.operands[load.side].stages[load.piece]
            moves.append(StageMove(load.side, load.ring, target, load.rows, load.cols))
        fill_stage(context, s, moves)


@dataclass(frozen=True, slots=True)
class StageMove:
    """The copy of a tile of A or B from registers to a stage."""

    side: int
    source: RingBuffer
    target: RingBuffer
    rows: int
    cols: int


def fill_stage(context: KernelContext, s: StreamBuilder, moves: Sequence[StageMove]) -> None:
    """Emit the copies of a block of K from registers to a stage of shared memory."""
    engine, stage = context.engine(context.registers, context.shared), context.buffers.stage
    for at, move in enumerate(moves):
        waits = [move.source.full]
        if at == 0 and not context.design.is_serial:
            waits.append(stage.free)
        signals = [move.source.free, *([stage.full] if at + 1 == len(moves) else [])]
        target, source = move.target.push(move.rows, move.cols), move.source.pop(move.rows, move.cols)
        s.emit(engine, "copy", target, [source], waits, signals, label=SIDES[move.side])
        move.source.popped(s)
        move.target.pushed(s)


def _loads(context: KernelContext, place: WorkTile, k: KBlock, sweep: int, *, in_registers: bool) -> list[TileLoad]:
    """The tiles of a block of K, and their ring buffers in registers or in a stage."""
    rings: list[dict[int | None, RingBuffer]] = []
    for buffers in context.buffers.operands:
        unsplit = buffers.raw_landing if in_registers else buffers.raw_stage
        pieces = buffers.landing if in_registers else buffers.stages
        of_pieces: dict[int | None, RingBuffer] = dict(pieces.items())
        rings.append(of_pieces if unsplit is None else {None: unsplit})
    return block_loads(context, place, k, sweep, rings=(rings[0], rings[1]))


def _scale_loads(context: KernelContext, place: WorkTile, k: KBlock) -> list[TileLoad]:
    """The scales of a block of K, where the instruction reads any."""
    loads = []
    for side, (operand, buffers) in enumerate(
        zip(context.design.kernel.operands, context.buffers.operands, strict=True)
    ):
        if operand.scale is None or buffers.scale is None:
            continue
        [(first, length)] = k.runs
        start, blocks = divided(first, operand.scale_k), -(-length // operand.scale_k)
        if side == 0:
            tile = GlobalTile(operand.scale.name, place.row, start, place.m, blocks)
        else:
            tile = GlobalTile(operand.scale.name, start, place.col, blocks, place.n)
        rows, cols = (place.m, blocks) if side == 0 else (blocks, place.n)
        loads.append(
            TileLoad(
                side=side,
                piece=None,
                ring=buffers.scale,
                rows=rows,
                cols=cols,
                tiles=((0, tile),),
                format=operand.scale.format,
            )
        )
    return loads


def block_loads(context: KernelContext, place: WorkTile, k: KBlock, sweep: int, *, rings: Rings) -> list[TileLoad]:
    """The tiles of a block of K. rings: for A and B, by number of the piece."""
    loads = []
    for side, operand in enumerate(context.design.kernel.operands):
        row = context.rows_of(place, side)
        if operand.raw is not None:
            wanted: list[tuple[int | None, MatrixRef]] = [(None, operand.raw)]
        else:
            matrices = {piece.number: piece.matrix for piece in operand.pieces}
            wanted = [(p, matrices[p]) for p in context.used(side, sweep)]
        for piece, matrix in wanted:
            tiles, at = [], 0
            for first, length in k.runs:
                if side == 0:
                    tiles.append((at, GlobalTile(matrix.name, row + place.row, first, place.m, length)))
                else:
                    tiles.append((at, GlobalTile(matrix.name, row + first, place.col, length, place.n)))
                at += length
            rows, cols = (place.m, k.size) if side == 0 else (k.size, place.n)
            loads.append(
                TileLoad(
                    side=side,
                    piece=piece,
                    ring=rings[side][piece],
                    rows=rows,
                    cols=cols,
                    tiles=tuple(tiles),
                    format=matrix.format,
                )
            )
    return loads


def emit_load(
    context: KernelContext,
    s: StreamBuilder,
    place: WorkTile,
    load: TileLoad,
    waits: list[Sync],
    signals: list[Sync],
    *,
    part: tuple[int, int] | None = None,
    repeat: int = 1,
    from_l1: bool = False,
) -> None:
    """Emit a load, which converts to the ring's format where that is another.

    part: the first and the number of the rows of A or columns of B that it loads; None: all. repeat: how often.
    from_l1: whether L2 gives it for the first of these alone.
    """
    engine = context.engine("GM", context.registers if context.design.family.through_registers else context.shared)
    operand = context.design.kernel.operands[load.side]
    order = "rows" if load.ring is context.buffers.operands[load.side].scale else operand.order
    slot = load.ring.push(load.rows, load.cols, order)
    beside, label = _together(context, load.side, place) * (repeat if from_l1 else 1), SIDES[load.side]
    opcode: Opcode = "copy"
    modifiers: dict[str, Any] = {"label": label, "repeat": repeat, "multicast": beside}
    if load.format != load.ring.format:
        rounding = context.design.rounding_on_load[load.side]
        assert rounding is not None
        opcode, modifiers = "cast", {"rounding": rounding.rounding, "overflow": rounding.overflow, **modifiers}
    for number, (at, source) in enumerate(load.tiles):
        target = slot
        if len(load.tiles) > 1:
            row, col = (0, at) if load.side == 0 else (at, 0)
            target = replace(slot, row=row, col=col, rows=source.rows, cols=source.cols, width=load.cols)
        if part is not None and part != (0, (load.rows, load.cols)[load.side]):
            start, count = part
            if load.side == 0:
                source = replace(source, row=source.row + start, rows=count)
                target = replace(target, row=start, rows=count, width=load.cols)
            else:
                source = replace(source, col=source.col + start, cols=count)
                target = replace(target, col=start, cols=count, width=load.cols)
        waited = waits if number == 0 else []
        signalled = signals if number + 1 == len(load.tiles) else []
        s.emit(engine, opcode, target, [source], waited, signalled, **modifiers)


def _together(context: KernelContext, side: int, place: WorkTile) -> int:
    """The number of cores whose reads of this tile cost L2 one: a cluster's, or those that L2 coalesces."""
    l2, spread = context.design.device.l2, context.design.spread(side)
    if l2 is None or spread > 1:
        return spread
    sharing, cluster = (place.across, 1) if side == 0 else (place.along, place.cluster)
    return max(cluster, min(sharing, l2.coalesced_reads or 1))


class LoadBuffers(NamedTuple):
    """The buffers of A or B that loads fill, as OperandBuffers has them."""

    stages: dict[int, RingBuffer]
    raw_stage: RingBuffer | None
    landing: dict[int, RingBuffer]
    raw_landing: RingBuffer | None
    scale: RingBuffer | None = None


def allocate(space: Allocation, side: int) -> LoadBuffers:
    """Stages in shared memory of A (0) or B (1), each of a block of K of every piece or of the unsplit operand; where a
    family loads through registers, as much there for each CTA of a core.
    """
    design, family, blocking = space.design, space.family, space.blocking
    letter, operand, raw = SIDES[side], space.kernel.operands[side], space.kernel.operands[side].raw
    size, formats = design.extent(side, blocking.k), operand.formats
    landing: dict[int, RingBuffer] = {}
    raw_landing: RingBuffer | None = None

    def stage(name: str, format: str, spread: int = 1) -> RingBuffer:
        return space.ring(
            name, family.shared, blocking.stages, size, format, spread=spread, element_bits=operand.element_bits
        )

    def registers(name: str, format: str) -> RingBuffer:
        return space.ring(
            name, family.registers, blocking.accumulators, size, format, synced=True, element_bits=operand.element_bits
        )

    if family.through_registers:
        if raw is not None:
            raw_landing = registers(f"{letter}raw.load", raw.format)
        else:
            landing = {p: registers(f"{letter}{p}.load", fmt) for p, fmt in formats.items()}
        return LoadBuffers({p: stage(f"{letter}{p}", fmt) for p, fmt in formats.items()}, None, landing, raw_landing)
    spread = design.spread(side)
    if raw is not None:
        return LoadBuffers({}, stage(f"{letter}raw", raw.format, spread), {}, None)
    stages = {p: stage(f"{letter}{p}", fmt, spread) for p, fmt in formats.items()}
    scale: RingBuffer | None = None
    if operand.scale is not None:
        size = design.extent(side, -(-blocking.k // operand.scale_k))
        scale = space.ring(f"{letter}.scale", family.shared, blocking.stages, size, operand.scale.format, spread=spread)
    return LoadBuffers(stages, None, {}, None, scale)


def _is_of_several(gemm: Gemm) -> bool:
    """Whether a plan of several products has scales that the instruction reads."""
    return bool(refusals.scales(gemm.problem, {"vector"})) and gemm.single.products > 1


def refuses(gemm: Gemm) -> str:
    """What of a record the loads do not carry: scales along K, another order of K."""
    problem = gemm.problem
    return refusals.joined(
        refusals.of_schedule(gemm.schedule, ("k_permutation",)),
        refusals.formats(problem),
        refusals.one_sided_scales(problem, refusals.ALONG_K),
        refusals.named(
            {
                "scales along K of several products": _is_of_several(gemm),
                "scales along K beside sparsity": problem.sparsity is not None
                and bool(refusals.scales(problem, refusals.ALONG_K)),
            }
        ),
    )
