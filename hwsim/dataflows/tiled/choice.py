"""The default blocking of a tiled GEMM: the least estimated time among the family's usual CTA tiles.

The estimate counts whole rounds of tiles over the cores and takes the slowest of matrix unit, elementwise lanes, links,
L2 and HBM, with what does not overlap. It is for choosing only: the timing machine gives the cycles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hwsim.dataflows.expressions import operations
from hwsim.dataflows.instructions import Instructions
from hwsim.dataflows.tiled.layout import Layout, is_turned
from hwsim.dataflows.tiled.model import Blocking, Family, Shape, Work
from hwsim.dataflows.tiles import band_of
from hwsim.devices import instruction
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import format_of

if TYPE_CHECKING:
    from hwsim.devices.model import Device, LinkModel


CLOSE = 1.02  # estimates that differ by less do not tell tiles apart: then the one that covers least beyond C
EQUAL = 1.002  # of those that cover as much and differ by less, the largest: the fewest bytes and instructions


@dataclass(frozen=True, slots=True)
class Choice:
    """The blocking, or why there is none; seconds: of all kernels, by estimate (0 where the tile was given)."""

    blocking: Blocking | None
    reason: str = ""
    seconds: float = 0.0


def choose(
    family: Family,
    device: Device,
    works: Sequence[Work],
    sizes: tuple[int, int],
    lengths: Sequence[int],
    batch: int,
    options: Mapping[str, Any],
) -> Choice:
    """The blocking for all of `works`: as `options` say, or the fastest by estimate.

    sizes: m, n. lengths: of the slices of K. Raises InputError for a tile or stages that are not allowed.
    """
    wanted, stages = options.get("tile"), options.get("stages")
    if stages is not None and (isinstance(stages, bool) or not isinstance(stages, int | np.integer) or stages < 1):
        raise InputError(f"stages = {stages!r}; allowed: an integer of at least 1")
    stages = None if stages is None else int(stages)
    group = _group(family, options.get("cta_group"))
    shapes = [shape for shape in _shapes(family, device, works[0]) if shape.cores == group]
    if not shapes:
        raise InputError(f"cta_group = {group}: {device.name} has no such instruction like {works[0].unit}")
    counts = Counter(_alike(work) for work in works)
    works = list({_alike(work): work for work in works}.values())
    found: list[Blocking] = []
    reasons: list[str] = []
    if wanted is not None:
        _check_group(family, device, works, wanted["m"], wanted["n"], sizes, group)
        near = min(shapes, key=lambda shape: abs(shape.m * shape.n - wanted["m"] * wanted["n"]))
        accumulators = (2, 1) if any(shape.accumulators > 1 for shape in shapes) else (1,)
        for count in accumulators:
            start = Blocking(wanted["m"], wanted["n"], wanted["k"], near.warp, stages or family.stages, count, group)
            fitting = _fitting(family, device, works, start, stages is not None, reasons)
            if fitting is not None:
                return Choice(fitting)
        return Choice(None, f"tile {wanted['m']},{wanted['n']},{wanted['k']} (m, n, k) needs {reasons[-1]}")
    usual: list[Blocking] = []
    turned = is_turned(instruction(device, works[0].unit), works[0])
    for shape in shapes:
        _check_group(family, device, works, shape.m, shape.n, sizes, group)
        start = _blocking(family, device, works, shape, stages)
        fitting = _fitting(family, device, works, start, stages is not None, reasons)
        if fitting is not None:
            found.append(fitting)
            tiles = -(-sizes[0] // shape.m) * -(-sizes[1] // shape.n) * batch * len(lengths)
            rounds = -(-tiles // device.cores)
            is_for = _widest(works) in (shape.bits or (_widest(works),)) and shape.mn_major in (None, turned)
            if is_for and rounds <= (shape.max_waves or rounds) and max(lengths) <= (shape.max_k or max(lengths)):
                usual.append(fitting)
    found = usual or found
    if not found:
        return Choice(None, f"no tile of the {family.name} dataflow fits: it needs at least {reasons[-1]}")

    def seconds(b: Blocking) -> float:
        return sum(
            counts[_alike(work)] * estimate_seconds(Layout(device, family, work, b), sizes, lengths, batch)
            for work in works
        )

    def padded(b: Blocking) -> int:
        return -(-sizes[0] // b.m) * b.m * -(-sizes[1] // b.n) * b.n

    times = {b: seconds(b) for b in found}
    close = [b for b in found if times[b] <= min(times.values()) * CLOSE]
    tight = [b for b in close if padded(b) == min(map(padded, close))]
    equal = [b for b in tight if times[b] <= min(times[t] for t in tight) * EQUAL]
    best = max(equal, key=lambda b: (b.m * b.n, -times[b]))
    return Choice(best, seconds=times[best])


def _group(family: Family, wanted: object) -> int:
    """The option cta_group, checked; one core where it is not given. Raises InputError."""
    allowed = sorted({shape.cores for shape in family.shapes})
    if wanted is None:
        return 1
    if isinstance(wanted, bool) or not isinstance(wanted, int | np.integer) or wanted not in allowed:
        raise InputError(f"cta_group = {wanted!r}; the {family.name} dataflow allows {', '.join(map(str, allowed))}")
    return int(wanted)


def _check_group(
    family: Family, device: Device, works: Sequence[Work], m: int, n: int, sizes: tuple[int, int], cores: int
) -> None:
    """Raise InputError where `cores` cores cannot multiply tiles of m x n together."""
    if cores == 1:
        return
    start = f"cta_group = {cores}"
    if sizes[0] % (cores * m):
        raise InputError(f"{start}: C has {sizes[0]} rows; allowed: multiples of {cores * m}, {cores} tiles of {m}")
    if device.cores % cores:
        raise InputError(f"{start}: {device.name} has {device.cores} cores; allowed: a multiple of {cores}")
    for work in works:
        fitted = instruction(device, Instructions(device).fitted(work.unit, m, n, cores))
        from_shared = family.shared in fitted.places(0) and not work.in_kernel
        if fitted.together != cores or fitted.timing is None or not from_shared:
            raise InputError(f"{start}: {device.name} has no such instruction like {work.unit} for where A lies")


def _alike(work: Work) -> tuple[object, ...]:
    """What of a kernel its layout and its time depend on."""
    sides = ((*source.formats.values(), source.raw and source.raw.format) for source in (work.a, work.b))
    products = tuple(tuple(len(stage.products) for stage in term.stages) for term in work.terms)
    return (products, work.runs, *sides, replace(work.finish, partial=work.finish.partial[:1]))


def _shapes(family: Family, device: Device, work: Work) -> tuple[Shape, ...]:
    """The family's tiles for the instruction of `work`."""
    if Layout.is_on_lanes(device, work):
        return family.lanes
    operands = [instruction(device, work.unit).places(side) for side in range(2)]
    if family.warps and all(places == (family.registers,) for places in operands):
        return family.warps
    return family.shapes


