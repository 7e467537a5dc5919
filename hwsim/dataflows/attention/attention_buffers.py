"""The buffers and semaphores of a kernel of attention, and how many tiles a core computes side by side.

It knows sizes, memories and the unit's places of operands; it emits no instruction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwsim.dataflows.tiled.family import Family
from hwsim.devices import find, instruction
from hwsim.errors import UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.attention_record import FusedAttention
from hwsim.gemm.layouts import K_MAJOR
from hwsim.host.multiples import round_up
from hwsim.program.builder import KernelBuilder, Ring, StreamBuilder
from hwsim.program.ir import LANE_COLUMNS, LANES, ZERO, Affine, GlobalTile, LocalTile, Sync, one_of, variable

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.devices.model import InstructionModel

WORD = 4  # bytes of fp32
STEP = 16  # of K per copy of fragments, at least
CHUNK = 32  # columns of scores whose powers are computed at a time
IN_FLIGHT = 2  # chunks, and steps of fragments, at a time
RESULT_CHUNK = 32  # columns of a result whose sums are not in registers that are there at a time
COLUMNS = ("largest", "top", "bound", "scaled", "change", "argument", "total", "logarithm")  # of a row, in fp32
MOST_BESIDE = 2  # more tiles at a time add nothing: the engines are in order


@dataclass(frozen=True, slots=True)
class Design:
    """What fixes a kernel's buffers. groups: parts of a tile's rows that take turns; beside: tiles at a time."""

    record: FusedAttention
    family: Family
    device: Device
    beside: int

    @property
    def member_rows(self) -> int:
        """Rows of a member: what takes turns in the matrix unit, a tile or a part of one."""
        return self.record.order.rows // self.record.order.row_groups

    @property
    def members(self) -> int:
        """Members at a time."""
        return self.beside * self.record.order.row_groups

    @property
    def unit(self) -> InstructionModel:
        """The matrix instruction, as the order names it."""
        return instruction(self.device, self.unit_for(0))

    def unit_for(self, columns: int) -> str:
        """The matrix instruction for a product with so many columns: of those that differ in their N, the widest that
        divides them. 0: as the order names it.
        """
        name = self.record.order.instruction_for(self.record.format)
        for n in range(min(columns, 256), 0, -1) if columns and not name.startswith("mma") else ():
            other = re.sub(r"(?<=\d)n\d+(?=k)", f"n{n}", name, count=1)
            if columns % n == 0 and find(self.device, other) is not None:
                return other
        return name

    @property
    def reads_fragments(self) -> bool:
        """Whether operands are copied from shared memory to registers."""
        return self.family.registers in self.unit.places(1)

    @property
    def sums(self) -> str:
        """The memory of scores and results: where the matrix unit has its sums."""
        places = self.unit.places(2)
        return places[0] if places else self.family.registers

    @property
    def is_apart(self) -> bool:
        """Whether scores and results are not in registers, so that the lanes need copies of them."""
        return self.sums != self.family.registers

    @property
    def transposes(self) -> bool:
        """Whether values are transposed in shared memory: they lie there by rows, and the unit takes columns alone."""
        return self.unit.k_major_only and not self.reads_fragments

    @property
    def depth(self) -> int:
        """Of K, what a matrix instruction of the program covers; 0: all."""
        return max(STEP, self.unit.k) if self.reads_fragments else 0

    @property
    def has_bound_terms(self) -> bool:
        """Whether a row's largest score, in the arguments of powers, is more than times one number: its head has a
        factor, or powers have an offset.
        """
        return self.record.order.scaling == "fused" and (self.record.is_descaled or self.record.order.offset != 0)

    def buffers(self) -> list[tuple[str, str, int, int]]:
        """(name, memory, slots, bytes of a slot) of all buffers."""
        record, order = self.record, self.record.order
        size = format_of(record.format).bits // 8
        registers, shared = self.family.registers, self.family.shared
        rows, width = self.member_rows, record.value_width
        sizes = []
        for tile in range(self.beside):
            sizes.append((f"K{tile}", shared, order.stages, order.keys * record.width * size))
            sizes.append((f"V{tile}", shared, order.stages, order.keys * width * size))
            if self.transposes:
                sizes.append((loaded_values(tile).name, shared, order.stages, order.keys * width * size))
        sums = 1 if order.has_one_sum else LANES
        for member in range(self.members):
            sizes.append((f"Q{member}", shared, 1, rows * record.width * size))
            sizes.append((f"S{member}", self.sums, 1, rows * order.keys * WORD))
            sizes.append((f"O{member}", self.sums, 1, rows * width * WORD))
            if self.is_apart:
                sizes.append((f"W{member}", registers, 1, rows * order.keys * WORD))
            if order.lag:
                sizes.append((f"one{member}", registers, 1, rows * WORD))
            if order.scaling == "fused":
                sizes.append((f"factor{member}", registers, 1, rows * WORD))
            if self.has_bound_terms:
                sizes += [(f"{name}{member}", registers, 1, rows * WORD) for name in ("minus_factor", "offset")]
            if order.joins_blocks:
                sizes.append((f"N{member}", registers, 1, rows * width * WORD))
            sizes += [(f"{name}{member}", registers, 1, rows * WORD) for name in COLUMNS]
            if record.mask != "none":
                sizes.append((f"M{member}", registers, 1, rows * order.keys * size))
                sizes.append((f"B{member}", registers, 1, rows * order.keys * WORD))
            sizes.append((f"sums{member}", registers, 1, rows * sums * WORD))
        chunk = min(CHUNK, order.keys)
        sizes.append(("arguments", registers, IN_FLIGHT, rows * chunk * WORD))
        if self.is_apart:
            sizes.append((PIECES.name, registers, IN_FLIGHT, rows * min(RESULT_CHUNK, width) * WORD))
        if self.transposes:
            sizes.append((TRANSPOSED.name, registers, IN_FLIGHT, self.unit.k * width * size))
        if order.warp_keys is not None or order.adds_blocks:
            sizes.append(("lanes", registers, 1, rows * LANES * WORD))
        if order.fuses_first:
            sizes.append(("first", registers, 1, rows * LANES * LANE_COLUMNS * WORD))
        if self.reads_fragments:
            sizes.append(("A.op", registers, IN_FLIGHT, rows * self.depth * size))
            sizes.append(("B.op", registers, IN_FLIGHT, self.depth * max(order.keys, width) * size))
        aligns = {name: memory.align_bytes for name, memory in self.device.memories.items()}
        return [(name, memory, slots, round_up(bytes_, aligns[memory])) for name, memory, slots, bytes_ in sizes]

    @property
    def lacking(self) -> str:
        """Which memory is too small for the buffers, in words; empty where none is."""
        used: dict[str, int] = {}
        for _, memory, slots, size in self.buffers():
            used[memory] = used.get(memory, 0) + slots * size
        for name, bytes_ in used.items():
            capacity = self.device.memories[name].capacity_bytes
            if bytes_ > capacity:
                return f"its buffers take {bytes_:,} bytes of {name}, which has {capacity:,}"
        return ""


def designed(record: FusedAttention, family: Family, device: Device) -> Design:
    """The design with as many tiles side by side as fit. Raises UnsupportedError where not one fits."""
    most = MOST_BESIDE if record.order.row_groups == 1 else 1
    for beside in range(most, 0, -1):
        design = Design(record, family, device, beside)
        if not design.lacking:
            return design
    raise UnsupportedError(
        f"attention: {record.order.kernel} with heads of {record.width} and {record.value_width} elements has no "
        f"program on {device.name}: {design.lacking}"
    )


@dataclass(frozen=True, slots=True)
class Member:
    """The tiles of one member, with `rows` rows. number: of the member; tile: of the CTA that it is of. absent: members
    of the CTA without rows, for which it gives the room of keys and values back. in_step: members that go on together
    (AttentionOrder.in_step), itself among them. key_head: of its rows, where heads have factors.
    """

    design: Design
    number: int
    tile: int
    rows: int
    absent: tuple[int, ...] = ()
    in_step: tuple[int, ...] = ()
    key_head: Affine | None = None

    def descale(self, letter: str) -> GlobalTile:
        """The factor of its head, of query (Q), key (K) or value (V)."""
        assert self.key_head is not None
        return GlobalTile(f"{letter}.descale", self.key_head, ZERO, 1, 1)

    def queries(self) -> LocalTile:
        """The queries in shared memory."""
        return LocalTile(f"Q{self.number}", self.rows, self.design.record.width, self.design.record.format)

    def scores(self, keys: int, format: str = "fp32") -> LocalTile:
        """The scores of a block of keys, or in the operands' format the powers in their place, as the matrix unit
        writes and reads them.
        """
        return LocalTile(f"S{self.number}", self.rows, keys, format)

    def in_lanes(self, keys: int, format: str = "fp32") -> LocalTile:
        """The same as the lanes do: the same place, or a copy in registers."""
        return LocalTile(f"{'W' if self.design.is_apart else 'S'}{self.number}", self.rows, keys, format)

    def mask(self, keys: int, format: str) -> LocalTile:
        """The mask of a block of keys: in the operands' format, as it is loaded, or in fp32."""
        return LocalTile(f"{'B' if format == 'fp32' else 'M'}{self.number}", self.rows, keys, format)

    def result(self, format: str = "fp32") -> LocalTile:
        """The sums of products with values."""
        return LocalTile(f"O{self.number}", self.rows, self.design.record.value_width, format)

    def product(self) -> LocalTile:
        """A block's product with values: the result itself, or what joins it."""
        if not self.design.record.order.joins_blocks:
            return self.result()
        return LocalTile(f"N{self.number}", self.rows, self.design.record.value_width, "fp32")

    def sums(self) -> LocalTile:
        """The sums of powers: by lane, or in one column."""
        columns = 1 if self.design.record.order.has_one_sum else LANES
        return LocalTile(f"sums{self.number}", self.rows, columns, "fp32")

    def column(self, name: str) -> LocalTile:
        """A column of COLUMNS."""
        return LocalTile(f"{name}{self.number}", self.rows, 1, "fp32")

    def sync(self, name: str) -> Sync:
        """One of a semaphore of this member."""
        return one_of(semaphore(name, self.number))

    def of_all(self, name: str) -> Sync:
        """A semaphore of this member that all in step with it signal."""
        return Sync(semaphore(name, self.number), len(self.in_step))

    def to_all(self, name: str) -> list[Sync]:
        """One for each member in step."""
        return [one_of(semaphore(name, number)) for number in self.in_step]

    def counter(self, letter: str, number: int | None = None) -> str:
        """The counter that says which block of keys (K) or values (V) comes next. number: of another member."""
        return f"{letter}.pop{self.number if number is None else number}"

    def popped(self, s: StreamBuilder, letter: str) -> None:
        """Go on to the next block of keys or values; absent members go along."""
        for number in (self.number, *self.absent):
            s.advance(self.counter(letter, number))

    def frees(self, letter: str) -> list[Sync]:
        """The room of a block of keys (K) or values (V), where this member no longer needs it."""
        return [one_of(semaphore(f"{letter}.free", number)) for number in (self.number, *self.absent)]


