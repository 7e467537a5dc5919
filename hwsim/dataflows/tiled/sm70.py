"""The dataflow of Volta and Turing (sm_70, sm_75): global loads into registers, stores to shared memory, mma.sync.

Without an asynchronous copy the next block of K passes through registers while this one is multiplied; shared memory
holds two. Candidate tiles: rows of configs/libraries/cublas-volta-turing.yaml.
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
    "sm70",
    registers="RF",
    shared="SMEM",
    through_registers=True,
    store_shared=False,
    persistent=False,
    stages=2,
    cluster=1,
    library="cublas-volta-turing",
)


def lower(plan: Plan, device: Device, m: int, n: int, k: int, options: Mapping[str, Any]) -> Program:
    """See hwsim.dataflows.tiled.lowering.lower."""
    return tiled.lower(FAMILY.on(device), plan, device, m, n, k, options)


__all__ = ["CHOOSERS", "EPILOGUE", "FAMILY", "OPTIONS", "TILE_KEYS", "lower"]
