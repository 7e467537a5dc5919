"""Estimated time of a tiled GEMM kernel, for tile selection only; the timing machine gives the cycles.

It deals tiles to cores, those at the edges as small as they are, and takes the slowest of matrix unit, elementwise
lanes and loads, plus what does not overlap. Where L2 holds all operands and results, they are there from the run before
(hwsim.machines.l2_state), and no byte comes from HBM. What a whole tile needs is computed once per kernel and blocking.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from hwsim.dataflows.elementwise import vector_of
from hwsim.dataflows.operand_passes import residual_format, split_steps
from hwsim.dataflows.tiled import scale_feed
from hwsim.dataflows.tiled.design import KernelDesign
from hwsim.devices import instruction
from hwsim.errors import UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.expressions import operations
from hwsim.host.multiples import round_up

if TYPE_CHECKING:
    from hwsim.dataflows.tiled.model import GemmKernel, KernelOperand
    from hwsim.devices.device import Device
    from hwsim.devices.model import LinkModel, VectorModel
    from hwsim.libraries.model.kernels import SplitKModel


class ElementBytes(NamedTuple):
    """Bytes of an element of A, of B and of C, in all matrices that some kernels read and write."""

    a: float
    b: float
    c: float


class KernelEstimate:
    """The estimated time of one kernel with one blocking, as a function of the sizes.

    stages: of shared memory, whatever the design's blocking says of them. element_bytes: of the kernels that run with
    this one, as of the function.
    """

    def __init__(self, design: KernelDesign, stages: int, element_bytes: ElementBytes) -> None:
        device, b, family = design.device, design.blocking, design.family
        self.design, self.cores = design, device.cores
        self.m, self.n, self.k = b.m, b.n, b.k
        self.cycles_per_second = device.clock_mhz * 1e6
        self.l2_rate = None if device.l2 is None else device.l2.bytes_per_second / self.cycles_per_second
        self.hbm_rate = None if device.hbm is None else device.hbm.bytes_per_second / self.cycles_per_second
        self.l2_bytes = 0 if device.l2 is None else device.l2.capacity_bytes
        self.element_bytes = element_bytes
        into = _link(device, "GM", family.registers if family.through_registers else family.shared)
        self.link_rate = into.bytes_per_cycle
        self.latencies = tuple(
            into.startup_cycles + nanoseconds * self.cycles_per_second / 1e9
            for nanoseconds in (_shared_latency(device, from_hbm=True), _shared_latency(device, from_hbm=False))
        )
        self.slots = b.accumulators if family.through_registers else stages
        self.accumulators, self.is_persistent, self.cluster = b.accumulators, family.persistent, family.cluster
        self.band = 1 << round(math.log2(max(math.sqrt(device.cores * b.m / b.n), 1)))
        self.coalesced = (device.l2.coalesced_reads if device.l2 is not None else None) or 1
        self._whole = TileEstimate.of(design, b.m, b.n)

    def seconds(self, m: int, n: int, k: int, matrices: int) -> float:
        """Seconds of `matrices` products of m x n elements of C (slices of K count as matrices), K = k each."""
        rows, cols = -(-m // self.m), -(-n // self.n)
        waves, rest = divmod(rows * cols * matrices, self.cores)
        busy = [*([(waves, self.cores)] if waves else []), *([(1, rest)] if rest else [])]
        is_held = self._held_bytes(m, n, k) * matrices <= self.l2_bytes
        latency = self.latencies[is_held]
        kinds = [
            (count * matrices, self._times(self._tile(height, width), rows, cols, busy, k, is_held))
            for count, height, width in self._kinds(m, n)
        ]
        last = max((times for _, times in kinds), key=lambda times: times.total)
        if self.is_persistent or self.accumulators > 1:
            hidden = self.accumulators > 1
            main = busiest([(count, x.main if hidden else x.main + x.epilogue) for count, x in kinds], self.cores)
            total = main + latency + last.fill + last.epilogue
        else:
            total = busiest([(count, x.total + latency) for count, x in kinds], self.cores)
        return total / self.cycles_per_second

    def _kinds(self, m: int, n: int) -> list[tuple[int, int, int]]:
        """Tiles of C by size: (number, rows, columns). Those at the edges are as large as what is left there."""
        down = [(count, size) for count, size in ((m // self.m, self.m), (1, m % self.m)) if count and size]
        across = [(count, size) for count, size in ((n // self.n, self.n), (1, n % self.n)) if count and size]
        return [(high * wide, height, width) for high, height in down for wide, width in across]

    def _tile(self, height: int, width: int) -> TileEstimate:
        if (height, width) == (self.m, self.n):
            return self._whole
        return TileEstimate.of(self.design, height, width)

    def _held_bytes(self, m: int, n: int, k: int) -> float:
        """Bytes of the operands and the result of one product, in all kernels."""
        size = self.element_bytes
        return m * k * size.a + k * n * size.b + m * n * size.c

    def _times(
        self, tile: TileEstimate, rows: int, cols: int, busy: Sequence[tuple[int, int]], k: int, is_held: bool
    ) -> _TileTimes:
        """The times of a tile, of rows x cols in all, on average of the waves. busy: waves, and cores with a tile in
        each. is_held: all operands and results, by L2.
        """
        steps, fills, waves = 0.0, 0.0, 0
        for count, cores in busy:
            load = self._load(tile, rows, cols, cores, is_held)
            steps += count * max(tile.step, load, (load + self.latencies[is_held] + tile.exposed_cycles) / self.slots)
            fills += count * min(tile.step, load)
            waves += count
        return _TileTimes(-(-k // self.k) * steps / waves, fills / waves, tile.epilogue)

    def _load(self, tile: TileEstimate, rows: int, cols: int, busy: int, is_held: bool) -> float:
        """Cycles of the loads of one block of K while `busy` cores have a tile each. A core loads B after A, and all
        cores do so at the same time: each load takes as long as the slowest of link, L2 and HBM.
        """
        from_l2, from_hbm = self._from_l2(tile, rows, cols, busy), self._from_hbm(tile, rows, cols, busy)
        total = 0.0
        for side in range(2):
            cycles = tile.requested[side] / self.link_rate
            if self.l2_rate is not None:
                cycles = max(cycles, from_l2[side] * busy / self.l2_rate)
            if self.hbm_rate is not None and not is_held:
                cycles = max(cycles, from_hbm[side] / self.hbm_rate)
            total += cycles
        return max(total, tile.issue_cycles)

    def _from_hbm(self, tile: TileEstimate, rows: int, cols: int, busy: int) -> tuple[float, float]:
        """Bytes of A and of B from HBM while every core processes one block of K: tiles beside each other read the same
        rows, tiles below each other the same columns. Where there are few rows of tiles, busy cores are further across.
        """
        high = min(-(-busy // min(self.band, max(1, cols))), rows)
        wide = min(-(-busy // high), cols)
        return high * tile.loaded[0], wide * tile.loaded[1]

    def _from_l2(self, tile: TileEstimate, rows: int, cols: int, busy: int) -> tuple[float, float]:
        """Bytes of A and of B from L2 per core for one block of K; neighbouring cores that read the same rows or
        columns share the traffic.
        """
        across = min(min(self.band, cols), busy)
        along = min(rows, max(1, busy // across))
        cluster = self.cluster if rows >= self.cluster else 1
        drawn = tile.requested[0] / max(1, min(across, self.coalesced))
        return drawn, tile.requested[1] / max(cluster, min(along, self.coalesced))


class _TileTimes(NamedTuple):
    """Cycles of a tile: of its main loop, as long as the slower of loads and work; of the faster one's first or last
    block of K, which nothing hides; of its epilogue.
    """

    main: float
    fill: float
    epilogue: float

    @property
    def total(self) -> float:
        """Of a tile whose parts do not overlap with another's, but for the latency of its first load."""
        return self.main + self.fill + self.epilogue


