"""What a dataflow is: an architecture family's way of turning the record of a GEMM into a program.

A dataflow completes the record (`map`) and writes the program that the record says (`lower`). Families can live in
other packages: an entry point of the group "hwsim.dataflows", named like the `family` of device files, gives an object
of this protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.mapping import Tile
    from hwsim.gemm.options import Option
    from hwsim.gemm.record import Gemm
    from hwsim.program.ir import Program


@dataclass(frozen=True, slots=True)
class Features:
    """What the programs of a dataflow can do beside the product.

    epilogue: alpha, beta, C, bias and another output format. stacks: all matrices of a stack in one program. k_group:
    where the plan leaves it open, the dataflow chooses how much of K the unit accumulates from zero, so that the bits
    depend on the mapping. choosers: names of the formulas (hwsim.studies.analytic_tiles) that choose a tile for it.
    wave_threads: of a warp or wavefront; 0 where cores have no threads.
    """

    epilogue: bool = False
    stacks: bool = False
    k_group: bool = False
    choosers: tuple[str, ...] = ()
    wave_threads: int = 0


@dataclass(frozen=True, slots=True)
class SplitK:
    """How many slices of K take the least estimated time, and that time over the one of K in one piece (0 to 1).

    advise_below: the share from which on a run that leaves K in one piece says so: the library's rule.
    """

    slices: int
    share: float
    advise_below: float = 1.0


@runtime_checkable
class Dataflow(Protocol):
    """One family's dataflow. It knows plans, records and devices; neither schemes nor bits nor cycles."""

    @property
    def name(self) -> str:
        """The family's name, as in device files."""

    @property
    def options(self) -> tuple[Option, ...]:
        """The options of its mapping, as users give them."""

    @property
    def tile_order(self) -> tuple[str, str, str]:
        """ "m", "n", "k" in the order in which its users write tiles."""

    @property
    def features(self) -> Features:
        """What its programs can do beside the product."""

    def map(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Gemm:
        """The record with `mapping` filled in, and what the mapping decides of the schedule; with its decisions.

        gemm: resolved but for the mapping. options: those of `options` that the user gave, checked. Raises InputError
        for options that do not fit, UnsupportedError for a plan or a schedule that no program of it carries.
        """

    def lower(self, gemm: Gemm, device: Device) -> Program:
        """The program that the record says, unchecked."""

    def split_k(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> SplitK | None:
        """The best number of slices of K by estimate; None where it cuts no K."""

    def facts(self, gemm: Gemm) -> dict[str, Any]:
        """The mapping as `options` of a result show it: JSON data by name."""

    def tiles(self, gemm: Gemm, device: Device) -> Iterable[Tile]:
        """Tiles that a search begins with."""
