"""The buffers of a tiled GEMM kernel as typed handles, and what they add up to in each memory.

A handle gives tiles and semaphores to the parts of a kernel that share it. Each part declares its own buffers, by its
function `allocate`; this module knows none of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from hwsim.errors import UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.layouts import StorageOrder
from hwsim.program.ir import LocalTile, Sync, one_of, variable
from hwsim.program.quick import quick

if TYPE_CHECKING:
    from hwsim.dataflows.tiled.design import KernelDesign
    from hwsim.program.builder import KernelBuilder, StreamBuilder


@dataclass(frozen=True, slots=True)
class Barrier:
    """A producer-consumer barrier for slots: the semaphores `free` (initially all) and `full` (initially none).

    is_gate: slots are only released, so there is no `full`.
    """

    name: str
    slots: int
    is_gate: bool = False
    free: Sync = field(init=False, repr=False, compare=False)  # a Sync of one empty slot
    full: Sync = field(init=False, repr=False, compare=False)  # a Sync of one filled slot

    def __post_init__(self) -> None:
        object.__setattr__(self, "free", one_of(f"{self.name}.free"))
        object.__setattr__(self, "full", one_of(f"{self.name}.full"))

    def declare(self, builder: KernelBuilder) -> None:
        """Declare the semaphores."""
        builder.semaphore(f"{self.name}.free", self.slots)
        if not self.is_gate:
            builder.semaphore(f"{self.name}.full", 0)


@lru_cache(maxsize=4096)
def _slot(
    name: str, rows: int, cols: int, format: str, cursor: str, row: int, col: int, width: int, order: StorageOrder
) -> LocalTile:
    return LocalTile(
        buffer=name,
        rows=rows,
        cols=cols,
        format=format,
        slot=variable(cursor),
        row=row,
        col=col,
        width=width,
        order=order,
    )


@quick
@dataclass(frozen=True, slots=True)
class RingBuffer:
    """A ring buffer whose slots each hold a tile of elements of `format`.

    spread: cores over whose memories a slot lies. barrier: its own, None where it shares another's or one engine
    writes and reads it. spilled: bytes that lie in local memory between uses. element_bits: as a GlobalArray's.
    """

    name: str
    memory: str
    slots: int
    slot_bytes: int
    format: str
    spread: int = 1
    barrier: Barrier | None = None
    spilled: int = 0
    element_bits: int = 0

    @property
    def own_bytes(self) -> int:
        """Bytes in one core's memory."""
        return self.slots * self.slot_bytes // self.spread - self.spilled

    @property
    def free(self) -> Sync:
        """A Sync of one empty slot, for a ring with a barrier of its own."""
        assert self.barrier is not None
        return self.barrier.free

    @property
    def full(self) -> Sync:
        """A Sync of one filled slot, for a ring with a barrier of its own."""
        assert self.barrier is not None
        return self.barrier.full

    def push(self, rows: int, cols: int, order: StorageOrder = "rows") -> LocalTile:
        """The next slot to fill, as a tile."""
        return _slot(self.name, rows, cols, self.format, f"{self.name}.push", 0, 0, 0, order)

    def pop(
        self, rows: int, cols: int, *, row: int = 0, col: int = 0, width: int = 0, order: StorageOrder = "rows"
    ) -> LocalTile:
        """The next slot to empty, or a part of it from (row, col); width: elements per row of the whole slot."""
        return _slot(self.name, rows, cols, self.format, f"{self.name}.pop", row, col, width, order)

    def whole(self, rows: int, cols: int) -> LocalTile:
        """The only slot, as a tile."""
        return LocalTile(self.name, rows, cols, self.format)

    def pushed(self, stream: StreamBuilder) -> None:
        """Advance to the next slot to fill."""
        stream.advance(f"{self.name}.push")

    def popped(self, stream: StreamBuilder) -> None:
        """Advance to the next slot to empty."""
        stream.advance(f"{self.name}.pop")


