"""The dataflow of Volta and Turing (sm_70, sm_75): global loads into registers, stores to shared memory, mma.sync.

Without an asynchronous copy the next block of K passes through registers while this one is multiplied; shared memory
holds two. Tiles: those of CUTLASS's and cuBLAS's kernels for sm_70 and sm_75 (256x128x32, 128x256x32, 128x128x32).
"""

from __future__ import annotations

from hwsim.dataflows.tiled.model import LANES, Family, Shape

FAMILY = Family(
    "sm70",
    registers="RF",
    shared="SMEM",
    through_registers=True,
    store_shared=False,
    persistent=False,
    stages=2,
    cluster=1,
    shapes=(
        Shape(128, 256, 64, (64, 64)),
        Shape(256, 128, 64, (64, 64)),
        Shape(128, 128, 64, (64, 64)),
        Shape(128, 128, 32, (64, 64), accumulators=2),
        Shape(64, 128, 64, (32, 64), accumulators=2),
        Shape(128, 64, 64, (64, 32), accumulators=2),
        Shape(64, 64, 64, (32, 32), accumulators=2),
        Shape(64, 64, 64, (32, 32)),
        Shape(32, 32, 64, (32, 32)),
    ),
    lanes=LANES,
)