#: Semaphores of a member: Q.full queries are there, Q.free their room is; S.full scores, P.full powers, O.full a
#: product with values, R.full the result, O.free the room of sums, and L.free the room of logarithms. N.free: the room
#: of a product that joins the result. M.full, M.free: a mask of one's own.
OF_MEMBER = {"Q.full": 0, "Q.free": 1, "S.full": 0, "P.full": 0, "O.full": 0, "O.free": 1, "R.full": 0, "L.free": 1}
JOINED = "N.free"
COPIED, NARROWED = "W.full", "W.narrow"  # scores are in registers; powers there are narrow
PIECES = Ring("pieces")  # of a result, in registers
TRANSPOSED = Ring("transposed")  # keys of one instruction of them, in registers
CHANGED, ROUNDED = "pieces.changed", "pieces.rounded"  # a piece was multiplied; it can be stored


@dataclass(frozen=True, slots=True)
class Room:
    """What the copy of a block of keys or values waits for and signals."""

    waits: tuple[Sync, ...]
    signals: tuple[Sync, ...]


def room(members: Sequence[Member], letter: str) -> Room:
    """Of keys (K), or of values as the unit takes them (V), of a tile with these members."""
    waits = tuple(sync for member in members for sync in member.frees(letter))
    return Room(waits, tuple(member.sync(f"{letter}.full") for member in members))


