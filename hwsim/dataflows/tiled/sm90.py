"""The dataflow of Hopper (sm_90): TMA into a ring of stages, wgmma from shared memory, persistent CTAs.

Tiles: those of cuBLAS 13's kernels on an H200, by width of the operands; the small ones it was seen to use only where
no core has a second tile, that of 64 x 64 for an MN-major tf32 operand (a kernel of mma.sync) up to 640 of K. By the
names in configs/measured/gemm_times.csv.
A tile's sum is stored before the next begins.
fp32 and fp64: kernels of the Ampere kind, two CTAs a core but for the largest. The CTAs of an fp32 kernel that share a
core begin together and are equally long, so their epilogues do not hide behind each other's products: two of 64 x 128
are a tile of 128 x 128 here.
mma.sync: tiles and stages of cuBLAS's tf32 kernels with slices of K (cutlass_80_tensorop_s1688gemm), of 64 x 64 two
CTAs a core; where fp16, bf16 or int8 are asked for by mma.sync, the same, an assumption.
"""

from __future__ import annotations

from hwsim.dataflows.tiled.model import Family, Shape

FAMILY = Family(
    "sm90",
    registers="RF",
    shared="SMEM",
    through_registers=False,
    store_shared=True,
    persistent=True,
    stages=16,
    cluster=2,
    shapes=(
        Shape(256, 128, 128, (64, 128), bits=(8, 16)),
        Shape(128, 256, 128, (64, 256), bits=(8, 16)),
        Shape(192, 192, 128, (64, 192), bits=(8, 16)),
        Shape(320, 128, 128, (64, 128), bits=(8, 16)),
        Shape(192, 128, 128, (64, 128), bits=(8, 16)),
        Shape(128, 192, 128, (64, 192), bits=(8, 16)),
        Shape(128, 112, 128, (64, 112), bits=(8, 16), max_waves=4),
        Shape(128, 144, 128, (64, 144), bits=(8, 16), max_waves=4),
        Shape(128, 168, 128, (64, 168), bits=(8, 16), max_waves=4),
        Shape(128, 256, 128, (64, 256), bits=(32,), mn_major=False),
        Shape(256, 128, 128, (64, 128), bits=(32,)),
        Shape(128, 128, 128, (64, 128), bits=(32,)),
        Shape(256, 64, 128, (64, 64), bits=(32,)),
        Shape(128, 64, 128, (64, 64), bits=(32,)),
        Shape(64, 128, 128, (64, 128), bits=(32,), mn_major=False),
        Shape(64, 64, 128, (64, 64), bits=(32,), mn_major=False),
        Shape(64, 64, 128, (64, 64), bits=(32,), mn_major=True, max_k=640),
        Shape(192, 96, 128, (64, 96), bits=(8, 16), max_waves=1),
        Shape(128, 128, 128, (64, 128), bits=(8, 16), max_waves=1),
        Shape(128, 72, 128, (64, 72), bits=(8, 16), max_waves=1),
        Shape(128, 64, 128, (64, 64), bits=(8, 16), max_waves=1),
        Shape(64, 128, 128, (64, 128), bits=(8, 16), max_waves=1),
        Shape(64, 96, 128, (64, 96), bits=(8, 16), max_waves=1),
        Shape(64, 80, 128, (64, 80), bits=(8, 16), max_waves=1),
        Shape(64, 72, 128, (64, 72), bits=(8, 16), max_waves=1),
        Shape(64, 64, 128, (64, 64), bits=(8, 16), max_waves=1),
        Shape(64, 48, 128, (64, 48), bits=(8, 16), max_waves=1),
        Shape(64, 32, 128, (64, 32), bits=(8, 16), max_waves=1),
        Shape(64, 24, 128, (64, 24), bits=(8, 16), max_waves=1),
        Shape(64, 16, 128, (64, 16), bits=(8, 16), max_waves=1),
        Shape(64, 8, 128, (64, 8), bits=(8, 16), max_waves=1),
        Shape(64, 32, 64, (64, 32), bits=(8, 16), max_waves=1),
    ),
    lanes=(
        Shape(256, 128, 32, (64, 64), stages=3),
        Shape(128, 128, 32, (64, 64), stages=3),
        Shape(64, 128, 32, (32, 64), stages=3, max_waves=1),
        Shape(128, 64, 32, (64, 32), stages=3, max_waves=1),
        Shape(64, 64, 32, (32, 32), stages=3),
        Shape(32, 32, 32, (32, 32), stages=3),
    ),
    warps=(
        Shape(128, 64, 128, (64, 32), accumulators=2, stages=3, bits=(64,)),
        Shape(64, 64, 128, (32, 32), accumulators=2, stages=4, bits=(64,)),
        Shape(32, 64, 256, (16, 32), accumulators=2, stages=3, bits=(64,)),
        Shape(32, 32, 128, (16, 16), accumulators=2, stages=4, bits=(64,)),
        Shape(64, 64, 128, (32, 32), accumulators=2, stages=12, bits=(8, 16, 32)),
        Shape(128, 64, 128, (64, 32), stages=6, bits=(8, 16, 32)),
        Shape(64, 128, 128, (32, 64), stages=6, bits=(8, 16, 32)),
        Shape(128, 128, 128, (64, 64), stages=5, bits=(8, 16, 32)),
        Shape(256, 64, 128, (64, 64), stages=3, bits=(8, 16, 32)),
    ),
)