def _blocking(family: Family, device: Device, works: Sequence[Work], shape: Shape, stages: int | None) -> Blocking:
    """A shape with its K in elements: whole instructions, and whole runs where those are shorter."""
    bits = _widest(works)
    depth = instruction(device, works[0].unit).k
    k = max(depth, shape.k_bytes * 8 // bits // depth * depth)
    for run in sorted({run for work in works for run in work.runs if run is not None}, reverse=True):
        if run <= k:
            k = k // run * run
    depth = stages or shape.stages or family.stages
    return Blocking(shape.m, shape.n, k, shape.warp, depth, shape.accumulators, shape.cores)


def _widest(works: Sequence[Work]) -> int:
    """Bits of the widest operand that the kernels load."""
    bits = 0
    for work in works:
        for source in (work.a, work.b):
            formats = [source.raw.format] if source.raw is not None else list(source.formats.values())
            bits = max(bits, *(format_of(f).bits for f in formats))
    return bits


def _fitting(
    family: Family, device: Device, works: Sequence[Work], start: Blocking, is_fixed: bool, reasons: list[str]
) -> Blocking | None:
    """`start` with as many stages as fit, or None (the reason is added)."""

    def excess(stages: int) -> list[str]:
        blocking = replace(start, stages=stages)
        return [text for work in works for text in Layout(device, family, work, blocking).excess()]

    fits = start.stages if is_fixed else min(2, start.stages)
    found = excess(fits)
    if found:
        reasons.append(found[0])
        return None
    most = start.stages
    while fits < most:  # each stage takes the same room
        half = (fits + most + 1) // 2
        fits, most = (fits, half - 1) if excess(half) else (half, most)
    return replace(start, stages=fits)


def estimate_seconds(layout: Layout, sizes: tuple[int, int], lengths: Sequence[int], batch: int) -> float:
    """Seconds of one kernel, whole rounds of tiles counted."""
    device, b, work = layout.device, layout.blocking, layout.work
    m, n = sizes
    link = {(x.source, x.target): x for x in device.links.values()}
    cycles_per_second = device.clock_mhz * 1e6
    tiles = -(-m // b.m) * -(-n // b.n) * batch * len(lengths)
    rounds = -(-tiles // device.cores)
    busy = min(tiles, device.cores)
    k = max(lengths)
    blocks = -(-k // b.k)
    products = sum(len(term.products) for term in work.terms)
    unit = layout.unit
    per_block = -(-b.m // unit.rows) * -(-b.n // unit.n) * -(-b.k // unit.k)
    interval = unit.interval_cycles((layout.places[0], layout.places[1]), (b.m, b.n), layout.turned)
    product = float(interval) * per_block * products
    loaded = 0.0
    for i, source in enumerate((work.a, work.b)):
        formats = [source.raw.format] if source.raw is not None else list(source.formats.values())
        loaded += sum(layout.extent(i, b.k) * format_of(f).bits / 8 for f in formats)
    first = layout.family.registers if layout.family.through_registers else layout.family.shared
    into = _link(link, device, "GM", first)
    requested = [_requested(layout, side, into.request_bytes) for side in range(2)]
    load = sum(requested) / into.bytes_per_cycle
    if device.l2 is not None:
        load = max(
            load, _drawn(layout, sizes, requested, busy) * busy / (device.l2.bytes_per_second / cycles_per_second)
        )
    if device.hbm is not None:
        load = max(load, _fresh(layout, sizes, loaded, busy) / (device.hbm.bytes_per_second / cycles_per_second))
    latency = into.startup_cycles + _shared_latency(device) * cycles_per_second / 1e9
    lanes = _lane_operations(layout) * 4 / _lane_rate(device)
    step = _multiply(layout, link, product)
    step = step + lanes if layout.on_vector else max(step, lanes)
    if layout.family.through_registers:
        store = _link(link, device, layout.family.registers, layout.family.shared)
        stored = loaded / store.bytes_per_cycle + store.startup_cycles
        step = max(step, load, (load + latency + stored) / b.accumulators)
    else:
        step = max(step, load, (load + latency + step) / b.stages)
    result = b.m * b.n * format_of(work.finish.target.format).bits / 8
    out_rate = _link(
        link, device, layout.family.shared if layout.family.store_shared else layout.family.registers, "GM"
    )
    epilogue = result / out_rate.bytes_per_cycle + out_rate.startup_cycles
    tile = blocks * step
    if layout.family.persistent or b.accumulators > 1:
        total = rounds * (tile if b.accumulators > 1 else tile + epilogue) + latency + step + epilogue
    else:
        total = rounds * (tile + epilogue + latency + step)
    return total / cycles_per_second


def _requested(layout: Layout, side: int, request_bytes: int) -> float:
    """Bytes of one block of K of A or B on the link, where a line of the tile takes a request at least."""
    b, source = layout.blocking, (layout.work.a, layout.work.b)[side]
    lines, length = (b.m, b.k) if side == 0 else (b.k, b.n)
    found = 0.0
    for array in [source.raw] if source.raw is not None else source.arrays.values():
        count, elements = (lines, length) if array.order == "rows" else (length, lines)
        found += count * max(elements * format_of(array.format).bits / 8, request_bytes)
    return found / layout.spread(side)


def _shared_latency(device: Device) -> float:
    """Nanoseconds that a read of global memory waits for L2 and HBM."""
    return sum(memory.latency_ns or 0.0 for memory in (device.l2, device.hbm) if memory is not None)


def _multiply(layout: Layout, link: Mapping[tuple[str, str], LinkModel], product: float) -> float:
    """Cycles of one block of K: products, and fragments read two steps ahead."""
    if not layout.fragments:
        return product
    b, work = layout.blocking, layout.work
    out = _link(link, layout.device, layout.family.shared, layout.family.registers)
    repeats = (-(-b.n // b.warp[1]), -(-b.m // b.warp[0]))
    shared = 0.0
    for i, source in enumerate((work.a, work.b)):
        bits = sum(format_of(f).bits for f in source.formats.values())
        shared += layout.extent(i, b.k) * bits / 8 * repeats[i] / out.bytes_per_cycle
    steps = -(-b.k // layout.step)
    drain = layout.unit.timing.drain_cycles if layout.unit.timing is not None else 0
    return max(product, shared, (product + shared + steps * (2 * out.startup_cycles + drain)) / 2)


def _fresh(layout: Layout, sizes: tuple[int, int], loaded: float, busy: int) -> float:
    """Bytes that HBM gives while every core takes one block of K: operands that L2 holds are fetched once."""
    b, device = layout.blocking, layout.device
    band = band_of(device.cores, b.m, b.n, max(1, -(-sizes[1] // b.n)))
    rows = min(-(-busy // band), -(-sizes[0] // b.m))
    return loaded * (rows * b.m + band * b.n) / (b.m + b.n)


def _drawn(layout: Layout, sizes: tuple[int, int], requested: Sequence[float], busy: int) -> float:
    """Bytes that L2 gives a core for one block of K: cores beside each other take the same rows or columns together."""
    b, device, drawn = layout.blocking, layout.device, 0.0
    rows, cols = -(-sizes[0] // b.m), -(-sizes[1] // b.n)
    across = min(band_of(device.cores, b.m, b.n, cols), busy)
    along = min(rows, max(1, busy // across))
    together = (device.l2.coalesced_reads if device.l2 is not None else None) or 1
    for i, whole in enumerate(requested):
        cluster = layout.family.cluster if i and rows >= layout.family.cluster else 1
        drawn += whole / max(cluster, min(across if i == 0 else along, together))
    return drawn


def _lane_operations(layout: Layout) -> float:
    """Elementwise operations of one block of K: splits in the kernel, sums outside the unit."""
    b, work = layout.blocking, layout.work
    count = 0.0
    for t, run in enumerate(work.runs):
        if run is not None and not (work.joined and t):
            joins = operations(work.finish.value) if work.joined and work.finish.value is not None else 0
            count += b.m * b.n * b.k / run * (joins + 1)
    for i, source in enumerate((work.a, work.b)):
        if source.raw is not None:
            steps = sum(
                1 + 2 * (p + 1 < len(source.pieces)) + bool(x.scale_exponent) for p, x in enumerate(source.pieces)
            )
            own = (
                layout.places[0] == layout.places[1] == layout.family.registers and not layout.family.through_registers
            )
            repeat = (-(-b.n // b.warp[1]), -(-b.m // b.warp[0]))[i] if own else 1
            count += layout.extent(i, b.k) * steps * repeat
    return count


def _lane_rate(device: Device) -> float:
    """Bytes of fp32 operands that the lanes take in a cycle."""
    vector = device.vector
    assert vector is not None
    return vector.repeat_bytes / vector.cycles_per_repeat.get("add", 1.0)


def _link(links: Mapping[tuple[str, str], LinkModel], device: Device, source: str, target: str) -> LinkModel:
    if (source, target) not in links:
        raise UnsupportedError(f"device {device.name} has no link from {source} to {target}")
    return links[source, target]
