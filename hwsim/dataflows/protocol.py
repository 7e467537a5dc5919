"""The interface of a dataflow: how an architecture family maps the record of a GEMM and writes its program.

A dataflow completes the record (`map`) and writes the program that follows from it (`lower`). Families can be in other
packages: an entry point of the group "hwsim.dataflows", named like the `family` of device files, gives an object of
this protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.mapping import Tile
    from hwsim.gemm.option_types import Option
    from hwsim.gemm.record import Gemm
    from hwsim.program.ir import Program


ADVISE_BELOW = 0.8  # where no library's file says another one (configs/libraries): estimates above it are too close


@dataclass(frozen=True, slots=True)
class Features:
    """What the programs of a dataflow support besides the product.

    epilogue: alpha, beta, C, bias and another output format. stacks: a batch of matrices in one program. k_group: where
    the plan leaves it open, the dataflow chooses how much of K the unit accumulates from zero, so that the bits depend
    on the mapping. choosers: names of the formulas (hwsim.studies.analytic_tiles) that choose a tile for it.
    wave_threads: threads per warp or wavefront; 0 where cores have no threads. images: A gathered from an image, as
    convolutions have it.
    """

    epilogue: bool = False
    stacks: bool = False
    k_group: bool = False
    choosers: tuple[str, ...] = ()
    wave_threads: int = 0
    images: bool = False

    def __or__(self, other: Features) -> Features:
        """What the parts of a kernel support together."""
        return Features(
            epilogue=self.epilogue or other.epilogue,
            stacks=self.stacks or other.stacks,
            k_group=self.k_group or other.k_group,
            choosers=self.choosers + other.choosers,
            wave_threads=self.wave_threads or other.wave_threads,
            images=self.images or other.images,
        )


@dataclass(frozen=True, slots=True)
class SplitK:
    """The number of split-K slices with the least estimated time, and that time relative to no split (0 to 1).

    advise_below: the library's threshold of that ratio, below which a run without split-K gets advice. counts: all
    numbers that were estimated, the least time first; empty where the dataflow keeps none.
    """

    slices: int
    share: float
    advise_below: float = ADVISE_BELOW
    counts: tuple[int, ...] = ()


@runtime_checkable
class Dataflow(Protocol):
    """The dataflow of one family. It knows plans, records and devices; neither schemes nor bits nor cycles."""

    @property
    def name(self) -> str:
        """The family's name, as in device files."""

    @property
    def options(self) -> tuple[Option, ...]:
        """The options of its mapping, as users set them."""

    @property
    def tile_order(self) -> tuple[str, str, str]:
        """The order of "m", "n", "k" in which its users write tiles."""

    @property
    def features(self) -> Features:
        """What its programs support besides the product."""

    def map(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Gemm:
        """The record with `mapping` filled in, and the parts of the schedule that the mapping decides; with its
        decisions.

        gemm: resolved except for the mapping. options: those of `options` that the user set, validated. Raises
        InputError for options that do not fit, UnsupportedError for a plan or a schedule that none of its programs
        supports.
        """

    def lower(self, gemm: Gemm, device: Device) -> Program:
        """The program for a mapped record, unchecked."""

    def split_k(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> SplitK | None:
        """The best number of split-K slices by estimate; None where the dataflow has no split-K."""

    def facts(self, gemm: Gemm) -> dict[str, Any]:
        """The mapping as a result's `options` show it: JSON data by name."""

    def tiles(self, gemm: Gemm, device: Device) -> Iterable[Tile]:
        """Initial tiles of a search."""


@runtime_checkable
class SearchedDataflow(Dataflow, Protocol):
    """A dataflow whose estimates are too rough to choose by: the best of them are timed."""

    def alternatives(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Iterable[Gemm]:
        """The record with mappings that may be faster than that of `map`, the least estimated time first.

        gemm: resolved except for the mapping, with the schedule that `map` chose. The caller leaves out mappings whose
        bits differ. None where `options` leave nothing open.
        """


@runtime_checkable
class StagedDataflow(Dataflow, Protocol):
    """A dataflow whose blocks of K wait in stages, of which more hide more of a load's latency."""

    def deeper(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Iterable[Gemm]:
        """The mapped record with more stages. None where `options` leave nothing open."""


@runtime_checkable
class RasteredDataflow(Dataflow, Protocol):
    """A dataflow that may take the tiles of C in several orders, of which no estimate knows."""

    def orders(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Iterable[Gemm]:
        """The mapped record with other orders of tiles. None where `options` leave nothing open."""


@runtime_checkable
class BoundedDataflow(Dataflow, Protocol):
    """A dataflow that knows how many cycles its programs need at least, before they are written."""

    def least_cycles(self, gemm: Gemm, device: Device) -> float:
        """A lower bound of the cycles of a mapped record's program; 0 where none is known."""


@runtime_checkable
class CuttingDataflow(Dataflow, Protocol):
    """A dataflow that may cut K where a request leaves the order of summation open."""

    def open_slices(self, gemm: Gemm, device: Device) -> int:
        """The number of slices of K, 1 for K in one piece. No rate, no time and no option of the mapping changes it."""
