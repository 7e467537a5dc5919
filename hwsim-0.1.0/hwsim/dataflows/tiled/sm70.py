"""The dataflow of Volta and Turing (sm_70, sm_75): global loads into registers, stores to shared memory, mma.sync.

Without an asynchronous copy the next block of K passes through registers while this one is multiplied; shared memory
holds two. Candidate tiles: rows of configs/libraries/cublas-volta-turing.yaml.
"""

from __future__ import annotations

from hwsim.dataflows.tiled.dataflow import TiledDataflow
from hwsim.dataflows.tiled.model import Family

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
DATAFLOW = TiledDataflow(FAMILY)
