"""The dataflow of Blackwell (sm_100): TMA into a ring of stages, tcgen05.mma from shared memory into TMEM.

Results leave TMEM through registers while the next tile's sum fills the other half. A plan that splits its operands in
the kernel has warps that turn stages of fp32 into stages of pieces, as NVIDIA's FastF32 main loop does. Tiles: what
CUTLASS's profiler builds by default for sm_100. The option cta_group = 2 takes pairs of SMs (cta_group::2), with a tile
for each of them; without it an SM works alone: a tile of 256 x 256 then moves the bytes that it moves on a pair.
"""

from __future__ import annotations

from hwsim.dataflows.tiled.model import Family, Shape

FAMILY = Family(
    "sm100",
    registers="RF",
    shared="SMEM",
    through_registers=False,
    store_shared=True,
    persistent=True,
    stages=8,
    cluster=1,
    shapes=(
        Shape(128, 256, 128, (32, 256), accumulators=2),
        Shape(128, 256, 64, (32, 256), accumulators=2),
        Shape(256, 256, 128, (32, 256)),
        Shape(128, 256, 128, (32, 256), accumulators=2, cores=2),
        Shape(128, 192, 128, (32, 192), accumulators=2, cores=2),
        Shape(128, 128, 128, (32, 128), accumulators=2, cores=2),
        Shape(128, 64, 128, (32, 64), accumulators=2, cores=2),
        Shape(128, 128, 128, (32, 128), accumulators=2),
        Shape(128, 128, 64, (32, 128), accumulators=2),
        Shape(128, 192, 128, (32, 192), accumulators=2),
        Shape(128, 64, 128, (32, 64), accumulators=2),
        Shape(64, 64, 128, (32, 64), accumulators=2),
        Shape(64, 32, 128, (32, 32), accumulators=2),
        Shape(64, 16, 128, (32, 16), accumulators=2),
        Shape(64, 16, 128, (32, 16)),
    ),
    lanes=(
        Shape(128, 128, 32, (32, 64)),
        Shape(128, 64, 32, (32, 64)),
        Shape(64, 64, 32, (32, 32)),
        Shape(32, 32, 32, (32, 32)),
    ),
)
