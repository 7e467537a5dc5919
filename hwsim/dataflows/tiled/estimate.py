"""Estimated time of a tiled GEMM kernel, for tile selection only; the timing machine gives the cycles.

It counts whole waves of tiles and takes the slowest of matrix unit, elementwise lanes, links, L2 and HBM, plus what
does not overlap. Everything that does not depend on the sizes of a GEMM is computed once per kernel and blocking.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from hwsim.dataflows.tiled import scale_feed
from hwsim.dataflows.tiled.design import KernelDesign
from hwsim.errors import UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.expressions import operations
from hwsim.host.multiples import round_up

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.devices.model import LinkModel
    from hwsim.libraries.model.kernels import SplitKModel


class KernelEstimate:
    """The estimated time of one kernel with one blocking, as a function of the sizes.

    stages: of shared memory, whatever the design's blocking says of them.
    """

    def __init__(self, design: KernelDesign, stages: int) -> None:
        device, b, kernel, family = design.device, design.blocking, design.kernel, design.family
        self.m, self.n, self.k, self.cores = b.m, b.n, b.k, device.cores
        self.cycles_per_second = device.clock_mhz * 1e6
        unit = design.unit
        if unit.timing is None:
            raise UnsupportedError(f"device {device.name}: instruction {design.unit_name} has no timing in its file")
        rows, cols = design.of_unit(b.m, b.n)
        per_block = -(-rows // unit.rows) * -(-cols // unit.n) * -(-b.k // unit.k)
        places = design.places[::-1] if b.swapped else design.places
        interval = unit.interval_cycles(places, (rows, cols), design.needs_transpose)
        product = float(interval) * per_block * kernel.products
        self.loaded = 0.0
        for i, operand in enumerate(kernel.operands):
            self.loaded += sum(
                design.extent(i, b.k) * (operand.element_bits or format_of(f).bits) / 8 for f in operand.loaded
            )
        into = _link(device, "GM", family.registers if family.through_registers else family.shared)
        self.requested = [_requested(design, side, into.request_bytes) for side in range(2)]
        self.link_cycles = sum(self.requested) / into.bytes_per_cycle
        self.l2_rate = None if device.l2 is None else device.l2.bytes_per_second / self.cycles_per_second
        self.hbm_rate = None if device.hbm is None else device.hbm.bytes_per_second / self.cycles_per_second
        self.latency = into.startup_cycles + _shared_latency(device) * self.cycles_per_second / 1e9
        lanes = _lane_operations(design) * 4 / _lane_rate(device)
        step = _multiply(design, product)
        self.step = step + lanes if design.on_vector else max(step, lanes)
        self.slots = b.accumulators if family.through_registers else stages
        self.exposed_cycles = self.step  # of a block's latency that does not overlap with others
        if family.through_registers:
            store = _link(device, family.registers, family.shared)
            self.exposed_cycles = self.loaded / store.bytes_per_cycle + store.startup_cycles
        result = b.m * b.n * format_of(kernel.epilogue.target.format).bits / 8
        out = _link(device, family.shared if family.store_shared else family.registers, "GM")
        self.epilogue = result / out.bytes_per_cycle + out.startup_cycles
        self.accumulators, self.is_persistent, self.cluster = b.accumulators, family.persistent, family.cluster
        self.band = 1 << round(math.log2(max(math.sqrt(device.cores * b.m / b.n), 1)))
        self.coalesced = (device.l2.coalesced_reads if device.l2 is not None else None) or 1

    def seconds(self, m: int, n: int, k: int, matrices: int) -> float:
        """Seconds of `matrices` products of m x n elements of C (slices of K count as matrices), K = k each."""
        rows, cols = -(-m // self.m), -(-n // self.n)
        tiles = rows * cols * matrices
        waves = -(-tiles // self.cores)
        busy = min(tiles, self.cores)
        load = self.link_cycles
        if self.l2_rate is not None:
            load = max(load, self._from_l2(rows, cols, busy) * busy / self.l2_rate)
        if self.hbm_rate is not None:
            load = max(load, self._from_hbm(rows, cols, busy) / self.hbm_rate)
        step = max(self.step, load, (load + self.latency + self.exposed_cycles) / self.slots)
        tile = -(-k // self.k) * step
        if self.is_persistent or self.accumulators > 1:
            each = tile if self.accumulators > 1 else tile + self.epilogue
            total = waves * each + self.latency + step + self.epilogue
        else:
            total = waves * (tile + self.epilogue + self.latency + step)
        return total / self.cycles_per_second

    def _from_hbm(self, rows: int, cols: int, busy: int) -> float:
        """Bytes from HBM while every core processes one block of K; operands that L2 holds are fetched once."""
        band = min(self.band, max(1, cols))
        high = min(-(-busy // band), rows)
        return self.loaded * (high * self.m + band * self.n) / (self.m + self.n)

    def _from_l2(self, rows: int, cols: int, busy: int) -> float:
        """Bytes from L2 per core for one block of K; neighbouring cores that read the same rows or columns share the
        traffic.
        """
        across = min(min(self.band, cols), busy)
        along = min(rows, max(1, busy // across))
        cluster = self.cluster if rows >= self.cluster else 1
        drawn = self.requested[0] / max(1, min(across, self.coalesced))
        return drawn + self.requested[1] / max(cluster, min(along, self.coalesced))


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
    return moved + _shared_latency(device) * 1e-9 + (device.launch_overhead_us or 0.0) * 1e-6


def _requested(design: KernelDesign, side: int, request_bytes: int) -> float:
    """Bytes of one block of K of A or B on the link, with at least one request per line of the tile."""
    b = design.blocking
    lines, length = (b.m, b.k) if side == 0 else (b.k, b.n)
    requested = 0.0
    operand = design.kernel.operands[side]
    for matrix in operand.matrices:
        bits = operand.element_bits or format_of(matrix.format).bits
        count, elements = (lines, length) if matrix.order == "rows" else (length, lines)
        requested += count * max(elements * bits / 8, request_bytes)
    return requested / design.spread(side)


def _shared_latency(device: Device) -> float:
    """Nanoseconds of latency of L2 and HBM for a read of global memory."""
    return sum(memory.latency_ns or 0.0 for memory in (device.l2, device.hbm) if memory is not None)


def _multiply(design: KernelDesign, product: float) -> float:
    """Cycles of one block of K: products, copies of scales, and fragments read two steps ahead."""
    scales = scale_feed.copied_bytes(design)
    if not design.reads_fragments:
        if not any(scales):
            return product
        way = _link(design.device, design.family.shared, design.scale_memory)
        moved = sum(round_up(size, way.request_bytes) for size in scales)
        return max(product, moved / way.bytes_per_cycle)
    b, kernel = design.blocking, design.kernel
    out = _link(design.device, design.family.shared, design.family.registers)
    repeats = (-(-b.n // b.warp[1]), -(-b.m // b.warp[0]))
    shared = 0.0
    for i, operand in enumerate(kernel.operands):
        bits = sum(format_of(f).bits for f in operand.formats.values())
        shared += (design.extent(i, b.k) * bits / 8 + scales[i]) * repeats[i] / out.bytes_per_cycle
    steps = -(-b.k // design.step_k)
    drain = design.unit.timing.drain_cycles if design.unit.timing is not None else 0
    return max(product, shared, (product + shared + steps * (2 * out.startup_cycles + drain)) / 2)


def _lane_operations(design: KernelDesign) -> float:
    """Elementwise operations of one block of K: splits in the kernel, and promotion."""
    b, kernel = design.blocking, design.kernel
    count = 0.0
    value = kernel.epilogue.value
    for t, run in enumerate(kernel.promotion_intervals):
        if run is not None and not (kernel.joined and t):
            joins = operations(value) if kernel.joined and value is not None else 0
            count += b.m * b.n * b.k / run * (joins + 1 + design.converts)
    for i, operand in enumerate(kernel.operands):
        if operand.raw is not None:
            rules = operand.rules
            steps = sum(1 + 2 * (p + 1 < len(rules)) + bool(x.scale_exponent) for p, x in enumerate(rules))
            repeat = (-(-b.n // b.warp[1]), -(-b.m // b.warp[0]))[i] if design.repeats_fragments else 1
            count += design.extent(i, b.k) * steps * repeat
    return count


def _lane_rate(device: Device) -> float:
    """Bytes of fp32 operands that the lanes process per cycle."""
    vector = device.vector
    assert vector is not None
    return vector.repeat_bytes / vector.cycles_per_repeat.get("add", 1.0)


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
