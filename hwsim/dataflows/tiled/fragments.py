"""Kernels without staging: each warp loads its fragments of A and B straight from global memory into registers.

So do NVIDIA's CUDA sample cudaTensorCoreGemm (kernel simple_wmma_gemm) and rocWMMA's sample simple_hgemm: 4 x 4 warps
a CTA, one fragment of C each, load_matrix_sync of A and B from global memory and mma_sync for every step of K, no
shared memory and no double buffer. Warps of a CTA that load the same fragment read it once each; L2 gives it once where
the device's L1 holds what the core's CTAs load in a step of K, and otherwise to every warp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hwsim.dataflows.elementwise import VectorOps
from hwsim.dataflows.tiled.buffers import Allocation, OperandBuffers, RingBuffer
from hwsim.dataflows.tiled.context import KernelContext, chunks
from hwsim.dataflows.tiled.design import KernelDesign
from hwsim.dataflows.tiled.loads import KBlock, Rings, block_loads, emit_load
from hwsim.dataflows.tiled.model import SIDES
from hwsim.dataflows.tiled.split import make_pieces
from hwsim.dataflows.tiles import WorkTile
from hwsim.errors import InputError
from hwsim.formats import format_of
from hwsim.gemm.layouts import K_MAJOR
from hwsim.program.builder import StreamBuilder
from hwsim.program.ir import Sync


@dataclass(frozen=True, slots=True)
class FragmentLoader:
    """Loads fragments from global memory, one step of K after another; every warp loads its own."""

    context: KernelContext

    @property
    def _fits_l1(self) -> bool:
        """Whether the core's L1 holds the fragments that all its CTAs load in a step of K."""
        design = self.context.design
        capacity = self.context.link("GM", self.context.registers).l1_bytes
        bits = 0
        for side, operand in enumerate(design.kernel.operands):
            formats = operand.formats.values() if operand.raw is None else [operand.raw.format]
            bits += design.extent(side, design.step_k) * sum(format_of(name).bits for name in formats)
        return capacity is not None and design.blocking.stages * -(-bits // 8) <= capacity

    def block(self, s: StreamBuilder, place: WorkTile, k: KBlock, sweep: int) -> None:
        for start, step in chunks(k.size, self.context.design.step_k):
            for side in range(2):
                self._side(s, place, k.part(start, step), sweep, side)

    def _side(self, s: StreamBuilder, place: WorkTile, k: KBlock, sweep: int, side: int) -> None:
        context, operand = self.context, self.context.buffers.operands[side]
        repeat = context.fragment_reads(side, place)
        loads = [x for x in block_loads(context, place, k, sweep, rings=_rings(context)) if x.side == side]
        ready = operand.raw.barrier if operand.raw is not None else operand.ready
        assert ready is not None
        for at, load in enumerate(loads):
            parts = list(self._parts(side, load.rows, load.cols, load.format))
            for number, (start, extent) in enumerate(parts):
                waits: list[Sync] = [ready.free] if at == 0 and number == 0 else []
                is_last = at + 1 == len(loads) and number + 1 == len(parts)
                signals: list[Sync] = [ready.full] if is_last else []
                part = (start, extent)
                emit_load(context, s, place, load, waits, signals, part=part, repeat=repeat, from_l1=self._fits_l1)
            load.ring.pushed(s)

    def _parts(self, side: int, rows: int, cols: int, fmt: str) -> Iterator[tuple[int, int]]:
        """(first, number) of rows of A or columns of B per load.

        Warps that read less than a request of a line make requests of their own; else one load stands for them all.
        """
        context, b = self.context, self.context.design.blocking
        extent, warp = (rows, b.warp[0]) if side == 0 else (cols, b.warp[1])
        order = context.design.kernel.operands[side].order
        request = context.link("GM", context.registers).request_bytes
        is_whole = order == K_MAJOR[side] or warp * format_of(fmt).bits // 8 % request == 0
        return chunks(extent, extent if is_whole else warp)


def _rings(context: KernelContext) -> Rings:
    """Where fragments of A and B are loaded to: pieces where the unit reads them, unsplit operands before the split."""
    rings: list[dict[int | None, RingBuffer]] = []
    for operand in context.buffers.operands:
        rings.append(dict(operand.taken.items()) if operand.raw is None else {None: operand.raw})
    return rings[0], rings[1]


@dataclass(frozen=True, slots=True)
class SplitFragments:
    """Splits fragments in the registers that they were loaded to; each warp splits its own."""

    context: KernelContext

    def block(self, s: StreamBuilder, ops: VectorOps, place: WorkTile, sweep: int, size: int) -> None:
        context = self.context
        for _, step in chunks(size, context.design.step_k):
            for side, operand in enumerate(context.buffers.operands):
                rows, cols = (place.m, step) if side == 0 else (step, place.n)
                raw, ready = operand.raw, operand.ready
                assert raw is not None and ready is not None
                targets = {p: operand.taken[p] for p in context.used(side, sweep)}
                ops.wait(raw.full, ready.free)
                make_pieces(context, ops, side, raw, targets, rows, cols, context.fragment_reads(side, place))
                ops.signal(raw.free, ready.full)
                raw.popped(s)
                for ring in targets.values():
                    ring.pushed(s)


def allocate(space: Allocation, side: int) -> OperandBuffers:
    """The buffers of A (0) or B (1) in registers: for each CTA of the core a block of K.

    Every warp holds fragments of its own, so that a slot takes as many times the registers as warps share it.
    """
    design, blocking, registers = space.design, space.blocking, space.family.registers
    letter, operand = SIDES[side], space.kernel.operands[side]
    size = design.extent(side, design.step_k) * design.fragment_copies(side)
    slots = blocking.stages * -(-blocking.k // design.step_k)
    raw: RingBuffer | None = None
    if operand.raw is not None:
        raw = space.ring(f"{letter}raw.rf", registers, slots, size, operand.raw.format, synced=True)
    taken = {p: space.ring(f"{letter}{p}.op", registers, slots, size, fmt) for p, fmt in operand.formats.items()}
    return OperandBuffers(
        stages={},
        raw_stage=None,
        landing={},
        raw_landing=None,
        raw=raw,
        pieces={},
        taken=taken,
        ready=space.barrier(f"{letter}.op", slots),
    )


def check(design: KernelDesign) -> None:
    """Raise InputError where the instruction does not read both operands from registers."""
    if design.family.staged:
        return
    for side, name in enumerate(SIDES):
        allowed = design.unit.places(side)
        if allowed and design.family.registers not in allowed:
            raise InputError(
                f"staging = 'none': {design.unit_name} reads {name} from {' or '.join(allowed)}; allowed: an "
                f"instruction whose operands are in registers"
            )
