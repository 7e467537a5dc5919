"""Chooses the mapping of a GEMM on coupled DaVinci cores: grid, tile, blocks of A in L1, buffers, K per accumulation.

It fills in the record's mapping and, where the plan leaves it open, the schedule's `promotion_k`. That is the K of the
tile which Algorithm 1 takes by estimate, whatever the grid, so that dealing changes no bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.dataflows.davinci.core_grid import CoreGrid
from hwsim.dataflows.davinci.coupled_estimate import Candidates, CoupledEstimate, grids, slice_sum_cycles
from hwsim.dataflows.davinci.coupled_plan import CoupledPlan
from hwsim.dataflows.davinci.coupled_tiling import Limits, Tiles, Tiling, check, choose, legal, n_fused
from hwsim.dataflows.options import BEFORE, BUFFERS, DEFAULT_BUFFERING, IN_KERNEL
from hwsim.dataflows.protocol import SplitK
from hwsim.dataflows.records import decision, tile_text
from hwsim.dataflows.vector_ops import link_between
from hwsim.devices import dot_spec
from hwsim.errors import InputError
from hwsim.formats import format_of
from hwsim.gemm.mapping import GemmMapping, KernelMapping, Tile, settings_of
from hwsim.gemm.option_types import keyed_tile
from hwsim.gemm.record import Decision, Gemm
from hwsim.gemm.schedule import SLICE_MULTIPLE
from hwsim.host.multiples import round_up
from hwsim.numerics.units import IntegerUnit

if TYPE_CHECKING:
    from hwsim.devices.device import Device


def mapped(
    gemm: Gemm, core: CoupledPlan, device: Device, options: Mapping[str, Any], family: str, order: tuple[str, str, str]
) -> Gemm:
    """The record with its mapping. family: the dataflow's name. order: of the sides of a tile.

    Raises InputError for a blocking that exceeds the core's memories, or whose K does not divide the schedule's
    promotion interval.
    """
    schedule = gemm.schedule
    buffering = options.get("buffering") or DEFAULT_BUFFERING
    blocking = _blocking(core, gemm, device, options, order)
    tile, fused, grid = blocking.tile, blocking.n_fused, blocking.grid
    tiling = Tiling(tile.m, tile.k, tile.n, fused, BUFFERS[buffering])
    convert_a = options.get("convert_a") or BEFORE
    if convert_a == IN_KERNEL:
        core.check_conversion()
    core.scratch_rows(tiling, device, core.conversion_room(tiling, device) if convert_a == IN_KERNEL else 0)
    promotion_interval = tiling.promotion_interval(blocking.promotion_k, core.is_joined)
    longest = max(schedule.slice_lengths(gemm.problem.k))
    is_cut = promotion_interval < longest and not core.hides_groups
    if schedule.promotion_k is None and (is_cut or not _adds_exactly(core, device)):
        schedule = replace(schedule, promotion_k=promotion_interval)
    kernel = KernelMapping(
        "gemm",
        tuple(range(len(core.plan.terms))),
        core.unit,
        tile,
        stages=tiling.buffers,
        accumulators=core.accumulators,
        settings=settings_of(
            {"n_fused": fused}
            | ({"convert_a": convert_a} if convert_a != BEFORE else {})
            | {"grid_rows": grid.rows, "grid_cols": grid.cols}
            | {f"pack_{side}": True for side, is_packed in zip("ab", blocking.packed, strict=True) if is_packed}
        ),
    )
    is_fixed = blocking.promotion_k is not None and not core.is_joined
    fits = "k_group / b_k" if is_fixed else "as many blocks of A as L1 holds beside two of B (Eq. 8)"
    decisions = (
        decision(options, "tile", tile_text(tile, order), "estimate", "the fewest estimated cycles"),
        decision(options, "n_fused", fused, "default", fits),
        decision(options, "buffering", buffering, "default"),
        decision(options, "grid", f"{grid.rows},{grid.cols}", "estimate", "the fewest estimated cycles"),
        _interval_decision(core, gemm, promotion_interval),
        *([decision(options, "convert_a", convert_a, "default")] if options.get("convert_a") else []),
        *(
            decision(options, f"pack_{side}", is_packed, "estimate", "the fewest estimated cycles")
            for side, is_packed in zip("ab", blocking.packed, strict=True)
            if is_packed or options.get(f"pack_{side}") is not None
        ),
    )
    mapping = GemmMapping(family, (kernel,))
    return replace(gemm, schedule=schedule, mapping=mapping, decisions=(*gemm.decisions, *decisions))


def _adds_exactly(core: CoupledPlan, device: Device) -> bool:
    """Whether what the cube accumulates over all of K is the same after the vector unit added it to C, which is +0."""
    spec = dot_spec(device, core.unit)
    if isinstance(spec.unit, IntegerUnit):
        return True
    specials, vector = getattr(spec.unit, "specials", None), device.vector
    if specials is None or getattr(spec.unit, "rounding", "RNE") == "RD":  # x - x is -0
        return False
    least = sum(x.min_exponent - x.fraction_bits for x in (format_of(spec.a), format_of(spec.b)))
    if least < format_of(spec.d).min_exponent - format_of(spec.d).fraction_bits:  # what underflows may be -0
        return False
    is_bounded = specials.overflow == "saturate" and specials.operands == "saturate"
    return is_bounded or vector is None or vector.specials.overflow != "saturate"


def _interval_decision(core: CoupledPlan, gemm: Gemm, promotion_interval: int) -> Decision:
    if core.plan.k_group is not None:
        return Decision("k_group", str(promotion_interval), "scheme")
    if gemm.schedule.promotion_k is not None:
        return Decision("k_group", str(promotion_interval), "user")
    why = "b_k: the terms are joined after every block of K" if core.is_joined else "n_fused blocks of b_k"
    return Decision("k_group", str(promotion_interval), "default", why=why)


MOST_TILES = 8  # that a search looks at, with each way to store the operands
LEAST_GAIN = 0.97  # estimated cycles with an operand packed over those without, at most


@dataclass(frozen=True, slots=True)
class GridBlocking:
    """A tile, the blocks of A in L1, the grid of cores, and the K accumulated from zero (None: see
    `Tiling.promotion_interval`). packed: whether A, and whether B, is copied into panels.
    """

    tile: Tile
    n_fused: int
    grid: CoreGrid
    promotion_k: int | None
    packed: tuple[bool, bool]
    cycles: float


def _blocking(
    core: CoupledPlan, gemm: Gemm, device: Device, options: Mapping[str, Any], order: tuple[str, str, str]
) -> GridBlocking:
    """The blocking: as the options have it, the rest by estimate.

    Raises InputError for a tile, a grid or a number of blocks of A that does not fit.
    """
    lengths = gemm.schedule.slice_lengths(gemm.problem.k)
    sizes, promotion_k = (gemm.problem.m, gemm.problem.n, max(lengths)), gemm.schedule.promotion_k
    asked, wanted = keyed_tile(options.get("tile"), order), options.get("n_fused")
    base = _fastest(core, promotion_k, wanted, device, sizes) if asked is None else asked
    check(core.limits, (base.m, base.k, base.n), core.accumulators)
    fused = _blocks_of_a(core, base, promotion_k, wanted)
    if promotion_k is None and not core.is_joined and fused * base.k < sizes[2]:
        promotion_k = fused * base.k
    tiles = np.array([(base.m, base.k, base.n)], np.int64)
    if asked is None and wanted is None:
        tiles = _candidates(core.limits, core.accumulators, core.is_joined, core.resident, promotion_k)
    candidates = _fused_candidates(
        core, tiles, promotion_k, sizes[2], BUFFERS[options.get("buffering") or DEFAULT_BUFFERING]
    )
    if asked is not None or wanted is not None:
        candidates = replace(candidates, fused=np.array([fused], np.int64))
    asked_grid = options.get("grid")
    among = (
        [CoreGrid.of_request(asked_grid, len(lengths), device.cores)]
        if asked_grid
        else grids(device.cores, len(lengths))
    )
    best: tuple[float, int, CoreGrid, tuple[bool, bool]] | None = None
    for packed in _packings(core, gemm, device, options):
        estimate = _estimate(core, gemm, device, packed)
        place, grid_of_cores, cycles_of_term = estimate.best(candidates, among)
        total = cycles_of_term + _pack_cycles(core, estimate)
        if best is None or total < LEAST_GAIN * best[0]:
            best = total, place, grid_of_cores, packed
    assert best is not None
    cycles, at, grid, packed = best
    b_m, b_k, b_n = candidates.tiles[at].tolist()
    if not asked_grid:
        grid = replace(grid, rows=min(grid.rows, -(-sizes[0] // b_m)), cols=min(grid.cols, -(-sizes[1] // b_n)))
    return GridBlocking(Tile(b_m, b_n, b_k), int(candidates.fused[at]), grid, promotion_k, packed, cycles)


def alternatives(core: CoupledPlan, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Tiles with their best grids and packed operands, the least estimated time first; none where the user gave one.

    gemm: with the K that the cube accumulates from zero; tiles that would change it are left out.
    """
    if any(options.get(name) is not None for name in ("tile", "n_fused", "grid")):
        return []
    lengths, promotion_k = gemm.schedule.slice_lengths(gemm.problem.k), gemm.schedule.promotion_k
    buffers = BUFFERS[options.get("buffering") or DEFAULT_BUFFERING]
    tiles = _candidates(core.limits, core.accumulators, core.is_joined, core.resident, promotion_k)
    candidates = _fused_candidates(core, tiles, promotion_k, max(lengths), buffers)
    ranked: list[tuple[float, dict[str, Any]]] = []
    packings = _packings(core, gemm, device, options)
    for packed in packings:
        estimate, of_shapes = _estimate(core, gemm, device, packed), _Shapes(core, gemm, max(lengths))
        for cycles, at, grid in estimate.ranked(candidates, grids(device.cores, len(lengths))):
            b_m, b_k, b_n = candidates.tiles[at].tolist()
            sides = min(grid.rows, -(-gemm.problem.m // b_m)), min(grid.cols, -(-gemm.problem.n // b_n))
            if not of_shapes.is_new((b_m, b_k, b_n), sides):
                continue
            settings: dict[str, Any] = {"tile": Tile(b_m, b_n, b_k).to_dict(), "grid": sides}
            settings |= {f"pack_{side}": packed[number] for number, side in enumerate("ab") if packings[-1][number]}
            ranked.append((cycles + _pack_cycles(core, estimate), settings))
            if of_shapes.count == MOST_TILES:
                break
    return [settings for _, settings in sorted(ranked, key=lambda entry: entry[0])]


class _Shapes:
    """The blocks that tiles cut a product into: tiles longer than the product's sides may cut it into equal ones."""

    def __init__(self, core: CoupledPlan, gemm: Gemm, k: int) -> None:
        limits, problem = core.limits, gemm.problem
        units = (limits.rows, problem.m), (limits.depth, k), (limits.columns, problem.n)
        self.most = [round_up(extent, unit) for unit, extent in units]
        self.seen: set[tuple[tuple[int, ...], tuple[int, int]]] = set()

    @property
    def count(self) -> int:
        """Of different blocks so far."""
        return len(self.seen)

    def is_new(self, tile: tuple[int, int, int], grid: tuple[int, int]) -> bool:
        """Whether no tile (b_m, b_k, b_n) before gave these blocks to a grid of these sides."""
        shape = tuple(min(sides) for sides in zip(tile, self.most, strict=True)), grid
        is_new = shape not in self.seen
        self.seen.add(shape)
        return is_new


def _estimate(core: CoupledPlan, gemm: Gemm, device: Device, packed: tuple[bool, bool]) -> CoupledEstimate:
    problem, slices = gemm.problem, len(gemm.schedule.slice_lengths(gemm.problem.k))
    orders = problem.a_layout, problem.b_layout
    return CoupledEstimate(device, core.unit, core.limits, problem.sizes, slices=slices, orders=orders, packed=packed)


def _pack_cycles(core: CoupledPlan, estimate: CoupledEstimate) -> float:
    """Of the kernels that pack operands, for each term."""
    return estimate.pack_cycles(core.used_pieces) / len(core.k_sweeps)


def _packings(core: CoupledPlan, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> list[tuple[bool, bool]]:
    """Whether A, and whether B, is packed: what the user asks, or what may gain; without packing first.

    It may gain where the lines of an operand run across K, and a core's part of one is shorter than a request. Raises
    InputError where the user asks for panels of an operand whose lines run along K, or which the kernel splits.
    """
    problem, element = gemm.problem, device.fractal["row_bytes"] // core.limits.depth
    to_l1 = link_between(device, "GM", "L1")
    assert to_l1 is not None  # the plan's limits refuse a device without it
    sides = ("a", problem.m, problem.a_layout, "columns"), ("b", problem.n, problem.b_layout, "rows")
    choices = []
    for side, extent, order, across in sides:
        asked, is_split = options.get(f"pack_{side}"), side == "a" and options.get("convert_a") == IN_KERNEL
        if asked and (order != across or is_split):
            why = "its blocks are split in the kernel" if is_split else "its lines run along K as they are"
            raise InputError(f"pack_{side} = true: {side.upper()} needs no panels, because {why}; leave it out")
        may_gain = order == across and not is_split and extent * element < device.cores * to_l1.request_bytes
        choices.append((False, True) if asked is None and may_gain else (bool(asked),))
    return [(a, b) for a in choices[0] for b in choices[1]]


def _fused_candidates(core: CoupledPlan, tiles: Tiles, group: int | None, k: int, buffers: int) -> Candidates:
    """The tiles with the blocks of A that stay in L1, without those that do not hold all of K where `group` is open."""
    limits = core.limits
    b_m, b_k, b_n = tiles.T
    most = (limits.l1 - 2 * b_k * b_n) // (b_m * b_k * core.resident)
    if core.is_joined:
        steps = 1 if group is None else group // b_k
        fused, fits = np.maximum(steps, most // steps * steps), most >= steps
    elif group is None:
        fused, fits = most, most >= -(-k // b_k)
    else:
        fused, fits = group // b_k, most >= group // b_k
    fits &= _has_scratch(core, b_m, b_n)
    return Candidates(tiles[fits], fused[fits], buffers)


def _has_scratch(core: CoupledPlan, b_m: Tiles, b_n: Tiles) -> NDArray[np.bool_]:
    """Whether UB holds a fractal's rows of each scratch block beside a block of C, of b_m x b_n elements each."""
    limits = core.limits
    needed: NDArray[np.bool_] = b_n * (core.total_bytes * b_m + core.scratch_bytes * limits.rows) <= limits.ub_bytes
    return needed


def best_split_k(
    gemm: Gemm, core: CoupledPlan, device: Device, options: Mapping[str, Any], order: tuple[str, str, str]
) -> SplitK:
    """The number of slices of K with the least estimated time, a power of two up to the number of cores."""
    k, multiple = gemm.problem.k, gemm.schedule.slice_multiple or SLICE_MULTIPLE
    cycles: dict[int, float] = {}
    count = 1
    while count == 1 or (count <= device.cores and count * multiple <= k):
        cut = replace(gemm, schedule=replace(gemm.schedule, split_k=count, slice_k=None))
        summed = slice_sum_cycles(device, gemm.problem.m * gemm.problem.n, count, len(core.plan.terms))
        cycles[count] = _blocking(core, cut, device, options, order).cycles * len(core.k_sweeps) + summed
        count *= 2
    ordered = tuple(sorted(cycles, key=lambda count_tried: cycles[count_tried]))
    return SplitK(ordered[0], cycles[ordered[0]] / cycles[1], counts=ordered)


def _fastest(
    core: CoupledPlan, group: int | None, wanted: int | None, device: Device, sizes: tuple[int, int, int]
) -> Tile:
    """The fastest tile of Algorithm 1 by estimate, with b_k a power of two, or a divisor of k_group: of `wanted` blocks
    where that many are asked for.
    """
    limits = core.limits
    tiles = _candidates(limits, core.accumulators, core.is_joined, core.resident, group, wanted)
    tiles = tiles[_has_scratch(core, tiles.T[0], tiles.T[2])]
    blocks = choose(device, core.unit, limits, sizes, tiles)
    if blocks is None:
        if wanted is not None:
            raise InputError(
                f"k_group = {group}, n_fused = {wanted}: no tile that fits into L1 and UB has both; give one of them"
            )
        raise InputError(
            f"k_group = {group}: no block b_k divides it into as many blocks as L1 holds; allowed: multiples of "
            f"{limits.depth} up to about {limits.l1 // limits.rows}"
        )
    return Tile(blocks[0], blocks[2], blocks[1])


@lru_cache(maxsize=64)
def _candidates(
    limits: Limits, accumulators: int, is_joined: bool, resident: int, group: int | None, wanted: int | None = None
) -> Tiles:
    """Candidate tiles of `_fastest`; they do not depend on the sizes of the GEMM."""

    def fits(b_m: int, b_k: int, b_n: int) -> bool:
        if group is not None:
            most = n_fused(limits, b_m, b_k, b_n, resident)
            return group % b_k == 0 and _are_held(is_joined, group // b_k, wanted, most)
        # Joined step by step, the default step is the cube's own: a longer one adds in blocks, which is
        # more accurate than any one chain and would turn the paper's comparison of the two orders around.
        return b_k == limits.depth if is_joined else b_k & (b_k - 1) == 0 and b_k > limits.depth

    return np.array([tile for tile in legal(limits, accumulators) if fits(*tile)], np.int64).reshape(-1, 3)


def _are_held(is_joined: bool, steps: int, wanted: int | None, most: int) -> bool:
    """Whether L1, which holds `most` blocks of A, can have the blocks for `steps` of them in a k_group; `wanted`: the
    number that is asked for.
    """
    if is_joined:  # several k_groups of A may lie in L1
        return wanted is None or (wanted % steps == 0 and wanted <= most)
    return wanted in (None, steps) and steps <= most


def _blocks_of_a(core: CoupledPlan, tile: Tile, group: int | None, wanted: int | None) -> int:
    """N_fused: `wanted`, or the number that makes up the K of `group`, or as many as fit. Raises InputError where it
    does not fit.
    """
    most = n_fused(core.limits, tile.m, tile.k, tile.n, core.resident)
    fused = most if wanted is None else wanted
    if group is not None:
        if group <= 0 or group % tile.k:
            raise InputError(f"k_group = {group} is not a positive multiple of b_k = {tile.k}; choose the tile to fit")
        steps = group // tile.k
        if core.is_joined:
            fused = max(steps, most // steps * steps) if wanted is None else wanted
            if fused % steps:
                raise InputError(f"n_fused = {fused} is not a multiple of k_group / b_k = {steps}")
        elif wanted is not None and wanted != steps:
            raise InputError(
                f"k_group = {group} is {steps} blocks of b_k = {tile.k}, n_fused = {wanted}: give one of them"
            )
        else:
            fused = steps
    if not 1 <= fused <= most:
        raise InputError(
            f"n_fused = {fused}: L1 holds 1 to {most} blocks of A of {tile.m} x {tile.k} beside two of B (Eq. 8)"
        )
    return fused
