"""The end of a tile: terms joined, alpha and beta, the output's format, the way to global memory."""

from __future__ import annotations

from dataclasses import replace

from hwsim.dataflows.elementwise import VectorOps, evaluate, link_engine
from hwsim.dataflows.tiled.emit import chunks
from hwsim.dataflows.tiled.promotion import Lanes
from hwsim.dataflows.tiles import Place
from hwsim.gemm.plan import TermValue
from hwsim.program.builder import Ring, StreamBuilder
from hwsim.program.ir import GlobalArray, GlobalTile, LocalTile, Sync


class Ends(Lanes):
    """The epilogue."""

    def _epilogue(self, s: StreamBuilder, ops: VectorOps, place: Place) -> None:
        finish, layout = self.finish, self.layout
        chained = [t for t, p in enumerate(layout.promoted) if not p]
        parts = list(chunks(place.m, layout.chunk))
        jobs: list[tuple[list[int], GlobalArray]] = (
            [([t], array) for t, array in enumerate(finish.partial)]
            if finish.value is None
            else [(list(range(len(self.work.terms))), finish.target)]
        )
        for index, (terms, array) in enumerate(jobs):
            waiting = [t for t in terms if t in chained]
            for at, (start, rows) in enumerate(parts):
                first, last = at == 0, at + 1 == len(parts)
                final = last and index + 1 == len(jobs)
                if layout.in_registers and first and not layout.plain:
                    ops.wait(*(self.full(f"acc{t}") for t in waiting))
                row = self._row(place, self.sizes[0]) + place.row + start
                if finish.partial:
                    row = row + place.slice * (self.batch * self.sizes[0])
                tile = GlobalTile(array.name, row, place.col, rows, place.n)
                if layout.plain:
                    self._store_plain(s, ops, place, terms[0], start, rows, tile, first, last, final)
                    continue
                values = self._values(s, ops, waiting, place, start, rows, first=first, last=last)
                for t in terms:
                    if layout.promoted[t] and not self.work.joined:
                        values[t] = self._sum(t, place, start, rows)
                ring = Ring("out")
                ops.wait(self.ring_free("out"))
                self._finish(ops, s, values, ring, rows, place.n, terms[0], start, place)
                self._done(s, ops, waiting)
                freed = [self.ring_free(f"acc{t}") for t in waiting] if layout.in_registers and last else []
                ops.signal(self.full("out"), *freed)
                s.pushed(ring)
                self._store(
                    s,
                    ring.tile("pop", rows, place.n, array.format),
                    tile,
                    [self.full("out")],
                    [self.ring_free("out")],
                    final,
                )
                s.popped(ring)
            for t in waiting:
                s.popped(Ring(f"acc{t}"))

    def _store_plain(
        self,
        s: StreamBuilder,
        ops: VectorOps,
        place: Place,
        t: int,
        start: int,
        rows: int,
        tile: GlobalTile,
        first: bool,
        last: bool,
        final: bool,
    ) -> None:
        """What the unit gave goes out as it is."""
        source = Ring(f"acc{t}").tile("pop", place.m, place.n, self.layout.accumulator).part(start, rows)
        if self.layout.in_registers:
            waits = [self.full(f"acc{t}")] if first else []
            signals = [self.ring_free(f"acc{t}")] if last else []
            self._store(s, source, tile, waits, signals, final)
            return
        ring = Ring(f"acc{t}.rf")
        target = ring.tile("push", rows, place.n, self.layout.accumulator)
        s.emit(
            link_engine(self.layout.device, self.layout.c_memory, self.rf),
            "copy",
            target,
            [source],
            [self.ring_free(ring.name), *([self.full(f"acc{t}")] if first else [])],
            [self.full(ring.name), *([self.ring_free(f"acc{t}")] if last else [])],
            label="C",
        )
        s.pushed(ring)
        own = ring.tile("pop", rows, place.n, self.layout.accumulator)
        self._store(s, own, tile, [self.full(ring.name)], [self.ring_free(ring.name)], final)
        s.popped(ring)

    def _store(
        self,
        s: StreamBuilder,
        source: LocalTile,
        target: GlobalTile,
        waits: list[Sync],
        signals: list[Sync],
        final: bool,
    ) -> None:
        """Registers (-> shared memory) -> global memory. final: the tile is finished, the next CTA may begin."""
        device = self.layout.device
        gate = [self.free("cta", 1)] if final and not self.layout.family.persistent and self.b.accumulators == 1 else []
        if not self.layout.family.store_shared:
            s.emit(link_engine(device, self.rf, "GM"), "copy", target, [source], waits, [*signals, *gate], label="C")
            return
        ring = Ring("out.sh")
        staged = ring.tile("push", source.rows, source.cols, source.format)
        s.emit(
            link_engine(device, self.rf, self.sh),
            "copy",
            staged,
            [source],
            [*waits, self.ring_free(ring.name)],
            [*signals, self.full(ring.name)],
            label="C",
        )
        s.pushed(ring)
        s.emit(
            link_engine(device, self.sh, "GM"),
            "copy",
            target,
            [ring.tile("pop", source.rows, source.cols, source.format)],
            [self.full(ring.name)],
            [self.ring_free(ring.name), *gate],
            label="C",
        )
        s.popped(ring)

    def _finish(
        self,
        ops: VectorOps,
        s: StreamBuilder,
        values: dict[int, LocalTile],
        ring: Ring,
        rows: int,
        cols: int,
        term: int,
        start: int,
        place: Place,
    ) -> None:
        """Elementwise operations from the terms' values to the tile of the result."""
        finish, layout = self.finish, self.layout
        target = ring.tile("push", rows, cols, layout.out_format)
        c = Ring("c").tile("pop", rows, cols, finish.c.format) if finish.c is not None else None
        if c is not None:
            ops.wait(self.full("c"))
        if finish.stand_ins:
            wide = replace(target, cols=cols * finish.words)
            for _ in range(finish.stand_ins + (c is not None) + finish.bias):
                ops.op("add", wide, wide, wide, label="C")
        else:
            self._blend(ops, values, target, c, rows, cols, term, start, place)
        if c is not None:
            ops.signal(self.ring_free("c"))
            s.popped(Ring("c"))

    def _blend(
        self,
        ops: VectorOps,
        values: dict[int, LocalTile],
        target: LocalTile,
        c: LocalTile | None,
        rows: int,
        cols: int,
        term: int,
        start: int,
        place: Place,
    ) -> None:
        finish, layout = self.finish, self.layout
        scratch = [self._words(f"end{i}", rows, cols) for i in range(layout.scratch)]
        direct = target.format == "fp32"
        steps = [name for name, on in (("alpha", finish.alpha != 1), ("c", c is not None), ("bias", finish.bias)) if on]
        end = target if direct or not scratch else scratch[1]

        if self.work.joined:
            value = self._sum(0, place, start, rows)
        elif finish.value is None:
            value = values[term]
        elif isinstance(finish.value, TermValue):
            value = values[finish.value.term]
        else:
            evaluate(ops, finish.value, values, end if not steps or not scratch else scratch[0], scratch[2:])
            value = end if not steps or not scratch else scratch[0]
        for at, step in enumerate(steps):
            into = end if at + 1 == len(steps) else scratch[0]
            if step == "alpha":
                ops.op("scale", into, value, scalar=finish.alpha, label="C")
            elif step == "c":
                assert c is not None
                other = c
                if c.format != "fp32":
                    ops.op("cast", scratch[1], c, label="C")
                    other = scratch[1]
                if finish.beta != 1:
                    ops.op("scale", scratch[1], other, scalar=finish.beta, label="C")
                    other = scratch[1]
                pair = (value, other) if finish.order == "value" else (other, value)
                ops.op("add", into, *pair, label="C")
            else:
                ops.op("add", into, value, value, label="C")
            value = into
        if value is not target:
            if value.format == target.format:
                ops.op("copy", target, value, label="C")
            else:
                ops.op("cast", target, value, label="C")
