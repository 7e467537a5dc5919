"""Scales of vectors, which the instruction reads, on their way from the stages to the memory where it reads them.

That memory is tensor memory or the registers; where it is shared memory, products read the stages and nothing is
copied. The module knows tiles of scales; it knows no format, no arithmetic and no accumulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwsim.dataflows.tiled.buffers import Allocation, RingBuffer, ScaleBuffers
from hwsim.dataflows.tiled.context import BlockStep, KernelContext
from hwsim.dataflows.tiled.design import KernelDesign
from hwsim.dataflows.tiled.model import SIDES
from hwsim.dataflows.tiles import WorkTile
from hwsim.errors import UnsupportedError
from hwsim.formats import format_of
from hwsim.program.builder import StreamBuilder
from hwsim.program.ir import LocalTile, Sync

SLOTS = 2  # where the instruction reads them: one is filled while products read the other


@dataclass(frozen=True, slots=True)
class ScaleFeed:
    """The way of the scales of A and B in one kernel; without scales it does nothing."""

    context: KernelContext

    @property
    def waits(self) -> list[Sync]:
        """What the first product of a step waits for: the copies of its scales."""
        copied = self.context.buffers.scales
        return [] if copied is None else [copied.ready.full]

    @property
    def signals(self) -> list[Sync]:
        """What the last product of a step signals: that it has read its scales."""
        copied = self.context.buffers.scales
        return [] if copied is None else [copied.ready.free]

    def copy(self, s: StreamBuilder, place: WorkTile, step: BlockStep, waits: Sequence[Sync]) -> list[Sync]:
        """Emit the copies of the scales of a step, the first of which takes `waits`; the waits that are left."""
        context, copied = self.context, self.context.buffers.scales
        if copied is None:
            return list(waits)
        engine = context.engine(context.shared, context.design.scale_memory)
        for side, target in enumerate((copied.a, copied.b)):
            source = self._tile(side, self._stage(side), step.start, step.size, step.block, (range(place.m), place.n))
            slot = target.push(source.rows, source.cols)
            first, last = side == 0, side == len(SIDES) - 1
            reads = context.fragment_reads(side, place) if context.design.reads_fragments else 1
            s.emit(
                engine,
                "copy",
                slot,
                [source],
                [*waits, copied.ready.free] if first else [],
                [copied.ready.full] if last else [],
                repeat=reads,
                label=SIDES[side],
            )
            target.pushed(s)
        return []

    def tiles(self, step: BlockStep, k: int, depth: int, rows: range, n: int) -> dict[str, LocalTile]:
        """The tiles of scales that a product reads beside its operands, by role; none where it reads none."""
        copied, tiles = self.context.buffers.scales, {}
        for side, buffers in enumerate(self.context.buffers.operands):
            if buffers.scale is None:
                continue
            ring, start, every = (buffers.scale, step.start + k, step.block)
            if copied is not None:
                ring, start, every = (copied.a, copied.b)[side], k, step.size
            tiles["scale_a" if side == 0 else "scale_b"] = self._tile(side, ring, start, depth, every, (rows, n))
        return tiles

    def step_done(self, s: StreamBuilder) -> None:
        """Advance to the next step."""
        copied = self.context.buffers.scales
        if copied is not None:
            copied.a.popped(s)
            copied.b.popped(s)

    def block_done(self, s: StreamBuilder) -> None:
        """Advance to the next block of K."""
        for buffers in self.context.buffers.operands:
            if buffers.scale is not None:
                buffers.scale.popped(s)

    def _stage(self, side: int) -> RingBuffer:
        ring = self.context.buffers.operands[side].scale
        assert ring is not None
        return ring

    def _tile(
        self, side: int, ring: RingBuffer, start: int, depth: int, every: int, sides: tuple[range, int]
    ) -> LocalTile:
        """Scales of `depth` of K from `start` on, in a slot that has `every` of K. sides: rows of A, columns of B."""
        length, (rows, n) = self.context.design.kernel.operands[side].scale_k, sides
        first, blocks = start // length, -(-depth // length)
        if side == 0:
            return ring.pop(len(rows), blocks, row=rows.start, col=first, width=-(-every // length))
        return ring.pop(blocks, n, row=first, width=n)


def copied_bytes(design: KernelDesign) -> tuple[int, int]:
    """Bytes of the scales of A and of B that are copied for one block of K; 0 where none are."""
    if not design.copies_scales:
        return 0, 0
    of_a, of_b = (_elements(design, side, design.blocking.k) * _bits(design, side) // 8 for side in range(2))
    return of_a, of_b


def allocate(space: Allocation) -> ScaleBuffers | None:
    """Two slots for the scales of a step, in the memory from which the instruction reads them; None for the stages."""
    design = space.design
    if not design.copies_scales:
        return None
    a, b = (
        space.ring(
            f"{letter}.scale.op",
            design.scale_memory,
            SLOTS,
            _elements(design, side, design.step_k),
            _format(design, side),
            element_bits=_bits(design, side),
        )
        for side, letter in enumerate(SIDES)
    )
    return ScaleBuffers(a, b, space.barrier("scale.op", SLOTS))


def check(design: KernelDesign) -> None:
    """Raise UnsupportedError for scales of vectors where the loads bring none, or where a run of K ends in a block."""
    family = design.family
    has_scales = any(operand.scale is not None for operand in design.kernel.operands)
    if has_scales and (family.through_registers or not family.staged or any(design.promotes_in_block)):
        raise UnsupportedError(
            f"the {family.name} dataflow takes scales of vectors through shared memory, where no run of K ends "
            "within a block"
        )
    if has_scales and design.reads_fragments and not design.copies_scales:
        raise UnsupportedError(
            f"{design.unit_name} reads operands from registers: its device file has to say from where it reads "
            "their scales (scale_memory)"
        )


def _elements(design: KernelDesign, side: int, k: int) -> int:
    return design.extent(side, -(-k // design.kernel.operands[side].scale_k))


def _format(design: KernelDesign, side: int) -> str:
    scale = design.kernel.operands[side].scale
    assert scale is not None
    return scale.format


def _bits(design: KernelDesign, side: int) -> int:
    """Bits that a scale takes where the instruction reads it, all its copies together."""
    memory = design.device.memories.get(design.scale_memory)
    return format_of(_format(design, side)).bits * (memory.scale_copies if memory is not None else 1)
