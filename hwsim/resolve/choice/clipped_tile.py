"""Notice for a tile that a user gave and that C is smaller than: what lies beyond C takes no time here.

Tiles at C's edges are as small as they are, in whole instructions. A kernel made for one size of tile multiplies zeros
there instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwsim.analysis.run_records import RunWarning
from hwsim.dataflows.instructions import Instructions
from hwsim.dataflows.options import TILE_OPTION
from hwsim.host.multiples import round_up

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.record import Gemm

CODE = "tile_beyond_c"


def clipped_tile(gemm: Gemm, device: Device) -> list[RunWarning]:
    """A list with one notice {"code", "count": elements of the tile beyond C, "message"}, or none. gemm: mapped."""
    decision = gemm.decided(TILE_OPTION.name)
    if decision is None or decision.by != "user" or gemm.mapping is None:
        return []
    tile, problem = gemm.mapping.kernels[0].tile, gemm.problem
    rows, cols = Instructions(device).smallest(gemm.unit)
    m, n = min(tile.m, round_up(problem.m, rows)), min(tile.n, round_up(problem.n, cols))
    beyond = tile.m * tile.n - m * n
    if not beyond:
        return []
    message = (
        f"the tile is {tile.m} x {tile.n} and C {problem.m} x {problem.n}: {m} x {n} of the tile are multiplied and "
        "timed; a kernel that pads C to whole tiles takes longer"
    )
    return [{"code": CODE, "count": beyond, "message": message}]
