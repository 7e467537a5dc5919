"""The program representation: what every core of a device executes, with loops kept as loops.

A program has buffers, tiles, instructions and their order; it does not know which scheme it computes, which bits come
out, or how long anything takes. Two machines interpret it (hwsim.machines).

A core runs one or more *streams*. A stream issues its instructions in order into the in-order queues of the core's
*engines*, which run concurrently; semaphores order engines among themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from hwsim.errors import ProgramError
from hwsim.gemm.layouts import StorageOrder
from hwsim.gemm.problem import Windows
from hwsim.gemm.record import Gemm
from hwsim.program.quick import quick
from hwsim.program.roles import ROLES, Opcode, roles_of

CORE = "core"  # the variable that holds a core's absolute index in every Affine
# Formats of additions and multiplications outside the matrix unit: all tiles of an instruction have one of these.
_FLOATS = ("fp32", "fp64")
_INTEGERS = ("int32", "int64")
LANE_FORMATS = {
    "add": (*_FLOATS, *_INTEGERS),
    "sub": (*_FLOATS, *_INTEGERS),
    "mul": _FLOATS,
    "scale": (*_FLOATS, *_INTEGERS),
    "fma": (*_FLOATS, *_INTEGERS),
    "add_row": (*_FLOATS, *_INTEGERS),
    "reduce_add": _INTEGERS,
    "reduce_max": _FLOATS,
    "select": _INTEGERS,
} | dict.fromkeys(
    (
        *("reduce_largest", "reduce_lanes", "reduce_meet", "reduce_row", "halve_below", "square_below", "choose_above"),
        *("ex2_cubic", "or_zero", "or_one", "divide"),
    ),
    ("fp32",),
)
# Instructions whose tiles have formats of their own: of what they write, then of each that they read.
_ALL_INTEGERS = (*_INTEGERS, "int16", "int8", "uint8", "int4")
MIXED_FORMATS: dict[str, tuple[tuple[str, ...], ...]] = {
    "ldexp": (_FLOATS, (*_FLOATS, *_ALL_INTEGERS), ("int32",)),
    "extract": (_ALL_INTEGERS, _ALL_INTEGERS),
    "exponent": (("int32",), _FLOATS),
    "remainder": (("int32", "int16", "int8"), (*_FLOATS, *_INTEGERS)),
    "places": (("int32",), _FLOATS),
    "mask": (("fp32",), ("fp32",), ("int32",), ("int32",)),
}
# Instructions of which a tile that is read may be one row, one column or one element, which counts for all.
REPEATING = ("add", "sub", "mul", "ldexp", "select")
#: The same of single roles.
REPEATED = {"mask": ("index", "limit"), "fma": ("right", "multiplier"), "divide": ("right",)}
REDUCING = ("reduce_add", "reduce_max", "reduce_largest")
#: Reductions in the order of an accumulator's four lanes, or of one thread: elements of a row in what is read, and in
#: what is written.
LANES, LANE_COLUMNS = 4, 2  # lanes of a row; columns beside each other that a lane has of each eight
LANE_WIDTHS: dict[str, tuple[int | None, int]] = {
    "reduce_lanes": (None, LANES),
    "reduce_meet": (LANES, 1),
    "reduce_row": (None, 1),
}
#: Instructions of the special-function unit; `log` is CUDA's logf, which takes none.
SPECIAL = ("ex2", "lg2", "rcp", "exp")
# Instructions for which no device file gives a time: the instructions that take as long together. A cast comes on top
# where the source is an integer and the result a float, or the other way round.
TIMED_AS: dict[str, tuple[str, ...]] = {
    "fma": ("scale", "add"),
    "add_row": ("add",),
    "ldexp": ("scale",),
    "extract": ("add",),
    "exponent": (),
    "reduce_add": ("add",),
    "reduce_max": ("add",),
    "remainder": ("scale", "scale", "add", "add"),  # quotient, product, and two corrections
    "places": ("scale", "add", "add", "cast"),  # beside a logarithm, which is left out
    "select": ("add", "add"),  # a comparison and a choice
    "mask": ("compare", "compare"),  # a comparison and a selection, which take as long as each other
    "reduce_largest": ("compare",),
    "reduce_lanes": ("add",),
    "reduce_meet": ("add",),
    "reduce_row": ("add",),
    "halve_below": ("compare", "scale"),
    "square_below": ("mul",),  # its condition is that of halve_below
    "choose_above": ("compare", "compare"),  # as mask
    "ex2_cubic": ("compare", *("add",) * 7),  # the bound; three sums, three multiply-adds, a shift with a sum
    "or_zero": ("compare", "compare"),
    "or_one": ("compare", "compare"),
    "reciprocal": ("scale", "scale", "add", "add"),  # an estimate and its corrections
    "divide": ("compare", *("add",) * 6),  # a check; multiply-adds beside an estimate, which is left out
    "log": ("compare", *("add",) * 12),  # a polynomial of nine coefficients, and what stands around it
}
FUSED_AS = ("add",)  # an fma with a multiplier: one instruction of GPUs, at the rate of additions


def repeats(instr: Instr, role: str) -> bool:
    """Whether the tile that it reads as this role may be one row, one column or one element."""
    return instr.opcode in REPEATING or role in REPEATED.get(instr.opcode, ())


@quick
@dataclass(frozen=True, slots=True)
class Affine:
    """An affine expression: constant + sum of coefficient * variable, where a variable is a loop, a counter, a derived
    variable or CORE.
    """

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
    """The expression that is just this variable: a loop, a counter, or CORE."""
    return Affine(0, ((name, 1),))


@quick
@dataclass(frozen=True, slots=True)
class Derived:
    """A derived variable: of // divisor, or of % divisor, for example the row and column of a tile number.

    `of` may name CORE, loops, counters and other derived variables of the stream, but no derived one before itself.
    """

    name: str
    of: Affine
    divisor: int
    part: Literal["quotient", "remainder"]


@quick
@dataclass(frozen=True, slots=True)
class GlobalArray:
    """A matrix in global memory: rows x cols elements of a format (hwsim.formats), stored by rows or by columns.

    order changes which bytes lie together, and so only the time of transfers; tiles are named by row and column.
    of: a view: another array, in whose memory these elements lie, many in the same place (an image, and its windows as
    rows of a matrix); reads: how many elements of that it shows; windows: which they are (None: no view).
    element_bits: bits of an element in memory, where they are not its format's: on average, with the metadata of 2:4
    sparsity (0: the format's).
    """

    name: str
    rows: int
    cols: int
    format: str
    order: StorageOrder = "rows"
    of: str = ""
    reads: int = 0
    windows: Windows | None = None
    element_bits: int = 0

    @property
    def stored(self) -> tuple[int, int]:
        """(lines, elements per line): the contiguous lines in memory."""
        return (self.rows, self.cols) if self.order == "rows" else (self.cols, self.rows)


@quick
@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer in one of a core's memories (the device's name for it): `slots` slots of `slot_bytes` each.

    spread: cores beside each other over whose memories a slot lies, in equal parts, for instructions of all of them.
    spilled: bytes that take no room in the memory, because they lie in local memory between uses: the program's copies
    move them there and back. element_bits: as a GlobalArray's.
    """

    name: str
    memory: str
    slots: int
    slot_bytes: int
    spread: int = 1
    spilled: int = 0
    element_bits: int = 0

    @property
    def own_bytes(self) -> int:
        """Bytes that all slots need in the memory of one core."""
        return self.slots * self.slot_bytes // self.spread - self.spilled


@quick
@dataclass(frozen=True, slots=True)
class Semaphore:
    """A counting semaphore of one core. A wait subtracts from it, a signal adds to it.

    peers: of one core of each group that names it, those at the same place in their groups, which are equally large:
    what one of them signals another may await (a flag in global memory). Groups never await one another in a circle.
    pieces: of time alone: what is signalled is handed over piece by piece, so that the wait is over when the signaller
    begins, and what waited does not end before it (timing machine).
    """

    name: str
    initial: int = 0
    pieces: bool = False
    peers: bool = False


@quick
@dataclass(frozen=True, slots=True)
class Sync:
    """A wait for, or a signal of, `count` of a semaphore."""

    semaphore: str
    count: int = 1


@lru_cache(maxsize=4096)
def one_of(semaphore: str) -> Sync:
    """A wait for, or a signal of, one of a semaphore."""
    return Sync(semaphore)


@quick
@dataclass(frozen=True, slots=True)
class GlobalTile:
    """A tile of a global array: rows x cols elements from (row, col)."""

    array: str
    row: Affine
    col: Affine
    rows: int
    cols: int


@quick
@dataclass(frozen=True, slots=True)
class LocalTile:
    """A tile in one slot of a buffer: rows x cols elements from (row, col) within the slot.

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
    order: StorageOrder = "rows"

    def part(self, row: int, rows: int, cols: int | None = None) -> LocalTile:
        """The rows row .. row + rows - 1 of this tile, the first `cols` columns (None: all)."""
        whole = self.width or self.cols
        return replace(self, row=self.row + row, rows=rows, cols=self.cols if cols is None else cols, width=whole)


AnyTile = GlobalTile | LocalTile


@quick
@dataclass(frozen=True, slots=True)
class Instr:
    """One instruction: its engine, operation, operands, waits and signals.

    `reads` has the operands of the opcode by role, in the order of hwsim.program.roles: first the required ones, then
    those that `optional` names. Below, D is the tile that it writes.

    copy    D = source (formats equal)
    mma     D = a x b (+ D when accumulating: its operand in place, `accumulator`); `unit` names the device's matrix
            instruction. It accumulates unless every loop named in `zero_at` is at 0 (zero_at=() accumulates never; None
            always). Where the unit has block scales: scale_a (rows of a x blocks of K), scale_b (blocks of K x columns
            of b). metadata (rows of a x K / 4): for each four of K the places of the two elements that a has of them.
    cast    D = source rounded to the format of D by `rounding`; beyond it as `overflow` says (None: as the device's
            conversions do); from integers to nearest even, beyond integers the nearest one
    add sub mul   D = left op right, fp32 or fp64, nearest even (add and sub also int32 or int64, which wrap). A tile
            that is read may be one row, one column or one element, which counts for all, and then lie in global memory;
            its load takes no time of its own. rounding: RU rounds an addition of floats up
    scale   D = source * scalar, fp32 or fp64, nearest even (also int32 or int64, which wrap)
    fma     D = left * scalar + right, fp32 or fp64, rounded once to nearest even (integers: as scale). With a
            multiplier, a tile, in place of the scalar (fp32; fp64 rounded up, by rounding RU): repeated as of add
    ldexp   D = source * 2^(scalar * exponent - scale_exponent), fp32 or fp64, rounded once to nearest even; source is a
            float or an integer, exponent int32, and repeated as of add
    extract D = as many bits of the integer source as its format has, from bit scale_exponent on
    exponent      D = the least int32 e with |source| < 2^e; 0 of zero
    reduce_add    D = total + the sum of each row of source, where D and total are one column (of each column, where
            they are one row), int32 or int64, which wrap
    reduce_max    D = the larger of total and the largest magnitude in each row (or column) of source, fp32 or fp64;
            infinities and NaNs count as 0
    remainder     D = the residue of the source, truncated to an integer, modulo scale_exponent: of least magnitude,
            of two the positive one. Where it is beyond D's format its low bits stay; of an infinity or a NaN it is 0
    places        D = GEMMul8's binary places of residues, int32, with scalar as Plan.log2_bound: of a sum of squares;
            with scale_exponent 1 of the largest sum of magnitudes, fp32
    select  D = left where condition is not 0, else right; int32 or int64, and repeated as of add
    mask    D = source where index < limit, else scalar, fp32; index (one row) and limit (one column) are int32 and may
            lie in global memory, as of add
    reduce_largest  D = the larger of total and the largest of each row of source (one column, fp32), without NaNs
    reduce_lanes  D = total + source by lanes, fp32: the four columns of D are lanes; of each eight columns of source
            lane l adds the columns 2 l and 2 l + 1, one after the other
    reduce_meet   D = the sum of the four lanes of a row: those scale_exponent (1 or 2) apart first, fp32
    reduce_row    D = total + the sum of each row of source, fp32, one column, by one thread: every eighth column has a
            sum of its own, of which the first begins at total; sums 2 apart meet, then 4, then 1
    choose_above  D = left where argument is at least scalar, else right, fp32
    ex2_cubic     D = 2^source by FlashAttention-4's polynomial, fp32
    halve_below   D = source / 2 where it is below scalar, else source, fp32
    square_below  D = source squared where argument is below scalar, else source, fp32
    or_zero, or_one   D = source, fp32; 0 where it is -infinity, and 1 where it is 0 or a NaN
    reciprocal    D = 1 / source, fp32, rounded to nearest even
    divide        D = left / right, fp32, rounded to nearest even; right repeated as of add
    log           D = CUDA's logf of source, fp32
    ex2 lg2 rcp   D = 2^source, log2(source), 1 / source of the special-function unit (.approx.ftz), fp32
    exp           D = CUDA's expf of source, on the same unit, fp32
    add_row D = left + row, where row is one row, added to each row (a bias); it may lie in global memory, and its load
            takes no time of its own
    fill    D = scalar
    sync    nothing but its waits and signals
    multicast: of a copy from global memory, the cores (a cluster) that take it from L2 together, in equal parts, and
    each receive it whole: only the traffic of L2 is shared, in bytes and in time. Into a slot that is spread each
    receives its part.
    swapped: of mma, the unit's rows are C's columns: it computes C transposed, the product of B and A transposed. Both
    have one format; no bit depends on it.
    scale_exponent: of mma, the accumulator counts times 2^-this before the first product (tcgen05's scale-input-d);
    of add, left counts times 2^-this (the fp32 lanes' fused multiply-add takes as long); of scale, in place of the
    scalar, for powers beyond the format's.
    Waits are met before it starts, signals given when it completes. `repeat`: back to back, same operands.
    """

    engine: str
    opcode: Opcode
    writes: tuple[AnyTile, ...] = ()
    reads: tuple[AnyTile, ...] = ()
    waits: tuple[Sync, ...] = ()
    signals: tuple[Sync, ...] = ()
    unit: str | None = None
    zero_at: tuple[str, ...] | None = ()
    scalar: float = 0.0
    rounding: str = "RNE"
    overflow: Literal["ieee", "saturate"] | None = None
    scale_exponent: int = 0
    multicast: int = 1
    swapped: bool = False
    repeat: int = 1
    label: str = ""
    optional: tuple[str, ...] = ()

    @property
    def roles(self) -> tuple[str, ...]:
        """The role of each tile of `reads`."""
        return roles_of(self.opcode, self.optional)

    def has(self, role: str) -> bool:
        """Whether it reads an operand of this role."""
        if role == ROLES[self.opcode].in_place:
            return self.zero_at != ()
        return role in self.roles

    def operand(self, role: str) -> AnyTile:
        """The tile that it reads as this role. Raises ProgramError where it reads none."""
        if not self.has(role):
            raise ProgramError(f"{self.opcode} reads no {role}; it reads {', '.join(self.roles) or 'nothing'}")
        return self.writes[0] if role == ROLES[self.opcode].in_place else self.reads[self.roles.index(role)]

    def immediates(self) -> dict[str, float]:
        """The numbers in it, by role."""
        return {role: getattr(self, name) for role, name in ROLES[self.opcode].immediates.items()}


@quick
@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of `count` iterations over `body`; `name` is the loop's variable, unique in the stream."""

    name: str
    count: int
    body: tuple[StreamItem, ...]


@quick
@dataclass(frozen=True, slots=True)
class Advance:
    """Adds `by` to a counter of the stream (counters start at 0), for example the cursor of a ring buffer."""

    counter: str
    by: int = 1


StreamItem = Instr | Loop | Advance


@quick
@dataclass(frozen=True, slots=True)
class Stream:
    """One instruction stream of a core. derived: variables for the affine expressions in it."""

    name: str
    body: tuple[StreamItem, ...]
    derived: tuple[Derived, ...] = ()


@quick
@dataclass(frozen=True, slots=True)
class CoreGroup:
    """Cores first .. first + count - 1, which all run the same streams (addresses may depend on CORE)."""

    first: int
    count: int
    streams: tuple[Stream, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One device kernel (a phase); it starts when the previous one has finished on all cores.

    original: the kernel that this one is a renamed copy of (set by hwsim.program.rename alone). names: the arrays of
    the copy, by the names that they have in the original.
    """

    name: str
    groups: tuple[CoreGroup, ...]
    buffers: tuple[Buffer, ...] = ()
    semaphores: tuple[Semaphore, ...] = ()
    original: Kernel | None = field(default=None, init=False, compare=False, repr=False)
    names: Mapping[str, str] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def memory_bytes(self) -> dict[str, int]:
        """Bytes that the buffers take of each memory of one core, by its name."""
        used: dict[str, int] = {}
        for buffer in self.buffers:
            used[buffer.memory] = used.get(buffer.memory, 0) + buffer.own_bytes
        return used

    def instrs(self) -> Iterator[Instr]:
        """Every instruction as written (loop bodies once), in the order of groups and streams."""
        instrs: list[Instr] = []
        for group in self.groups:
            for stream in group.streams:
                _collect(stream.body, instrs)
        return iter(instrs)


def _collect(body: tuple[StreamItem, ...], instrs: list[Instr]) -> None:
    for node in body:
        if type(node) is Instr:
            instrs.append(node)
        elif type(node) is Loop:
            _collect(node.body, instrs)


@dataclass(frozen=True, slots=True)
class Program:
    """A sequence of kernels over global arrays. The caller fills `inputs` and reads `output`.

    gemm: the record that it was made from, if any.
    """

    arrays: tuple[GlobalArray, ...]
    kernels: tuple[Kernel, ...]
    inputs: tuple[str, ...]
    output: str
    gemm: Gemm | None = field(default=None, compare=False, repr=False)

    @property
    def units(self) -> set[str]:
        """The names of its matrix instructions."""
        kernel_ids = {id(kernel) for kernel in self.kernels}
        kernels = [kernel for kernel in self.kernels if id(kernel.original) not in kernel_ids]
        return {instr.unit for kernel in kernels for instr in kernel.instrs() if instr.unit is not None}


def evaluate(affine: Affine, values: Mapping[str, int]) -> int:
    """The value of an affine expression; counters that have not advanced are 0."""
    value = affine.constant
    for name, coefficient in affine.terms:
        value += coefficient * values.get(name, 0)
    return value


def derive(derived: Iterable[Derived], values: dict[str, int]) -> None:
    """Set the derived variables from the loops, counters and CORE in `values`; quotients are rounded down."""
    for variable in derived:
        quotient, remainder = divmod(evaluate(variable.of, values), variable.divisor)
        values[variable.name] = quotient if variable.part == "quotient" else remainder
