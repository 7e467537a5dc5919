"""Loads of a tiled GEMM kernel: blocks of K of both operands into the ring of stages, C for the epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hwsim.dataflows.elementwise import link_engine
from hwsim.dataflows.tiled.emit import Emitter, chunks
from hwsim.dataflows.tiled.layout import SIDES
from hwsim.dataflows.tiles import Cores, Place
from hwsim.program.builder import Ring, StreamBuilder
from hwsim.program.ir import Affine, GlobalArray, GlobalTile


class Loads(Emitter):
    """The stream of loads."""

    def _loads(self, group: Cores) -> StreamBuilder:
        s = StreamBuilder("load")
        for place in self._places(s, group):
            if not self.layout.family.persistent and self.b.accumulators == 1:
                s.emit(self.load, "sync", waits=[self.free("cta", 1)])
            for run in self._runs(s, place.k):
                for sweep in range(self.layout.sweeps):
                    for block in s.blocks("k", run.size, self.b.k):
                        self._load_block(s, place, place.start + run.start + block.start, block.size, sweep)
            if self.finish.c is not None and "c" in self.layout.slots:
                self._load_c(s, place, self.finish.c)
        return s

    def _load_block(self, s: StreamBuilder, place: Place, k: Affine, size: int, sweep: int) -> None:
        """One block of K of both operands into a stage."""
        copies = []
        for i, (side, source) in enumerate(zip(SIDES, self.layout.sources, strict=True)):
            if source.raw is not None:
                arrays: list[tuple[str, GlobalArray]] = [(f"{side}raw", source.raw)]
            else:
                arrays = [(f"{side}{p}", source.arrays[p]) for p in self._used(i, sweep)]
            for name, array in arrays:
                if i == 0:
                    tile = GlobalTile(array.name, self._row(place, self.sizes[0]) + place.row, k, place.m, size)
                else:
                    tile = GlobalTile(array.name, self._row(place, self.sizes[2]) + k, place.col, size, place.n)
                copies.append((side, name, array.format, tile))
        through = self.layout.family.through_registers
        for at, (side, name, fmt, tile) in enumerate(copies):
            first, last = at == 0, at + 1 == len(copies)
            ring = Ring(f"{name}.load" if through else name)
            if through:
                waits, signals = [self.ring_free(ring.name)], [self.full(ring.name)]
                if first and self.layout.serial:
                    waits.append(self.free("stage", self.b.stages))
            else:
                waits = [self.free("stage", self.b.stages)] if first else []
                signals = [self.full("stage")] if last else []
            target = ring.tile("push", tile.rows, tile.cols, fmt, self.layout.orders[SIDES.index(side)])
            beside = self._together(side, place)
            if (own := self.layout.load_formats.get(name, fmt)) != fmt:
                piece = self.layout.rounded[side]
                s.emit(
                    self.load,
                    "cast",
                    replace(target, format=own),
                    [tile],
                    waits,
                    signals,
                    label=side,
                    rounding=piece.rounding,
                    overflow=piece.overflow,
                    multicast=beside,
                )
            else:
                s.emit(self.load, "copy", target, [tile], waits, signals, label=side, multicast=beside)
            s.pushed(ring)
        if through and not self.work.in_kernel:
            self._to_shared(s, [(n, f"{n}.load", t.rows, t.cols, f) for _, n, f, t in copies])

    def _together(self, side: str, place: Place) -> int:
        """Cores whose reads of this tile cost L2 one: a cluster's, or those that L2 takes together."""
        l2 = self.layout.device.l2
        spread = self.layout.spread(SIDES.index(side))
        if l2 is None or spread > 1:
            return spread
        sharing, cluster = (place.across, 1) if side == "A" else (place.along, place.cluster)
        return max(cluster, min(sharing, l2.coalesced_reads or 1))

    def _to_shared(self, s: StreamBuilder, tiles: Sequence[tuple[str, str, int, int, str]]) -> None:
        """Registers -> a stage of shared memory: (ring, ring in registers, rows, cols, format) of each operand."""
        engine = link_engine(self.layout.device, self.rf, self.sh)
        for at, (name, source, rows, cols, fmt) in enumerate(tiles):
            waits = [self.full(source)]
            if at == 0 and not self.layout.serial:
                waits.append(self.free("stage", self.b.stages))
            signals = [self.ring_free(source), *([self.full("stage")] if at + 1 == len(tiles) else [])]
            ring, own = Ring(name), Ring(source)
            s.emit(
                engine,
                "copy",
                ring.tile("push", rows, cols, fmt),
                [own.tile("pop", rows, cols, fmt)],
                waits,
                signals,
                label=name[0],
            )
            s.popped(own)
            s.pushed(ring)

    def _load_c(self, s: StreamBuilder, place: Place, array: GlobalArray) -> None:
        engine, ring = link_engine(self.layout.device, "GM", self.rf), Ring("c")
        for start, rows in chunks(place.m, self.layout.chunk):
            tile = GlobalTile(array.name, self._row(place, self.sizes[0]) + place.row + start, place.col, rows, place.n)
            s.emit(
                engine,
                "copy",
                ring.tile("push", rows, place.n, array.format),
                [tile],
                [self.ring_free("c")],
                [self.full("c")],
                label="C",
            )
            s.pushed(ring)
