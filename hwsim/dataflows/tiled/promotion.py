"""Elementwise work within the main loop of a tiled GEMM kernel: pieces of operands, sums outside the unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hwsim.dataflows.elementwise import VectorOps, depth, evaluate, link_engine, split_ops
from hwsim.dataflows.tiled.emit import chunks
from hwsim.dataflows.tiled.layout import SIDES
from hwsim.dataflows.tiled.loads import Loads
from hwsim.dataflows.tiled.model import Source
from hwsim.dataflows.tiles import Place
from hwsim.formats import format_of
from hwsim.program.builder import Ring, StreamBuilder
from hwsim.program.ir import LocalTile, Sync


class Lanes(Loads):
    """Splits and sums."""

    def _sum_words(self) -> int:
        return format_of(self.layout.accumulator).bits // 32 if self.finish.stand_ins else 1

    def _sum_format(self) -> str:
        return "fp32" if self.finish.stand_ins else self.layout.accumulator

    def _split(self, s: StreamBuilder, ops: VectorOps, place: Place, sweep: int, size: int) -> None:
        """Pieces of one block of K of both operands."""
        if self.layout.family.through_registers:
            made = []
            for i, (side, source) in enumerate(zip(SIDES, self.layout.sources, strict=True)):
                rows, cols = (place.m, size) if i == 0 else (size, place.n)
                raw = Ring(f"{side}raw.load")
                targets = {p: Ring(f"{side}{p}.new") for p in self._used(i, sweep)}
                ops.wait(self.full(raw.name), *(self.ring_free(r.name) for r in targets.values()))
                self._pieces(ops, source, raw, targets, rows, cols, 1)
                ops.signal(self.ring_free(raw.name), *(self.full(r.name) for r in targets.values()))
                s.popped(raw)
                for p, ring in targets.items():
                    s.pushed(ring)
                    made.append((f"{side}{p}", ring.name, rows, cols, source.formats[p]))
            self._to_shared(s, made)
            return
        engine = link_engine(self.layout.device, self.sh, self.rf)
        steps = list(chunks(size, self.layout.step))
        for at, (start, k) in enumerate(steps):
            for i, (side, source) in enumerate(zip(SIDES, self.layout.sources, strict=True)):
                assert source.raw is not None
                rows, cols = (place.m, k) if i == 0 else (k, place.n)
                stage, raw = Ring(f"{side}raw"), Ring(f"{side}raw.rf")
                tile = stage.tile("pop", rows, cols, source.raw.format)
                tile = replace(tile, col=start, width=size) if i == 0 else replace(tile, row=start, width=cols)
                own = self.layout.places[i] == self.rf
                repeat = self._repeat(i, place) if own and self.layout.places[1] == self.rf else 1
                waits = [self.ring_free(raw.name), *([self.full("stage")] if at == 0 and i == 0 else [])]
                signals = [self.full(raw.name)]
                if at + 1 == len(steps) and i == 1 and not self.layout.serial:
                    signals.append(self.free("stage", self.b.stages))
                s.emit(
                    engine,
                    "copy",
                    raw.tile("push", rows, cols, source.raw.format),
                    [tile],
                    waits,
                    signals,
                    repeat=repeat,
                    label=side,
                )
                s.pushed(raw)
                used = self._used(i, sweep)
                targets = {p: Ring(f"{side}{p}.{'op' if own else 'new'}") for p in used}
                ops.wait(self.full(raw.name))
                if own:
                    ops.wait(self.free(f"{side}.op", self._op_slots(i)))
                else:
                    ops.wait(*(self.ring_free(r.name) for r in targets.values()))
                self._pieces(ops, source, raw, targets, rows, cols, repeat)
                done = [self.full(f"{side}.op")] if own else [self.full(r.name) for r in targets.values()]
                ops.signal(self.ring_free(raw.name), *done)
                s.popped(raw)
                for ring in targets.values():
                    s.pushed(ring)
                if not own:
                    self._store_pieces(s, i, used, rows, cols)
            if at + 1 == len(steps):
                for side in SIDES:
                    s.popped(Ring(f"{side}raw"))

    def _store_pieces(self, s: StreamBuilder, i: int, used: list[int], rows: int, cols: int) -> None:
        """Registers -> where the unit takes the pieces from."""
        engine, side = link_engine(self.layout.device, self.rf, self.layout.places[i]), SIDES[i]
        for at, p in enumerate(used):
            new, own, fmt = Ring(f"{side}{p}.new"), Ring(f"{side}{p}.op"), self.layout.sources[i].formats[p]
            waits = [self.full(new.name), *([self.free(f"{side}.op", self._op_slots(i))] if at == 0 else [])]
            signals = [self.ring_free(new.name), *([self.full(f"{side}.op")] if at + 1 == len(used) else [])]
            source, target = new.tile("pop", rows, cols, fmt), own.tile("push", rows, cols, fmt)
            s.emit(engine, "copy", target, [source], waits, signals, label=side)
            s.popped(new)
            s.pushed(own)

    def _pieces(
        self, ops: VectorOps, source: Source, raw: Ring, targets: dict[int, Ring], rows: int, cols: int, repeat: int
    ) -> None:
        assert source.raw is not None
        kept = {p: ring.tile("push", rows, cols, source.formats[p]) for p, ring in targets.items()}
        temps = [LocalTile(name, rows, cols, "fp32") for name in self.layout.slots if name.startswith("split")]
        split_ops(ops, raw.tile("pop", rows, cols, source.raw.format), source.pieces, kept, temps, repeat)

    def _promote_short(self, s: StreamBuilder, ops: VectorOps, place: Place, size: int) -> None:
        """Add up the short runs of one block of K."""
        shorts = [t for t, short in enumerate(self.layout.short) if short]
        for _, step in chunks(size, self.layout.step):
            for group in [shorts] if self.work.joined else [[t] for t in shorts]:
                run = self.work.runs[group[0]]
                assert run is not None
                for _ in chunks(step, run):
                    if self.layout.turns:
                        self._take_turns(s, ops, place)
                    else:
                        self._promote(s, ops, place, group, self.layout.part)

    def _promote(self, s: StreamBuilder, ops: VectorOps, place: Place, terms: list[int], part: int) -> None:
        """Add accumulators to their sums (joined: the joined value to the one sum), giving them back."""
        for row, rows in chunks(place.m, part):
            if self.layout.in_registers:
                ops.wait(*(self.full(f"acc{t}") for t in terms))
            for start, count in chunks(
                rows, self.layout.chunk if self.work.joined or not self.layout.in_registers else rows
            ):
                values = self._values(s, ops, terms, place, start, count, first=start == 0, last=start + count == rows)
                into = row + start
                if self.work.joined:
                    total = self._sum(0, place, into, count)
                    joined = self._words("join0", count, place.n)
                    if self.finish.stand_ins:
                        for _ in range(self.finish.stand_ins):
                            ops.op("add", total, total, total)
                    else:
                        assert self.finish.value is not None
                        scratch = [self._words(f"join{i + 1}", count, place.n) for i in range(depth(self.finish.value))]
                        evaluate(ops, self.finish.value, values, joined, scratch)
                        ops.op("add", total, total, joined)
                else:
                    for t in terms:
                        total = self._sum(t, place, into, count)
                        ops.op("add", total, total, values[t] if not self.finish.stand_ins else total)
                self._done(s, ops, terms)
            if self.layout.in_registers:
                ops.signal(*(self.ring_free(f"acc{t}") for t in terms))
            for t in terms:
                s.popped(Ring(f"acc{t}"))

    def _take_turns(self, s: StreamBuilder, ops: VectorOps, place: Place) -> None:
        """One run of K: each term's value, as it is done, joined to those before; then the joined value to the sum.

        The first value is the first joined one: from TMEM it goes to those registers, where it need not be moved again.
        """
        assert self.layout.turns is not None
        joined = LocalTile("join0", place.m, place.n, "fp32")
        straight = not self.layout.in_registers and not self.layout.turns[0].own
        for at, turn in enumerate(self.layout.turns):
            if self.layout.in_registers:
                ops.wait(self.full("acc0"))
            for start, rows in chunks(place.m, place.m if self.layout.in_registers else self.layout.chunk):
                first, last = start == 0, start + rows == place.m
                into = joined.part(start, rows)
                if at == 0 and straight:
                    waits = [self.free("join0", 1)] if first else []
                    self._bring(s, 0, into, place, start, rows, waits, [self.full("join0")], first=first, last=last)
                    ops.wait(self.full("join0"))
                    continue
                value = self._values(s, ops, [0], place, start, rows, first=first, last=last)[0]
                if at == 0:
                    ops.op("scale", into, value, scalar=2.0**turn.own)
                else:
                    ops.op("add", into, into, value, scale_exponent=-turn.exponent)
                self._done(s, ops, [0])
            if self.layout.in_registers:
                ops.signal(self.ring_free("acc0"))
            s.popped(Ring("acc0"))
        total = self._sum(0, place, 0, place.m)
        ops.op("add", total, total, joined)
        if straight:
            ops.signal(self.free("join0", 1))

    def _sum(self, t: int, place: Place, start: int, rows: int) -> LocalTile:
        return LocalTile(f"sum{t}", place.m, place.n * self._sum_words(), self._sum_format()).part(start, rows)

    @staticmethod
    def _words(name: str, rows: int, cols: int) -> LocalTile:
        return LocalTile(name, rows, cols, "fp32")

    def _values(
        self,
        s: StreamBuilder,
        ops: VectorOps,
        terms: Sequence[int],
        place: Place,
        start: int,
        rows: int,
        *,
        first: bool,
        last: bool,
    ) -> dict[int, LocalTile]:
        """Rows of accumulators where the lanes can read them; those in TMEM are brought to registers.

        first, last: of the accumulator's rows: it is waited for, and given back (see `_done` for registers).
        """
        values = {}
        for t in terms:
            if self.layout.in_registers:
                values[t] = self._accumulator(t, place, start, rows)
                continue
            ring = Ring(f"acc{t}.rf")
            target, waits = ring.tile("push", rows, place.n, self.layout.accumulator), [self.ring_free(ring.name)]
            self._bring(s, t, target, place, start, rows, waits, [self.full(ring.name)], first=first, last=last)
            s.pushed(ring)
            ops.wait(self.full(ring.name))
            values[t] = ring.tile("pop", rows, place.n, self.layout.accumulator)
        return values

    def _accumulator(self, t: int, place: Place, start: int, rows: int) -> LocalTile:
        return Ring(f"acc{t}").tile("pop", place.m, place.n, self.layout.accumulator).part(start, rows)

    def _bring(
        self,
        s: StreamBuilder,
        t: int,
        target: LocalTile,
        place: Place,
        start: int,
        rows: int,
        waits: list[Sync],
        signals: list[Sync],
        *,
        first: bool,
        last: bool,
    ) -> None:
        """Rows of accumulator t from TMEM to registers; first, last: see `_values`."""
        waits = waits + ([self.full(f"acc{t}")] if first else [])
        signals = signals + ([self.ring_free(f"acc{t}")] if last else [])
        engine = link_engine(self.layout.device, self.layout.c_memory, self.rf)
        s.emit(engine, "copy", target, [self._accumulator(t, place, start, rows)], waits, signals, label="C")

    def _done(self, s: StreamBuilder, ops: VectorOps, terms: Sequence[int]) -> None:
        """What `_values` brought has been read."""
        if self.layout.in_registers or not terms:
            return
        ops.signal(*(self.ring_free(f"acc{t}.rf") for t in terms))
        for t in terms:
            s.popped(Ring(f"acc{t}.rf"))
