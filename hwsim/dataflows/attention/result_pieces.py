"""Results whose sums the matrix unit has in a memory of its own: pieces of columns are copied to registers, where the
lanes multiply them, and copied back, or rounded and stored.

It knows buffers, engines and semaphores; it knows no softmax and no core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hwsim.dataflows.attention.attention_buffers import CHANGED, PIECES, RESULT_CHUNK, ROUNDED, Design, Member
from hwsim.program.builder import StreamBuilder
from hwsim.program.ir import Affine, GlobalTile, LocalTile, Sync, one_of


@dataclass(frozen=True, slots=True)
class ResultPieces:
    """Emits the instructions. lanes: the engine of the lanes; reads, writes: of copies to registers and back; stores:
    of copies to global memory.
    """

    design: Design
    lanes: str
    reads: str
    writes: str
    stores: str

    def rescale(self, s: StreamBuilder, member: Member, factor: LocalTile, waits: Sequence[Sync]) -> None:
        """Emit the product of a result and a column."""

        def back(start: int, piece: LocalTile) -> None:
            signals = [one_of(CHANGED)]
            s.emit(self.lanes, "mul", piece, [piece, factor], [PIECES.full], signals, label="rescale")
            target = self._piece(member, start, piece.cols)
            s.emit(self.writes, "copy", target, [piece], [one_of(CHANGED)], [PIECES.free], label="rescale")

        self._in_turn(s, member, waits, back)

    def store(
        self, s: StreamBuilder, member: Member, factor: LocalTile, row: Affine, waits: Sequence[Sync], frees: list[Sync]
    ) -> None:
        """Emit the product of a result and a column, rounded, to the rows of the output from `row` on. frees: what the
        last copy signals.
        """
        width, format = self.design.record.value_width, self.design.record.format

        def out(start: int, piece: LocalTile) -> None:
            s.emit(self.lanes, "mul", piece, [piece, factor], [PIECES.full], label="division")
            narrow = PIECES.tile("pop", member.rows, piece.cols, format)
            s.emit(self.lanes, "cast", narrow, [piece], signals=[one_of(ROUNDED)], label="result")
            target = GlobalTile("O", row, Affine(start), member.rows, piece.cols)
            signals = [PIECES.free, *(frees if start + piece.cols == width else [])]
            s.emit(self.stores, "copy", target, [narrow], [one_of(ROUNDED)], signals, label="O")

        self._in_turn(s, member, waits, out)

    def _in_turn(
        self, s: StreamBuilder, member: Member, waits: Sequence[Sync], emit: Callable[[int, LocalTile], None]
    ) -> None:
        """Emit the copies of all pieces to registers, each before what happens with the piece before it."""
        width = self.design.record.value_width
        starts = range(0, width, RESULT_CHUNK)
        for number, start in enumerate(starts):
            cols = min(RESULT_CHUNK, width - start)
            into, first = PIECES.tile("push", member.rows, cols, "fp32"), waits if number == 0 else ()
            source = self._piece(member, start, cols)
            s.emit(self.reads, "copy", into, [source], [*first, PIECES.free], [PIECES.full], label="result")
            s.pushed(PIECES)
            if number:
                self._taken(s, member, starts[number - 1], RESULT_CHUNK, emit)
        self._taken(s, member, starts[-1], width - starts[-1], emit)

    def _taken(
        self, s: StreamBuilder, member: Member, start: int, cols: int, emit: Callable[[int, LocalTile], None]
    ) -> None:
        emit(start, PIECES.tile("pop", member.rows, cols, "fp32"))
        s.popped(PIECES)

    def _piece(self, member: Member, start: int, cols: int) -> LocalTile:
        whole = member.result()
        return LocalTile(whole.buffer, member.rows, cols, whole.format, col=start, width=whole.cols)
