"""The GEMM kernel of a separated DaVinci core: global memory, L1, L0A and L0B, cube, L0C, FixPipe, global memory.

L1 keeps packets of several blocks of K of each operand (stepKa and stepKb of Huawei's kernels); packets, L0A and L0B
are double-buffered. A tile of C stays in L0C for all of K, or for one run of it. Tiles are dealt out to the cores in
bands (hwsim.dataflows.tiles), or each core has a block of C. It knows one term of a plan; which kernels a plan takes is
hwsim.dataflows.davinci.separated's to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hwsim.dataflows.elementwise import link_engine
from hwsim.dataflows.tiles import Field, band_of, deal_fields, places
from hwsim.devices import instruction
from hwsim.errors import InputError, UnsupportedError
from hwsim.evaluate.evaluator import instruction_for
from hwsim.formats import format_of
from hwsim.gemm.plan import Stage, Term
from hwsim.program.builder import KernelBuilder, Span, StreamBuilder
from hwsim.program.ir import CORE, Affine, GlobalArray, GlobalTile, Kernel, Opcode, variable

if TYPE_CHECKING:
    from hwsim.devices.model import Device, LinkModel

SIDES = ("A", "B")
MOST_BLOCKS = 16  # blocks of K in a packet
LARGEST_TILE = 512  # side of a tile that is looked at by default


@dataclass(frozen=True, slots=True)
class Blocking:
    """A tile of C of m x n, blocks of K of k elements, step_a and step_b of them in a packet of A and of B.

    buffers: slots of each stage (1 or 2). accumulators: tiles of C in L0C. unit_flag: the cube hands C to the FixPipe
    piece by piece, and gets L0C back so.
    """

    m: int
    n: int
    k: int
    step_a: int
    step_b: int
    buffers: int = 2
    accumulators: int = 1
    unit_flag: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """One term as a kernel: products of pieces of A and B (arrays by piece) go to `target`.

    formats: of each side's pieces as the cube takes them. run: K accumulated from zero (None: all); run r of K goes to
    rows r m .. (r + 1) m - 1 of `target`.
    """

    name: str
    term: Term
    arrays: tuple[Mapping[int, GlobalArray], Mapping[int, GlobalArray]]
    formats: tuple[Mapping[int, str], Mapping[int, str]]
    target: GlobalArray
    run: int | None = None

    def used(self, side: int, stage: Stage) -> list[int]:
        """Pieces of one side that a stage takes."""
        return sorted({pair[side] for pair in stage.products})

    def most(self, side: int) -> int:
        """Pieces of one side that lie in L1 together."""
        return max(len(self.used(side, stage)) for stage in self.term.stages)


class Shapes:
    """Which blockings a device holds for some kernels, and how long they take by estimate."""

    def __init__(self, device: Device, works: Sequence[Work], sizes: tuple[int, int, int]) -> None:
        self.device, self.works, self.sizes = device, works, sizes
        lacking = [f"memories.{name}" for name in ("L1", "L0A", "L0B", "L0C") if name not in device.memories]
        lacking += [f"fractal.{name}" for name in ("rows", "row_bytes") if name not in device.fractal]
        if lacking:
            raise UnsupportedError(
                f"device {device.name}: its file does not describe a core that programs can run on: "
                f"no {', '.join(lacking)}"
            )
        formats = [f for work in works for side in work.formats for f in side.values()]
        self.bits = max(format_of(f).bits for f in formats)
        self.rows = device.fractal["rows"]
        first = works[0].term.products[0]
        self.unit = instruction(
            device, instruction_for(device, works[0].formats[0][first[0]], works[0].formats[1][first[1]])
        )
        self.depth = self.unit.k
        self.pieces = tuple(max(work.most(i) for work in works) for i in range(2))

    def size(self, memory: str, rows: int, cols: int, bits: int) -> int:
        """Bytes of a slot: whole fractals, aligned."""
        row_bytes = self.device.fractal["row_bytes"]
        size = -(-rows // self.rows) * self.rows * -(-cols * bits // (8 * row_bytes)) * row_bytes
        align = self.device.memories[memory].align_bytes
        return -(-size // align) * align

    def taken(self, b: Blocking) -> dict[str, int]:
        """Bytes of each memory that a blocking takes."""
        a, c = self.pieces
        packets = a * self.size("L1", b.m, b.k * b.step_a, self.bits) + c * self.size(
            "L1", b.k * b.step_b, b.n, self.bits
        )
        return {
            "L1": b.buffers * packets,
            "L0A": b.buffers * a * self.size("L0A", b.m, b.k, self.bits),
            "L0B": b.buffers * c * self.size("L0B", b.k, b.n, self.bits),
            "L0C": b.accumulators * self.size("L0C", b.m, b.n, 32),
        }

    def excess(self, b: Blocking) -> list[str]:
        """What does not fit, in words."""
        return [
            f"{size} bytes of {memory}, which holds {self.device.memories[memory].capacity_bytes}"
            for memory, size in self.taken(b).items()
            if size > self.device.memories[memory].capacity_bytes
        ]

    def packets(self, m: int, n: int, k: int, buffers: int, steps: tuple[int | None, int | None]) -> Blocking:
        """The blocking of a tile with the largest packets that fit, a power of two of blocks; `steps`: given ones."""
        half = self.device.memories["L1"].capacity_bytes // (2 * buffers)
        found = []
        for i, given in enumerate(steps):
            if given is None:
                rows, cols = (m, k) if i == 0 else (k, n)
                block = self.pieces[i] * self.size("L1", rows, cols, self.bits)
                most = min(max(half // block, 1), MOST_BLOCKS, max(1, -(-self.sizes[2] // k)))
                given = 1 << (most.bit_length() - 1)
            found.append(given)
        size = self.size("L0C", m, n, 32)
        room = self.device.memories["L0C"].capacity_bytes // size if size else 1
        return Blocking(m, n, k, found[0], found[1], buffers, max(1, min(2, room)))

    def choose(self, tile: Mapping[str, int] | None, buffers: int, steps: tuple[int | None, int | None]) -> Blocking:
        """The blocking with tile {"m", "n", "k"}, or the fastest by estimate.

        Raises InputError where it does not fit, or packets of A and B are not whole multiples of one another.
        """
        for name, given in zip(("step_ka", "step_kb"), steps, strict=True):
            if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 1):
                raise InputError(f"{name} = {given!r}; allowed: an integer of at least 1")
        if tile is not None:
            blocking = self.packets(tile["m"], tile["n"], tile["k"], buffers, steps)
            self._check(blocking)
            return blocking
        found = [b for b in self._candidates(buffers, steps) if not self.excess(b)]
        if not found:
            raise InputError(
                f"no tile fits: {self.pieces[0]} pieces of A and {self.pieces[1]} of B of {self.bits} bits together "
                "are too many for L0A and L0B"
            )
        return min(found, key=self.estimate_cycles)

    def _check(self, b: Blocking) -> None:
        found = []
        for name, value, unit in (("m", b.m, self.rows), ("n", b.n, self.rows), ("k", b.k, self.depth)):
            if value <= 0 or value % unit:
                found.append(f"{name} = {value} is not a positive multiple of {unit}")
        if not found:
            found = self.excess(b)
        if max(b.step_a, b.step_b) % min(b.step_a, b.step_b):
            found.append(f"step_ka = {b.step_a} and step_kb = {b.step_b}: one must be a multiple of the other")
        if found:
            raise InputError(f"tile {b.m},{b.n},{b.k} (m,n,k): {'; '.join(found)}; take a smaller or another tile")

    def _candidates(self, buffers: int, steps: tuple[int | None, int | None]) -> Iterator[Blocking]:
        sides = [self.rows << i for i in range(LARGEST_TILE.bit_length()) if self.rows << i <= LARGEST_TILE]
        limits = [self.device.memories[name].capacity_bytes // buffers for name in ("L0A", "L0B")]
        padded = -(-self.sizes[2] // self.depth) * self.depth
        for m in sides:
            for n in sides:
                most = min(
                    limit * 8 // (self.bits * side * pieces)
                    for limit, side, pieces in zip(limits, (m, n), self.pieces, strict=True)
                )
                blocks = min(most, padded) // self.depth
                if blocks >= 1:
                    yield self.packets(m, n, self.depth << (blocks.bit_length() - 1), buffers, steps)

    def estimate_cycles(self, b: Blocking) -> float:
        """Cycles of one term by the slowest of cube, MTE1 and MTE2 in each round of tiles, plus the FixPipe's.

        Only for choosing a default; the timing machine gives the cycles.
        """
        m, n, k = self.sizes
        device, link = self.device, {(x.source, x.target): x for x in self.device.links.values()}
        if self.unit.timing is None or not link:
            return float(-(-m // b.m) * -(-n // b.n) * b.m * b.n)
        own = min(b.m, -(-m // self.rows) * self.rows), min(b.n, -(-n // self.rows) * self.rows), min(b.k, k)
        blocks = [-(-size // whole) for size, whole in zip(own, (self.rows, self.rows, self.depth), strict=True)]
        slices = len(self.works[0].term.stages[0].products)
        cube = blocks[2] * max(
            blocks[0] * blocks[1] * float(self.unit.interval_cycles()),
            float(self.unit.timing.accumulate_latency_cycles),
        ) * slices + self.unit.timing.overhead_cycles * (slices * blocks[2] if slices > 1 else 1)
        element = self.bits / 8
        mte1 = sum(
            pieces * (to.overhead_cycles + element * own[i] * own[2] / to.bytes_per_cycle)
            for i, (to, pieces) in enumerate(zip((link["L1", "L0A"], link["L1", "L0B"]), self.pieces, strict=True))
        )
        mte2 = self._loads(link["GM", "L1"], b, own)
        loaded = element * own[2] * (own[0] * self.pieces[0] + own[1] * self.pieces[1])
        tiles = -(-m // b.m) * -(-n // b.n)
        busy = min(tiles, device.cores)
        if device.l2 is not None:
            mte2 = max(mte2, loaded * busy / (device.l2.bytes_per_second / (device.clock_mhz * 1e6)))
        if device.hbm is not None:
            band = band_of(device.cores, b.m, b.n, max(1, -(-n // b.n)))
            fresh = loaded * (min(-(-busy // band), -(-m // b.m)) * own[0] + band * own[1]) / (own[0] + own[1])
            mte2 = max(mte2, fresh / (device.hbm.bytes_per_second / (device.clock_mhz * 1e6)))
        steps = -(-k // b.k)
        fix = own[0] * own[1] * 4 / link["L0C", "GM"].bytes_per_cycle + link["L0C", "GM"].startup_cycles
        rounds = -(-tiles // device.cores)
        step, latency = max(cube, mte1, mte2), link["GM", "L1"].startup_cycles
        for packet in {min(b.step_a, steps), min(b.step_b, steps)}:
            step = max(step, (packet * (mte2 + step) + latency) / (b.buffers * packet))
        tile = steps * step + (fix if b.accumulators == 1 else 0)
        return rounds * tile + fix + latency + min(max(b.step_a, b.step_b), steps) * mte2

    def _loads(self, link: LinkModel, b: Blocking, own: tuple[int, int, int]) -> float:
        """Cycles of MTE2 for one block of K of both operands."""
        element, row = self.bits / 8, float(link.row_cycles or 0)
        rate = link.bytes_per_cycle / (link.conflict_factor or 1)
        total = 0.0
        # Rows of A run along K, over the whole packet; those of B along N.
        for pieces, rows, length, whole, blocks in (
            (self.pieces[0], own[0], own[2] * b.step_a, self.sizes[2], b.step_a),
            (self.pieces[1], own[2], own[1], self.sizes[1], 1),
        ):
            row_bytes = min(length, whole) * element
            if length < whole:  # else rows follow one another without a gap
                row_bytes = -(-row_bytes // link.request_bytes) * link.request_bytes
            total += pieces * (rows * max(row, row_bytes / rate) + link.overhead_cycles) / blocks
        return total


@dataclass(frozen=True, slots=True)
class Grid:
    """C cut into blocks of block_m x block_n, one to a core: core ci * rows + ri has block (ri, ci)."""

    rows: int
    cols: int
    block_m: int
    block_n: int

    @classmethod
    def of(cls, m: int, n: int, tile: tuple[int, int], cores: int, given: tuple[int, int] | None = None) -> Grid:
        """The grid of at most `cores` blocks of whole tiles with the fewest tiles in the largest, then the squarest.

        given: (rows, columns) of blocks instead. Raises InputError where those are more than there are cores.
        """
        best: tuple[tuple[int, int, int], Grid] | None = None
        tiles = -(-m // tile[0]), -(-n // tile[1])
        if given is not None:
            rows, cols = given
            if rows < 1 or cols < 1 or rows * cols > cores:
                raise InputError(f"grid = {given}: {rows * cols} blocks; the device has {cores} cores")
            return cls(rows, cols, -(-tiles[0] // rows) * tile[0], -(-tiles[1] // cols) * tile[1])
        for rows in range(1, min(cores, tiles[0]) + 1):
            cols = min(cores // rows, tiles[1])
            block = -(-tiles[0] // rows), -(-tiles[1] // cols)
            grid = cls(rows, cols, block[0] * tile[0], block[1] * tile[1])
            rank = (block[0] * block[1], rows * tile[0] + cols * tile[1], rows)
            if best is None or rank < best[0]:
                best = rank, grid
        assert best is not None
        return best[1]

    def groups(self, m: int, n: int) -> list[tuple[int, int, int, int]]:
        """(first core, cores, rows, columns of C of each) of cores that follow one another with blocks of one size."""
        found: list[tuple[int, int, int, int]] = []
        for core in range(self.rows * self.cols):
            ci, ri = divmod(core, self.rows)
            size = min(self.block_m, m - ri * self.block_m), min(self.block_n, n - ci * self.block_n)
            if min(size) <= 0:
                continue
            last = found[-1] if found else None
            if last is not None and last[2:] == size and last[0] + last[1] == core:
                found[-1] = (last[0], last[1] + 1, *size)
            else:
                found.append((core, 1, *size))
        return found


def cube_kernel(shapes: Shapes, work: Work, blocking: Blocking, found: Sequence[Field] | Grid) -> Kernel:
    """The kernel of one term over the tiles `found`, dealt out in turn, or over a grid of blocks."""
    return _Kernel(shapes, work, blocking, found).kernel()


@dataclass(frozen=True, slots=True)
class Spot:
    """One tile of C, or one of a loop's."""

    row: Affine
    col: Affine
    m: int
    n: int


