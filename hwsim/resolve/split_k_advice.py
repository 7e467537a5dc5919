"""What is notable about a run that left K in one piece: that slices of K would be much faster.

A vendor's library cuts K where C has few tiles; a run does not unless it is asked to, as that changes bits. Plans of
one product alone are looked at: the others are no GEMM of a library. It knows the dataflows' estimate, neither bits
nor the timing machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hwsim.dataflows import dataflow
from hwsim.dataflows.tiled import lowering as tiled

if TYPE_CHECKING:
    from hwsim.devices.model import Device
    from hwsim.gemm.plan import Plan

CODE = "k_not_cut"


def uncut(plan: Plan, device: Device, sizes: tuple[int, int, int], options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One notice {"code", "count": of slices, "message"}, or none. sizes: m, n, k; options: those of the lowering."""
    family = getattr(dataflow(device), "FAMILY", None)
    if family is None or plan.products > 1 or options.get("split_k") is not None:
        return []
    family = family.on(device)
    count, share = tiled.cut(family, plan, device, *sizes, options)
    if share > family.split_k.advise_below:
        return []
    said = (
        f'K is in one piece: split_k="auto" takes {count} slices and about {share:.0%} of the time (by estimate); '
        "libraries cut K where C has few tiles, and the bits are others then"
    )
    return [{"code": CODE, "count": count, "message": said}]