@dataclass(frozen=True, slots=True)
class TileEstimate:
    """What one block of K of a tile of m x n needs, in cycles of one core, whatever else the chip does.

    step: products and elementwise work. issue_cycles: what it takes to issue the loads. exposed_cycles: of a block's
    latency, what does not overlap with others. epilogue: the store of the tile. loaded: bytes of A and of B as in
    shared memory; requested: on the link.
    """

    m: int
    n: int
    step: float
    issue_cycles: float
    exposed_cycles: float
    epilogue: float
    loaded: tuple[float, float]
    requested: tuple[float, float]

    @classmethod
    def of(cls, design: KernelDesign, m: int, n: int) -> TileEstimate:
        """The estimate of a tile of m x n of a kernel, which may be smaller than the blocking's."""
        device, b, kernel, family = design.device, design.blocking, design.kernel, design.family
        whole = design.unit
        name = design.unit_name if (m, n) == (b.m, b.n) else design.instruction_of(whole.a, whole.b, m, n)
        unit = instruction(device, name)
        if unit.timing is None:
            raise UnsupportedError(f"device {device.name}: instruction {name} has no timing in its file")
        rows, cols = design.of_unit(m, n)
        per_block = -(-rows // unit.rows) * -(-cols // unit.n) * -(-b.k // unit.k)
        places = design.places[::-1] if b.swapped else design.places
        interval = unit.interval_cycles(places, (rows, cols), design.needs_transpose)
        product = float(interval) * per_block * kernel.products
        of_a, of_b = kernel.operands
        loaded = b.k * m * _loaded_bytes(of_a), b.k * n * _loaded_bytes(of_b)
        into = _link(device, "GM", family.registers if family.through_registers else family.shared)
        requested = _requested(design, 0, m, into.request_bytes), _requested(design, 1, n, into.request_bytes)
        lanes = _lane_cycles(design, m, n)
        product = _multiply(design, m, n, product)
        step = product + lanes if design.on_vector else max(product, lanes)
        exposed_cycles = step
        if family.through_registers:
            store = _link(device, family.registers, family.shared)
            exposed_cycles = sum(loaded) / store.bytes_per_cycle + store.startup_cycles
        out = _link(device, family.shared if family.store_shared else family.registers, "GM")
        loads = sum(len(operand.matrices) for operand in kernel.operands)
        return cls(
            m=m,
            n=n,
            step=step,
            issue_cycles=loads * device.engines[into.engine].issue_cycles,
            exposed_cycles=exposed_cycles,
            epilogue=m * n * _result_bytes(kernel) / out.bytes_per_cycle + out.startup_cycles,
            loaded=loaded,
            requested=requested,
        )


def busiest(kinds: Sequence[tuple[int, float]], cores: int) -> float:
    """The cycles of the core with the most work, of tiles dealt one after another to all cores, kind by kind.

    kinds: the number of tiles, and the cycles of each.
    """
    firsts = list(itertools.accumulate((count for count, _ in kinds), initial=0))
    most = 0.0
    for core in {first % cores for first in firsts}:  # the work changes only where a kind begins
        total = 0.0
        for first, (count, cycles) in zip(firsts, kinds, strict=False):
            place = (core - first) % cores
            total += (-(-(count - place) // cores) if place < count else 0) * cycles
        most = max(most, total)
    return most


def reduction_seconds(device: Device, elements: int, count: int, partial: str, target: str, terms: int) -> float:
    """Seconds of the pass that adds `count` slices of `terms` partial results of `elements` each, by L2 alone.

    partial, target: formats of a slice's sum and of the result.
    """
    if count == 1:
        return 0.0
    read = elements * count * terms * format_of(partial).bits / 8
    written = elements * format_of(target).bits / 8
    memory = device.l2 if device.l2 is not None and device.l2.bytes_per_second else device.hbm
    moved = 0.0
    if memory is not None and memory.bytes_per_second:
        moved = (read + written) / memory.bytes_per_second
    return moved + _shared_latency(device, from_hbm=True) * 1e-9 + (device.launch_overhead_us or 0.0) * 1e-6


def _requested(design: KernelDesign, side: int, size: int, request_bytes: int) -> float:
    """Bytes of one block of K of A or B on the link, with at least one request per line of the tile. size: the tile's
    rows of A, or columns of B.
    """
    k = design.blocking.k
    lines, length = (size, k) if side == 0 else (k, size)
    requested = 0.0
    operand = design.kernel.operands[side]
    for matrix in operand.matrices:
        bits = operand.element_bits or format_of(matrix.format).bits
        count, elements = (lines, length) if matrix.order == "rows" else (length, lines)
        requested += count * max(elements * bits / 8, request_bytes)
    return requested / design.spread(side)


def element_bytes(kernels: Sequence[GemmKernel]) -> ElementBytes:
    """The bytes of an element in all matrices that these kernels read and write."""
    read = []
    for side in range(2):
        operands = [kernel.operands[side] for kernel in kernels]
        bits = {
            x.name: operand.element_bits or format_of(x.format).bits for operand in operands for x in operand.matrices
        }
        read.append(sum(bits.values()) / 8)
    return ElementBytes(read[0], read[1], _result_bytes(kernels[0]))


def _loaded_bytes(operand: KernelOperand) -> float:
    """Bytes of an element of A or B of a kernel as in shared memory, in all of its pieces."""
    return sum(operand.element_bits or format_of(f).bits for f in operand.loaded) / 8


def _result_bytes(kernel: GemmKernel) -> float:
    return format_of(kernel.epilogue.target.format).bits / 8


def _shared_latency(device: Device, *, from_hbm: bool) -> float:
    """Nanoseconds of latency of L2, and of HBM, for a read of global memory."""
    memories = (device.l2, device.hbm) if from_hbm else (device.l2,)
    return sum(memory.latency_ns or 0.0 for memory in memories if memory is not None)


def _multiply(design: KernelDesign, m: int, n: int, product: float) -> float:
    """Cycles of one block of K of a tile of m x n: products, copies of scales, and fragments read two steps ahead."""
    scales = scale_feed.copied_bytes(design)
    if not design.reads_fragments:
        if not any(scales):
            return product
        way = _link(design.device, design.family.shared, design.scale_memory)
        moved = sum(round_up(size, way.request_bytes) for size in scales)
        return max(product, moved / way.bytes_per_cycle)
    b, kernel = design.blocking, design.kernel
    out = _link(design.device, design.family.shared, design.family.registers)
    repeats = (-(-n // b.warp[1]), -(-m // b.warp[0]))
    shared = 0.0
    for i, operand in enumerate(kernel.operands):
        bits = sum(format_of(f).bits for f in operand.formats.values())
        shared += (b.k * (m, n)[i] * bits / 8 + scales[i]) * repeats[i] / out.bytes_per_cycle
    steps = -(-b.k // design.step_k)
    drain = design.unit.timing.drain_cycles if design.unit.timing is not None else 0
    return max(product, shared, (product + shared + steps * (2 * out.startup_cycles + drain)) / 2)


def _lane_cycles(design: KernelDesign, m: int, n: int) -> float:
    """Cycles of the lanes for one block of K of a tile of m x n: splits in the kernel, and promotion. Each operation
    has its own time: conversions may take several times as long as additions.
    """
    b, kernel, vector = design.blocking, design.kernel, vector_of(design.device)
    cycles, value = 0.0, kernel.epilogue.value
    for t, run in enumerate(kernel.promotion_intervals):
        if run is not None and not (kernel.joined and t):
            joins = operations(value) if kernel.joined and value is not None else 0
            rows = min(m, design.part_rows) if design.promotes_in_block[t] else m
            cast = lanes_time(vector, "cast", (design.sum_format, design.accumulator), rows * n)
            add = lanes_time(vector, "add", (design.sum_format,), rows * n)
            cycles += m * n * b.k / run * ((joins + 1) * add + (cast if design.converts else 0.0))
    for i, operand in enumerate(kernel.operands):
        if operand.raw is not None:
            repeat = (-(-n // b.warp[1]), -(-m // b.warp[0]))[i] if design.repeats_fragments else 1
            k = b.k if design.family.through_registers else design.step_k
            per_element = _split_time(vector, operand, k * (m, n)[i])
            cycles += b.k * (m, n)[i] * repeat * per_element
    return cycles


def _split_time(vector: VectorModel, operand: KernelOperand, elements: int) -> float:
    """Cycles of an element that is split into the pieces of an operand, by instructions of so many elements."""
    assert operand.raw is not None
    lanes, total = residual_format(operand.raw.format), 0.0
    for opcode, number, is_back in split_steps(operand.rules, max(piece.number for piece in operand.pieces)):
        casts = (lanes, operand.rules[number].format)[:: 1 if is_back else -1]
        total += lanes_time(vector, opcode, casts if opcode == "cast" else (lanes,), elements)
    return total


def lanes_time(vector: VectorModel, opcode: str, formats: Sequence[str], elements: int) -> float:
    """Cycles of an element of an operation of the lanes, by instructions of so many elements. formats: of the result,
    then of the operands.
    """
    widths = [format_of(format).bits for format in formats]
    steps = vector.steps_of(opcode, formats, max(widths), widens=widths[0] > widths[-1])
    return sum(
        step.times * (step.bits / 8 / vector.repeat_bytes * step.cycles + vector.overhead_cycles / elements)
        for step in steps
    )


def _link(device: Device, source: str, target: str) -> LinkModel:
    # Of two links between the same memories the last one, as a table by ends has it.
    links = [link for link in device.links.values() if (link.source, link.target) == (source, target)]
    if not links:
        raise UnsupportedError(f"device {device.name} has no link from {source} to {target}")
    return links[-1]


def best_split(
    k: int, estimate: Callable[[int], float], bound: Callable[[int], float], rules: SplitKModel
) -> tuple[int, float]:
    """The number of slices with the least `estimate` (seconds; ties: the smaller number), and that estimate relative to
    no split.

    k: elements. bound: a lower bound in seconds for each number; numbers whose bound rules them out are skipped,
    because an estimate evaluates every tile of the family. rules: the library's counts and minimum slice length.
    """
    whole = estimate(1)
    best = (whole, 1)
    for count in rules.counts[1:]:
        if k >= count * rules.min_slice and bound(count) < best[0]:
            best = min(best, (estimate(count), count))
    return best[1], best[0] / whole if whole else 1.0
