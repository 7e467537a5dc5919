"""Chooses the blocking of a GEMM on separated DaVinci cores: tile, packets, buffers, distribution over cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.davinci.block_grid import BlockGrid
from hwsim.dataflows.davinci.cube_blocking import CubeBlocking, CubeMemory
from hwsim.dataflows.davinci.separated_kernels import SeparatedKernels
from hwsim.dataflows.options import (
    BUFFERS,
    DEFAULT_BUFFERING,
    DISTRIBUTION,
    GRID_COLS,
    GRID_ROWS,
    K_GROUP,
    KERNELS,
    STEP_KA,
    STEP_KB,
    UNIT_FLAG,
    buffering_of,
)
from hwsim.dataflows.records import decision, mapping_of, plan_of, tile_text, whole
from hwsim.dataflows.tiled.area_tiles import AreaScheduler, area_tiles
from hwsim.dataflows.tiles import TileGrid, slices_of, tile_grids
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.mapping import GemmMapping, KernelMapping, Scalar, Tile, settings_of
from hwsim.gemm.option_types import keyed_tile
from hwsim.gemm.record import Decision, Gemm

if TYPE_CHECKING:
    from hwsim.dataflows.plan_areas import PlanArea
    from hwsim.devices.device import Device

MOST_TILES = 8  # that a search looks at
CYCLIC, BLOCK = "cyclic", "block"  # distributions
#: Settings that each kernel has, and those that it may have.
NEEDED, POSSIBLE = (STEP_KA, STEP_KB, DISTRIBUTION, UNIT_FLAG, KERNELS), (GRID_ROWS, GRID_COLS, K_GROUP)


def mapped(
    gemm: Gemm,
    kernels: SeparatedKernels,
    device: Device,
    options: Mapping[str, Any],
    family: str,
    order: tuple[str, str, str],
) -> Gemm:
    """The record with its mapping. family: the dataflow's name. order: of the sides of a tile.

    Raises InputError for a blocking that exceeds the cores' memories, UnsupportedError for a UnitFlag that they do not
    have.
    """
    buffering = options.get("buffering") or DEFAULT_BUFFERING
    is_flagged = _unit_flag(device, bool(options.get("unit_flag")))
    memory = CubeMemory(device, kernels.terms, gemm.unit, gemm.problem.sizes)
    steps = options.get("step_ka"), options.get("step_kb")
    b = memory.choose(keyed_tile(options.get("tile"), order), BUFFERS[buffering], steps)
    tile = Tile(b.m, b.n, b.k)
    distribution = options.get("distribution") or CYCLIC
    settings: dict[str, Scalar] = {"step_ka": b.step_a, "step_kb": b.step_b, "distribution": distribution}
    why = "the fewest cycles of cube, MTE1, MTE2 and FixPipe"
    decisions = [
        decision(options, "tile", tile_text(tile, order), "estimate", why),
        decision(options, "step_ka", b.step_a, "default", "half of L1, a power of two of blocks"),
        decision(options, "step_kb", b.step_b, "default", "half of L1, a power of two of blocks"),
        decision(options, "buffering", buffering, "default"),
        decision(options, "distribution", distribution, "default"),
    ]
    band = 0
    if distribution == BLOCK:
        grid = BlockGrid.of(gemm.problem.m, gemm.problem.n, (b.m, b.n), device.cores, options.get("grid"))
        settings |= {"grid_rows": grid.rows, "grid_cols": grid.cols}
        why = "the fewest tiles in the largest block, then the squarest"
        decisions.append(decision(options, "grid", f"{grid.rows},{grid.cols}", "estimate", why))
    else:
        band = max(field.band for field in _tile_grids(gemm, tile, options.get("swizzle") or 0, device))
        why = "a wave of tiles nearly square"
        decisions.append(decision(options, "swizzle", band, "estimate", why))
    settings |= {"unit_flag": is_flagged, "kernels": kernels.count}
    decisions += [decision(options, "unit_flag", is_flagged, "default"), _interval_decision(gemm, kernels)]
    by_instruction = {"k_group": kernels.unit.k}  # of terms summed outside after every instruction
    mappings = tuple(
        KernelMapping(
            term.name,
            (t,),
            kernels.units[term.term.products[0]],
            tile,
            stages=b.buffers,
            accumulators=b.accumulators,
            swizzle=band,
            settings=settings_of(settings | (by_instruction if term.term.k_group == "instruction" else {})),
        )
        for t, term in enumerate(kernels.terms)
    )
    return replace(gemm, mapping=GemmMapping(family, mappings), decisions=(*gemm.decisions, *decisions))


def alternatives(
    gemm: Gemm, kernels: SeparatedKernels, device: Device, options: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The tiles with the fewest estimated cycles; none where the user gave one."""
    if options.get("tile") is not None:
        return []
    memory = CubeMemory(device, kernels.terms, gemm.unit, gemm.problem.sizes)
    buffers = BUFFERS[options.get("buffering") or DEFAULT_BUFFERING]
    ranked = memory.ranked(buffers, (options.get("step_ka"), options.get("step_kb")))
    return [{"tile": Tile(b.m, b.n, b.k).to_dict()} for b in ranked[:MOST_TILES]]


