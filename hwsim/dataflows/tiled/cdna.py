"""The dataflow of AMD's CDNA: global loads into registers, LDS, MFMA from registers.

LDS is double buffered where it holds two blocks of K. Candidate tiles: rows of configs/libraries/rocblas-tensile.yaml.
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
    "cdna",
    registers="RF",
    shared="LDS",
    through_registers=True,
    store_shared=False,
    persistent=False,
    stages=2,
    cluster=1,
    library="rocblas-tensile",
    wave_threads=64,  # CDNA instruction set: a wavefront
)


def lower(plan: Plan, device: Device, m: int, n: int, k: int, options: Mapping[str, Any]) -> Program:
    """See hwsim.dataflows.tiled.lowering.lower."""
    return tiled.lower(FAMILY.on(device), plan, device, m, n, k, options)


__all__ = ["CHOOSERS", "EPILOGUE", "FAMILY", "OPTIONS", "TILE_KEYS", "lower"]
