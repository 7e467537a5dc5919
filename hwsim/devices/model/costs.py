"""Energies and areas in a device file, as its author gives them. It knows no program, and it makes up no number."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hwsim.datafiles.base import Name, StrictRecord

Picojoules = Annotated[float, Field(ge=0, le=1e9)]
StaticWatts = Annotated[float, Field(ge=0, le=1e6)]
SquareMillimetres = Annotated[float, Field(ge=0, le=1e6)]


class EnergyModel(StrictRecord):
    """Energies of operations and bytes. What a GEMM does and has no energy here is an error, but for memories of a
    core: bytes of those that are not listed are part of other energies.
    """

    mac_pj: dict[Name, Picojoules] = {}  # of a multiply-accumulate in a matrix unit, by operand format
    lane_fma_pj: Picojoules | None = None  # of an FMA of a product on a lane of the vector unit
    lane_other_pj: Picojoules | None = None  # of another operation on such a lane of 4 bytes
    memory_pj_per_byte: dict[Name, Picojoules] = {}  # of a byte read from or written to a memory of a core
    l2_pj_per_byte: Picojoules | None = None
    hbm_pj_per_byte: Picojoules | None = None
    static_watts: StaticWatts = 0.0  # power of the chip that flows whatever runs


class AreaModel(StrictRecord):
    """Areas of the chip's parts. All but uncore_mm2 count once in each core."""

    core_mm2: SquareMillimetres = 0.0  # of a core beside the parts below
    mac_mm2: dict[Name, SquareMillimetres] = {}  # of one multiplier of an engine: multiply-accumulates per cycle
    memory_mm2_per_kib: dict[Name, SquareMillimetres] = {}  # of 1,024 bytes of a memory of a core
    uncore_mm2: dict[Name, SquareMillimetres] = {}  # of parts of the chip that are in no core, by any name