def recorded(gemm: Gemm, family: str) -> GemmMapping:
    """The record's mapping. Raises InputError where it has none that this dataflow could have written."""
    mapping = mapping_of(gemm, family, NEEDED, POSSIBLE)
    for kernel in mapping.kernels:
        names = [setting.name for setting in kernel.settings]
        missing = [option.name for option in (GRID_ROWS, GRID_COLS) if option.name not in names]
        if kernel.setting("distribution") == BLOCK and missing:
            raise InputError(f"gemm record: kernel {kernel.name} lacks the settings {', '.join(missing)}")
    return mapping


def blocking_of(kernel: KernelMapping) -> CubeBlocking:
    """The blocking of one kernel of a record."""
    return CubeBlocking(
        m=kernel.tile.m,
        n=kernel.tile.n,
        k=kernel.tile.k,
        step_a=whole(kernel, "step_ka"),
        step_b=whole(kernel, "step_kb"),
        buffers=kernel.stages,
        accumulators=kernel.accumulators,
        unit_flag=bool(kernel.setting("unit_flag")),
    )


def distributed(gemm: Gemm, kernel: KernelMapping, device: Device) -> list[TileGrid] | BlockGrid:
    """The distribution of C for one kernel of a record: tile grids in cyclic order over the cores, or a grid of
    blocks.
    """
    if kernel.setting("distribution") == CYCLIC:
        return _tile_grids(gemm, kernel.tile, kernel.swizzle, device)
    grid = whole(kernel, "grid_rows"), whole(kernel, "grid_cols")
    return BlockGrid.of(gemm.problem.m, gemm.problem.n, (kernel.tile.m, kernel.tile.n), device.cores, grid)


def areas_distributed(areas: Sequence[PlanArea], kernel: KernelMapping, device: Device) -> AreaScheduler:
    """The distribution of areas of C for one kernel of a record."""
    tile = kernel.tile.m, kernel.tile.n

    def grids(rows: int, cols: int, depth: int) -> list[TileGrid]:
        return tile_grids(rows, cols, slices_of([depth]), 1, tile, kernel.swizzle, device.cores)

    return area_tiles(areas, grids, device.cores)


def facts_of(gemm: Gemm, family: str) -> dict[str, Any]:
    """The mapping as a result's `options` show it."""
    kernel = recorded(gemm, family).kernels[0]
    b, problem = blocking_of(kernel), gemm.problem
    orders = {"a_layout": problem.a_layout, "b_layout": problem.b_layout}
    shown: dict[str, Any] = {
        "tile": kernel.tile.to_dict(),
        "step_ka": b.step_a,
        "step_kb": b.step_b,
        "buffering": buffering_of(b.buffers),
        "k_group": _promotion_interval(gemm, family),
        "unit": kernel.instruction,
        "kernels": whole(kernel, "kernels"),
        **{name: order for name, order in orders.items() if order != "rows"},
        "distribution": kernel.setting("distribution"),
        "unit_flag": b.unit_flag,
    }
    return shown | ({"swizzle": kernel.swizzle} if kernel.setting("distribution") == CYCLIC else {})


def _tile_grids(gemm: Gemm, tile: Tile, band: int, device: Device) -> list[TileGrid]:
    """Tile grids for cyclic distribution. band: width of a rasterisation band, in tiles (0: chosen)."""
    m, n, k = gemm.problem.sizes
    return tile_grids(m, n, slices_of([k]), 1, (tile.m, tile.n), band, device.cores)


def _unit_flag(device: Device, is_wanted: bool) -> bool:
    if is_wanted and (device.flags is None or device.flags.unit_bytes is None):
        raise UnsupportedError(f"device {device.name} has no UnitFlag: its file has no flags.unit_bytes")
    return is_wanted


def _promotion_interval(gemm: Gemm, family: str) -> int:
    """The K that the cube accumulates from zero, of the first promoted term; else K."""
    plan, k = plan_of(gemm), gemm.problem.k
    for kernel in recorded(gemm, family).kernels:
        run = plan.terms[kernel.terms[0]].k_group or gemm.schedule.promotion_k or k
        interval = whole(kernel, "k_group") if run == "instruction" else run
        if interval < k:
            return interval
    return k


def _interval_decision(gemm: Gemm, kernels: SeparatedKernels) -> Decision:
    runs = [run for t in range(len(kernels.terms)) if (run := kernels.promotion_interval(t)) is not None]
    if not runs:
        return Decision("k_group", str(gemm.problem.k), "default", why="all of K stays in L0C")
    of_plan = kernels.plan.k_group, *(term.k_group for term in kernels.plan.terms)
    return Decision("k_group", str(runs[0]), "user" if all(group is None for group in of_plan) else "scheme")
