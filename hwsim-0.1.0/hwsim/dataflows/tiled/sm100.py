"""The dataflow of Blackwell (sm_100): TMA into a ring of stages, tcgen05.mma from shared memory into TMEM.

Results leave TMEM through registers while the next tile's sum fills the other half. A plan that splits its operands in
the kernel has warps that turn stages of fp32 into stages of pieces, as NVIDIA's FastF32 main loop does. Candidate
tiles: rows of configs/libraries/cutlass-sm100.yaml. The option cta_group = 2 takes pairs of SMs (cta_group::2), with a
tile for each of them; without it an SM works alone: a tile of 256 x 256 then moves the bytes that it moves on a pair.
"""

from __future__ import annotations

from hwsim.dataflows.tiled.dataflow import TiledDataflow
from hwsim.dataflows.tiled.model import Family

FAMILY = Family(
    "sm100",
    registers="RF",
    shared="SMEM",
    through_registers=False,
    store_shared=True,
    persistent=True,
    stages=8,
    cluster=1,
    library="cutlass-sm100",
    pairs=True,
)
DATAFLOW = TiledDataflow(FAMILY)