def loaded_values(tile: int) -> Ring:
    """Values of a tile as they came, by rows, before they are transposed."""
    return Ring(f"V{tile}.rows")


ARGUMENT, POWER = "argument.full", "power.full"


def semaphore(name: str, member: int) -> str:
    """The name of a member's semaphore: S.full of member 1 is S1.full."""
    what, _, state = name.rpartition(".")
    return f"{what}{member}.{state}"


def declare(kernel: KernelBuilder, design: Design) -> None:
    """Declare all buffers and semaphores of a kernel."""
    for name, memory, slots, size in design.buffers():
        kernel.buffer(name, memory, slots, size)
    for member in range(design.members):
        for name, initial in OF_MEMBER.items():
            kernel.semaphore(semaphore(name, member), initial)
        if design.record.order.joins_blocks:
            kernel.semaphore(semaphore(JOINED, member), 1)
        for name in (COPIED, NARROWED) if design.is_apart else ():
            kernel.semaphore(semaphore(name, member))
        if design.record.mask != "none":
            kernel.semaphore(semaphore("M.full", member), 0)
            kernel.semaphore(semaphore("M.free", member), 1)
        for letter in "KV":
            kernel.semaphore(semaphore(f"{letter}.full", member), 0)
            kernel.semaphore(semaphore(f"{letter}.free", member), design.record.order.stages)
    kernel.semaphore(ARGUMENT)
    kernel.semaphore(POWER)
    if design.is_apart:
        for name, initial in (
            (PIECES.free.semaphore, IN_FLIGHT),
            (PIECES.full.semaphore, 0),
            (CHANGED, 0),
            (ROUNDED, 0),
        ):
            kernel.semaphore(name, initial)
    if design.transposes:
        for ring in map(loaded_values, range(design.beside)):
            kernel.semaphore(ring.free.semaphore, design.record.order.stages)
            kernel.semaphore(ring.full.semaphore)
        kernel.semaphore(TRANSPOSED.free.semaphore, IN_FLIGHT)
        kernel.semaphore(TRANSPOSED.full.semaphore)
    if design.reads_fragments:
        for letter in "AB":
            kernel.semaphore(f"{letter}.op.free", IN_FLIGHT)
            kernel.semaphore(f"{letter}.op.full")


def fragments(letter: str) -> Ring:
    """The ring of fragments of A or B."""
    return Ring(f"{letter}.op")


def keys_tile(design: Design, tile: int, counter: str, keys: int) -> LocalTile:
    """A block of keys in shared memory, as B of the first product: width x keys. counter: says which slot."""
    record = design.record
    return LocalTile(f"K{tile}", record.width, keys, record.format, variable(counter), order=K_MAJOR[1])


def values_tile(design: Design, tile: int, counter: str, keys: int) -> LocalTile:
    """A block of values in shared memory, as the unit takes it: keys x width of the value. counter: says which slot."""
    order = K_MAJOR[1] if design.transposes else "rows"
    return LocalTile(f"V{tile}", keys, design.record.value_width, design.record.format, variable(counter), order=order)


def loaded_values_tile(design: Design, tile: int, counter: str, keys: int) -> LocalTile:
    """A block of values as it was loaded, where it is transposed. The same arguments."""
    return LocalTile(loaded_values(tile).name, keys, design.record.value_width, design.record.format, variable(counter))
