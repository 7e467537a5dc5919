"""A GPU family as data: how its kernels move operands and results, and which tiles they may have.

The files of configs/families hold the families. The module knows no instruction and no GEMM.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from hwsim.datafiles.base import Name, StrictRecord
from hwsim.libraries.model import load

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.libraries.model.kernels import SplitKModel

Count = Annotated[int, Field(ge=1, le=65536)]


@dataclass(frozen=True, slots=True)
class Shape:
    """A CTA tile that the family's libraries use: m x n elements of C and bytes of K per row of a stage."""

    m: int  # rows of C
    n: int  # columns of C
    k_bytes: int  # of a row of A or column of B in one stage
    # The warp tile (m, n): operand fragments are read from shared memory n / warp n and m / warp m times.
    warp: tuple[int, int] = (64, 64)
    # 2 where the epilogue of a tile overlaps the next tile's main loop: two CTAs per SM, two consumer warp groups in
    # ping-pong, or two halves of TMEM.
    accumulators: int = 1
    stages: int = 0  # of shared memory; 0: as many as fit, `Family.stages` at most
    bits: tuple[int, ...] = ()  # operand widths that it is for (empty: all)
    max_waves: int = 0  # it is used only where the grid has at most this many waves (0: any)
    max_k: int = 0  # it is used up to this K (0: any)
    # Whether it is for an instruction that needs K-major operands while one of them is MN-major (None: for both).
    mn_major: bool | None = None
    # Neighbours, one tile each in a column, whose matrix units multiply together: each loads its part of the columns of
    # B, and reads the rest from the others (cta_group::2).
    cores: int = 1


class Family(StrictRecord):
    """A GPU family: how its kernels move operands and results. Numbers have a source in the family's file."""

    schema_version: Literal[1] = 1
    name: Name  # `family` of device files
    title: str
    registers: Name  # the memory of accumulators and fragments
    shared: Name  # the memory of operands that wait for the matrix unit
    through_registers: bool  # global memory -> registers -> shared memory; else directly to shared memory
    store_shared: bool  # results go through shared memory
    # A core's next tile is loaded while the last one is being finished; else a CTA begins when the previous one has
    # stored its tile.
    persistent: bool
    stages: Count  # the most blocks of K that wait in shared memory, in the choice by estimate
    cluster: Count  # CTAs of one column that receive B together (multicast)
    library: Name  # whose kernels are the candidates where the device names none (hwsim.libraries.model)
    pairs: bool = False  # its kernels may use cta_group::2
    wave_threads: Count  # threads of a warp or wavefront
    core_warps: Count  # the most warps of a core
    thread_registers: Count  # the most 32-bit registers of a thread, accumulation registers among them
    # Operands wait in shared memory; else each warp loads its own fragments straight from global memory.
    staged: bool = True

    @property
    def without_staging(self) -> Family:
        """The family's kernels that load fragments straight from global memory and store from registers."""
        bare = {"through_registers": True, "store_shared": False, "persistent": False, "stages": 1, "cluster": 1}
        return self.model_copy(update={**bare, "staged": False})

    def on(self, device: Device) -> Family:
        """The family with the library that the device file names, if it names one."""
        if device.library is None or device.library.name == self.library:
            return self
        return self.model_copy(update={"library": device.library.name})

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Candidate tiles for the matrix unit, operands in shared memory."""
        return _candidates(self.library)["matrix"]

    @property
    def lanes(self) -> tuple[Shape, ...]:
        """Candidate tiles for instructions of the vector engine."""
        return _candidates(self.library)["lanes"]

    @property
    def warps(self) -> tuple[Shape, ...]:
        """Candidate tiles for instructions whose operands can only be in registers (empty: as the others)."""
        return _candidates(self.library)["registers"]

    @property
    def split_k(self) -> SplitKModel:
        """The library's split-K rules."""
        return load(self.library).split_k


@functools.cache
def _candidates(library: str) -> dict[str, tuple[Shape, ...]]:
    """The library's kernels by engine, in the order of its file."""
    shapes: dict[str, tuple[Shape, ...]] = {"matrix": (), "registers": (), "lanes": ()}
    for group in load(library).kernels.values():
        shapes[group.engine] += tuple(
            Shape(
                m=row.tile[0],
                n=row.tile[1],
                k_bytes=row.k_bytes,
                warp=row.warp,
                accumulators=row.accumulators,
                stages=row.stages or 0,
                bits=group.bits,
                max_waves=row.max_waves or 0,
                max_k=row.max_k or 0,
                mn_major=row.mn_major,
                cores=row.cta_group,
            )
            for row in group.rows.values()
        )
    return shapes
