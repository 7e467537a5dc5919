"""Builder for programs: nested loops as `with` blocks, ring buffers with their semaphores, blocked extents.

It knows the structure of a program, not the device it is for and not the scheme it computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import attrgetter
from typing import Literal

from hwsim.gemm.layouts import StorageOrder
from hwsim.program.ir import (
    CORE,
    Advance,
    Affine,
    AnyTile,
    Buffer,
    CoreGroup,
    Derived,
    Instr,
    Kernel,
    LocalTile,
    Loop,
    Semaphore,
    Stream,
    StreamItem,
    Sync,
    one_of,
    variable,
)
from hwsim.program.quick import quick
from hwsim.program.roles import Opcode, in_order


@quick
@dataclass(frozen=True, slots=True)
class Ring:
    """A ring buffer: slots that one engine fills and another empties, in order.

    Semaphores `<name>.free` (initially all slots) and `<name>.full` (initially none) count them; the
    counters `<name>.push` and `<name>.pop` of the stream say which slot is next on either side.
    """

    name: str

    @property
    def free(self) -> Sync:
        """A Sync of one empty slot."""
        return one_of(f"{self.name}.free")

    @property
    def full(self) -> Sync:
        """A Sync of one filled slot."""
        return one_of(f"{self.name}.full")

    def tile(self, side: str, rows: int, cols: int, format: str, order: StorageOrder = "rows") -> LocalTile:
        """The slot at the `push` or `pop` cursor, as a tile."""
        return LocalTile(self.name, rows, cols, format, variable(f"{self.name}.{side}"), order=order)


_FIELDS = [field.name for field in fields(Instr)]
_SIGNALS, _VALUES = _FIELDS.index("signals"), attrgetter(*_FIELDS)
_advance = lru_cache(maxsize=4096)(Advance)


class Derivations:
    """Derived variables under construction. before: the number that the stream already has, for distinct names."""

    def __init__(self, before: int = 0) -> None:
        self.before = before
        self.derived: list[Derived] = []

    def derive(self, name: str, of: Affine, divisor: int) -> tuple[Affine, Affine]:
        """See StreamBuilder.derive."""
        number = self.before + len(self.derived)
        quotient, remainder = f"{name}.quotient#{number}", f"{name}.remainder#{number}"
        self.derived += (Derived(quotient, of, divisor, "quotient"), Derived(remainder, of, divisor, "remainder"))
        return variable(quotient), variable(remainder)


class StreamBuilder:
    """Builds one stream."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stack: list[list[StreamItem]] = [[]]
        self._loops = 0
        self._derivations = Derivations()

    @contextmanager
    def loop(self, name: str, count: int) -> Iterator[tuple[str, Affine]]:
        """Context manager: a loop of `count` iterations over what is emitted inside; yields the loop's unique name and
        its variable.
        """
        unique = self.begin(name)
        yield unique, variable(unique)
        self.end(unique, count)

    def begin(self, name: str) -> str:
        """Begin a loop over what is emitted until its `end`; returns its unique name."""
        unique = f"{name}#{self._loops}"
        self._loops += 1
        self._stack.append([])
        return unique

    def end(self, unique: str, count: int) -> None:
        """End the innermost loop, of that name, with `count` iterations."""
        body = tuple(self._stack.pop())
        if body and count > 0:
            self._stack[-1].append(Loop(unique, count, body))

    @property
    def depth(self) -> int:
        """The number of loops that are open."""
        return len(self._stack) - 1

    def blocks(self, name: str, extent: int, block: int) -> Iterator[Span]:
        """Iterate over `extent` in blocks: one loop over the full blocks, then the remainder as a block of its own.

        The body of the `for` statement is run (emits) once or twice, not once per block.
        """
        whole, rest = divmod(extent, block)
        if whole:
            unique = self.begin(name)
            index = variable(unique)
            yield Span(index, index * block, block, unique, not rest)
            self.end(unique, whole)
        if rest:
            yield Span(Affine(whole), Affine(whole * block), rest, None, True)

    def derive(self, name: str, of: Affine, divisor: int) -> tuple[Affine, Affine]:
        """Declare the quotient (rounded down) and the remainder of `of` by `divisor` as variables of the stream.

        `of` may name CORE, loops that are open here, counters, and what an earlier `derive` gave.
        """
        return self._derivations.derive(name, of, divisor)

    @property
    def derived(self) -> int:
        """The number of derived variables."""
        return len(self._derivations.derived)

    def adopt(self, derived: Iterable[Derived]) -> None:
        """Append derived variables made by a Derivations with `before` equal to `derived`."""
        self._derivations.derived.extend(derived)

    def emit(
        self,
        engine: str,
        opcode: Opcode,
        writes: AnyTile | None = None,
        reads: Iterable[AnyTile] | Mapping[str, AnyTile] = (),
        waits: Iterable[Sync] = (),
        signals: Iterable[Sync] = (),
        *,
        unit: str | None = None,
        zero_at: tuple[str, ...] | None = (),
        scalar: float = 0.0,
        rounding: str = "RNE",
        overflow: Literal["ieee", "saturate"] | None = None,
        scale_exponent: int = 0,
        multicast: int = 1,
        swapped: bool = False,
        repeat: int = 1,
        label: str = "",
    ) -> None:
        """Append one instruction (see ir.Instr for the opcodes and the attributes). reads: the required operands in
        their order, or operands by role.
        """
        optional: tuple[str, ...] = ()
        if isinstance(reads, Mapping):
            reads, optional = in_order(opcode, reads)
        self._stack[-1].append(
            Instr(
                engine=engine,
                opcode=opcode,
                writes=() if writes is None else (writes,),
                reads=tuple(reads),
                waits=tuple(waits),
                signals=tuple(signals),
                unit=unit,
                zero_at=zero_at,
                scalar=scalar,
                rounding=rounding,
                overflow=overflow,
                scale_exponent=scale_exponent,
                multicast=multicast,
                swapped=swapped,
                repeat=repeat,
                label=label,
                optional=optional,
            )
        )

    def signal_last(self, engine: str, signals: Iterable[Sync]) -> bool:
        """Add signals to the last instruction of `engine` in the innermost open block; False if a loop comes first."""
        block = self._stack[-1]
        for at in range(len(block) - 1, -1, -1):
            node = block[at]
            if isinstance(node, Loop):
                return False
            if isinstance(node, Instr) and node.engine == engine:
                values = list(_VALUES(node))
                values[_SIGNALS] = (*node.signals, *signals)
                block[at] = Instr(*values)
                return True
        return False

    def advance(self, counter: str, by: int = 1) -> None:
        """Add `by` to a counter of the stream, at run time."""
        self._stack[-1].append(_advance(counter, by))

    def pushed(self, ring: Ring) -> None:
        """Move the push cursor of `ring` to the next slot."""
        self.advance(f"{ring.name}.push")

    def popped(self, ring: Ring) -> None:
        """Move the pop cursor of `ring` to the next slot."""
        self.advance(f"{ring.name}.pop")

    def finish(self) -> Stream:
        """The stream as built so far."""
        return Stream(self.name, tuple(self._stack[0]), tuple(self._derivations.derived))


