"""The softmax of a block of keys: maxima, powers, sums, and the rescaling of what came before; and the end of a tile.

It knows the order of a kernel and the buffers of a member; it knows no matrix instruction and no core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hwsim.dataflows.attention.attention_buffers import (
    ARGUMENT,
    CHUNK,
    COPIED,
    IN_FLIGHT,
    JOINED,
    NARROWED,
    POWER,
    Design,
    Member,
)
from hwsim.dataflows.attention.query_tiles import BlockRun
from hwsim.dataflows.attention.result_pieces import ResultPieces
from hwsim.gemm.attention_order import LN2, LOG2E, PolynomialShare, power_factor
from hwsim.program.builder import StreamBuilder
from hwsim.program.ir import LANE_COLUMNS, LANES, Affine, AnyTile, GlobalTile, LocalTile, Sync, one_of
from hwsim.program.roles import Opcode

if TYPE_CHECKING:
    from hwsim.devices.model.engines import SpecialModel, VectorModel

SMALL = -126.0  # CUDA's exp2f halves arguments below it and squares the result
INFINITY = float("inf")
FIRST_COLUMNS = LANES * LANE_COLUMNS  # of a block, one pair for each lane


@dataclass(frozen=True, slots=True)
class BlockSoftmax:
    """Emits the instructions. vector, special: the device's units. pieces: of results, where sums are apart
    (Design.is_apart).
    """

    design: Design
    vector: VectorModel
    special: SpecialModel
    pieces: ResultPieces | None = None

    def _lanes(
        self,
        s: StreamBuilder,
        opcode: Opcode,
        target: LocalTile,
        reads: Sequence[AnyTile] | Mapping[str, AnyTile] = (),
        waits: Sequence[Sync] = (),
        signals: Sequence[Sync] = (),
        scalar: float = 0.0,
        label: str = "",
        shift: int = 0,
    ) -> None:
        s.emit(
            self.vector.engine, opcode, target, reads, waits, signals, scalar=scalar, label=label, scale_exponent=shift
        )

    @property
    def _factor(self) -> float:
        """The factor of a score in the argument of its power."""
        record = self.design.record
        return float(power_factor(record.factor, record.order, has_mask=record.mask != "none"))

    def begin(self, s: StreamBuilder, member: Member) -> None:
        """Emit the begin of a tile."""
        self._lanes(s, "fill", member.column("largest"), scalar=-INFINITY, label="largest")
        self._lanes(s, "fill", member.sums(), label="sums")
        order = self.design.record.order
        if order.joins_blocks:
            self._lanes(s, "fill", member.result(), waits=[member.sync("O.free")], label="result")
        if order.joins_blocks or order.adds_blocks or order.fuses_first:
            self._lanes(s, "fill", member.column("change"), label="rescale")
        if order.lag:
            self._lanes(s, "fill", member.column("one"), scalar=1.0, label="rescale")
        if order.scaling == "fused":
            self._fill_factors(s, member)

    def _fill_factors(self, s: StreamBuilder, member: Member) -> None:
        """Emit the columns of what scores are multiplied by, and of what comes on top in the arguments of powers."""
        factor, record = member.column("factor"), self.design.record
        if member.key_head is None:
            self._lanes(s, "fill", factor, scalar=self._factor, label="powers")
        else:
            query, key = (member.descale(name) for name in "QK")
            self._lanes(s, "fill", factor, scalar=1.0, label="powers")
            self._lanes(s, "mul", factor, [factor, query], label="powers")
            self._lanes(s, "mul", factor, [factor, key], label="powers")
            self._lanes(s, "scale", factor, [factor], scalar=self._factor, label="powers")
        if self.design.has_bound_terms:
            self._lanes(s, "scale", member.column("minus_factor"), [factor], scalar=-1.0, label="powers")
            self._lanes(s, "fill", member.column("offset"), scalar=record.order.offset, label="powers")

    def block(
        self, s: StreamBuilder, member: Member, run: BlockRun, place: tuple[Affine, Affine], is_first: bool
    ) -> None:
        """Emit the softmax of a block. place: the tile's first row in the stack of heads, and the block's first key in
        its head.
        """
        order, scores = self.design.record.order, member.in_lanes(run.keys)
        waits = [member.of_all("S.full")]
        if self.pieces is not None:
            copied = [member.sync(COPIED)]
            s.emit(self.pieces.reads, "copy", scores, [member.scores(run.keys)], waits, copied, label="scores")
            waits = copied
        record, has_mask = self.design.record, self.design.record.mask != "none"
        factor = self._factor
        if has_mask:
            narrow, wide = (member.mask(run.keys, name) for name in (record.format, "fp32"))
            self._lanes(s, "cast", wide, [narrow], [member.sync("M.full")], [member.sync("M.free")], label="mask")
        if order.scaling == "scaled":
            self._lanes(s, "scale", scores, [scores], waits, scalar=record.factor, label="scores")
            if has_mask:
                self._lanes(s, "add", scores, [scores, wide], label="mask")
            self._lanes(s, "scale", scores, [scores], scalar=LOG2E, label="scores")
            waits, factor = [], 1.0
        elif has_mask:  # fused
            scalar = float(np.float32(record.factor))
            self._lanes(s, "fma", scores, [scores, wide], waits, scalar=scalar, label="mask")
            waits = []
        if run.is_masked:
            index = GlobalTile("index", Affine(), place[1], 1, run.keys)
            limit = GlobalTile("limit", place[0], Affine(), member.rows, 1)
            self._lanes(s, "mask", scores, [scores, index, limit], waits, scalar=-INFINITY, label="mask")
            waits = []
        largest, top, bound = (member.column(name) for name in ("largest", "top", "bound"))
        self._lanes(s, "reduce_largest", top, [scores, largest], waits, label="largest")
        self._lanes(s, "or_zero", bound, [top], label="largest")
        if not order.lag:
            self._scaled(s, member, factor)
        if not is_first:
            self._rescale(s, member, factor)
        if order.lag:
            self._scaled(s, member, factor)
        self._lanes(s, "copy", largest, [top], label="largest")
        if order.adds_blocks:
            self._lanes(s, "fill", self._lanes_tile(member), label="sums")
        self._powers(s, member, scores, factor)
        if order.adds_blocks:
            sums, change = member.sums(), member.column("change")
            operands = {"left": sums, "right": self._lanes_tile(member), "multiplier": change}
            self._lanes(s, "fma", sums, operands, label="sums")
        narrow, there = member.in_lanes(run.keys, self.design.record.format), member.to_all("P.full")
        if self.pieces is None:
            self._lanes(s, "cast", narrow, [scores], signals=there, label="powers")
            return
        narrowed, target = [member.sync(NARROWED)], member.scores(run.keys, self.design.record.format)
        self._lanes(s, "cast", narrow, [scores], signals=narrowed, label="powers")
        s.emit(self.pieces.writes, "copy", target, [narrow], narrowed, there, label="powers")

    def _scaled(self, s: StreamBuilder, member: Member, factor: float) -> None:
        """Emit the largest score times the factor, as it stands in the arguments of powers."""
        scaled, bound = member.column("scaled"), member.column("bound")
        if self.design.record.order.scaling == "rounded":
            self._lanes(s, "scale", scaled, [bound], scalar=factor, label="largest")
        elif self.design.has_bound_terms:
            operands = {"left": bound, "right": member.column("offset"), "multiplier": member.column("minus_factor")}
            self._lanes(s, "fma", scaled, operands, label="largest")
        elif self.design.record.order.scaling == "fused":
            self._lanes(s, "scale", scaled, [bound], scalar=-factor, label="largest")

    def _rescale(self, s: StreamBuilder, member: Member, factor: float) -> None:
        """Emit the rescaling of sums and result by the change of the largest score."""
        change, argument = member.column("change"), member.column("argument")
        if self.design.record.order.joins_blocks:
            self._join(s, member)
        ready, largest = self._argument_is_there, member.column("largest")
        if self.design.record.order.scales_largest:
            self._lanes(s, "scale", argument, [largest], scalar=factor, label="rescale")
            self._lanes(s, "sub", argument, [argument, member.column("scaled")], signals=ready, label="rescale")
        else:
            signals = [] if factor != 1.0 or member.key_head is not None else ready
            self._lanes(s, "sub", argument, [largest, member.column("bound")], signals=signals, label="rescale")
            if member.key_head is not None:
                self._lanes(s, "mul", argument, [argument, member.column("factor")], signals=ready, label="rescale")
            elif factor != 1.0:
                self._lanes(s, "scale", argument, [argument], signals=ready, scalar=factor, label="rescale")
        self._power(s, change, argument, "rescale")
        waits = self._powered(s, change, argument, "rescale")
        if self.design.record.order.lag:
            self._keep(s, member, waits)
            waits = []
        if not (self.design.record.order.adds_blocks or self.design.record.order.fuses_first):
            self._lanes(s, "mul", member.sums(), [member.sums(), change], waits, label="rescale")
            waits = []
        if self.pieces is not None:
            self.pieces.rescale(s, member, change, [member.sync("O.full")])
        elif not self.design.record.order.joins_blocks:
            result = member.result()
            self._lanes(s, "mul", result, [result, change], [*waits, member.sync("O.full")], label="rescale")

    def _keep(self, s: StreamBuilder, member: Member, waits: list[Sync]) -> None:
        """Emit what the largest score is, and the rescaling by its change, where it lags behind."""
        argument, largest = member.column("argument"), member.column("largest")
        for name, before in (("change", member.column("one")), ("top", largest), ("bound", largest)):
            operands, bound = [argument, before, member.column(name)], -self.design.record.order.lag
            self._lanes(s, "choose_above", member.column(name), operands, waits, scalar=bound, label="rescale")
            waits = []

    def _join(self, s: StreamBuilder, member: Member) -> None:
        """Emit the sum of the result so far, rescaled, and the product of the block before."""
        operands = {"left": member.result(), "right": member.product(), "multiplier": member.column("change")}
        waits, signals = [member.sync("O.full")], [member.sync(JOINED)]
        self._lanes(s, "fma", member.result(), operands, waits, signals, label="join")

    def _power(self, s: StreamBuilder, target: LocalTile, argument: LocalTile, label: str) -> None:
        """Emit 2^argument, which `_powered` waits for. Without a guard the lanes' last instruction has signalled."""
        source = argument
        if self.design.record.order.is_guarded:
            self._lanes(s, "halve_below", target, [argument], signals=[one_of(ARGUMENT)], scalar=SMALL, label=label)
            source = target
        s.emit(self.special.engine, "ex2", target, [source], [one_of(ARGUMENT)], [one_of(POWER)], label=label)

    def _powered(self, s: StreamBuilder, target: LocalTile, argument: LocalTile, label: str) -> list[Sync]:
        """Emit what the guard does to a power; returns what the next of the lanes' instructions waits for."""
        if not self.design.record.order.is_guarded:
            return [one_of(POWER)]
        self._lanes(s, "square_below", target, [target, argument], [one_of(POWER)], scalar=SMALL, label=label)
        return []

    @property
    def _argument_is_there(self) -> list[Sync]:
        """What the instruction that ends an argument signals: the guard does where there is one."""
        return [] if self.design.record.order.is_guarded else [one_of(ARGUMENT)]

    def _powers(self, s: StreamBuilder, member: Member, scores: LocalTile, factor: float) -> None:
        """Emit the powers of all scores and their sums, chunk by chunk: a chunk's arguments come before the sums of the
        one before.
        """
        warp = self.design.record.order.warp_keys
        chunks = [
            (number, replace(scores, col=start, cols=min(CHUNK, scores.cols - start), width=scores.cols))
            for number, start in enumerate(range(0, scores.cols, CHUNK))
        ]
        for number, chunk in chunks:
            self._arguments(s, member, chunk, self._argument_tile(member, number, chunk), factor)
            if number:
                self._sums(s, member, *chunks[number - 1], warp)
        self._sums(s, member, *chunks[-1], warp)
        if self.design.record.order.adds_rows:
            self._lanes(s, "reduce_row", member.sums(), [scores, member.sums()], label="sums")

    def _argument_tile(self, member: Member, number: int, chunk: LocalTile) -> LocalTile:
        return LocalTile("arguments", member.rows, chunk.cols, "fp32", Affine(number % IN_FLIGHT))

    def _arguments(
        self, s: StreamBuilder, member: Member, chunk: LocalTile, argument: LocalTile, factor: float
    ) -> None:
        scaling, signals = self.design.record.order.scaling, self._argument_is_there
        if scaling == "scaled":
            self._lanes(s, "sub", argument, [chunk, member.column("bound")], signals=signals, label="powers")
        elif scaling == "rounded":
            self._lanes(s, "scale", argument, [chunk], scalar=factor, label="powers")
            self._lanes(s, "sub", argument, [argument, member.column("scaled")], signals=signals, label="powers")
        else:
            columns = {"right": member.column("scaled"), "multiplier": member.column("factor")}
            self._lanes(s, "fma", argument, {"left": chunk, **columns}, signals=signals, label="powers")
        if self.design.record.order.polynomial is None:
            self._power(s, chunk, argument, "powers")
        else:
            self._shared_powers(s, chunk, argument, self.design.record.order.polynomial)

    def _shared_powers(
        self, s: StreamBuilder, chunk: LocalTile, argument: LocalTile, polynomial: PolynomialShare
    ) -> None:
        """Emit the powers of a chunk: runs of columns by the polynomial, on the lanes, the others by the special
        functions. Some column of each chunk is of the latter.
        """
        is_cubic = polynomial.of(chunk.col + chunk.cols)[chunk.col :]
        edges = [0, *(np.flatnonzero(np.diff(is_cubic)) + 1).tolist(), chunk.cols]
        runs = [(start, end - start) for start, end in pairwise(edges)]
        special = [run for run in runs if not is_cubic[run[0]]]
        for start, count in runs:
            source = replace(argument, col=start, cols=count, width=argument.cols)
            target = replace(chunk, col=chunk.col + start, cols=count)
            if is_cubic[start]:
                self._lanes(s, "ex2_cubic", target, [source], label="powers")
                continue
            waits = [one_of(ARGUMENT)] if (start, count) == special[0] else []
            signals = [one_of(POWER)] if (start, count) == special[-1] else []
            s.emit(self.special.engine, "ex2", target, [source], waits, signals, label="powers")

    def _first_columns(self, s: StreamBuilder, member: Member, chunk: LocalTile, waits: list[Sync]) -> None:
        """Emit the sums with a block's first eight columns: each lane's first one joins the rescaled sum at once."""
        sums, change = member.sums(), member.column("change")
        columns = min(FIRST_COLUMNS, chunk.cols)
        first = LocalTile("first", member.rows, columns, "fp32", width=FIRST_COLUMNS)
        self._lanes(s, "copy", first, [replace(chunk, cols=columns)], waits, label="sums")
        for lane in range(LANES):
            total, column = (replace(tile, col=at, cols=1, width=width) for tile, at, width in (
                (sums, lane, LANES), (first, LANE_COLUMNS * lane, FIRST_COLUMNS)
            ))  # fmt: skip
            if LANE_COLUMNS * lane < columns:
                operands = {"left": total, "right": column, "multiplier": change}
                self._lanes(s, "fma", total, operands, label="sums")
                self._lanes(s, "fill", column, label="sums")
            else:
                self._lanes(s, "mul", total, [total, change], label="sums")
        self._lanes(s, "reduce_lanes", sums, [first, sums], label="sums")

    @staticmethod
    def _lanes_tile(member: Member) -> LocalTile:
        """The sums of a block, or of a warp's keys, by lane."""
        return LocalTile("lanes", member.rows, LANES, "fp32")

    def _sums(self, s: StreamBuilder, member: Member, number: int, chunk: LocalTile, warp: int | None) -> None:
        argument = self._argument_tile(member, number, chunk)
        waits = self._powered(s, chunk, argument, "powers")
        if self.design.record.order.adds_rows:
            s.emit(self.vector.engine, "sync", waits=waits, label="powers")
            return
        if warp is None:
            of_block = self.design.record.order.adds_blocks
            sums = self._lanes_tile(member) if of_block else member.sums()
            if self.design.record.order.fuses_first and number == 0:
                self._first_columns(s, member, chunk, waits)
                chunk, waits = replace(chunk, col=FIRST_COLUMNS, cols=chunk.cols - FIRST_COLUMNS), []
            if chunk.cols > 0:
                self._lanes(s, "reduce_lanes", sums, [chunk, sums], waits, label="sums")
            return
        lanes, total = self._lanes_tile(member), member.column("total")
        self._lanes(s, "fill", lanes, (), waits, label="sums")
        self._lanes(s, "reduce_lanes", lanes, [chunk, lanes], label="sums")
        self._lanes(s, "reduce_meet", total, [lanes], shift=self.design.record.order.first_partner, label="sums")
        self._lanes(s, "add", member.sums(), [member.sums(), total], label="sums")

    def end(self, s: StreamBuilder, member: Member) -> None:
        """Emit the division of a tile by its sums of powers, and the rounding of the result."""
        total = self._total(s, member)
        self._divide(s, member, total, [member.sync("O.full")])
        narrow = member.result(self.design.record.result_format)
        self._lanes(s, "cast", narrow, [member.result()], signals=[member.sync("R.full")], label="result")

    def end_apart(self, s: StreamBuilder, member: Member, row: Affine, frees: list[Sync]) -> None:
        """Emit the end of a tile whose sums are apart: its division, its rounding, its store from `row` on."""
        assert self.pieces is not None
        inverse, waits = self._inverse(s, member, member.sums(), "change")
        self._lanes(s, "copy", member.column("bound"), [inverse], waits, label="division")
        self.pieces.store(s, member, member.column("bound"), row, [member.sync("O.full")], frees)

    def _total(self, s: StreamBuilder, member: Member) -> LocalTile:
        """Emit the sum of powers of a row; returns where it is."""
        if self.design.record.order.has_one_sum:
            return member.sums()
        total = member.column("total")
        partner = self.design.record.order.first_partner
        self._lanes(s, "reduce_meet", total, [member.sums()], shift=partner, label="sums")
        return total

    def _divide(
        self,
        s: StreamBuilder,
        member: Member,
        total: LocalTile,
        waits: Sequence[Sync],
        signals: Sequence[Sync] = (),
    ) -> None:
        joins = self.design.record.order.joins_blocks
        inverse, more = self._inverse(s, member, total, "bound" if joins else "change")
        waits = [*waits, *more]
        result = member.result()
        if member.key_head is not None:
            self._lanes(s, "mul", inverse, [inverse, member.descale("V")], waits, label="division")
            waits = []
        if not joins:
            self._lanes(s, "mul", result, [result, inverse], waits, signals, label="division")
            return
        change = member.column("change")
        self._lanes(s, "mul", change, [inverse, change], label="division")
        self._lanes(s, "mul", result, [result, change], label="division")
        operands = {"left": member.product(), "right": result, "multiplier": inverse}
        self._lanes(s, "fma", result, operands, waits, [*signals, member.sync(JOINED)], label="division")

    def _inverse(self, s: StreamBuilder, member: Member, total: LocalTile, column: str) -> tuple[LocalTile, list[Sync]]:
        """Emit 1 / total into a column; returns it, and what its first reader waits for."""
        divisor, inverse = member.column("argument"), member.column(column)
        is_fast = self.design.record.order.is_division_fast
        argument_signals = [one_of(ARGUMENT)] if is_fast else []
        self._lanes(s, "or_one", divisor, [total], signals=argument_signals, label="division")
        if not is_fast:
            self._lanes(s, "reciprocal", inverse, [divisor], label="division")
            return inverse, []
        waits, signals = [one_of(ARGUMENT)], [one_of(POWER)]
        s.emit(self.special.engine, "rcp", inverse, [divisor], waits, signals, label="division")
        return inverse, signals

    def end_of_part(self, s: StreamBuilder, member: Member) -> None:
        """Emit the end of a tile over a part of the keys: the result over its sum, and the logarithm of the sum of
        e^score.
        """
        total, scratch = self._total(s, member), member.column("scaled")
        self._lanes(s, "or_one", scratch, [total], signals=[one_of(ARGUMENT)], label="logarithm")
        s.emit(self.special.engine, "lg2", scratch, [scratch], [one_of(ARGUMENT)], [one_of(POWER)], label="logarithm")
        self._lanes(s, "scale", scratch, [scratch], [one_of(POWER)], scalar=LN2, label="logarithm")
        factor, waits = float(np.float32(self.design.record.factor)), [member.sync("L.free")]
        operands = [member.column("largest"), scratch]
        self._lanes(s, "fma", member.column("logarithm"), operands, waits, scalar=factor, label="logarithm")
        self._divide(s, member, total, [member.sync("O.full")], [member.sync("R.full")])

    def empty_part(self, s: StreamBuilder, member: Member) -> None:
        """Emit the end of a tile over a part of which it sees no key."""
        self._lanes(s, "fill", member.result(), waits=[member.sync("O.free")], label="result")
        waits, signals = [member.sync("L.free")], [member.sync("R.full")]
        self._lanes(s, "fill", member.column("logarithm"), (), waits, signals, scalar=-INFINITY, label="logarithm")
