"""The dataflow of Hopper (sm_90): TMA into a ring of stages, wgmma from shared memory, persistent CTAs.

Tiles: those of cuBLAS 13's kernels on an H200, by width of the operands; the small ones it was seen to use only where
no core has a second tile, that of 64 x 64 for a turned tf32 operand (a kernel of mma.sync) up to 640 of K. By the names
in configs/measured/gemm_times.csv.
A tile's sum is stored before the next begins.
fp32 and fp64: kernels of the Ampere kind, two CTAs a core but for the largest. The CTAs of an fp32 kernel that share a
core begin together and are equally long, so their epilogues do not hide behind each other's products: two of 64 x 128
are a tile of 128 x 128 here.
mma.sync: tiles and stages of cuBLAS's tf32 kernels with slices of K (cutlass_80_tensorop_s1688gemm), of 64 x 64 two
CTAs a core; where fp16, bf16 or int8 are asked for by mma.sync, the same, an assumption.
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