@dataclass(frozen=True, slots=True)
class OperandBuffers:
    """The buffers of A or B on its way to the unit, by number of the piece; the unsplit operand has its own.

    stages: pieces in shared memory; raw_stage: the unsplit operand there. landing, raw_landing: the same in registers
    after the load, where a family loads through registers. raw: the unsplit operand in the registers of the split.
    pieces: from that split. taken: where the unit reads pieces from, with one barrier for all of them (`ready`);
    empty where it reads them from the stages. scale: scales of a block of K, in the stages.
    """

    stages: dict[int, RingBuffer]
    raw_stage: RingBuffer | None
    landing: dict[int, RingBuffer]
    raw_landing: RingBuffer | None
    raw: RingBuffer | None
    pieces: dict[int, RingBuffer]
    taken: dict[int, RingBuffer]
    ready: Barrier | None
    scale: RingBuffer | None = None


class FactorBuffers(NamedTuple):
    """Factors of A or of B outside the instruction: in shared memory (None: they do not pass it), and in registers."""

    shared: RingBuffer | None
    registers: RingBuffer


class ScaleBuffers(NamedTuple):
    """Scales of vectors of A and of B where the instruction reads them, with one barrier for both."""

    a: RingBuffer
    b: RingBuffer
    ready: Barrier


@dataclass(frozen=True, slots=True)
class AccumulatorBuffers:
    """A term's accumulator, and the registers to which its rows are copied from TMEM (`read`; None where it is in
    registers).
    """

    ring: RingBuffer
    read: RingBuffer | None


@dataclass(frozen=True, slots=True)
class SpillBarriers:
    """Where spilled rows of accumulators are: `registers` is free while they are in registers, full when products have
    used them; `memory` is full while local memory has them.
    """

    registers: Barrier
    memory: Barrier


@dataclass(frozen=True, slots=True)
class SharedSums:
    """Where a CTA adds sums of others to its own: `part` has some rows of one. tile_sum: the accumulator has the sum of
    its part of a tile, to be stored; addend: the same, to which the lanes add others; whole: and those of others.
    Semaphores beside the accumulator's own, as what waits for a shared tile may be queued before the tiles ahead of it
    are stored. stored: the sum is in the workspace, and the accumulator may be freed in the order of tiles.
    """

    part: RingBuffer
    tile_sum: Sync
    addend: Sync
    whole: Sync
    stored: Sync


