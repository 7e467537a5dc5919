"""The two products of a block of keys: queries with keys, powers with values; and the copies of their fragments.

It knows the buffers of a member and the matrix instruction; it knows no softmax and no core.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hwsim.dataflows.attention.attention_buffers import JOINED, Design, Member, fragments, keys_tile, values_tile
from hwsim.dataflows.attention.query_tiles import BlockRun
from hwsim.gemm.layouts import K_MAJOR
from hwsim.program.builder import StreamBuilder
from hwsim.program.ir import LocalTile, Sync


@dataclass(frozen=True, slots=True)
class BlockProducts:
    """Emits the products. copies: the engine of copies from shared memory to registers."""

    design: Design
    copies: str

    def scores(self, s: StreamBuilder, member: Member, run: BlockRun, is_first: bool) -> None:
        """Emit the product of queries and a block of keys. is_first: of a tile."""
        queries, keys = member.queries(), keys_tile(self.design, member.tile, member.counter("K"), run.keys)
        arrived = [member.sync("Q.full")] if is_first else []
        waits, signals = [member.sync("K.full")], [*member.frees("K"), *member.to_all("S.full")]
        target = member.scores(run.keys)
        if self.design.reads_fragments:
            order = self.design.record.order
            for first, depth, is_last in self._steps(self.design.record.width):
                a = self._fragment(s, "A", queries.part(0, member.rows, depth), first, [*arrived], order.key_warps)
                b = self._fragment(s, "B", keys, first, waits, self._row_warps, depth)
                last_signals = signals if is_last else []
                self._mma(s, target, a, b, [], last_signals, first > 0, ("A", "B"), "scores")
                arrived, waits = [], []
        else:
            self._mma(s, target, queries, keys, [*arrived, *waits], signals, False, (), "scores")
        member.popped(s, "K")

    def result(self, s: StreamBuilder, member: Member, run: BlockRun, is_first: bool) -> None:
        """Emit the product of powers and a block of values, added to what is there. is_first: of a tile."""
        powers = member.scores(run.keys, self.design.record.format)
        values, target = values_tile(self.design, member.tile, member.counter("V"), run.keys), member.product()
        joins = self.design.record.order.joins_blocks
        room = [member.sync(JOINED)] if joins else [member.sync("O.free")] if is_first else []
        ready, begins = [member.of_all("P.full"), *room], is_first or joins
        waits, signals = [member.sync("V.full")], [*member.frees("V"), member.sync("O.full")]
        if self.design.reads_fragments:
            for first, depth, is_last in self._steps(run.keys):
                a = LocalTile(powers.buffer, member.rows, depth, powers.format, col=first, width=run.keys)
                b = self._fragment(s, "B", values, first, waits, self._row_warps, depth)
                last_signals = signals if is_last else []
                self._mma(s, target, a, b, ready, last_signals, not begins or first > 0, ("B",), "result")
                ready, waits = [], []
        else:
            self._mma(s, target, powers, values, [*ready, *waits], signals, not begins, (), "result")
        member.popped(s, "V")

    @property
    def _row_warps(self) -> int:
        order = self.design.record.order
        return order.row_warps // order.row_groups

    def _steps(self, extent: int) -> Iterator[tuple[int, int, bool]]:
        """(first, depth, whether it is the last) of the steps of K."""
        for first in range(0, extent, self.design.depth):
            depth = min(self.design.depth, extent - first)
            yield first, depth, first + depth == extent

    def _fragment(
        self, s: StreamBuilder, letter: str, whole: LocalTile, first: int, waits: list[Sync], reads: int, depth: int = 0
    ) -> LocalTile:
        """Emit the copy of a step's fragments; returns them where the unit reads them. reads: by how many warps."""
        ring = fragments(letter)
        if letter == "A":
            width = self.design.record.width
            source = LocalTile(whole.buffer, whole.rows, whole.cols, whole.format, whole.slot, col=first, width=width)
            rows, cols = whole.rows, whole.cols
        else:
            source = LocalTile(
                whole.buffer,
                depth,
                whole.cols,
                whole.format,
                whole.slot,
                row=first,
                width=whole.cols,
                order=whole.order,
            )
            rows, cols = depth, whole.cols
        order = K_MAJOR[0 if letter == "A" else 1]
        target = ring.tile("push", rows, cols, whole.format, order)
        s.emit(self.copies, "copy", target, [source], [*waits, ring.free], [ring.full], repeat=reads, label=letter)
        s.pushed(ring)
        return ring.tile("pop", rows, cols, whole.format, order)

    def _mma(
        self,
        s: StreamBuilder,
        target: LocalTile,
        a: LocalTile,
        b: LocalTile,
        waits: list[Sync],
        signals: list[Sync],
        accumulates: bool,
        ringed: tuple[str, ...],
        label: str,
    ) -> None:
        rings = [fragments(letter) for letter in ringed]
        unit = self.design.unit_for(target.cols)
        s.emit(
            self.design.unit.engine,
            "mma",
            target,
            [a, b],
            [*waits, *(ring.full for ring in rings)],
            [*(ring.free for ring in rings), *signals],
            unit=unit,
            zero_at=None if accumulates else (),
            label=label,
        )
        for ring in rings:
            s.popped(ring)
