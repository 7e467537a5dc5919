"""The dataflow of Ampere and Ada (sm_80 to sm_89), and of chips with the same kernels: cp.async, ldmatrix, mma.sync.

A CTA holds its sum in registers and reads operand fragments from a ring of stages in shared memory. Candidate tiles:
rows of configs/libraries/cutlass-sm80.yaml.
"""

from __future__ import annotations

from hwsim.dataflows.tiled.dataflow import TiledDataflow
from hwsim.dataflows.tiled.model import Family

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
DATAFLOW = TiledDataflow(FAMILY)
