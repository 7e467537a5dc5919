"""Tiles from the papers' formulas, for comparison with a search: SGEMM-cube's Eq. 11, LE-GEMM's thread-parallelism
model.

The formulas count traffic and threads; they know no cycles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwsim.dataflows.davinci.coupled_tiling import Limits, Tiling, b_m_least_traffic, legal, n_fused, traffic
from hwsim.dataflows.registry import dataflow
from hwsim.errors import UnsupportedError
from hwsim.formats import format_of

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.plan import Plan

TABLE_2_K = 32
WARP_TILE = 64 * 64  # elements of C that a warp of the libraries' large tiles owns


def eq11(device: Device, plan: Plan, m: int, n: int, k: int) -> dict[str, int]:
    """The tile by SGEMM-cube's Eq. 11: the b_m with the least traffic, then the largest block of B (Eq. 10).

    Ties go to the least traffic (Eq. 9); n_fused follows from Eq. 8. Raises UnsupportedError for a device without the
    memories of a DaVinci core.
    """
    if not _has_chooser(device, "eq11"):
        raise UnsupportedError(f"--chooser eq11: Eq. 11 is for coupled DaVinci cores; {device.name} is {device.family}")
    limits = Limits.of(device, -(-format_of(plan.a_pieces[0].format).bits // 8))
    best_m = b_m_least_traffic(limits, 1.0)
    tiles = list(legal(limits))
    nearest = min({tile[0] for tile in tiles}, key=lambda b_m: abs(b_m - best_m))

    def moved(tile: tuple[int, int, int]) -> tuple[int, float]:
        bytes_moved = traffic(limits, Tiling(*tile, n_fused(limits, *tile)), m, n, k)
        return -tile[1] * tile[2], bytes_moved.a_read + bytes_moved.b_read + bytes_moved.c_read_write

    b_m, b_k, b_n = min((tile for tile in tiles if tile[0] == nearest), key=moved)
    return {"m": b_m, "k": b_k, "n": b_n}


def _has_chooser(device: Device, name: str) -> bool:
    return name in dataflow(device).features.choosers


@dataclass(frozen=True, slots=True)
class Parallelism:
    """LE-GEMM's parallelism model (section 4.2) of one tile. threads: Eq. 12. per_byte: Eq. 15. load, work: Eq. 16, 17,
    per thread.
    """

    threads: float
    per_byte: float
    load: float
    work: float


def parallelism(device: Device, tile: dict[str, int], m: int, n: int) -> Parallelism:
    """Evaluate Eq. 12 and 15 to 17; phi, the wavefronts of a workgroup: one per 64 x 64 elements of C, at least one."""
    t_m, t_n, t_k = tile["m"], tile["n"], tile["k"]
    wave = dataflow(device).features.wave_threads
    waves = max(1, t_m * t_n // WARP_TILE)
    return Parallelism(
        waves * wave * m * n / (t_m * t_n),
        3 * t_m * t_n / (2 * (t_m + t_n)),
        (t_m * t_n + t_m * t_k + t_k * t_n) / (waves * wave),
        t_m * t_n / (waves * wave),
    )


def tlp(
    device: Device, tiles: Iterable[dict[str, int]], is_legal: Callable[[dict[str, int]], bool], m: int, n: int
) -> dict[str, int]:
    """The tile by LE-GEMM's model: the most computation per byte (Eq. 15) among tiles that give every core a workgroup
    (Eq. 12).

    Where none does, the one with the most threads. Ties go to the least work per thread (Eq. 17), and for T_K, which
    the model does not cover, to the nearest to Table 2's 32. The paper maximises both quantities and leaves their
    weights open; this order is ours. Raises UnsupportedError for a DaVinci core, which has no threads.
    """
    if not _has_chooser(device, "tlp"):
        raise UnsupportedError(f"--chooser tlp: its model counts threads; {device.name} is {device.family}")
    candidates = [(tile, parallelism(device, tile, m, n)) for tile in tiles if is_legal(tile)]
    if not candidates:
        raise UnsupportedError(f"--chooser tlp: no tile of the search is legal on {device.name}")
    busy = [
        (tile, parallel)
        for tile, parallel in candidates
        if math.ceil(m / tile["m"]) * math.ceil(n / tile["n"]) >= device.cores
    ]
    if busy:
        return max(busy, key=lambda pair: (pair[1].per_byte, -pair[1].work, -abs(pair[0]["k"] - TABLE_2_K)))[0]
    return max(candidates, key=lambda pair: (pair[1].threads, pair[1].per_byte, -abs(pair[0]["k"] - TABLE_2_K)))[0]
