"""Writes the kernel of a sum of products on a systolic array: fill, stream and skew, drain. It knows no plan and no
time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hwsim.dataflows.elementwise import link_engine
from hwsim.dataflows.systolic.pe_array import MEMORIES, SLOTS, PeArray
from hwsim.dataflows.term_kernels import PieceArrays, PieceStages
from hwsim.devices.device import Device
from hwsim.devices.model.memories import PE
from hwsim.gemm.mapping import Tile
from hwsim.program.builder import (
    CoreShare,
    KernelBuilder,
    Ring,
    Span,
    StreamBuilder,
    blocks_of_share,
    distribute,
)
from hwsim.program.ir import CORE, Affine, GlobalArray, GlobalTile, Kernel, LocalTile, Sync, variable

INSIDE = Ring(PE)  # the operand that stays
PANEL = Ring("PANEL")  # the operand that is read again for every tile of the shared side, with all of its K
RESIDENT = Ring("RESIDENT")  # the other one: all tiles of an array's share of its side, with all of their K
BESIDE = {operand: Ring(memory) for operand, memory in MEMORIES.items()}
FIRST = Affine(0)
SUMS_LEAVE = Sync("SUMS.full")  # the array begins to give out the sums of a tile


@dataclass(frozen=True, slots=True)
class _Turn:
    """One tile of C, or tiles in a loop: its rows and columns; slots: the first fold's slot in the panel, by which the
    others follow; resident_slots: the same of the resident operand. is_first, is_last: of the tiles that read one
    panel. loads_resident: whether it is the first that reads these tiles of the resident operand.
    """

    rows: Span
    cols: Span
    slots: Affine = FIRST
    resident_slots: Affine = FIRST
    is_first: bool = True
    is_last: bool = True
    loads_resident: bool = False


@dataclass(frozen=True, slots=True)
class ArrayKernel:
    """target = the sum of the products of pieces of A and B: stage after stage over all of K, in a stage fold by fold.

    A fold is one tile: of K with weights or inputs in the PEs, of C with outputs there. tile: its sides. pe_tiles:
    tiles that the PEs hold; with two, one is filled or drained while the array works on the other. reuse: the operand
    that lacks the shared side is loaded once for all its tiles. has_resident: with reuse, the other one is loaded once
    too.
    """

    name: str
    device: Device
    array: PeArray
    tile: Tile
    pe_tiles: int
    stages: PieceStages
    target: GlobalArray
    reuse: bool = False
    has_resident: bool = False

    def kernel(self) -> Kernel:
        """The device kernel. Arrays share the columns of C, or its rows where inputs stay."""
        kernel, array, cores = KernelBuilder(self.name), self.array, self.device.cores
        for operand in MEMORIES:
            ring, slots = BESIDE[operand], SLOTS
            if self._is_reused(operand):
                ring, slots = PANEL, array.panel_slots(self.tile, self._sizes)
            elif self._is_resident(operand):
                ring, slots = RESIDENT, array.resident_slots(self.tile, self._sizes, cores)
            kernel.buffer(ring.name, MEMORIES[operand], slots, array.bytes_in(operand, self.tile))
            if ring is not RESIDENT:  # whose slots are filled once
                kernel.semaphore(ring.free.semaphore, slots)
            kernel.semaphore(ring.full.semaphore, pieces=True)  # rows are handed over as they come
        kernel.buffer(INSIDE.name, PE, self.pe_tiles, array.bytes_in(array.stays, self.tile))
        kernel.semaphore(INSIDE.free.semaphore, self.pe_tiles)
        kernel.semaphore(INSIDE.full.semaphore)  # filled before the first row streams, drained after the last
        kernel.semaphore(SUMS_LEAVE.semaphore)
        for share in distribute(*self._extents[0], cores):
            stream = StreamBuilder("main")
            for turn in self._turns(stream, share):
                self._tile(stream, turn)
            kernel.group(share.first, share.count, stream)
        return kernel.finish()

    @property
    def _k(self) -> int:
        return self.stages[0][0][0].cols

    @property
    def _sizes(self) -> tuple[int, int, int]:
        return self.target.rows, self.target.cols, self._k

    @property
    def _extents(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """(size, tile) of the side of C that arrays share, and of the other."""
        rows, cols = (self.target.rows, self.tile.m), (self.target.cols, self.tile.n)
        return (rows, cols) if self.array.rows_are_shared else (cols, rows)

    def _is_reused(self, operand: str) -> bool:
        return self.reuse and operand == self.array.reused

    def _is_resident(self, operand: str) -> bool:
        return self.has_resident and operand == self.array.resident

    def _turns(self, stream: StreamBuilder, share: CoreShare) -> Iterator[_Turn]:
        """The tiles of C of some arrays. With reuse the shared side is the inner one: all its tiles read one panel."""
        (_, block), other = self._extents
        cores, folds = self.device.cores, -(-self._k // self.tile.k)
        if not self.reuse:
            for span in blocks_of_share(stream, "shared", share, block, cores):
                for across in stream.blocks("other", *other):
                    yield _Turn(*self._sides(span, across))
            return
        for across, is_first_across in self._across(stream, *other):
            for span, ordinal, is_first, is_last in _first_and_last(stream, share, block, cores):
                slots = across.index * folds, ordinal * folds
                yield _Turn(*self._sides(span, across), *slots, is_first, is_last, is_first_across)

    def _across(self, stream: StreamBuilder, extent: int, block: int) -> Iterator[tuple[Span, bool]]:
        """The blocks of the side that arrays do not share, and whether they are the first one, which stands apart where
        an operand is resident for the others.
        """
        if not self.has_resident:
            yield from ((span, False) for span in stream.blocks("other", extent, block))
            return
        yield Span(Affine(0), Affine(0), min(block, extent), None, extent <= block), True
        whole, rest = divmod(max(extent - block, 0), block)
        if whole:
            with stream.loop("other", whole) as (unique, turn):
                index = turn + 1
                yield Span(index, index * block, block, unique, not rest), False
        if rest:
            yield Span(Affine(whole + 1), Affine((whole + 1) * block), rest, None, True), False

    def _sides(self, span: Span, across: Span) -> tuple[Span, Span]:
        """Rows and columns of C of a block of the shared side and one of the other."""
        return (span, across) if self.array.rows_are_shared else (across, span)

    def _tile(self, stream: StreamBuilder, turn: _Turn) -> None:
        """One tile of C: all folds into one slot of sums, then out."""
        array, sums, stages = self.array, self._ring("c"), self.stages
        stream.emit(array.engine, "sync", waits=[sums.free])
        for s, stage in enumerate(stages):
            for fold in self._folds(stream):
                for p, product in enumerate(stage):
                    self._load(stream, product, turn, fold)
                    is_last = fold.last and fold.loop is None and s == len(stages) - 1 and p == len(stage) - 1
                    leaves = is_last and array.stays != "c"
                    if leaves:  # the last fold's sums leave while its rows stream, once the PEs are filled
                        stream.emit(array.engine, "sync", waits=[INSIDE.full], signals=[SUMS_LEAVE])
                    is_first = s == p == fold.start.constant == 0
                    zero_at = ((fold.loop,) if fold.loop else ()) if is_first else None
                    self._multiply(stream, product[0].format, turn, fold, zero_at, is_filled=leaves)
        leaving = [SUMS_LEAVE] if array.stays == "c" else []
        stream.emit(array.engine, "sync", signals=[sums.full, *leaving])
        stream.pushed(sums)
        self._store(stream, turn.rows, turn.cols)

    def _folds(self, stream: StreamBuilder) -> Iterator[Span]:
        """K in tiles: a loop over all but the last one, then the last."""
        extent, size = self._k, self.tile.k
        before = (extent - 1) // size
        yield from stream.blocks("k", before * size, size)
        yield Span(Affine(before), Affine(before * size), extent - before * size, None, last=True)

    def _load(self, stream: StreamBuilder, product: PieceArrays, turn: _Turn, fold: Span) -> None:
        """A and B of a fold from global memory, and into the PEs what stays there."""
        for operand, source, sides in (("a", product[0], (turn.rows, fold)), ("b", product[1], (fold, turn.cols))):
            ring, shape = self._beside(operand), (sides[0].size, sides[1].size, source.format)
            in_order = ring is BESIDE[operand]
            near = ring.tile("push", *shape) if in_order else self._held(ring, shape, turn, fold)
            is_loaded = self._is_loaded(ring, turn)
            if is_loaded:
                load, place = link_engine(self.device, "GM", MEMORIES[operand]), self._place(source, *sides)
                room = [] if ring is RESIDENT else [ring.free]
                stream.emit(load, "copy", near, [place], room, [ring.full], label=f"load {ring.name}")
            if in_order:
                stream.pushed(ring)
            if operand == self.array.stays:
                fill, inside = link_engine(self.device, MEMORIES[operand], PE), INSIDE.tile("push", *shape)
                waits = [ring.full, INSIDE.free] if is_loaded else [INSIDE.free]
                signals = [ring.free, INSIDE.full] if in_order else [INSIDE.full]
                read = ring.tile("pop", *shape) if in_order else near
                stream.emit(fill, "copy", inside, [read], waits, signals, label="fill")
                if in_order:
                    stream.popped(ring)
                stream.pushed(INSIDE)

    def _multiply(
        self,
        stream: StreamBuilder,
        format: str,
        turn: _Turn,
        fold: Span,
        zero_at: tuple[str, ...] | None,
        *,
        is_filled: bool,
    ) -> None:
        """What streams passes what stays. is_filled: the array has waited for what stays."""
        operands, waits, signals, array = list[LocalTile](), list[Sync](), list[Sync](), self.array
        for operand, sides in (("a", (turn.rows, fold)), ("b", (fold, turn.cols))):
            ring, shape = self._ring(operand), (sides[0].size, sides[1].size, format)
            if ring in (PANEL, RESIDENT):
                operands.append(self._held(ring, shape, turn, fold))
                waits += [ring.full] if self._is_loaded(ring, turn) else []
                signals += [ring.free] if ring is PANEL and turn.is_last else []
            else:
                operands.append(ring.tile("pop", *shape))
                waits += [] if ring is INSIDE and is_filled else [ring.full]
                signals.append(ring.free)
        sums = self._ring("c").tile("push", turn.rows.size, turn.cols.size, self.target.format)
        stream.emit(
            array.engine, "mma", sums, operands, waits, signals, unit=array.unit, zero_at=zero_at, label="stream"
        )
        for operand in ("a", "b"):
            if (ring := self._ring(operand)) not in (PANEL, RESIDENT):
                stream.popped(ring)

    def _store(self, stream: StreamBuilder, rows: Span, cols: Span) -> None:
        """A tile's sums out of the PEs, if they are there, and to global memory."""
        out, beside, shape = self.target, BESIDE["c"], (rows.size, cols.size, self.target.format)
        if self.array.stays == "c":
            drain = link_engine(self.device, PE, MEMORIES["c"])
            waits, signals = [INSIDE.full, beside.free], [INSIDE.free, beside.full]
            source, near = INSIDE.tile("pop", *shape), beside.tile("push", *shape)
            stream.emit(drain, "copy", near, [source], waits, signals, label="drain")
            stream.popped(INSIDE)
            stream.pushed(beside)
        store, place = link_engine(self.device, MEMORIES["c"], "GM"), self._place(out, rows, cols)
        stream.emit(store, "sync", waits=[SUMS_LEAVE])
        stream.emit(store, "copy", place, [beside.tile("pop", *shape)], [beside.full], [beside.free], label="store")
        stream.popped(beside)

    def _ring(self, operand: str) -> Ring:
        """Where the array reads A and B, and adds C."""
        return INSIDE if operand == self.array.stays else self._beside(operand)

    def _beside(self, operand: str) -> Ring:
        """Where an operand lies beside the array."""
        if self._is_reused(operand):
            return PANEL
        return RESIDENT if self._is_resident(operand) else BESIDE[operand]

    @staticmethod
    def _is_loaded(ring: Ring, turn: _Turn) -> bool:
        """Whether a tile is loaded for this turn, and not there from one before."""
        return turn.is_first if ring is PANEL else turn.loads_resident if ring is RESIDENT else True

    @staticmethod
    def _held(ring: Ring, shape: tuple[int, int, str], turn: _Turn, fold: Span) -> LocalTile:
        """The tile of a fold in the panel, or of the resident operand."""
        return LocalTile(ring.name, *shape, (turn.slots if ring is PANEL else turn.resident_slots) + fold.index)

    @staticmethod
    def _place(array: GlobalArray, rows: Span, cols: Span) -> GlobalTile:
        return GlobalTile(array.name, rows.start, cols.start, rows.size, cols.size)


def _first_and_last(
    stream: StreamBuilder, share: CoreShare, block: int, cores: int
) -> Iterator[tuple[Span, Affine, bool, bool]]:
    """The blocks of `share`, the first and the last apart: each with its number in the share, and whether it is the
    first and the last.
    """
    core, count = variable(CORE), share.whole + bool(share.rest)
    first = Span(core, core * block, block if share.whole else share.rest, None, count == 1)
    yield first, Affine(0), True, count == 1
    if count > 2:
        with stream.loop("shared", count - 2) as (unique, turn):
            index = turn * cores + core + cores
            yield Span(index, index * block, block, unique, False), turn + 1, False, False
    if count > 1:
        index = core + (count - 1) * cores
        yield Span(index, index * block, share.rest or block, None, True), Affine(count - 1), False, True
