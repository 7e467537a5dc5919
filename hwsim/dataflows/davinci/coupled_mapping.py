"""Chooses the blocking of a GEMM on a coupled DaVinci core: tile, blocks of A in L1, buffers, K per accumulation.

It fills in the record's mapping and, where the plan leaves it open, the schedule's `promotion_k`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hwsim.dataflows.davinci.coupled_plan import CoupledPlan
from hwsim.dataflows.davinci.coupled_tiling import Limits, Tiles, Tiling, check, choose, legal, n_fused
from hwsim.dataflows.options import BEFORE, BUFFERS, DEFAULT_BUFFERING, IN_KERNEL
from hwsim.dataflows.records import decision, tile_text
from hwsim.devices import dot_spec
from hwsim.errors import InputError
from hwsim.formats import format_of
from hwsim.gemm.mapping import GemmMapping, KernelMapping, Tile, settings_of
from hwsim.gemm.option_types import keyed_tile
from hwsim.gemm.record import Decision, Gemm
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
    tile = _tile(core, gemm, device, keyed_tile(options.get("tile"), order))
    fused = _blocks_of_a(core, tile, schedule.promotion_k, options.get("n_fused"))
    tiling = Tiling(tile.m, tile.k, tile.n, fused, BUFFERS[buffering])
    convert_a = options.get("convert_a") or BEFORE
    if convert_a == IN_KERNEL:
        core.check_conversion()
    core.scratch_rows(tiling, device, core.conversion_room(tiling, device) if convert_a == IN_KERNEL else 0)
    promotion_interval = tiling.promotion_interval(schedule.promotion_k, core.is_joined)
    if schedule.promotion_k is None and (promotion_interval < gemm.problem.k or not _adds_exactly(core, device)):
        schedule = replace(schedule, promotion_k=promotion_interval)
    kernel = KernelMapping(
        "gemm",
        tuple(range(len(core.plan.terms))),
        core.unit,
        tile,
        stages=tiling.buffers,
        accumulators=core.accumulators,
        settings=settings_of({"n_fused": fused} | ({"convert_a": convert_a} if convert_a != BEFORE else {})),
    )
    fits = "k_group / b_k" if _is_fixed(core, gemm) else "as many blocks of A as L1 holds beside two of B (Eq. 8)"
    decisions = (
        decision(options, "tile", tile_text(tile, order), "estimate", "the fewest cycles of cube, MTE1 and MTE2"),
        decision(options, "n_fused", fused, "default", fits),
        decision(options, "buffering", buffering, "default"),
        _interval_decision(core, gemm, promotion_interval),
        *([decision(options, "convert_a", convert_a, "default")] if options.get("convert_a") else []),
    )
    mapping = GemmMapping(family, (kernel,))
    return replace(gemm, schedule=schedule, mapping=mapping, decisions=(*gemm.decisions, *decisions))


def _adds_exactly(core: CoupledPlan, device: Device) -> bool:
    """Whether what the cube accumulates over all of K is the same after the vector unit added it to C, which is +0."""
    spec = dot_spec(device, core.unit)
    if isinstance(spec.unit, IntegerUnit):
        return True
    own, vector = getattr(spec.unit, "specials", None), device.vector
    if own is None or getattr(spec.unit, "rounding", "RNE") == "RD":  # x - x is -0
        return False
    least = sum(x.min_exponent - x.fraction_bits for x in (format_of(spec.a), format_of(spec.b)))
    if least < format_of(spec.d).min_exponent - format_of(spec.d).fraction_bits:  # what underflows may be -0
        return False
    is_bounded = own.overflow == "saturate" and own.operands == "saturate"
    return is_bounded or vector is None or vector.specials.overflow != "saturate"


def _is_fixed(core: CoupledPlan, gemm: Gemm) -> bool:
    """Whether the promotion interval is given and equals the K of the blocks of A in L1."""
    return gemm.schedule.promotion_k is not None and not core.is_joined


def _interval_decision(core: CoupledPlan, gemm: Gemm, promotion_interval: int) -> Decision:
    if core.plan.k_group is not None:
        return Decision("k_group", str(promotion_interval), "scheme")
    if gemm.schedule.promotion_k is not None:
        return Decision("k_group", str(promotion_interval), "user")
    why = "b_k: the terms are joined after every block of K" if core.is_joined else "n_fused blocks of b_k"
    return Decision("k_group", str(promotion_interval), "default", why=why)


def _tile(core: CoupledPlan, gemm: Gemm, device: Device, given: Tile | None) -> Tile:
    """The tile, `given` or the fastest by estimate, checked against the core's memories."""
    tile = _fastest(core, gemm, device) if given is None else given
    check(core.limits, (tile.m, tile.k, tile.n), core.accumulators)
    return tile


def _fastest(core: CoupledPlan, gemm: Gemm, device: Device) -> Tile:
    """The fastest tile by estimate, with b_k a power of two, or a divisor of k_group."""
    group, limits = gemm.schedule.promotion_k, core.limits
    tiles = _candidates(limits, core.accumulators, core.is_joined, core.resident, group)
    blocks = choose(device, core.unit, limits, gemm.problem.sizes, tiles)
    if blocks is None:
        raise InputError(
            f"k_group = {group}: no block b_k divides it into as many blocks as L1 holds; allowed: multiples of "
            f"{limits.depth} up to about {limits.l1 // limits.rows}"
        )
    return Tile(blocks[0], blocks[2], blocks[1])


@lru_cache(maxsize=64)
def _candidates(limits: Limits, accumulators: int, is_joined: bool, resident: int, group: int | None) -> Tiles:
    """Candidate tiles of `_fastest`; they do not depend on the sizes of the GEMM."""

    def fits(b_m: int, b_k: int, b_n: int) -> bool:
        if group is not None:
            return group % b_k == 0 and (is_joined or group // b_k <= n_fused(limits, b_m, b_k, b_n, resident))
        # Joined step by step, the default step is the cube's own: a longer one adds in blocks, which is
        # more accurate than any one chain and would turn the paper's comparison of the two orders around.
        return b_k == limits.depth if is_joined else b_k & (b_k - 1) == 0 and b_k > limits.depth

    return np.array([tile for tile in legal(limits, accumulators) if fits(*tile)], np.int64).reshape(-1, 3)


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