@dataclass(frozen=True, slots=True)
class KernelBuffers:
    """All buffers of a kernel. `every`: in the order in which a program lists them.

    stage: the barrier of a stage of both operands (not declared where nothing is staged). cta: the gate by which a
    CTA waits for the previous one. accumulators: by term (one for all terms that are joined sequentially). sums: by
    term (one for joined terms). joins: scratch for a joined value; join_barrier: where its first value is copied
    there from TMEM. out, scratch, addends: of the epilogue; powers: the exponents by which it multiplies. converted:
    rows of an accumulator in the format of the sums, where that is another. factor: products of scales; factors:
    scales of A and of B (none where one counts for all). scales: of vectors (None: the instruction reads the stages).
    staging: results on their way through shared memory. spill: None where all accumulators are in registers. shared:
    None where no CTAs share tiles.
    """

    every: tuple[RingBuffer, ...]
    barriers: tuple[Barrier, ...]
    stage: Barrier
    cta: Barrier | None
    operands: tuple[OperandBuffers, OperandBuffers]
    split_scratch: tuple[RingBuffer, ...]
    accumulators: tuple[AccumulatorBuffers, ...]
    sums: dict[int, RingBuffer]
    joins: tuple[RingBuffer, ...]
    join_barrier: Barrier | None
    out: RingBuffer | None
    scratch: tuple[RingBuffer, ...]
    addends: tuple[RingBuffer, ...]
    powers: RingBuffer | None
    converted: RingBuffer | None
    factor: RingBuffer | None
    factors: tuple[FactorBuffers, ...]
    scales: ScaleBuffers | None
    staging: RingBuffer | None
    spill: SpillBarriers | None
    shared: SharedSums | None

    def declare(self, builder: KernelBuilder) -> None:
        """Declare buffers and semaphores."""
        for ring in self.every:
            builder.buffer(
                ring.name, ring.memory, ring.slots, ring.slot_bytes, ring.spread, ring.spilled, ring.element_bits
            )
        for barrier in self.barriers:
            barrier.declare(builder)
        if self.shared is not None:
            for sync in (self.shared.tile_sum, self.shared.addend, self.shared.whole, self.shared.stored):
                builder.semaphore(sync.semaphore)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes that the buffers of a blocking need in each memory: `fixed`, plus `per_stage` for every stage."""

    memories: tuple[tuple[str, int, int], ...]  # name, fixed, per stage

    def excess(self, stages: int, capacities: dict[str, int], device: str) -> str:
        """The memories exceeded with this number of stages, in words; empty where everything fits."""
        for memory, fixed, per_stage in self.memories:
            capacity = _capacity(memory, capacities, device)
            size = fixed + stages * per_stage
            if size > capacity:
                return f"{size} bytes of {memory}, which holds {capacity}"
        return ""

    def most_stages(self, most: int, capacities: dict[str, int], device: str) -> int:
        """The largest number of stages that fits, at most `most`."""
        for memory, fixed, per_stage in self.memories:
            if per_stage:
                most = min(most, (_capacity(memory, capacities, device) - fixed) // per_stage)
        return most


def footprint_of(buffers: KernelBuffers) -> Footprint:
    """The footprint of a kernel's buffers, independent of the number of stages of its blocking."""
    used: dict[str, list[int]] = {}
    staged = {
        ring.name
        for operand in buffers.operands
        for ring in (*operand.stages.values(), operand.raw_stage, operand.scale)
        if ring is not None
    } | {ring.name for ring, _ in buffers.factors if ring is not None}
    for ring in buffers.every:
        counts = used.setdefault(ring.memory, [0, 0])
        if ring.name in staged:
            counts[1] += ring.own_bytes // ring.slots
        else:
            counts[0] += ring.own_bytes
    return Footprint(tuple((memory, fixed, stage) for memory, (fixed, stage) in used.items()))


def _capacity(memory: str, capacities: dict[str, int], device: str) -> int:
    if memory not in capacities:
        raise UnsupportedError(f"device {device}: its file has no memory {memory}")
    return capacities[memory]


class Allocation:
    """Where the parts of a kernel declare their buffers and barriers, in the order in which a program lists them."""

    def __init__(self, design: KernelDesign) -> None:
        self.design, self.kernel, self.blocking, self.family = design, design.kernel, design.blocking, design.family
        self.every: list[RingBuffer] = []
        self.barriers: list[Barrier] = []

    def barrier(self, name: str, slots: int, is_gate: bool = False) -> Barrier:
        """A new barrier."""
        self.barriers.append(Barrier(name, slots, is_gate))
        return self.barriers[-1]

    def size(self, memory: str, elements: int, bits: int) -> int:
        """Bytes of a slot for `elements` of so many bits, aligned as the memory requires."""
        memories = self.design.device.memories
        align = memories[memory].align_bytes if memory in memories else 1
        return -(-elements * bits // (8 * align)) * align

    def ring(
        self,
        name: str,
        memory: str,
        slots: int,
        elements: int,
        format: str,
        *,
        spread: int = 1,
        synced: bool = False,
        spilled: int = 0,
        element_bits: int = 0,
    ) -> RingBuffer:
        """A new ring buffer; synced: with a barrier of its own; spilled: elements that lie in local memory.

        element_bits: as a GlobalArray's.
        """
        bits = element_bits or format_of(format).bits
        own_bytes = self.size(memory, -(-elements // spread), bits)
        barrier = self.barrier(name, slots) if synced else None
        away = spilled * format_of(format).bits // 8
        self.every.append(
            RingBuffer(
                name=name,
                memory=memory,
                slots=slots,
                slot_bytes=own_bytes * spread,
                format=format,
                spread=spread,
                barrier=barrier,
                spilled=away,
                element_bits=element_bits,
            )
        )
        return self.every[-1]
