"""Where everything of a tiled GEMM kernel lies: its buffers and their sizes, for one blocking.

It is computed before any instruction, so that a blocking can be refused or chosen without writing a program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hwsim.dataflows.elementwise import depth, vector_of
from hwsim.dataflows.expressions import Step, in_turn
from hwsim.dataflows.instructions import Instructions
from hwsim.dataflows.tiled.model import Blocking, Family, Source, Work
from hwsim.devices import instruction
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.layouts import K_MAJOR, Order
from hwsim.gemm.plan import Piece, TermValue

if TYPE_CHECKING:
    from hwsim.devices.model import Device, InstructionModel

CHUNK_BYTES = 8192  # of C that the epilogue has in hand at a time, in whole rows, at least CHUNK_ROWS
CHUNK_ROWS = 16
PART_ROWS = 64  # rows of C of one short run's accumulator: what one warp group's instruction gives
SHORT_SLOTS = 4  # accumulators of short runs, where the memory of accumulators has room: it takes long to read them
FRAGMENT_BYTES = 32  # of K per row that a fragment holds, unless an instruction takes more
SIDES = ("A", "B")


@dataclass(frozen=True, slots=True)
class Slot:
    """A buffer of the kernel. ring: with semaphores of its own; the others are ordered by engines or by a group."""

    name: str
    memory: str
    slots: int
    slot_bytes: int
    spread: int = 1  # cores over which it lies


class Layout:
    """Where everything of a kernel lies, for one blocking: `slots`, and what follows from the device."""

    def __init__(self, device: Device, family: Family, work: Work, blocking: Blocking) -> None:
        self.device, self.family, self.work, self.blocking = device, family, work, blocking
        self.instructions = Instructions(device)
        fitted = self.instructions.fitted(work.unit, blocking.m, blocking.n, blocking.cores)
        self.unit: InstructionModel = instruction(device, fitted)
        self.unit_name = fitted
        if self.unit.together != blocking.cores:
            raise InputError(f"cta_group = {blocking.cores}: {device.name} has no such instruction like {fitted}")
        self.vector = vector_of(device).engine
        self.on_vector = self.unit.engine == self.vector
        self.depth = self.unit.k
        self.accumulator = self.unit.d
        self.sources = (work.a, work.b)
        self.orders = (_order(work.a), _order(work.b))
        self.turned = is_turned(self.unit, work)
        self.places = tuple(self._place(i) for i in range(2))
        places = self.unit.places(2)
        self.c_memory = places[0] if places else family.registers
        self.in_registers = self.c_memory == family.registers
        # Operand fragments in registers that are read from shared memory.
        self.fragments = self.places[0] == family.registers and not (work.in_kernel and not family.through_registers)
        self.short = tuple(run is not None and run <= blocking.k for run in work.runs)
        longs = {run for run, short in zip(work.runs, self.short, strict=True) if run is not None and not short}
        if len(longs) > 1:
            raise UnsupportedError(
                f"the {family.name} dataflow adds terms up after one length of K, not {sorted(longs)}"
            )
        self.long = longs.pop() if longs else None
        self.sweeps = max(
            (len(term.stages) for term, short in zip(work.terms, self.short, strict=True) if not short), default=1
        )
        for run, is_short in zip(work.runs, self.short, strict=True):
            if is_short and run is not None and blocking.k % run:
                raise InputError(f"tile k = {blocking.k} is not a multiple of k_group = {run}; allowed: its multiples")
        if blocking.k % self.unit.k and not all(self.short):
            raise InputError(f"tile k = {blocking.k}; allowed: multiples of {self.unit.k}, as {fitted} takes")
        scaled = any(stage.scale_exponent for term in work.terms for stage in term.stages)
        if scaled and self.unit.scale_input_d is None:
            raise UnsupportedError(f"device {device.name}: {fitted} does not scale its accumulator (scale-input-d)")
        if work.joined and (any(run != work.runs[0] for run in work.runs) or self.sweeps > 1):
            raise UnsupportedError(f"the {family.name} dataflow joins terms that all have one run of K and one stage")
        self.promoted = tuple(run is not None for run in work.runs)
        # Terms joined one after the other through one accumulator, where runs are short and the sum allows it.
        value = work.finish.value
        turns = in_turn(value) if work.joined and all(self.short) and value is not None else None
        has_turns = (
            turns is not None
            and not work.finish.stand_ins
            and all(x.exponent <= 0 and (i == 0 or not x.own) for i, x in enumerate(turns))
        )
        self.turns = _scaled_later(turns) if has_turns and turns is not None else None
        self.step = self._step()
        self.part = min(PART_ROWS, blocking.m) if self.in_registers and not work.joined else blocking.m
        row_bits = blocking.n * format_of(work.finish.target.format).bits
        self.chunk = min(max(CHUNK_BYTES * 8 // row_bits, CHUNK_ROWS), blocking.m)
        # Operands that the load itself rounds: format in which they arrive, by ring, and the piece they become.
        self.load_formats: dict[str, str] = {}
        self.rounded: dict[str, Piece] = {}
        for side, source in zip(SIDES, self.sources, strict=True):
            for p, array in source.arrays.items():
                if source.raw is None and array.format != source.formats[p]:
                    self.load_formats[f"{side}{p}"] = source.formats[p]
                    self.rounded[side] = source.pieces[p]
        self.slots: dict[str, Slot] = {}
        self._operands()
        self._results()

    @property
    def serial(self) -> bool:
        """Whether a block of K is asked for when the products of the one before are done: one stage, no pipeline.

        A kernel's only barrier then stands behind the products, in the program's order, and nothing is read ahead into
        registers. Not where sums outside the unit wait for the next block's pieces (see tiled_kernel).
        """
        return self.blocking.stages == 1 and not (self.work.in_kernel and any(self.short))

    @staticmethod
    def is_on_lanes(device: Device, work: Work) -> bool:
        """Whether the unit is the vector engine's own instruction."""
        return instruction(device, work.unit).engine == vector_of(device).engine

    def _place(self, side: int) -> str:
        """Where the unit takes A or B from: registers for an A that the kernel splits, shared memory if it can."""
        allowed = self.unit.places(side)
        if not allowed:
            return self.family.registers
        if side == 0 and self.work.in_kernel and self.family.registers in allowed:
            return self.family.registers
        return self.family.shared if self.family.shared in allowed else allowed[0]

    def _step(self) -> int:
        """K of one fragment: whole instructions and whole short runs; all of a stage where operands are not copied."""
        block = self.blocking.k
        if self.places[0] != self.family.registers:
            return block
        bits = format_of(self.unit.a).bits
        step = max(self.depth, FRAGMENT_BYTES * 8 // bits // self.depth * self.depth)
        for run, short in zip(self.work.runs, self.short, strict=True):
            if short and run is not None:
                step = max(step, run) // run * run
        return min(step, block)

    def unit_of(self, a: str, b: str) -> str:
        """The instruction for operands of these formats."""
        return self.work.unit if (a, b) == (self.unit.a, self.unit.b) else self.instructions.of(self.work.unit, a, b)

    def size(self, memory: str, elements: int, format: str) -> int:
        """Bytes of a slot for `elements`, aligned as the memory wants it."""
        align = self.device.memories[memory].align_bytes if memory in self.device.memories else 1
        return -(-elements * format_of(format).bits // (8 * align)) * align

    def _add(self, name: str, memory: str, slots: int, elements: int, format: str, spread: int = 1) -> None:
        own = self.size(memory, -(-elements // spread), format)
        self.slots[name] = Slot(name, memory, slots, own * spread, spread)

    def extent(self, side: int, k: int) -> int:
        """Elements of K = k of the tile's rows of A or columns of B."""
        return k * (self.blocking.m if side == 0 else self.blocking.n)

    def spread(self, side: int) -> int:
        """Cores over whose shared memories a stage of A or B lies."""
        return self.blocking.cores if side == 1 else 1

    def _operands(self) -> None:
        b, family, rf, sh = self.blocking, self.family, self.family.registers, self.family.shared
        split, temps = self.work.in_kernel, 0
        pipelined = 2 * -(-b.k // self.step) if any(self.promoted) else 2
        for i, (side, source) in enumerate(zip(SIDES, self.sources, strict=True)):
            block, step = self.extent(i, b.k), self.extent(i, self.step)
            loaded = (
                {"raw": source.raw.format} if source.raw is not None else {str(p): f for p, f in source.formats.items()}
            )
            if family.through_registers:
                for name, fmt in loaded.items():
                    self._add(f"{side}{name}.load", rf, b.accumulators, block, fmt)
                for p, fmt in source.formats.items():
                    if split:
                        self._add(f"{side}{p}.new", rf, 1, block, fmt)
                    self._add(f"{side}{p}", sh, b.stages, block, fmt)
                temps = max(temps, block if split else 0)
            else:
                for name, fmt in loaded.items():
                    self._add(f"{side}{name}", sh, b.stages, block, fmt, self.spread(i))
                if split and source.raw is not None:
                    temps = max(temps, step)
                    self._add(f"{side}raw.rf", rf, 2, step, source.raw.format)
                    for p, fmt in source.formats.items():
                        if self.places[i] == rf:
                            self._add(f"{side}{p}.op", rf, pipelined, step, fmt)
                        else:
                            self._add(f"{side}{p}.new", rf, 1, step, fmt)
                            self._add(f"{side}{p}.op", self.places[i], pipelined, step, fmt)
            if self.fragments:
                for p, fmt in source.formats.items():
                    self._add(f"{side}{p}.op", rf, 2, step, fmt)
        # As split_ops wants them: fragments of warps that overlap are made more than once.
        repeated = self.places[0] == self.places[1] == rf and not family.through_registers
        dropped = any(set(source.formats) != set(range(max(source.formats) + 1)) for source in self.sources)
        for i in range(4 if repeated else 3 if dropped or self.sweeps > 1 else 2):
            if temps:
                self._add(f"split{i}", rf, 1, temps, "fp32")

    def _results(self) -> None:
        b, work, rf, finish = self.blocking, self.work, self.family.registers, self.work.finish
        for t in range(1 if self.turns else len(work.terms)):
            rows = self.part if self.short[t] else b.m
            slots = 2 if self.promoted[t] and (self.turns or not work.joined) else b.accumulators
            if self.short[t] and not self.in_registers and (self.turns or not work.joined):
                room = (
                    self.device.memories[self.c_memory].capacity_bytes if self.c_memory in self.device.memories else 0
                )
                one = self.size(self.c_memory, rows * b.n, self.accumulator) * len(
                    work.terms if not self.turns else [0]
                )
                slots = max(slots, min(SHORT_SLOTS, room // one))
            self._add(f"acc{t}", self.c_memory, slots, rows * b.n, self.accumulator)
            if not self.in_registers:
                self._add(
                    f"acc{t}.rf", rf, 4 if len(work.terms) == 1 or self.turns else 2, self.chunk * b.n, self.accumulator
                )
        for t in [0] if work.joined else [t for t, p in enumerate(self.promoted) if p]:
            self._add(f"sum{t}", rf, 1, b.m * b.n, self.accumulator)
        chunk = self.chunk * b.n
        if self.turns:
            self._add("join0", rf, 1, b.m * b.n, "fp32")
        elif work.joined and finish.value is not None:
            for i in range(depth(finish.value) + 1):
                self._add(f"join{i}", rf, 1, chunk, "fp32")
        if self.plain:
            staged = self.accumulator
        else:
            staged = finish.target.format
            self._add("out", rf, 2, chunk * (finish.words if finish.stand_ins else 1), self.out_format)
            if not finish.stand_ins:
                for i in range(self.scratch):
                    self._add(f"end{i}", rf, 1, chunk, "fp32")
            if finish.c is not None:
                self._add("c", rf, 2, chunk, finish.c.format)
        if self.family.store_shared:
            self._add("out.sh", self.family.shared, 2, chunk, staged)

    @property
    def out_format(self) -> str:
        """Format in which the elementwise lanes leave the result."""
        return "fp32" if self.work.finish.stand_ins else self.work.finish.target.format

    @property
    def plain(self) -> bool:
        """Whether results leave as the unit gave them (or as they were added up): nothing elementwise at the end."""
        f = self.work.finish
        if f.stand_ins:
            return False
        untouched = f.alpha == 1 and f.c is None and not f.bias and not any(self.promoted)
        return untouched and (
            f.value is None or (isinstance(f.value, TermValue) and f.target.format == self.accumulator)
        )

    @property
    def scratch(self) -> int:
        """fp32 scratch tiles of the epilogue."""
        f = self.work.finish
        needed = 0 if f.value is None or self.work.joined else depth(f.value)
        return needed + 2 if f.c is not None or f.alpha != 1 or f.target.format != "fp32" or needed else 0

    def used_bytes(self) -> dict[str, int]:
        """Bytes of each memory that the buffers take."""
        used: dict[str, int] = {}
        for slot in self.slots.values():
            used[slot.memory] = used.get(slot.memory, 0) + slot.slots * slot.slot_bytes // slot.spread
        return used

    def excess(self) -> list[str]:
        """What does not fit, in words; empty when the blocking is legal."""
        found = []
        for memory, size in self.used_bytes().items():
            model = self.device.memories.get(memory)
            if model is None:
                raise UnsupportedError(f"device {self.device.name}: its file has no memory {memory}")
            if size > model.capacity_bytes:
                found.append(f"{size} bytes of {memory}, which holds {model.capacity_bytes}")
        return found


def _scaled_later(turns: list[Step]) -> list[Step]:
    """The same sum, the first value scaled within the addition of the second, which costs nothing there."""
    first, *rest = turns
    if not rest or first.own > 0 or rest[0].exponent:
        return turns
    return [replace(first, own=0), replace(rest[0], exponent=first.own), *rest[1:]]


def is_turned(unit: InstructionModel, work: Work) -> bool:
    """Whether the unit takes operands only along K, and one of the kernel's lies otherwise."""
    along_k = unit.timing is not None and bool(unit.timing.turned_macs_per_cycle)
    return along_k and not work.in_kernel and (_order(work.a), _order(work.b)) != K_MAJOR


def _order(source: Source) -> Order:
    """What follows one another in memory of an operand's arrays."""
    [order] = {array.order for array in (source.raw, *source.arrays.values()) if array is not None}
    return order
