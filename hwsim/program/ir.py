"""The program: what every core of a device is told to do, loops kept as loops.

A program knows buffers, tiles, instructions and their order; it does not know which scheme it computes,
which bits come out, or how long anything takes. Two machines interpret it (hwsim.machines).

A core runs one or more *streams*. A stream issues its instructions in order into the in-order queues of
the core's *engines*, which run beside each other; semaphores order engines among themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from hwsim.gemm.layouts import Order
from hwsim.gemm.record import Gemm

CORE = "core"  # the variable that holds a core's absolute index in every Affine

Opcode = Literal["copy", "mma", "cast", "add", "sub", "mul", "scale", "fill", "sync"]


@dataclass(frozen=True, slots=True)
class Affine:
    """constant + sum of coefficient * variable; a variable is a loop, a counter or a derived variable of
    the stream, or CORE."""

    constant: int = 0
    terms: tuple[tuple[str, int], ...] = ()

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.constant + other, self.terms) if other else self
        if not other.terms:
            return Affine(self.constant + other.constant, self.terms) if other.constant else self
        if not self.terms:
            return Affine(self.constant + other.constant, other.terms) if self.constant else other
        joined = dict(self.terms)
        for name, coefficient in other.terms:
            joined[name] = joined.get(name, 0) + coefficient
        return Affine(self.constant + other.constant, tuple([term for term in joined.items() if term[1]]))

    def __mul__(self, factor: int) -> Affine:
        if factor == 1:
            return self
        if not self.terms:
            return Affine(self.constant * factor) if self.constant else self
        return Affine(self.constant * factor, tuple([(n, c * factor) for n, c in self.terms if c * factor]))

    __radd__ = __add__
    __rmul__ = __mul__


ZERO = Affine()


@lru_cache(maxsize=4096)
def variable(name: str) -> Affine:
    """The value of a loop, a counter, or CORE."""
    return Affine(0, ((name, 1),))


@dataclass(frozen=True, slots=True)
class Derived:
    """A variable that stands for of // divisor, or of % divisor: how a number of a tile becomes a row and a column.

    `of` may name CORE, loops, counters and other derived variables of the stream, but no derived one before itself.
    """

    name: str
    of: Affine
    divisor: int
    part: Literal["quotient", "remainder"]


@dataclass(frozen=True, slots=True)
class GlobalArray:
    """A matrix in global memory: rows x cols elements of a format (hwsim.formats), stored by rows or by columns.

    order changes which bytes lie together, and so only the time of transfers; tiles are named by row and column.
    """

    name: str
    rows: int
    cols: int
    format: str
    order: Order = "rows"

    @property
    def stored(self) -> tuple[int, int]:
        """Lines in memory, and the elements that follow one another in each."""
        return (self.rows, self.cols) if self.order == "rows" else (self.cols, self.rows)


@dataclass(frozen=True, slots=True)
class Buffer:
    """`slots` equal slots of `slot_bytes` in one of a core's memories (the device's name for it).

    spread: cores beside each other over whose memories a slot lies, in equal parts, for instructions of all of them.
    """

    name: str
    memory: str
    slots: int
    slot_bytes: int
    spread: int = 1

    @property
    def own_bytes(self) -> int:
        """Bytes of the memory of one core that all slots take."""
        return self.slots * self.slot_bytes // self.spread


@dataclass(frozen=True, slots=True)
class Semaphore:
    """A counting semaphore of one core. A wait takes from it, a signal adds to it.

    pieces: of time alone: what is signalled is handed over piece by piece, so that the wait is over when the signaller
    begins, and what waited does not end before it (timing machine).
    """

    name: str
    initial: int = 0
    pieces: bool = False


@dataclass(frozen=True, slots=True)
class Sync:
    """Wait for, or signal, `count` of a semaphore."""

    semaphore: str
    count: int = 1


@lru_cache(maxsize=4096)
def one_of(semaphore: str) -> Sync:
    """Wait for, or signal, one of a semaphore."""
    return Sync(semaphore)


@dataclass(frozen=True, slots=True)
class GlobalTile:
    """rows x cols elements of a global array, from (row, col)."""

    array: str
    row: Affine
    col: Affine
    rows: int
    cols: int


@dataclass(frozen=True, slots=True)
class LocalTile:
    """rows x cols elements of one slot of a buffer, from (row, col) within the slot.

    The slot taken is `slot` modulo the buffer's number of slots, evaluated when the stream issues.
    `width`: elements per row of what lies in the slot, when the tile is a part of it (0: `cols`). `order`: what follows
    one another in the memory; of time alone, as a GlobalArray's.
    """

    buffer: str
    rows: int
    cols: int
    format: str
    slot: Affine = ZERO
    row: int = 0
    col: int = 0
    width: int = 0
    order: Order = "rows"

    def part(self, row: int, rows: int) -> LocalTile:
        """Rows row .. row + rows - 1 of this tile."""
        return replace(self, row=self.row + row, rows=rows, width=self.width or self.cols)


Tile = GlobalTile | LocalTile


@dataclass(frozen=True, slots=True)
class Instr:
    """One instruction: which engine, what it does, what it touches, what it awaits and signals.

    copy    writes[0] = reads[0] (formats equal)
    mma     writes[0] = reads[0] x reads[1] (+ writes[0] when accumulating); `unit` names the device's
            matrix instruction. It accumulates unless every loop named in `zero_at` is at 0
            (zero_at=() accumulates never; None always).
    cast    writes[0] = reads[0] rounded to the format of writes[0] by `rounding`; beyond it as `overflow` says
            (None: as the device's conversions do)
    add sub mul   writes[0] = reads[0] op reads[1], fp32, nearest even (add also of int32, wrapping)
    scale   writes[0] = reads[0] * scalar, fp32, nearest even
    fill    writes[0] = scalar
    sync    nothing but its waits and signals
    multicast: of a copy from global memory, the cores (a cluster) that take it from L2 together, in equal parts, and
    each receive it whole: only the traffic of L2 is shared, in bytes and in time. Into a slot that is spread each
    receives its part.
    scale_exponent: of mma, the accumulator counts times 2^-this before the first product (tcgen05's scale-input-d);
    of add, reads[0] counts times 2^-this (the fp32 lanes' fused multiply-add takes as long).
    Waits are met before it starts, signals given when it completes. `repeat`: back to back, same operands.
    """

    engine: str
    opcode: Opcode
    writes: tuple[Tile, ...] = ()
    reads: tuple[Tile, ...] = ()
    waits: tuple[Sync, ...] = ()
    signals: tuple[Sync, ...] = ()
    unit: str | None = None
    zero_at: tuple[str, ...] | None = ()
    scalar: float = 0.0
    rounding: str = "RNE"
    overflow: Literal["ieee", "saturate"] | None = None
    scale_exponent: int = 0
    multicast: int = 1
    repeat: int = 1
    label: str = ""


@dataclass(frozen=True, slots=True)
class Loop:
    """`count` passes over `body`; `name` is the loop's variable, unique in the stream."""

    name: str
    count: int
    body: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Advance:
    """Adds `by` to a counter of the stream (counters start at 0): the cursor of a ring of slots."""

    counter: str
    by: int = 1


Node = Instr | Loop | Advance


@dataclass(frozen=True, slots=True)
class Stream:
    """One thread of issue of a core. derived: variables that affine expressions in it may name."""

    name: str
    body: tuple[Node, ...]
    derived: tuple[Derived, ...] = ()


@dataclass(frozen=True, slots=True)
class CoreGroup:
    """Cores first .. first + count - 1, all running the same streams (addresses may depend on CORE)."""

    first: int
    count: int
    streams: tuple[Stream, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One device kernel (a phase): starts when the one before has ended on all cores.

    original: the kernel of which it is a copy (hwsim.program.rename, which alone says so). names: the arrays that it
    takes in place of those of the original, by their names there.
    """

    name: str
    groups: tuple[CoreGroup, ...]
    buffers: tuple[Buffer, ...] = ()
    semaphores: tuple[Semaphore, ...] = ()
    original: Kernel | None = field(default=None, init=False, compare=False, repr=False)
    names: Mapping[str, str] = field(default_factory=dict, init=False, compare=False, repr=False)

    def instrs(self) -> Iterator[Instr]:
        """Every instruction as written (loops not repeated), in the order of groups and streams."""
        found: list[Instr] = []
        for group in self.groups:
            for stream in group.streams:
                _collect(stream.body, found)
        return iter(found)


def _collect(body: tuple[Node, ...], found: list[Instr]) -> None:
    for node in body:
        if type(node) is Instr:
            found.append(node)
        elif type(node) is Loop:
            _collect(node.body, found)


@dataclass(frozen=True, slots=True)
class Program:
    """Kernels in order over global arrays. `inputs` are filled by the caller, `output` is read by it.

    computes: whether running it gives the plan's bits; False: it stands for the work and its time alone. gemm: the
    record that it was written from, where there is one.
    """

    arrays: tuple[GlobalArray, ...]
    kernels: tuple[Kernel, ...]
    inputs: tuple[str, ...]
    output: str
    computes: bool = True
    gemm: Gemm | None = field(default=None, compare=False, repr=False)

    @property
    def units(self) -> set[str]:
        """Names of its matrix instructions."""
        own = {id(kernel) for kernel in self.kernels}
        kernels = [kernel for kernel in self.kernels if id(kernel.original) not in own]
        return {instr.unit for kernel in kernels for instr in kernel.instrs() if instr.unit is not None}
