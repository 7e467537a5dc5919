"""The dataflow of Ampere and Ada (sm_80 to sm_89), and of chips that run like them: cp.async, ldmatrix, mma.sync.

A CTA holds its sum in registers and reads operand fragments from a ring of stages in shared memory. Candidate tiles:
rows of configs/libraries/cutlass-sm80.yaml.
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
    "sm80",
    registers="RF",
    shared="SMEM",
    through_registers=False,
    store_shared=False,
    persistent=False,
    stages=4,
    cluster=1,
    library="cutlass-sm80",
)


def lower(plan: Plan, device: Device, m: int, n: int, k: int, options: Mapping[str, Any]) -> Program:
    """See hwsim.dataflows.tiled.lowering.lower."""
    return tiled.lower(FAMILY.on(device), plan, device, m, n, k, options)


__all__ = ["CHOOSERS", "EPILOGUE", "FAMILY", "OPTIONS", "TILE_KEYS", "lower"]
