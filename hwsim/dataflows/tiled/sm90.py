"""The dataflow of Hopper (sm_90): TMA into a ring of stages, wgmma from shared memory, persistent CTAs.

A tile's sum is stored before the next begins. Candidate tiles: rows of configs/libraries/cublas-13.yaml, which also say
what mma.sync and the FP32 lanes have. The CTAs of an fp32 kernel that share a core begin together and are equally long,
so their epilogues do not hide behind each other's products.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.tiled import lowering as tiled
from hwsim.dataflows.tiled.lowering import OPTIONS, TILE_KEYS
from hwsim.dataflows.tiled.model import Family

if TYPE_CHECKING:
    from hwsim.devices.model import Device
    from hwsim.gemm.plan import Plan
    from hwsim.program.ir import Program

EPILOGUE = True
CHOOSERS = ("tlp",)

FAMILY = Family(
    "sm90",
    registers="RF",
    shared="SMEM",
    through_registers=False,
    store_shared=True,
    persistent=True,
    stages=16,
    cluster=2,
    library="cublas-13",
)


def lower(plan: Plan, device: Device, m: int, n: int, k: int, options: Mapping[str, Any]) -> Program:
    """See hwsim.dataflows.tiled.lowering.lower."""
    return tiled.lower(FAMILY.on(device), plan, device, m, n, k, options)


__all__ = ["CHOOSERS", "EPILOGUE", "FAMILY", "OPTIONS", "TILE_KEYS", "lower"]
