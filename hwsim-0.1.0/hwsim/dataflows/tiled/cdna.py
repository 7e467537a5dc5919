"""The dataflow of AMD's CDNA: global loads into registers, LDS, MFMA from registers.

LDS is double buffered where it holds two blocks of K. Candidate tiles: rows of configs/libraries/rocblas-tensile.yaml.
"""

from __future__ import annotations

from hwsim.dataflows.tiled.dataflow import TiledDataflow
from hwsim.dataflows.tiled.model import Family

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
    core_warps=32,
    thread_registers=512,
)
DATAFLOW = TiledDataflow(FAMILY)
