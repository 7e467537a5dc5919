"""Tile selection on separated cube cores: which tiles and packets fit in L1, L0A, L0B and L0C, and the fastest.

Estimates serve to choose a default; the timing machine gives the cycles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwsim.dataflows.tiles import band_of
from hwsim.devices import instruction
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.plan import Stage, Term
from hwsim.host.multiples import round_up

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.devices.model import LinkModel
    from hwsim.gemm.mapping import Tile
    from hwsim.program.ir import GlobalArray

MEMORIES = ("L1", "L0A", "L0B", "L0C")
MOST_BLOCKS = 16  # blocks of K in a packet
LARGEST_TILE = 512  # side of a tile that is looked at by default
SEARCHED_SIDES = 16, 32, 64, 96, 128, 192, 256, 384, 512  # of the tiles that a search ranks
DEEPEST_TILE = 1024  # K of these, at most
C_BITS = 32  # of an element of C in L0C


@dataclass(frozen=True, slots=True)
class CubeBlocking:
    """A blocking: a tile of C of m x n, blocks of K of k elements, step_a and step_b of them per packet of A and of B.

    buffers: slots of each stage (1 or 2). accumulators: tiles of C in L0C. unit_flag: the FixPipe takes C from the cube
    in parts while the cube works, and L0C is released in the same way.
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
class CubeTerm:
    """One term of a plan as a kernel of the cube cores: products of pieces of A and B (arrays by piece), written to
    `target`.

    formats: of each side's pieces as the cube reads them. promotion_interval: K accumulated from zero (None:
    all); run r of K is written to rows r m .. (r + 1) m - 1 of `target`.
    """

    name: str
    term: Term
    arrays: tuple[Mapping[int, GlobalArray], Mapping[int, GlobalArray]]
    formats: tuple[Mapping[int, str], Mapping[int, str]]
    target: GlobalArray
    promotion_interval: int | None = None

    def used(self, side: int, stage: Stage) -> list[int]:
        """The pieces of one side that a stage uses."""
        return sorted({pair[side] for pair in stage.products})

    def most(self, side: int) -> int:
        """The number of pieces of one side that are in L1 together."""
        return max(len(self.used(side, stage)) for stage in self.term.stages)


LINKS = (("GM", "L1"), ("L1", "L0A"), ("L1", "L0B"), ("L0C", "GM"))