class _Kernel:
    def __init__(self, shapes: Shapes, work: Work, blocking: Blocking, found: Sequence[Field] | Grid) -> None:
        self.work, self.b, self.found, self.device = work, blocking, found, shapes.device
        self.m, self.n, self.k = shapes.sizes
        self.builder = KernelBuilder(work.name)
        b, bits = blocking, shapes.bits
        self.l1 = tuple(
            [
                self.builder.ring(f"{side}{j}.L1", "L1", b.buffers, shapes.size("L1", *shape, bits))
                for j in range(work.most(i))
            ]
            for i, (side, shape) in enumerate(zip(SIDES, ((b.m, b.k * b.step_a), (b.k * b.step_b, b.n)), strict=True))
        )
        self.l0 = tuple(
            [
                self.builder.ring(f"{side}{j}.L0", f"L0{side}", b.buffers, shapes.size(f"L0{side}", *shape, bits))
                for j in range(work.most(i))
            ]
            for i, (side, shape) in enumerate(zip(SIDES, ((b.m, b.k), (b.k, b.n)), strict=True))
        )
        self.l0c = self.builder.ring("C.L0", "L0C", b.accumulators, shapes.size("L0C", b.m, b.n, 32), b.unit_flag)
        self.d = shapes.unit.d
        self.cube = shapes.unit.engine
        self.mte2 = link_engine(self.device, "GM", "L1")
        self.mte1 = tuple(link_engine(self.device, "L1", f"L0{side}") for side in SIDES)
        self.fix = link_engine(self.device, "L0C", "GM")
        self.units = {
            pair: instruction_for(self.device, work.formats[0][pair[0]], work.formats[1][pair[1]])
            for pair in work.term.products
        }

    def kernel(self) -> Kernel:
        if isinstance(self.found, Grid):
            for first, count, rows, cols in self.found.groups(self.m, self.n):
                s = StreamBuilder("main")
                for place in self._block(s, self.found, rows, cols):
                    self._tile(s, place)
                self.builder.group(first, count, s)
            return self.builder.finish()
        for group in deal_fields(self.found, self.device.cores):
            s = StreamBuilder("main")
            for one in places(s, self.found, group, self.device.cores, 1):
                self._tile(s, Spot(one.row, one.col, one.m, one.n))
            self.builder.group(group.first, group.count, s)
        return self.builder.finish()

    def _block(self, s: StreamBuilder, grid: Grid, rows: int, cols: int) -> Iterator[Spot]:
        """The tiles of one core's block of rows x cols, row by row."""
        ci, ri = s.derive("core", variable(CORE), grid.rows)
        for i in s.blocks("row", rows, self.b.m):
            for j in s.blocks("col", cols, self.b.n):
                row, col = ri * grid.block_m + i.start, ci * grid.block_n + j.start
                yield Spot(row, col, i.size, j.size)

    def _tile(self, s: StreamBuilder, place: Spot) -> None:
        for run in s.blocks("run", self.k, self.work.run or self.k):
            self._run(s, place, run)

    def _run(self, s: StreamBuilder, place: Spot, run: Span) -> None:
        """One tile of C over one run of K, and its way out."""
        s.emit(self.cube, "sync", waits=[self.l0c.free])
        for sweep, stage in enumerate(self.work.term.stages):
            for outer, following in self._periods(s, place, run, stage):
                for start in range(0, outer.size, self.b.k):
                    self._step(s, place, run, outer, following, stage, start, sweep == 0 and start == 0)
        s.emit(self.cube, "sync", signals=[self.l0c.full])
        s.pushed(self.l0c)
        target = self.work.target
        out = GlobalTile(target.name, place.row + run.index * self.m, place.col, place.m, place.n)
        opcode: Opcode = "copy" if target.format == self.d else "cast"
        tile = self.l0c.tile("pop", place.m, place.n, self.d)
        s.emit(self.fix, opcode, out, [tile], [self.l0c.full], [self.l0c.free], label="C")
        s.popped(self.l0c)

    def _periods(self, s: StreamBuilder, place: Spot, run: Span, stage: Stage) -> Iterator[tuple[Span, int | None]]:
        """K by the longer of the packets of A and of B, and how many elements follow in the next one.

        Where packets are double-buffered, each is asked for while the one before is used, as in Huawei's samples, the
        first ones here. Else (None) it is asked for where it begins.
        """
        period = self.b.k * max(self.b.step_a, self.b.step_b)
        if self.b.buffers == 1:
            for outer in s.blocks("k", run.size, period):
                yield outer, None
            return
        whole, rest = divmod(run.size, period)
        for i, packet in self._by_length():
            self._packet(s, i, self.work.used(i, stage), place, run.start, min(packet, run.size))
        if whole > 1:
            with s.loop("k", whole - 1) as (unique, index):
                yield Span(index, index * period, period, unique, False), period
        if whole:
            yield Span(Affine(whole - 1), Affine((whole - 1) * period), period, None, not rest), rest
        if rest:
            yield Span(Affine(whole), Affine(whole * period), rest, None, True), 0

    def _by_length(self) -> list[tuple[int, int]]:
        """Sides and elements of K of their packets, the longer first: its slot has been free for longer."""
        return sorted(((0, self.b.step_a * self.b.k), (1, self.b.step_b * self.b.k)), key=lambda x: -x[1])

    def _step(
        self,
        s: StreamBuilder,
        place: Spot,
        run: Span,
        outer: Span,
        following: int | None,
        stage: Stage,
        start: int,
        fresh: bool,
    ) -> None:
        """One block of K from element `start` of `outer`: loads to L0, products, packets asked for here."""
        size = min(self.b.k, outer.size - start)
        k = run.start + outer.start
        pieces = [self.work.used(i, stage) for i in range(2)]
        if following is None:
            for i, packet in self._by_length():
                if start % packet == 0:
                    self._packet(s, i, pieces[i], place, k + start, min(packet, outer.size - start))
        for i, step in ((0, self.b.step_a), (1, self.b.step_b)):
            packet = step * self.b.k
            at = start % packet
            whole = min(packet, outer.size - (start - at))
            self._to_l0(s, i, pieces[i], place, at, size, whole)
        self._products(s, place, stage, pieces, size, _zero_at(outer) if fresh else None)
        if following is None:
            return
        for i, packet in reversed(self._by_length()):  # the shorter is needed sooner; of equals B's is first
            left = outer.size + following - (start + packet)
            if start % packet == 0 and left > 0:
                inside = min(left, outer.size - (start + packet)) or left
                self._packet(s, i, pieces[i], place, k + (start + packet), min(packet, inside))

    def _packet(self, s: StreamBuilder, side: int, pieces: list[int], place: Spot, k: Affine, size: int) -> None:
        """Global memory -> L1."""
        for ring, piece in zip(self.l1[side], pieces, strict=False):
            array, form = self.work.arrays[side][piece], self.work.formats[side][piece]
            rows, cols = (place.m, size) if side == 0 else (size, place.n)
            at = (place.row, k) if side == 0 else (k, place.col)
            opcode: Opcode = "copy" if array.format == form else "cast"
            s.emit(
                self.mte2,
                opcode,
                ring.tile("push", rows, cols, form),
                [GlobalTile(array.name, *at, rows, cols)],
                [ring.free],
                [ring.full],
                label=SIDES[side],
            )
            s.pushed(ring)

    def _to_l0(
        self, s: StreamBuilder, side: int, pieces: list[int], place: Spot, at: int, size: int, whole: int
    ) -> None:
        """L1 -> L0A or L0B: `size` of K from `at` of a packet of `whole`."""
        for l1, l0, piece in zip(self.l1[side], self.l0[side], pieces, strict=False):
            form = self.work.formats[side][piece]
            if side == 0:
                source = replace(l1.tile("pop", place.m, size, form), col=at, width=whole)
                target = l0.tile("push", place.m, size, form)
            else:
                source = replace(l1.tile("pop", size, place.n, form), row=at, width=place.n)
                target = l0.tile("push", size, place.n, form)
            last = at + size == whole
            waits = [l0.free, *([l1.full] if at == 0 else [])]
            signals = [l0.full, *([l1.free] if last else [])]
            s.emit(self.mte1[side], "copy", target, [source], waits, signals, label=SIDES[side])
            s.pushed(l0)
            if last:
                s.popped(l1)

    def _products(
        self,
        s: StreamBuilder,
        place: Spot,
        stage: Stage,
        pieces: list[list[int]],
        size: int,
        zero: tuple[str, ...] | None,
    ) -> None:
        """Products of one block of K; several alternate, instruction by instruction."""
        depth = size if len(stage.products) == 1 else instruction(self.device, self.units[stage.products[0]]).k
        made = [(at, pair) for at in range(0, size, depth) for pair in stage.products]
        rings = [ring for side in range(2) for ring in self.l0[side][: len(pieces[side])]]
        for number, (at, (a, b)) in enumerate(made):
            part = min(depth, size - at)
            forms = self.work.formats[0][a], self.work.formats[1][b]
            left = self.l0[0][pieces[0].index(a)].tile("pop", place.m, part, forms[0])
            right = self.l0[1][pieces[1].index(b)].tile("pop", part, place.n, forms[1])
            if part < size:
                left, right = replace(left, col=at, width=size), replace(right, row=at, width=place.n)
            s.emit(
                self.cube,
                "mma",
                self.l0c.tile("push", place.m, place.n, self.d),
                [left, right],
                [ring.full for ring in rings] if number == 0 else [],
                [ring.free for ring in rings] if number + 1 == len(made) else [],
                unit=self.units[a, b],
                zero_at=zero if number == 0 else None,
            )
        for ring in rings:
            s.popped(ring)


def _zero_at(block: Span) -> tuple[str, ...] | None:
    """Which loops at 0 make the first product of these blocks start from zero (see ir.Instr)."""
    if block.loop is not None:
        return (block.loop,)
    return None if block.index.constant else ()
