"""The GEMM kernel of a separated DaVinci core: global memory, L1, L0A and L0B, cube, L0C, FixPipe, global memory.

L1 holds packets of several blocks of K of each operand (stepKa and stepKb of Huawei's kernels); packets, L0A and L0B
are double-buffered. A tile of C stays in L0C for all of K, or for one promotion interval. Tiles are distributed
cyclically over the cores, in bands of columns (hwsim.dataflows.tiles), or each core has a block of C.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hwsim.dataflows.davinci.block_grid import BlockGrid
from hwsim.dataflows.davinci.cube_blocking import CubeBlocking, CubeMemory, CubeTerm
from hwsim.dataflows.elementwise import link_engine
from hwsim.dataflows.records import CHAIN
from hwsim.dataflows.tiled.area_tiles import AreaScheduler
from hwsim.dataflows.tiles import TileGrid, distribute, places
from hwsim.devices import instruction
from hwsim.gemm import refusals
from hwsim.program.builder import KernelBuilder, Ring, Span, StreamBuilder
from hwsim.program.ir import CORE, ZERO, Affine, GlobalTile, Kernel, variable
from hwsim.program.roles import Opcode

if TYPE_CHECKING:
    from hwsim.gemm.plan import Stage
    from hwsim.gemm.record import Gemm

SIDES = ("A", "B")


@dataclass(frozen=True, slots=True)
class OutputTile:
    """One tile of C, or one of a loop's: its first element and its sizes.

    runs: (start, length) of the runs of K that are one K here, in order; none: K is in one.
    """

    row: Affine
    col: Affine
    m: int
    n: int
    runs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class DepthPeriod:
    """One period of K of a tile: the K of the longer of the packets of A and of B. run: that it belongs to.

    following: elements of K in the next period, whose packets are prefetched in this one; None: packets are loaded
    where they begin. is_first: its first product starts the accumulator from zero.
    """

    run: Span
    span: Span
    stage: Stage
    following: int | None
    is_first: bool


class CubeKernel:
    """Writes the kernel of one term.

    units: instruction by product. tiles: tile grids, distributed cyclically over the cores, a grid of blocks, or the
    tiles of areas of C.
    """

    def __init__(
        self,
        memory: CubeMemory,
        term: CubeTerm,
        units: Mapping[tuple[int, int], str],
        blocking: CubeBlocking,
        tiles: Sequence[TileGrid] | BlockGrid | AreaScheduler,
    ) -> None:
        self.term, self.units, self.b, self.tiles, self.device = term, units, blocking, tiles, memory.device
        self.m, self.n, self.k = memory.sizes
        self.builder = KernelBuilder(term.name)
        b = blocking
        self.l1 = self._rings("L1", ("L1", "L1"), memory.packet_bytes(b))
        self.l0 = self._rings("L0", ("L0A", "L0B"), memory.block_bytes(b))
        self.l0c = self.builder.ring("C.L0", "L0C", b.accumulators, memory.tile_bytes(b.m, b.n), b.unit_flag)
        self.sum_format = memory.unit.d
        self.cube, self.depth = memory.unit.engine, memory.unit.k
        self.mte2 = link_engine(self.device, "GM", "L1")
        self.mte1 = tuple(link_engine(self.device, "L1", f"L0{side}") for side in SIDES)
        self.fix = link_engine(self.device, "L0C", "GM")

    def _rings(self, level: str, memories: tuple[str, str], sizes: tuple[int, int]) -> list[list[Ring]]:
        """The ring buffers of a level: one for each piece of A, and of B, that is there together."""
        return [
            [
                self.builder.ring(f"{side}{j}.{level}", memories[i], self.b.buffers, sizes[i])
                for j in range(self.term.most(i))
            ]
            for i, side in enumerate(SIDES)
        ]

    def kernel(self) -> Kernel:
        """The complete kernel, for all cores."""
        if isinstance(self.tiles, BlockGrid):
            for first, count, rows, cols in self.tiles.groups(self.m, self.n):
                s = StreamBuilder("main")
                for tile in self._tiles_of_block(s, self.tiles, rows, cols):
                    self._tile(s, tile)
                self.builder.group(first, count, s)
            return self.builder.finish()
        if isinstance(self.tiles, AreaScheduler):
            for group in self.tiles.cores():
                s = StreamBuilder("main")
                for place in self.tiles.tiles(s, group):
                    self._tile(s, OutputTile(place.row, place.col, place.m, place.n, place.runs))
                self.builder.group(group.first, group.count, s)
            return self.builder.finish()
        for group in distribute(self.tiles, self.device.cores):
            s = StreamBuilder("main")
            for place in places(s, self.tiles, group, self.device.cores, 1):
                self._tile(s, OutputTile(place.row, place.col, place.m, place.n))
            self.builder.group(group.first, group.count, s)
        return self.builder.finish()

    def _tiles_of_block(self, s: StreamBuilder, grid: BlockGrid, rows: int, cols: int) -> Iterator[OutputTile]:
        """The tiles of one core's block of rows x cols, row by row."""
        ci, ri = s.derive("core", variable(CORE), grid.rows)
        for i in s.blocks("row", rows, self.b.m):
            for j in s.blocks("col", cols, self.b.n):
                row, col = ri * grid.block_m + i.start, ci * grid.block_n + j.start
                yield OutputTile(row, col, i.size, j.size)

    def _tile(self, s: StreamBuilder, tile: OutputTile) -> None:
        if tile.runs:
            depth = sum(length for _, length in tile.runs)
            if all(length % self.depth == 0 for _, length in tile.runs[:-1]):
                runs = [Span(ZERO, Affine(start), length, None, True) for start, length in tile.runs]
                self._run(s, replace(tile, runs=()), runs, ZERO)
            else:  # instructions go across the runs' ends
                self._run(s, tile, [Span(ZERO, ZERO, depth, None, True)], ZERO)
            return
        for run in s.blocks("run", self.k, self.term.promotion_interval or self.k):
            self._run(s, tile, [run], run.index)

    def _run(self, s: StreamBuilder, tile: OutputTile, runs: Sequence[Span], index: Affine) -> None:
        """Emit one tile of C over runs of K, one after another in one sum, and its store. index: of the sum."""
        s.emit(self.cube, "sync", waits=[self.l0c.free])
        for sweep, stage in enumerate(self.term.term.stages):
            for number, run in enumerate(runs):
                for period in self._periods(s, tile, run, stage, sweep == number == 0):
                    for start in range(0, period.span.size, self.b.k):
                        self._step(s, tile, period, start)
        s.emit(self.cube, "sync", signals=[self.l0c.full])
        s.pushed(self.l0c)
        target = self.term.target
        out = GlobalTile(target.name, tile.row + index * self.m, tile.col, tile.m, tile.n)
        opcode: Opcode = "copy" if target.format == self.sum_format else "cast"
        source = self.l0c.tile("pop", tile.m, tile.n, self.sum_format)
        s.emit(self.fix, opcode, out, [source], [self.l0c.full], [self.l0c.free], label="C")
        s.popped(self.l0c)

    def _periods(
        self, s: StreamBuilder, tile: OutputTile, run: Span, stage: Stage, is_first: bool
    ) -> Iterator[DepthPeriod]:
        """The periods of K: the K of the longer of the packets of A and of B.

        Where packets are double-buffered, each is prefetched while the previous one is used, as in Huawei's samples;
        the first ones are loaded here. Otherwise each is loaded where it begins.
        """
        period = self.b.k * max(self.b.step_a, self.b.step_b)
        if tile.runs:
            for number, start in enumerate(range(0, run.size, period)):
                size = min(period, run.size - start)
                span = Span(Affine(number), Affine(start), size, None, start + size == run.size)
                yield DepthPeriod(run, span, stage, None, is_first)
            return
        if self.b.buffers == 1:
            for span in s.blocks("k", run.size, period):
                yield DepthPeriod(run, span, stage, None, is_first)
            return
        whole, rest = divmod(run.size, period)
        for i, packet in self._by_length():
            self._load_packet(s, i, self.term.used(i, stage), tile, run.start, min(packet, run.size))
        if whole > 1:
            with s.loop("k", whole - 1) as (unique, index):
                span = Span(index, index * period, period, unique, False)
                yield DepthPeriod(run, span, stage, period, is_first)
        if whole:
            span = Span(Affine(whole - 1), Affine((whole - 1) * period), period, None, not rest)
            yield DepthPeriod(run, span, stage, rest, is_first)
        if rest:
            span = Span(Affine(whole), Affine(whole * period), rest, None, True)
            yield DepthPeriod(run, span, stage, 0, is_first)

    def _by_length(self) -> list[tuple[int, int]]:
        """The sides and the K of their packets, the longer first, because its slot has been free for longer."""
        return sorted(((0, self.b.step_a * self.b.k), (1, self.b.step_b * self.b.k)), key=lambda x: -x[1])

    def _step(self, s: StreamBuilder, tile: OutputTile, period: DepthPeriod, start: int) -> None:
        """Emit one block of K from element `start` of a period: loads to L0, products, and prefetches due here."""
        whole = period.span.size
        size = min(self.b.k, whole - start)
        k = period.run.start + period.span.start
        pieces = [self.term.used(i, period.stage) for i in range(2)]
        if period.following is None:
            for i, packet in self._by_length():
                if start % packet == 0:
                    self._load_packet(s, i, pieces[i], tile, k + start, min(packet, whole - start))
        for i, step in ((0, self.b.step_a), (1, self.b.step_b)):
            packet = step * self.b.k
            at = start % packet
            self._move_to_l0(s, i, pieces[i], tile, at, size, min(packet, whole - (start - at)))
        is_fresh = period.is_first and start == 0
        self._multiply(s, tile, period.stage, pieces, size, period.span.zero_at if is_fresh else None)
        if period.following is None:
            return
        for i, packet in reversed(self._by_length()):  # the shorter is needed sooner; of equals B's is first
            left = whole + period.following - (start + packet)
            if start % packet == 0 and left > 0:
                inside = min(left, whole - (start + packet)) or left
                self._load_packet(s, i, pieces[i], tile, k + (start + packet), min(packet, inside))

    def _load_packet(
        self, s: StreamBuilder, side: int, pieces: list[int], tile: OutputTile, k: Affine, size: int
    ) -> None:
        """Emit the load of a packet: global memory -> L1."""
        for ring, piece in zip(self.l1[side], pieces, strict=False):
            array, form = self.term.arrays[side][piece], self.term.formats[side][piece]
            opcode: Opcode = "copy" if array.format == form else "cast"
            rows, cols = (tile.m, size) if side == 0 else (size, tile.n)
            whole = ring.tile("push", rows, cols, form)
            parts = _parts(tile.runs, k, size)
            for number, (start, offset, length) in enumerate(parts):
                rows, cols = (tile.m, length) if side == 0 else (length, tile.n)
                at = (tile.row, start) if side == 0 else (start, tile.col)
                target = whole
                if len(parts) > 1:
                    row, col, width = (0, offset, size) if side == 0 else (offset, 0, tile.n)
                    target = replace(whole, rows=rows, cols=cols, row=row, col=col, width=width)
                waits, signals = [ring.free] * (number == 0), [ring.full] * (number + 1 == len(parts))
                source = GlobalTile(array.name, *at, rows, cols)
                s.emit(self.mte2, opcode, target, [source], waits, signals, label=SIDES[side])
            s.pushed(ring)

    def _move_to_l0(
        self, s: StreamBuilder, side: int, pieces: list[int], tile: OutputTile, at: int, size: int, whole: int
    ) -> None:
        """Emit the move L1 -> L0A or L0B: `size` of K from `at` of a packet of `whole`."""
        for l1, l0, piece in zip(self.l1[side], self.l0[side], pieces, strict=False):
            form = self.term.formats[side][piece]
            if side == 0:
                source = replace(l1.tile("pop", tile.m, size, form), col=at, width=whole)
                target = l0.tile("push", tile.m, size, form)
            else:
                source = replace(l1.tile("pop", size, tile.n, form), row=at, width=tile.n)
                target = l0.tile("push", size, tile.n, form)
            is_last = at + size == whole
            waits = [l0.free, *([l1.full] if at == 0 else [])]
            signals = [l0.full, *([l1.free] if is_last else [])]
            s.emit(self.mte1[side], "copy", target, [source], waits, signals, label=SIDES[side])
            s.pushed(l0)
            if is_last:
                s.popped(l1)

    def _multiply(
        self,
        s: StreamBuilder,
        tile: OutputTile,
        stage: Stage,
        pieces: list[list[int]],
        size: int,
        zero: tuple[str, ...] | None,
    ) -> None:
        """Emit the products of one block of K; several alternate per instruction."""
        depth = size if len(stage.products) == 1 else instruction(self.device, self.units[stage.products[0]]).k
        products = [(at, pair) for at in range(0, size, depth) for pair in stage.products]
        rings = [ring for side in range(2) for ring in self.l0[side][: len(pieces[side])]]
        for number, (at, (a, b)) in enumerate(products):
            part = min(depth, size - at)
            forms = self.term.formats[0][a], self.term.formats[1][b]
            left = self.l0[0][pieces[0].index(a)].tile("pop", tile.m, part, forms[0])
            right = self.l0[1][pieces[1].index(b)].tile("pop", part, tile.n, forms[1])
            if part < size:
                left, right = replace(left, col=at, width=size), replace(right, row=at, width=tile.n)
            s.emit(
                self.cube,
                "mma",
                self.l0c.tile("push", tile.m, tile.n, self.sum_format),
                [left, right],
                [ring.full for ring in rings] if number == 0 else [],
                [ring.free for ring in rings] if number + 1 == len(products) else [],
                unit=self.units[a, b],
                zero_at=zero if number == 0 else None,
            )
        for ring in rings:
            s.popped(ring)


def refuses(gemm: Gemm) -> str:
    """What of a record no kernel of a cube carries: K in other orders, scales along K, sparsity."""
    problem = gemm.problem
    return refusals.joined(
        refusals.of_schedule(gemm.schedule, CHAIN),
        refusals.named({"interleave in elements of K": refusals.interleaves(gemm.plan)}),
        refusals.formats(problem),
        refusals.scales(problem, refusals.ALONG_K),
        refusals.sparsity(problem),
    )


def _parts(runs: Sequence[tuple[int, int]], k: Affine, size: int) -> list[tuple[Affine, int, int]]:
    """Where `size` elements from `k` on of K lie: (first element, its place among them, how many). runs: that K is
    joined of; none: it is in one.
    """
    if not runs:
        return [(k, 0, size)]
    parts, end, at = [], k.constant + size, 0
    for start, length in runs:
        first, last = max(at, k.constant), min(at + length, end)
        if first < last:
            parts.append((Affine(start + first - at), first - k.constant, last - first))
        at += length
    return parts
