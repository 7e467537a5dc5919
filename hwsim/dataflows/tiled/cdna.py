"""The dataflow of AMD's CDNA: global loads into registers, LDS, MFMA from registers.

Tiles: macro tiles of rocBLAS's (Tensile) kernels (256x128x32, 128x128x32 and smaller, waves of 64x64), LDS double
buffered where it holds two.
"""

from __future__ import annotations

from hwsim.dataflows.tiled.model import LANES, Family, Shape

FAMILY = Family(
    "cdna",
    registers="RF",
    shared="LDS",
    through_registers=True,
    store_shared=False,
    persistent=False,
    stages=2,
    cluster=1,
    shapes=(
        Shape(256, 128, 64, (128, 64)),
        Shape(128, 256, 64, (64, 128)),
        Shape(128, 128, 64, (64, 64), accumulators=2),
        Shape(128, 128, 64, (64, 64)),
        Shape(128, 64, 64, (64, 32), accumulators=2),
        Shape(64, 128, 64, (32, 64), accumulators=2),
        Shape(64, 64, 64, (32, 32), accumulators=2),
        Shape(32, 32, 128, (32, 32), accumulators=2),
        Shape(32, 32, 64, (32, 32)),
    ),
    lanes=LANES,
    wave_threads=64,  # CDNA instruction set: a wavefront
)
