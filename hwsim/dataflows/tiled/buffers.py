"""The buffers of a tiled GEMM kernel as typed handles, and the bytes of each memory that they need.

A handle gives tiles and semaphores to the parts of a kernel that share it; its name in the program appears here and
nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from hwsim.dataflows.elementwise import depth, residual_format
from hwsim.dataflows.tiled.design import SHORT_SUMS, KernelDesign
from hwsim.dataflows.tiled.model import SIDES
from hwsim.errors import UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.layouts import StorageOrder
from hwsim.program.ir import LocalTile, Sync, one_of, variable
from hwsim.program.quick import quick

if TYPE_CHECKING:
    from hwsim.program.builder import KernelBuilder, StreamBuilder

SHORT_SLOTS = 4  # accumulators of short runs, where the memory of accumulators has room: it takes long to read them


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
    writes and reads it. spilled: bytes that lie in local memory between uses.
    """

    name: str
    memory: str
    slots: int
    slot_bytes: int
    format: str
    spread: int = 1
    barrier: Barrier | None = None
    spilled: int = 0

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
    made: pieces from that split. taken: where the unit reads pieces from, with one barrier for all of them (`ready`);
    empty where it reads them from the stages.
    """

    stages: dict[int, RingBuffer]
    raw_stage: RingBuffer | None
    landing: dict[int, RingBuffer]
    raw_landing: RingBuffer | None
    raw: RingBuffer | None
    made: dict[int, RingBuffer]
    taken: dict[int, RingBuffer]
    ready: Barrier | None


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
    """Where a CTA adds sums of others to its own: `part` has some rows of one. own: the accumulator has the sum of its
    part of a tile; whole: and those of others. Semaphores beside the accumulator's own, as what waits for a shared tile
    may be queued before the tiles ahead of it are stored.
    """

    part: RingBuffer
    own: Sync
    whole: Sync


@dataclass(frozen=True, slots=True)
class KernelBuffers:
    """All buffers of a kernel. `every`: in the order in which a program lists them.

    stage: the barrier of a stage of both operands (not declared where nothing is staged). cta: the gate by which a CTA
    waits for the previous one. accumulators: by term (one for all terms that are joined sequentially). sums: by term
    (one for joined terms). joins: scratch for a joined value; join_barrier: where its first value is copied there from
    TMEM. out, scratch, addends: of the epilogue; powers: the exponents by which it multiplies. converted: rows of an
    accumulator in the format of the sums, where that is another. staging: results on their way through shared memory.
    spill: None where all accumulators are in registers. shared: None where no CTAs share tiles.
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
    staging: RingBuffer | None
    spill: SpillBarriers | None
    shared: SharedSums | None

    def declare(self, builder: KernelBuilder) -> None:
        """Declare buffers and semaphores."""
        for ring in self.every:
            builder.buffer(ring.name, ring.memory, ring.slots, ring.slot_bytes, ring.spread, ring.spilled)
        for barrier in self.barriers:
            barrier.declare(builder)
        if self.shared is not None:
            for sync in (self.shared.own, self.shared.whole):
                builder.semaphore(sync.semaphore)


def kernel_buffers(design: KernelDesign) -> KernelBuffers:
    """The buffers of a kernel."""
    return _Allocation(design).made()


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


def _capacity(memory: str, capacities: dict[str, int], device: str) -> int:
    if memory not in capacities:
        raise UnsupportedError(f"device {device}: its file has no memory {memory}")
    return capacities[memory]


def footprint(design: KernelDesign) -> Footprint:
    """The footprint of a kernel, independent of the number of stages of its blocking."""
    used: dict[str, list[int]] = {}
    buffers = kernel_buffers(design)
    staged = {
        ring.name
        for operand in buffers.operands
        for ring in (*operand.stages.values(), operand.raw_stage)
        if ring is not None
    }
    for ring in buffers.every:
        found = used.setdefault(ring.memory, [0, 0])
        if ring.name in staged:
            found[1] += ring.own_bytes // ring.slots
        else:
            found[0] += ring.own_bytes
    return Footprint(tuple((memory, fixed, stage) for memory, (fixed, stage) in used.items()))


