"""Products of a tiled GEMM kernel: fragments from shared memory, matrix instructions, accumulators handed over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hwsim.dataflows.elementwise import link_engine
from hwsim.dataflows.tiled.emit import Emitter, chunks
from hwsim.dataflows.tiled.layout import SIDES
from hwsim.dataflows.tiles import Cores, Place
from hwsim.errors import UnsupportedError
from hwsim.gemm.layouts import K_MAJOR
from hwsim.program.builder import Ring, Span, StreamBuilder
from hwsim.program.ir import LocalTile, Sync


class Products(Emitter):
    """The stream of products."""

    def _products(self, group: Cores) -> StreamBuilder:
        s = StreamBuilder("math")
        for place in self._places(s, group):
            self._hand_over(s, [t for t, p in enumerate(self.layout.promoted) if not p], "free")
            for run in self._runs(s, place.k):
                self._hand_over(s, self._long(), "free")
                for sweep in range(self.layout.sweeps):
                    for block in s.blocks("k", run.size, self.b.k):
                        self._product_block(s, place, run, sweep, block)
                self._hand_over(s, self._long(), "full", advance=True)
            self._hand_over(s, [t for t, p in enumerate(self.layout.promoted) if not p], "full", advance=True)
        return s

    def _long(self) -> list[int]:
        return [t for t, p in enumerate(self.layout.promoted) if p and not self.layout.short[t]]

    def _hand_over(self, s: StreamBuilder, terms: list[int], what: str, *, advance: bool = False) -> None:
        """Wait for free accumulators, or give full ones away."""
        if not terms:
            return
        if what == "free":
            s.emit(self.unit_engine, "sync", waits=[self.ring_free(f"acc{t}") for t in terms])
        else:
            s.emit(self.unit_engine, "sync", signals=[self.full(f"acc{t}") for t in terms])
        if advance:
            for t in terms:
                s.advance(f"acc{t}.push")

    def _product_block(self, s: StreamBuilder, place: Place, run: Span, sweep: int, block: Span) -> None:
        steps = list(chunks(block.size, self.layout.step))
        for at, (start, size) in enumerate(steps):
            first, last = at == 0, at + 1 == len(steps)
            if self.layout.fragments:
                self._fragments(s, place, sweep, block.size, start, size, first, last)
            ringed = self.layout.fragments or self.work.in_kernel
            waits = [self.full("A.op"), self.full("B.op")] if ringed else [self.full("stage")] if first else []
            signals = [self.free("A.op", self._op_slots(0)), self.free("B.op", self._op_slots(1))] if ringed else []
            if last and (self.layout.serial or not ringed):
                signals.append(self.free("stage", self.b.stages))
            fresh = sweep == 0 and first
            zero = (zero_at((run, block)), zero_at((block,))) if fresh else (None, None)
            self._mmas(s, place, sweep, (0 if ringed else start), size, block.size, zero, waits, signals)
            if ringed:
                self._pop(s, sweep, ".op")
        if not (self.layout.fragments or self.work.in_kernel):
            self._pop(s, sweep, "")

    def _pop(self, s: StreamBuilder, sweep: int, suffix: str) -> None:
        for i, side in enumerate(SIDES):
            for p in self._used(i, sweep):
                s.popped(Ring(f"{side}{p}{suffix}"))

    def _fragments(
        self, s: StreamBuilder, place: Place, sweep: int, width: int, start: int, size: int, first: bool, last: bool
    ) -> None:
        """Shared memory -> registers: `size` of K from `start` of a stage whose rows of A have `width` elements."""
        engine = link_engine(self.layout.device, self.sh, self.rf)
        copies = [(i, p) for i in range(2) for p in self._used(i, sweep)]
        for at, (i, p) in enumerate(copies):
            side, fmt = SIDES[i], self.layout.sources[i].formats[p]
            begins = at == 0 or copies[at - 1][0] != i
            ends = at + 1 == len(copies) or copies[at + 1][0] != i
            stage, own = Ring(f"{side}{p}"), Ring(f"{side}{p}.op")
            if i == 0:
                source = replace(stage.tile("pop", place.m, size, fmt), col=start, width=width)
                target = own.tile("push", place.m, size, fmt)
            else:
                source = replace(stage.tile("pop", size, place.n, fmt), row=start, width=place.n)
                target = own.tile("push", size, place.n, fmt)
            waits = [self.full("stage")] if first and at == 0 else []
            waits += [self.free(f"{side}.op", self._op_slots(i))] if begins else []
            signals = [self.full(f"{side}.op")] if ends else []
            if last and at + 1 == len(copies) and not self.layout.serial:
                signals.append(self.free("stage", self.b.stages))
            s.emit(engine, "copy", target, [source], waits, signals, repeat=self._repeat(i, place), label=side)
            s.pushed(own)
            if last:
                s.popped(stage)

    def _mmas(
        self,
        s: StreamBuilder,
        place: Place,
        sweep: int,
        start: int,
        size: int,
        width: int,
        zero: tuple[tuple[str, ...] | None, tuple[str, ...] | None],
        waits: list[Sync],
        signals: list[Sync],
    ) -> None:
        """All products of `size` of K; `start` within operand tiles whose rows of A have `width` elements.

        zero: the loops at 0 where a chain over all of K begins, and one over a run of K.
        """
        ringed = self.layout.fragments or self.work.in_kernel
        width = size if ringed else width
        made: list[tuple[LocalTile, list[LocalTile], list[Sync], list[Sync], tuple[str, ...] | None, int]] = []
        advances: dict[int, list[str]] = {}

        def one(
            t: int, pair: tuple[int, int], k: int, depth_k: int, row: int, rows: int, z: tuple[str, ...] | None, e: int
        ) -> None:
            suffix = ".op" if ringed else ""
            a = Ring(f"A{pair[0]}{suffix}").tile("pop", rows, depth_k, self.layout.sources[0].formats[pair[0]])
            b = Ring(f"B{pair[1]}{suffix}").tile("pop", depth_k, place.n, self.layout.sources[1].formats[pair[1]])
            first, second = K_MAJOR if ringed else self.layout.orders
            a = replace(a, row=row, col=start + k, width=width, order=first)
            b = replace(b, row=start + k, width=place.n, order=second)
            target = Ring(self._ring(t)).tile("push", rows, place.n, self.layout.accumulator)
            made.append((target, [a, b], [], [], z, e))

        shorts = [] if sweep else [t for t, short in enumerate(self.layout.short) if short]
        if self.layout.turns and shorts:
            shorts = [turn.term for turn in self.layout.turns]
        for group in [shorts] if self.work.joined and shorts else [[t] for t in shorts]:
            run = self.work.runs[group[0]]
            assert run is not None
            for at, length in chunks(size, run):
                for row, rows in chunks(place.m, self.layout.part):
                    for t in group:
                        begin = len(made)
                        for index, stage in enumerate(self.work.terms[t].stages):
                            for which, (pair, k, d) in enumerate(self._units(stage.products, length)):
                                scale = stage.scale_exponent if index and not which else 0
                                fresh = () if len(made) == begin else None
                                one(t, pair, at + k, d, row, rows, fresh, scale)
                        ring = self._ring(t)
                        made[begin][2].append(self.ring_free(ring))
                        made[-1][3].append(self.full(ring))
                        advances.setdefault(len(made) - 1, []).append(f"{ring}.push")
        for t, term in enumerate(self.work.terms):
            if self.layout.short[t]:
                continue
            for stage in term.stages[sweep : sweep + 1]:
                if stage.scale_exponent:
                    raise UnsupportedError("an accumulator is scaled between stages within one block of K only")
                for which, (pair, k, d) in enumerate(self._units(stage.products, size)):
                    one(t, pair, k, d, 0, place.m, None if which else zero[self.layout.promoted[t]], 0)
        made[0][2].extend(waits)
        made[-1][3].extend(signals)
        for at, (target, reads, before, after, z, e) in enumerate(made):
            unit = self.layout.instructions.fitted(
                self.layout.unit_of(reads[0].format, reads[1].format), target.rows, target.cols, self.b.cores
            )
            s.emit(self.unit_engine, "mma", target, reads, before, after, unit=unit, zero_at=z, scale_exponent=e)
            for counter in advances.get(at, ()):
                s.advance(counter)

    def _units(self, products: Sequence[tuple[int, int]], size: int) -> Iterator[tuple[tuple[int, int], int, int]]:
        """(product, first element of K, length): one product at once, several alternate by instruction."""
        if len(products) == 1:
            yield products[0], 0, size
            return
        for k, d in chunks(size, self.layout.depth):
            for pair in products:
                yield pair, k, d


def zero_at(levels: tuple[Span, ...]) -> tuple[str, ...] | None:
    """Which loops at 0 make a product the first of its chain (None: it never is); see ir.Instr."""
    loops = []
    for span in levels:
        if span.loop is not None:
            loops.append(span.loop)
        elif span.index.constant:
            return None
    return tuple(loops)
