"""How many slices of K a kernel is cut into where the caller leaves it to the estimate (split_k = "auto").

A library cuts K where C has too few tiles for the cores; each candidate is a kernel over all slices and the pass that
merges them. The count changes bits, so nothing is cut unless it is asked for. It knows tiles only through `choose`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hwsim.formats import format_of

if TYPE_CHECKING:
    from hwsim.devices.model import Device

AUTO = "auto"
COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64)  # slices that cuBLAS was seen to take go up to 64
SHORTEST = 64  # elements of K in a slice


def slices(k: int, estimate: Callable[[int], float], bound: Callable[[int], float]) -> tuple[int, float]:
    """The count with the least `estimate` (seconds), of equals the smaller, and that estimate over the one of no cut.

    k: elements. bound: seconds that no estimate of the count is below; counts whose bound rules them out are passed
    over, as an estimate weighs every tile of the family.
    """
    whole = estimate(1)
    best = (whole, 1)
    for count in COUNTS[1:]:
        if k >= count * SHORTEST and bound(count) < best[0]:
            best = min(best, (estimate(count), count))
    return best[1], best[0] / whole if whole else 1.0


def merge_seconds(device: Device, elements: int, count: int, partial: str, target: str, terms: int) -> float:
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
    latency = sum(x.latency_ns or 0.0 for x in (device.l2, device.hbm) if x is not None) * 1e-9
    return moved + latency + (device.launch_overhead_us or 0.0) * 1e-6