@quick
@dataclass(frozen=True, slots=True)
class Span:
    """Blocks of one size within an extent, as yielded by `StreamBuilder.blocks`.

    index: of the block. start: its first element. size: its elements. loop: name of the loop over the blocks, None: one
    block. last: the extent's last block is among these. continues: blocks of another extent come before all of these.
    """

    index: Affine
    start: Affine
    size: int
    loop: str | None
    last: bool
    continues: bool = False

    @property
    def zero_at(self) -> tuple[str, ...] | None:
        """The loops at whose first iteration the first product of these blocks of K starts from zero."""
        if self.continues:
            return None
        if self.loop is not None:
            return (self.loop,)
        return None if self.index.constant else ()


class KernelBuilder:
    """Builds one kernel: its buffers, semaphores and core groups."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._buffers: dict[str, Buffer] = {}
        self._semaphores: dict[str, Semaphore] = {}
        self._groups: list[CoreGroup] = []

    def buffer(
        self,
        name: str,
        memory: str,
        slots: int,
        slot_bytes: int,
        spread: int = 1,
        spilled: int = 0,
        element_bits: int = 0,
    ) -> str:
        """Declare a buffer; returns its name."""
        size = {"spread": spread, "spilled": spilled, "element_bits": element_bits}
        self._buffers[name] = Buffer(name, memory, slots, slot_bytes, **size)
        return name

    def semaphore(self, name: str, initial: int = 0, pieces: bool = False, peers: bool = False) -> Sync:
        """Declare a semaphore; returns a Sync of one of it."""
        self._semaphores[name] = Semaphore(name, initial, pieces, peers)
        return Sync(name)

    def ring(self, name: str, memory: str, slots: int, slot_bytes: int, pieces: bool = False) -> Ring:
        """Declare a buffer whose slots are used in order, with its two semaphores (pieces: see Semaphore)."""
        self.buffer(name, memory, slots, slot_bytes)
        self.semaphore(f"{name}.free", slots, pieces)
        self.semaphore(f"{name}.full", 0, pieces)
        return Ring(name)

    def group(self, first: int, count: int, *streams: StreamBuilder) -> None:
        """Add cores first .. first + count - 1, which run `streams`."""
        self._groups.append(CoreGroup(first, count, tuple(stream.finish() for stream in streams)))

    def finish(self) -> Kernel:
        """The kernel as built so far."""
        return Kernel(self.name, tuple(self._groups), tuple(self._buffers.values()), tuple(self._semaphores.values()))


@dataclass(frozen=True, slots=True)
class CoreShare:
    """Consecutive cores with the same number of blocks of an extent, in cyclic distribution (block i to core i mod
    cores).

    first, count: the cores. whole: full blocks per core. rest: elements of the last, partial block, or 0.
    """

    first: int
    count: int
    whole: int
    rest: int


def distribute(extent: int, block: int, cores: int) -> list[CoreShare]:
    """Distribute the blocks of `extent` over `cores` cyclically; cores without a block are left out."""
    whole, rest = divmod(extent, block)
    waves, extra = divmod(whole, cores)
    shares = []
    if extra:
        shares.append(CoreShare(0, extra, waves + 1, 0))
    if rest:
        shares.append(CoreShare(extra, 1, waves, rest))
    first = extra + bool(rest)
    if waves and first < cores:
        shares.append(CoreShare(first, cores - first, waves, 0))
    return shares


def blocks_of_share(
    stream: StreamBuilder, name: str, share: CoreShare, block: int, cores: int, place: Affine | None = None
) -> Iterator[Span]:
    """The blocks of `share` in one stream. place: the number of the core among the `cores`, None: CORE."""
    core = variable(CORE) if place is None else place
    if share.whole:
        with stream.loop(name, share.whole) as (unique, turn):
            index = turn * cores + core
            yield Span(index, index * block, block, unique, not share.rest)
    if share.rest:
        index = core + share.whole * cores
        yield Span(index, index * block, share.rest, None, True)
