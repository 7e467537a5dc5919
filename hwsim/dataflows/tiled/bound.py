"""A lower bound of the cycles of a tiled GEMM kernel, from its design and its tiles, without its program.

An engine executes one instruction at a time, so a core takes at least as long as its matrix unit, its lanes or its link
to global memory is busy (hwsim.machines.timing). The module counts only what every program of the design has: it leaves
out instructions' overhead, requests' rounding, waits, and all that cores share. Neither stages nor the order of tiles
change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from hwsim.dataflows.elementwise import vector_of
from hwsim.dataflows.tiled.context import chunks
from hwsim.dataflows.tiled.design import KernelDesign
from hwsim.devices import instruction
from hwsim.formats import format_of

if TYPE_CHECKING:
    from hwsim.dataflows.tiles import TileGrid
    from hwsim.devices.model import LinkModel
    from hwsim.gemm.plan import Stage

ROUNDING = 1e-6  # of rates, which the timing machine takes in whole ticks


def least_cycles(design: KernelDesign, grids: Sequence[TileGrid]) -> float:
    """The cycles that a kernel needs at least for these grids of tiles: of the busiest engine of an average core, or of
    a core with the largest tile; and what comes before the first product and after the last one.
    """
    most: dict[str, float] = {}
    total: dict[str, float] = {}
    for grid in grids:
        for name, cycles in _busy(design, grid.m, grid.n, grid.slices.length).items():
            most[name] = max(most.get(name, 0.0), cycles)
            total[name] = total.get(name, 0.0) + grid.tiles * cycles
    busiest = max((max(most[name], total[name] / design.device.cores) for name in most), default=0.0)
    return (busiest + _around(design)) * (1 - ROUNDING)


def _busy(design: KernelDesign, m: int, n: int, k: int) -> dict[str, float]:
    """Cycles that engines of a core are busy at least with a tile of m x n over K = k."""
    return {
        "products": float(_products(design, m, n, k)),
        "loads": _loads(design, m, n, k),
        "elementwise": _elementwise(design, m, n, k),
    }


def _products(design: KernelDesign, m: int, n: int, k: int) -> Fraction:
    """Of the matrix instructions."""
    kernel, total = design.kernel, Fraction(0)
    terms = list(range(len(kernel.terms)))
    if design.sequential_joins:
        terms = sorted({turn.term for turn in design.sequential_joins})
    for t in terms:
        height = design.part_rows if design.promotes_in_block[t] else m
        for _, rows in chunks(m, height):
            total += sum(_stage(design, stage, rows, n, k) for stage in kernel.terms[t].stages)
    return total


def _stage(design: KernelDesign, stage: Stage, m: int, n: int, k: int) -> Fraction:
    total = Fraction(0)
    for pair in stage.products:
        formats = [operand.formats[piece] for operand, piece in zip(design.kernel.operands, pair, strict=True)]
        unit = instruction(design.device, design.instruction_of(formats[0], formats[1], m, n))
        if unit.timing is None:
            return Fraction(0)
        rows, cols = design.of_unit(m, n)
        places = design.places[::-1] if design.blocking.swapped else design.places
        interval = min(unit.interval_cycles(places, (rows, cols), is_transposed) for is_transposed in (False, True))
        block = -(-rows // unit.rows) * -(-cols // unit.n) * interval
        total += -(-k // unit.k) * max(block, Fraction(str(unit.timing.accumulate_latency_cycles)))
    return total


def _loads(design: KernelDesign, m: int, n: int, k: int) -> float:
    """Of the link from global memory, each element of a tile's A and B once."""
    total = 0.0
    for side, operand in enumerate(design.kernel.operands):
        bits = sum(operand.element_bits or format_of(matrix.format).bits for matrix in operand.matrices)
        total += k * (m, n)[side] * bits / 8 / design.spread(side)
    family = design.family
    return total / _rate(design, "GM", family.registers if family.through_registers else family.shared)


def _elementwise(design: KernelDesign, m: int, n: int, k: int) -> float:
    """Of the lanes: one operation for each piece that the kernel makes, one for each run of K but the first that is
    promoted."""
    kernel, vector, moved = design.kernel, vector_of(design.device), 0.0
    for side, operand in enumerate(kernel.operands):
        if operand.raw is not None:
            moved += len(operand.pieces) * k * (m, n)[side] * format_of(operand.raw.format).bits / 8
    runs = [-(-k // run) - 1 for run in kernel.promotion_intervals if run is not None]
    adds = max(runs, default=0) if kernel.joined else sum(runs)
    moved += adds * m * n * format_of(design.sum_format).bits / 8
    least = min((cycles for cycles in vector.cycles_per_repeat.values() if cycles), default=0.0)
    return moved / vector.repeat_bytes * least


def _around(design: KernelDesign) -> float:
    """Cycles before the first product, until its operands have come, and after the last one."""
    family = design.family
    into = _startup(design, "GM", family.registers if family.through_registers else family.shared)
    return into + _startup(design, family.shared if family.store_shared else family.registers, "GM")


def _links(design: KernelDesign, source: str, target: str) -> list[LinkModel]:
    return [link for link in design.device.links.values() if (link.source, link.target) == (source, target)]


def _rate(design: KernelDesign, source: str, target: str) -> float:
    """Bytes per cycle of the fastest link between two memories."""
    return max(link.bytes_per_cycle for link in _links(design, source, target))


def _startup(design: KernelDesign, source: str, target: str) -> float:
    return min((link.startup_cycles for link in _links(design, source, target)), default=0.0)