class CubeMemory:
    """The capacities of a cube core for all kernels of a GEMM: which blockings fit, and their estimated times.

    unit: the matrix instruction of the first product. sizes: m, n, k. Raises UnsupportedError where the device file
    lacks a memory.
    """

    def __init__(self, device: Device, terms: Sequence[CubeTerm], unit: str, sizes: tuple[int, int, int]) -> None:
        self.device, self.sizes = device, sizes
        lacking = [f"memories.{name}" for name in MEMORIES if name not in device.memories]
        lacking += [f"fractal.{name}" for name in ("rows", "row_bytes") if name not in device.fractal]
        linked = {(link.source, link.target) for link in device.links.values()}
        lacking += [
            f"link from {source} to {target}" for source, target in LINKS if linked and (source, target) not in linked
        ]
        if lacking:
            raise UnsupportedError(
                f"device {device.name}: its file does not describe a core that programs can run on: "
                f"no {', '.join(lacking)}"
            )
        self.bits = max(format_of(f).bits for term in terms for side in term.formats for f in side.values())
        self.rows = device.fractal["rows"]
        self.unit = instruction(device, unit)
        self.depth = self.unit.k
        self.pieces = tuple(max(term.most(i) for term in terms) for i in range(2))
        self.alternating = len(terms[0].term.stages[0].products)

    def slot_bytes(self, memory: str, rows: int, cols: int, bits: int) -> int:
        """Bytes of a slot: padded to whole fractals, aligned."""
        row_bytes = self.device.fractal["row_bytes"]
        size = round_up(rows, self.rows) * -(-cols * bits // (8 * row_bytes)) * row_bytes
        align = self.device.memories[memory].align_bytes
        return round_up(size, align)

    def packet_bytes(self, b: CubeBlocking) -> tuple[int, int]:
        """Bytes of a packet in L1, for a piece of A and of B."""
        a_bytes = self.slot_bytes("L1", b.m, b.k * b.step_a, self.bits)
        return a_bytes, self.slot_bytes("L1", b.k * b.step_b, b.n, self.bits)

    def block_bytes(self, b: CubeBlocking) -> tuple[int, int]:
        """Bytes of a block in L0A and in L0B."""
        return self.slot_bytes("L0A", b.m, b.k, self.bits), self.slot_bytes("L0B", b.k, b.n, self.bits)

    def tile_bytes(self, m: int, n: int) -> int:
        """Bytes of a tile of C in L0C."""
        return self.slot_bytes("L0C", m, n, C_BITS)

    def taken(self, b: CubeBlocking) -> dict[str, int]:
        """Bytes that a blocking needs in each memory."""
        packets, blocks = self.packet_bytes(b), self.block_bytes(b)
        return {
            "L1": b.buffers * sum(count * size for count, size in zip(self.pieces, packets, strict=True)),
            "L0A": b.buffers * self.pieces[0] * blocks[0],
            "L0B": b.buffers * self.pieces[1] * blocks[1],
            "L0C": b.accumulators * self.tile_bytes(b.m, b.n),
        }

    def excess(self, b: CubeBlocking) -> list[str]:
        """The memories that a blocking exceeds, in words; empty where it fits."""
        return [
            f"{size} bytes of {memory}, which holds {self.device.memories[memory].capacity_bytes}"
            for memory, size in self.taken(b).items()
            if size > self.device.memories[memory].capacity_bytes
        ]

    def with_packets(self, m: int, n: int, k: int, buffers: int, steps: tuple[int | None, int | None]) -> CubeBlocking:
        """The blocking of a tile with the largest packets that fit, a power of two of blocks; `steps`: given sizes."""
        half = self.device.memories["L1"].capacity_bytes // (2 * buffers)
        packets = []
        for i, asked in enumerate(steps):
            if asked is None:
                rows, cols = (m, k) if i == 0 else (k, n)
                block = self.pieces[i] * self.slot_bytes("L1", rows, cols, self.bits)
                most = min(max(half // block, 1), MOST_BLOCKS, max(1, -(-self.sizes[2] // k)))
                asked = 1 << (most.bit_length() - 1)
            packets.append(asked)
        size = self.tile_bytes(m, n)
        room = self.device.memories["L0C"].capacity_bytes // size if size else 1
        return CubeBlocking(
            m=m,
            n=n,
            k=k,
            step_a=packets[0],
            step_b=packets[1],
            buffers=buffers,
            accumulators=max(1, min(2, room)),
        )

    def choose(self, tile: Tile | None, buffers: int, steps: tuple[int | None, int | None]) -> CubeBlocking:
        """The blocking with this tile, or the fastest by estimate. steps: blocks of K per packet of A and B, if given.

        Raises InputError for a tile that does not fit, or packets of A and B that are not whole multiples of one
        another; UnsupportedError where no tile fits.
        """
        if tile is not None:
            blocking = self.with_packets(tile.m, tile.n, tile.k, buffers, steps)
            self.check(blocking)
            return blocking
        fitting = [b for b in self._candidates(buffers, steps) if not self.excess(b)]
        if not fitting:
            raise UnsupportedError(
                f"no tile fits: {self.pieces[0]} pieces of A and {self.pieces[1]} of B of {self.bits} bits together "
                "are too many for L0A and L0B"
            )
        return min(fitting, key=self.estimate_cycles)

    def ranked(self, buffers: int, steps: tuple[int | None, int | None]) -> list[CubeBlocking]:
        """Blockings that fit, of more tiles than `choose` looks at; the fewest estimated cycles first."""
        deepest = max(1, -(-self.sizes[2] // self.depth))
        depths = [self.depth << i for i in range(deepest.bit_length() + 1) if self.depth << i <= DEEPEST_TILE]
        tiles = [
            self.with_packets(m, n, k, buffers, steps)
            for m in SEARCHED_SIDES
            for n in SEARCHED_SIDES
            if not (m % self.rows or n % self.rows)
            for k in depths
        ]
        return sorted((b for b in tiles if not self.excess(b)), key=self.estimate_cycles)

    def check(self, b: CubeBlocking) -> None:
        """Raise InputError for a blocking that does not fit, or is none of whole fractals and packets."""
        reasons = []
        for name, value, unit in (("m", b.m, self.rows), ("n", b.n, self.rows), ("k", b.k, self.depth)):
            if value <= 0 or value % unit:
                reasons.append(f"{name} = {value} is not a positive multiple of {unit}")
        if not reasons:
            reasons = self.excess(b)
        if max(b.step_a, b.step_b) % min(b.step_a, b.step_b):
            reasons.append(f"step_ka = {b.step_a} and step_kb = {b.step_b}: one must be a multiple of the other")
        if reasons:
            raise InputError(f"tile {b.m},{b.n},{b.k} (m,n,k): {'; '.join(reasons)}; take a smaller or another tile")

    def _candidates(self, buffers: int, steps: tuple[int | None, int | None]) -> Iterator[CubeBlocking]:
        sides = [self.rows << i for i in range(LARGEST_TILE.bit_length()) if self.rows << i <= LARGEST_TILE]
        limits = [self.device.memories[name].capacity_bytes // buffers for name in ("L0A", "L0B")]
        padded = round_up(self.sizes[2], self.depth)
        for m in sides:
            for n in sides:
                most = min(
                    limit * 8 // (self.bits * side * pieces)
                    for limit, side, pieces in zip(limits, (m, n), self.pieces, strict=True)
                )
                blocks = min(most, padded) // self.depth
                if blocks >= 1:
                    yield self.with_packets(m, n, self.depth << (blocks.bit_length() - 1), buffers, steps)

    # --- estimate ----------------------------------------------------------------------------------------------

    def estimate_cycles(self, b: CubeBlocking) -> float:
        """Estimated cycles of one term: the slowest of cube, MTE1 and MTE2 in each wave of tiles, plus the
        FixPipe's.
        """
        m, n, k = self.sizes
        device, link = self.device, {(x.source, x.target): x for x in self.device.links.values()}
        if self.unit.timing is None or not link:
            return float(round_up(m, b.m) * round_up(n, b.n))
        sides = min(b.m, round_up(m, self.rows)), min(b.n, round_up(n, self.rows)), min(b.k, k)
        tiles = -(-m // b.m) * -(-n // b.n)
        mte1 = sum(
            pieces * (to.overhead_cycles + self.bits / 8 * sides[i] * sides[2] / to.bytes_per_cycle)
            for i, (to, pieces) in enumerate(zip((link["L1", "L0A"], link["L1", "L0B"]), self.pieces, strict=True))
        )
        mte2 = max(self._load_cycles(link["GM", "L1"], b, sides), *self._shared_cycles(b, sides, tiles))
        steps = -(-k // b.k)
        fix = sides[0] * sides[1] * 4 / link["L0C", "GM"].bytes_per_cycle + link["L0C", "GM"].startup_cycles
        waves = -(-tiles // device.cores)
        step, latency = max(self._cube_cycles(sides), mte1, mte2), link["GM", "L1"].startup_cycles
        for packet in {min(b.step_a, steps), min(b.step_b, steps)}:
            step = max(step, (packet * (mte2 + step) + latency) / (b.buffers * packet))
        tile = steps * step + (fix if b.accumulators == 1 else 0)
        return waves * tile + fix + latency + min(max(b.step_a, b.step_b), steps) * mte2

    def _cube_cycles(self, sides: tuple[int, int, int]) -> float:
        """Cycles of the cube for one block of K. sides: the tile's sides, limited to the GEMM's."""
        timing = self.unit.timing
        assert timing is not None
        blocks = [-(-size // whole) for size, whole in zip(sides, (self.rows, self.rows, self.depth), strict=True)]
        products = self.alternating
        return blocks[2] * max(
            blocks[0] * blocks[1] * float(self.unit.interval_cycles()),
            float(timing.accumulate_latency_cycles),
        ) * products + timing.overhead_cycles * (products * blocks[2] if products > 1 else 1)

    def _shared_cycles(self, b: CubeBlocking, sides: tuple[int, int, int], tiles: int) -> Iterator[float]:
        """Cycles of L2 and HBM for one block of K of all cores."""
        (m, n, _), device = self.sizes, self.device
        yield 0.0
        loaded = self.bits / 8 * sides[2] * (sides[0] * self.pieces[0] + sides[1] * self.pieces[1])
        busy = min(tiles, device.cores)
        if device.l2 is not None:
            yield loaded * busy / (device.l2.bytes_per_second / (device.clock_mhz * 1e6))
        if device.hbm is not None:
            band = band_of(device.cores, b.m, b.n, max(1, -(-n // b.n)))
            fresh = loaded * (min(-(-busy // band), -(-m // b.m)) * sides[0] + band * sides[1]) / (sides[0] + sides[1])
            yield fresh / (device.hbm.bytes_per_second / (device.clock_mhz * 1e6))

    def _load_cycles(self, link: LinkModel, b: CubeBlocking, sides: tuple[int, int, int]) -> float:
        """Cycles of MTE2 for one block of K of both operands."""
        element, row = self.bits / 8, float(link.row_cycles or 0)
        rate = link.bytes_per_cycle / (link.conflict_factor or 1)
        total = 0.0
        # Rows of A run along K, over the whole packet; those of B along N.
        for pieces, rows, length, whole, blocks in (
            (self.pieces[0], sides[0], sides[2] * b.step_a, self.sizes[2], b.step_a),
            (self.pieces[1], sides[2], sides[1], self.sizes[1], 1),
        ):
            row_bytes = min(length, whole) * element
            if length < whole:  # else rows follow one another without a gap
                row_bytes = round_up(row_bytes, link.request_bytes)
            total += pieces * (rows * max(row, row_bytes / rate) + link.overhead_cycles) / blocks
        return total
