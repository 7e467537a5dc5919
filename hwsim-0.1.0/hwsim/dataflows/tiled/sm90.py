"""The dataflow of Hopper (sm_90): TMA into a ring of stages, wgmma from shared memory, persistent CTAs.

A tile's sum is stored before the next begins. Candidate tiles: rows of configs/libraries/cublas-13.yaml, which also say
what mma.sync and the FP32 lanes have. The CTAs of an fp32 kernel that share a core begin together and are equally long,
so their epilogues do not hide behind each other's products.
"""

from __future__ import annotations

from hwsim.dataflows.tiled.dataflow import TiledDataflow
from hwsim.dataflows.tiled.model import Family

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
DATAFLOW = TiledDataflow(FAMILY)
