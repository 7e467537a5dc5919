"""The dataflow of an accelerator of one's own: a scratchpad per core, a matrix unit that reads it, accumulators.

A DMA engine loads blocks of K into a ring of stages of the scratchpad (SRAM), the matrix unit adds into accumulators
(ACC), and a tile's sum is stored from there. Nothing in it is of one vendor; candidate tiles: rows of
configs/libraries/generic-tiles.yaml.
"""

from __future__ import annotations

from hwsim.dataflows.tiled.dataflow import TiledDataflow
from hwsim.dataflows.tiled.model import Family

FAMILY = Family(
    "tiled",
    registers="ACC",
    shared="SRAM",
    through_registers=False,
    store_shared=False,
    persistent=True,
    stages=8,
    cluster=1,
    library="generic-tiles",
)
DATAFLOW = TiledDataflow(FAMILY)