class _Allocation:
    """Allocates the buffers of a kernel."""

    def __init__(self, design: KernelDesign) -> None:
        self.design, self.kernel, self.blocking, self.family = design, design.kernel, design.blocking, design.family
        self.every: list[RingBuffer] = []
        self.barriers: list[Barrier] = []

    def barrier(self, name: str, slots: int, is_gate: bool = False) -> Barrier:
        """A new barrier."""
        self.barriers.append(Barrier(name, slots, is_gate))
        return self.barriers[-1]

    def size(self, memory: str, elements: int, format: str) -> int:
        """Bytes of a slot for `elements`, aligned as the memory requires."""
        memories = self.design.device.memories
        align = memories[memory].align_bytes if memory in memories else 1
        return -(-elements * format_of(format).bits // (8 * align)) * align

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
    ) -> RingBuffer:
        """A new ring buffer; synced: with a barrier of its own; spilled: elements that lie in local memory."""
        own = self.size(memory, -(-elements // spread), format)
        barrier = self.barrier(name, slots) if synced else None
        away = spilled * format_of(format).bits // 8
        self.every.append(
            RingBuffer(
                name=name,
                memory=memory,
                slots=slots,
                slot_bytes=own * spread,
                format=format,
                spread=spread,
                barrier=barrier,
                spilled=away,
            )
        )
        return self.every[-1]

    def made(self) -> KernelBuffers:
        """All buffers of the kernel."""
        design, kernel, family = self.design, self.kernel, self.family
        cta = self.barrier("cta", 1, is_gate=True) if design.waits_for_tile else None
        stage = self.barrier("stage", self.blocking.stages) if family.staged else Barrier("stage", 1)
        operands = self.operand(0), self.operand(1)
        split = self.split_scratch()
        accumulators = self.accumulators()
        m, n = self.blocking.m, self.blocking.n
        summed = [0] if kernel.joined else [t for t, promoted in enumerate(design.promoted) if promoted]
        sums = {t: self.ring(f"sum{t}", family.registers, 1, m * n, design.sum_format) for t in summed}
        joins = self.joins()
        straight = bool(design.sequential_joins) and not design.in_registers and not design.sequential_joins[0].own
        join_barrier = self.barrier("join0", 1) if straight else None
        out: RingBuffer | None = None
        scratch: tuple[RingBuffer, ...] = ()
        addends: tuple[RingBuffer, ...] = ()
        powers: RingBuffer | None = None
        converted: RingBuffer | None = None
        chunk, end = design.chunk_rows * n, kernel.epilogue
        if design.converts and any(design.promoted) and not kernel.joined:
            converted = self.ring("converted", family.registers, 1, chunk, design.sum_format)
        if not design.stores_accumulators:
            wide = chunk * (end.words if end.placeholder_ops else 1)
            out = self.ring("out", family.registers, 2, wide, design.out_format, synced=True)
            formats = () if end.placeholder_ops else design.epilogue_scratch
            scratch = tuple(self.ring(f"end{i}", family.registers, 1, chunk, fmt) for i, fmt in enumerate(formats))
            if end.powers is not None:
                powers = self.ring("power", family.registers, 1, chunk, "int32")
            addends = tuple(
                self.ring(name, family.registers, 2, chunk, matrix.format, synced=True)
                for name, matrix in zip(("c", "c.in", "c.in2"), end.addends, strict=False)
            )
        staging: RingBuffer | None = None
        if family.store_shared:
            staged = design.accumulator if design.stores_accumulators else end.target.format
            staging = self.ring("out.sh", family.shared, 2, chunk, staged, synced=True)
        spill: SpillBarriers | None = None
        if self.blocking.spilled:
            spill = SpillBarriers(self.barrier("spill", 1), self.barrier("local", 1))
        shared: SharedSums | None = None
        if kernel.workspace is not None:
            part = self.ring("part", family.registers, 2, chunk, kernel.workspace.format, synced=True)
            shared = SharedSums(part, one_of("own.full"), one_of("whole.full"))
        return KernelBuffers(
            every=tuple(self.every),
            barriers=tuple(self.barriers),
            stage=stage,
            cta=cta,
            operands=operands,
            split_scratch=split,
            accumulators=accumulators,
            sums=sums,
            joins=joins,
            join_barrier=join_barrier,
            out=out,
            scratch=scratch,
            addends=addends,
            powers=powers,
            converted=converted,
            staging=staging,
            spill=spill,
            shared=shared,
        )

    def operand(self, i: int) -> OperandBuffers:
        """The buffers of A (0) or B (1)."""
        design, family, blocking = self.design, self.family, self.blocking
        side, operand = SIDES[i], self.kernel.operands[i]
        registers, shared, raw = family.registers, family.shared, operand.raw
        block, step = design.extent(i, blocking.k), design.extent(i, design.step_k)
        formats = operand.formats
        pipelined = 2 * -(-blocking.k // design.step_k) if any(design.promoted) else 2
        stages, landing, made, taken = {}, {}, {}, {}
        raw_stage, raw_landing, split_from = None, None, None
        ready: Barrier | None = None
        if not family.staged:
            return self.fragments(i)
        if family.through_registers:
            depth = blocking.accumulators
            if raw is not None:
                raw_landing = self.ring(f"{side}raw.load", registers, depth, block, raw.format, synced=True)
            else:
                for p, fmt in formats.items():
                    landing[p] = self.ring(f"{side}{p}.load", registers, depth, block, fmt, synced=True)
            for p, fmt in formats.items():
                if raw is not None:
                    made[p] = self.ring(f"{side}{p}.new", registers, 1, block, fmt, synced=True)
                stages[p] = self.ring(f"{side}{p}", shared, blocking.stages, block, fmt)
        elif raw is not None:
            raw_stage = self.ring(f"{side}raw", shared, blocking.stages, block, raw.format, spread=design.spread(i))
            split_from = self.ring(f"{side}raw.rf", registers, 2, step, raw.format, synced=True)
            for p, fmt in formats.items():
                if design.places[i] != registers:
                    made[p] = self.ring(f"{side}{p}.new", registers, 1, step, fmt, synced=True)
                taken[p] = self.ring(f"{side}{p}.op", design.places[i], pipelined, step, fmt)
            ready = self.barrier(f"{side}.op", pipelined)
        else:
            for p, fmt in formats.items():
                stages[p] = self.ring(f"{side}{p}", shared, blocking.stages, block, fmt, spread=design.spread(i))
        if design.reads_fragments:
            for p, fmt in formats.items():
                taken[p] = self.ring(f"{side}{p}.op", registers, 2, step, fmt)
            ready = self.barrier(f"{side}.op", 2)
        return OperandBuffers(
            stages=stages,
            raw_stage=raw_stage,
            landing=landing,
            raw_landing=raw_landing,
            raw=split_from,
            made=made,
            taken=taken,
            ready=ready,
        )

    def fragments(self, i: int) -> OperandBuffers:
        """The buffers of A (0) or B (1) of a kernel without staging: for each CTA of the core a block of K.

        Every warp holds fragments of its own, so that a slot takes as many times the registers as warps share it.
        """
        design, blocking, registers = self.design, self.blocking, self.family.registers
        side, operand, formats = SIDES[i], self.kernel.operands[i], self.kernel.operands[i].formats
        copies = design.fragment_copies(i)
        step, slots = design.extent(i, design.step_k) * copies, blocking.stages * -(-blocking.k // design.step_k)
        raw: RingBuffer | None = None
        if operand.raw is not None:
            raw = self.ring(f"{side}raw.rf", registers, slots, step, operand.raw.format, synced=True)
        taken = {p: self.ring(f"{side}{p}.op", registers, slots, step, fmt) for p, fmt in formats.items()}
        return OperandBuffers(
            stages={},
            raw_stage=None,
            landing={},
            raw_landing=None,
            raw=raw,
            made={},
            taken=taken,
            ready=self.barrier(f"{side}.op", slots),
        )

    def split_scratch(self) -> tuple[RingBuffer, ...]:
        """Scratch tiles as split_ops needs them; fragments shared by warps are split by each of them."""
        design, kernel = self.design, self.kernel
        if not kernel.splits_operands:
            return ()
        whole = self.family.through_registers and self.family.staged
        k = self.blocking.k if whole else design.step_k
        size = max(design.extent(i, k) for i in range(2))
        dropped = any(
            [piece.number for piece in operand.pieces] != list(range(len(operand.pieces)))
            for operand in kernel.operands
        )
        count = 4 if design.repeats_fragments else 3 if dropped or design.k_sweeps > 1 else 2
        source = next(operand.raw.format for operand in kernel.operands if operand.raw is not None)
        form = residual_format(source)
        return tuple(self.ring(f"split{i}", self.family.registers, 1, size, form) for i in range(count))

    def accumulators(self) -> tuple[AccumulatorBuffers, ...]:
        """The accumulators of all terms."""
        design, kernel, blocking = self.design, self.kernel, self.blocking
        found = []
        count = 1 if design.sequential_joins else len(kernel.terms)
        apart = bool(design.sequential_joins) or not kernel.joined
        for t in range(count):
            rows = design.part_rows if design.promotes_in_block[t] else blocking.m
            slots = SHORT_SUMS if design.promoted[t] and apart else blocking.accumulators
            if design.promotes_in_block[t] and not design.in_registers and apart:
                memory = design.device.memories.get(design.c_memory)
                one = self.size(design.c_memory, rows * blocking.n, design.accumulator) * count
                slots = max(slots, min(SHORT_SLOTS, (memory.capacity_bytes if memory else 0) // one))
            size = rows * blocking.n
            away = blocking.spilled * blocking.n
            ring = self.ring(f"acc{t}", design.c_memory, slots, size, design.accumulator, synced=True, spilled=away)
            read: RingBuffer | None = None
            if not design.in_registers:
                size = design.chunk_rows * blocking.n
                slots = 4 if count == 1 else 2
                registers = self.family.registers
                read = self.ring(f"acc{t}.rf", registers, slots, size, design.accumulator, synced=True)
            found.append(AccumulatorBuffers(ring, read))
        return tuple(found)

    def joins(self) -> tuple[RingBuffer, ...]:
        """Scratch tiles for joined values."""
        design, value = self.design, self.kernel.epilogue.value
        registers, n = self.family.registers, self.blocking.n
        if design.sequential_joins:
            return (self.ring("join0", registers, 1, self.blocking.m * n, self.kernel.epilogue.join_format),)
        if not self.kernel.joined or value is None:
            return ()
        chunk = design.chunk_rows * n
        form = self.kernel.epilogue.join_format
        return tuple(self.ring(f"join{i}", registers, 1, chunk, form) for i in range(depth(value, design.converts) + 1))
