"""The kernel of attention: its streams on each core. Loads, products and softmax are streams of their own.

Where a core has two members, they take turns: the matrix unit multiplies for one while the lanes compute the softmax of
the other. The module knows tiles, places and semaphores; products and softmax have modules of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hwsim.dataflows.attention.attention_buffers import (
    Design,
    Member,
    Room,
    declare,
    keys_tile,
    loaded_values,
    loaded_values_tile,
    room,
    values_tile,
)
from hwsim.dataflows.attention.block_products import BlockProducts
from hwsim.dataflows.attention.block_softmax import BlockSoftmax
from hwsim.dataflows.attention.query_tiles import BlockRun, CoreTurns, HeadGrid, TilePlace, TileShape, Turn
from hwsim.dataflows.attention.result_pieces import ResultPieces
from hwsim.dataflows.attention.value_transpose import ValueTranspose
from hwsim.dataflows.vector_ops import link_engine
from hwsim.program.builder import KernelBuilder, StreamBuilder
from hwsim.program.ir import ZERO, Affine, GlobalTile, Kernel

if TYPE_CHECKING:
    from hwsim.devices.device import Device


@dataclass(frozen=True, slots=True)
class AttentionStreams:
    """Emits the kernel of a design over a grid."""

    design: Design
    grid: HeadGrid
    device: Device

    def kernel(self, plan: list[CoreTurns]) -> Kernel:
        """The kernel, with the turns of all cores."""
        builder = KernelBuilder(self.design.record.order.kernel)
        declare(builder, self.design)
        for cores in plan:
            work = {"loads": self._load, "products": self._multiply, "softmax": self._softmax}
            if self.design.transposes:
                work["transposes"] = self._transpose
            streams = []
            for name, emit in work.items():
                stream = StreamBuilder(name)
                for turn in cores.turns:
                    self._in_loop(stream, turn, emit)
                streams.append(stream)
            builder.group(cores.first, cores.count, *streams)
        return builder.finish()

    def _in_loop(
        self, s: StreamBuilder, turn: Turn, emit: Callable[[StreamBuilder, Turn, list[TilePlace]], None]
    ) -> None:
        if turn.count == 1:
            emit(s, turn, turn.places(s, ZERO))
            return
        with s.loop("turn", turn.count) as (_, index):
            emit(s, turn, turn.places(s, index))

    def _members(self, shape: TileShape, tiles: int) -> list[Member]:
        """The members of a turn that have rows: of each tile one, or one for each group of rows."""
        design, groups = self.design, self.design.record.order.row_groups
        members = []
        there = -(-shape.rows // design.member_rows)
        for tile in range(tiles):
            for group in range(there):
                rows = min(design.member_rows, shape.rows - group * design.member_rows)
                absent = range(tile * groups + there, (tile + 1) * groups) if group == 0 else ()
                members.append(Member(design, tile * groups + group, tile, rows, tuple(absent)))
        numbers = tuple(member.number for member in members)
        in_step = design.record.order.in_step
        return [replace(member, in_step=numbers if in_step else (member.number,)) for member in members]

    def _row(self, member: Member, places: list[TilePlace]) -> Affine:
        """The first row of a member in the stack of heads."""
        place = places[member.tile]
        group = member.number % self.design.record.order.row_groups
        return self.grid.row(place.head, place.tile) + group * self.design.member_rows

    # --- loads ---------------------------------------------------------------------------------------------------

    def _load(self, s: StreamBuilder, turn: Turn, places: list[TilePlace]) -> None:
        if not turn.shape.runs:
            return
        record, family = self.design.record, self.design.family
        members = self._members(turn.shape, turn.tiles)
        engine = link_engine(self.device, "GM", family.shared)
        firsts = [self._first_key(s, place) for place in places]
        for member in members:
            source = GlobalTile("Q", self._row(member, places), ZERO, member.rows, record.width)
            waits, signals = [member.sync("Q.free")], [member.sync("Q.full")]
            s.emit(engine, "copy", member.queries(), [source], waits, signals, label="Q")
        for run, index in _blocks(s, turn.shape):
            start = _number(run, index) * record.order.keys
            for letter in "KV":
                for tile, first in enumerate(firsts):
                    syncs, counter = room(_of_tile(members, tile), letter), f"{letter}.push{tile}"
                    if letter == "K":
                        target = keys_tile(self.design, tile, counter, run.keys)
                        source = GlobalTile("K", ZERO, first + start, record.width, run.keys)
                    else:
                        target = values_tile(self.design, tile, counter, run.keys)
                        source = GlobalTile("V", first + start, ZERO, run.keys, record.value_width)
                        if self.design.transposes:
                            target = loaded_values_tile(self.design, tile, counter, run.keys)
                            ring = loaded_values(tile)
                            syncs = Room((ring.free,), (ring.full,))
                    s.emit(engine, "copy", target, [source], syncs.waits, syncs.signals, label=letter)
                    s.advance(counter)
            for member in members if record.mask != "none" else ():
                self._load_mask(s, member, self._mask_row(member, places), start, run.keys)

    def _load_mask(self, s: StreamBuilder, member: Member, row: Affine, first: Affine, keys: int) -> None:
        target = member.mask(keys, self.design.record.format)
        source = GlobalTile("mask", row, first, member.rows, keys)
        engine = link_engine(self.device, "GM", self.design.family.registers)
        s.emit(engine, "copy", target, [source], [member.sync("M.free")], [member.sync("M.full")], label="mask")

    def _mask_row(self, member: Member, places: list[TilePlace]) -> Affine:
        """The first row of a member in the mask."""
        if self.design.record.mask == "own":
            return self._row(member, places)
        group = member.number % self.design.record.order.row_groups
        return places[member.tile].tile * self.grid.rows + group * self.design.member_rows

    def _first_key(self, s: StreamBuilder, place: TilePlace) -> Affine:
        """The first row of a place's keys in the stack of their heads."""
        return self._key_head(s, place) * self.design.record.keys

    def _key_head(self, s: StreamBuilder, place: TilePlace) -> Affine:
        """The head of a place's keys."""
        head, groups = place.head, self.grid.groups
        if groups > 1:
            head = s.derive("head", head, groups)[0] if head.terms else Affine(head.constant // groups)
        return head

    def _transpose(self, s: StreamBuilder, turn: Turn, places: list[TilePlace]) -> None:
        """Emit the transposition of values, where there is one."""
        shared, registers = self.design.family.shared, self.design.family.registers
        ways = ((shared, registers), (registers, shared))
        transpose = ValueTranspose(self.design, *(link_engine(self.device, *way) for way in ways))
        members = self._members(turn.shape, turn.tiles)
        for run, _ in _blocks(s, turn.shape):
            for tile in range(turn.tiles):
                transpose.block(s, tile, _of_tile(members, tile), run.keys)

    # --- products ------------------------------------------------------------------------------------------------

    def _multiply(self, s: StreamBuilder, turn: Turn, places: list[TilePlace]) -> None:
        """Emit the products: the next block's scores come behind this one's result, member by member."""
        shape = turn.shape
        if not shape.runs:
            return
        members = self._members(shape, turn.tiles)
        engine = link_engine(self.device, self.design.family.shared, self.design.family.registers)
        products = BlockProducts(self.design, engine)
        for member in members:
            products.scores(s, member, shape.runs[0], True)
        for number, run in enumerate(shape.runs):
            if run.count > 1:
                with s.loop("block", run.count - 1):
                    for member in members:
                        products.result(s, member, run, False)
                        products.scores(s, member, run, False)
            for member in members:
                products.result(s, member, run, number == 0)
                if number + 1 < len(shape.runs):
                    products.scores(s, member, shape.runs[number + 1], False)

    # --- softmax -------------------------------------------------------------------------------------------------

    def _softmax(self, s: StreamBuilder, turn: Turn, places: list[TilePlace]) -> None:
        vector, special = self.device.vector, self.device.special
        assert vector is not None and special is not None  # else refused before
        softmax = BlockSoftmax(self.design, vector, special, self._pieces(vector.engine))
        members = self._members(turn.shape, turn.tiles)
        if self.design.record.is_descaled:
            heads = [self._key_head(s, place) for place in places]
            members = [replace(member, key_head=heads[member.tile]) for member in members]
        rows = {member.number: self._row(member, places) for member in members}
        for member in members:
            softmax.begin(s, member)
        is_first = True
        for run, index in _blocks(s, turn.shape):
            for member in members:
                place = rows[member.number], _number(run, index) * self.design.record.order.keys
                softmax.block(s, member, run, place, is_first)
            is_first = False
        for member in members:
            self._store(s, softmax, member, rows[member.number], turn)

    def _pieces(self, lanes: str) -> ResultPieces | None:
        """The pieces of results, where sums are apart. lanes: their engine."""
        if not self.design.is_apart:
            return None
        sums, registers = self.design.sums, self.design.family.registers
        ways = ((sums, registers), (registers, sums), (registers, "GM"))
        return ResultPieces(self.design, lanes, *(link_engine(self.device, *way) for way in ways))

    def _store(self, s: StreamBuilder, softmax: BlockSoftmax, member: Member, row: Affine, turn: Turn) -> None:
        record = self.design.record
        engine = link_engine(self.device, self.design.family.registers, "GM")
        frees = [member.sync("O.free"), member.sync("Q.free")]
        if self.design.is_apart:
            softmax.end_apart(s, member, row, frees)
            return
        if record.order.parts == 1:
            softmax.end(s, member)
            target = GlobalTile("O", row, ZERO, member.rows, record.value_width)
            s.emit(
                engine, "copy", target, [member.result(record.result_format)], [member.sync("R.full")], frees, label="O"
            )
            return
        if turn.shape.runs:
            softmax.end_of_part(s, member)
        else:
            softmax.empty_part(s, member)
            frees = [member.sync("O.free")]
        frees.append(member.sync("L.free"))
        rows = self.grid.heads * self.grid.rows_of_head
        target = GlobalTile("O.parts", row + turn.part * rows, ZERO, member.rows, record.value_width)
        s.emit(engine, "copy", target, [member.result()], [member.sync("R.full")], label="O")
        target = GlobalTile("logarithms", row, Affine(turn.part), member.rows, 1)
        s.emit(engine, "copy", target, [member.column("logarithm")], [], frees, label="L")


def _blocks(s: StreamBuilder, shape: TileShape) -> Iterator[tuple[BlockRun, Affine]]:
    """The runs of blocks with the number of a block in its run; the body of the `for` emits once for each run."""
    for run in shape.runs:
        if run.count == 1:
            yield run, ZERO
            continue
        with s.loop("block", run.count) as (_, index):
            yield run, index


def _of_tile(members: list[Member], tile: int) -> list[Member]:
    return [member for member in members if member.tile == tile]


def _number(run: BlockRun, index: Affine) -> Affine:
    return index * run.step + run.first
