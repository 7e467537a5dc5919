"""The dataflow of Ampere and Ada (sm_80 to sm_89), and of chips that run like them: cp.async, ldmatrix, mma.sync.

A CTA holds its sum in registers and reads operand fragments from a ring of stages in shared memory. Tiles: those of
CUTLASS's and cuBLAS's kernels for sm_80 (256x128x32, 128x256x32 with 64x64 warps, 3 stages; 128x128x32, 2 CTAs a core).
"""

from __future__ import annotations

from hwsim.dataflows.tiled.model import LANES, Family, Shape

FAMILY = Family(
    "sm80",
    registers="RF",
    shared="SMEM",
    through_registers=False,
    store_shared=False,
    persistent=False,
    stages=4,
    cluster=1,
    shapes=(
        Shape(128, 256, 64, (64, 64)),
        Shape(256, 128, 64, (64, 64)),
        Shape(128, 128, 64, (64, 64), accumulators=2),
        Shape(128, 128, 64, (64, 64)),
        Shape(64, 256, 64, (64, 64), accumulators=2),
        Shape(256, 64, 64, (64, 64), accumulators=2),
        Shape(64, 128, 64, (32, 64), accumulators=2),
        Shape(128, 64, 64, (64, 32), accumulators=2),
        Shape(64, 64, 128, (32, 32), accumulators=2),
        Shape(64, 64, 64, (32, 32)),
        Shape(32, 64, 128, (32, 32), accumulators=2),
        Shape(32, 32, 64, (32, 32)),
    ),
    lanes=LANES,
)
