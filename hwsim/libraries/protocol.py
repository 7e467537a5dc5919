"""What a library is to hwsim: a choice, an order of summation and times for a typed call, on a device.

A library is a provider, registered by its name (hwsim.libraries.providers), which gives the rules of one version on one
device. The module knows calls and choices as records; no library and no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from hwsim.errors import UnsupportedError
from hwsim.gemm.record import LibraryId
from hwsim.libraries.gemm_call import GemmCall, OperationCall
from hwsim.libraries.kernel_choice import KernelTimes, LibraryChoice, SummationOrder

if TYPE_CHECKING:
    from hwsim.devices.device import Device

AnyDevice = Any  # a name, the path of a YAML file, a mapping, or a Device


class EstimatedTile(NamedTuple):
    """The tile of an estimate: m, n and k, elements, and stages of shared memory."""

    m: int
    n: int
    k: int
    stages: int


class Estimator(Protocol):
    """hwsim's own estimate of what is fastest on a chip. instruction: of the kernel; None: the chip's own."""

    def slices(self, call: GemmCall, instruction: str | None) -> int:
        """The number of slices of K with the least time. Raises UnsupportedError where nothing is estimated."""

    def tile(self, call: GemmCall, slices: int, instruction: str | None) -> EstimatedTile:
        """The tile with the least time for these slices."""


class ChoicesByM(NamedTuple):
    """Choices for several m: those that differ in their order, which of them holds for each m, and how sure it is."""

    choices: list[LibraryChoice]
    which: list[int]
    confidence: list[float]


class LibraryRules(Protocol):
    """One version of a library on one device: what it runs, how that adds, and how long it takes.

    A class that derives from it gets what stands below the first three. takes_sparse: whether it has kernels for an A
    with 2:4 sparsity.
    """

    takes_sparse: ClassVar[bool] = False

    @property
    def id(self) -> LibraryId:
        """Name and version, as the record names them."""

    @property
    def device(self) -> str:
        """The name of the chip for which the rules are."""

    @property
    def cores(self) -> int:
        """The chip's SMs or cores."""

    def choose(self, call: OperationCall) -> LibraryChoice:
        """What the library runs. Raises InputError for values that are not allowed, UnsupportedError for calls that the
        library refuses or does not have, and where its choice is not known.
        """

    def order(self, call: OperationCall, choice: LibraryChoice) -> SummationOrder:
        """The order of summation of the kernel that was chosen for the call."""

    def times(self, call: OperationCall, choice: LibraryChoice) -> KernelTimes | None:
        """What that kernel takes; None: what its program takes."""
        return None

    def choose_each(
        self, call: GemmCall, sizes_m: Sequence[int], progress: Callable[[float], None] | None = None
    ) -> ChoicesByM:
        """The choices for a call with each m; errors as of `choose`. progress: is told the share done."""
        choices = []
        for place, m in enumerate(sizes_m):
            choices.append(self.choose(replace(call, m=m)))
            if progress is not None:
                progress((place + 1) / len(sizes_m))
        return ChoicesByM(choices, list(range(len(choices))), [choice.confidence for choice in choices])

    def other_calls(self, call: GemmCall) -> list[GemmCall]:
        """For which other calls a user's file has answers for the weight of a call, where it has none for this one."""
        return []

    def layouts(self, format: str, layouts: tuple[str, str]) -> tuple[str, str]:
        """The storage orders in which A and B of a format can be given, where a caller is free to choose."""
        return layouts


@dataclass(frozen=True, slots=True)
class ChipRules(LibraryRules):
    """Rules that keep the chip that they are for: its name, and its SMs or cores."""

    chip: str
    chip_cores: int

    @property
    def device(self) -> str:
        """The chip's name."""
        return self.chip

    @property
    def cores(self) -> int:
        """The chip's SMs or cores."""
        return self.chip_cores


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryRequest:
    """What `hwsim.library` is asked for beside a name. estimator: gives hwsim's estimates on a chip."""

    device: AnyDevice
    version: str | None = None  # None: the provider's default
    workspace_bytes: int | None = None  # what the library may use; None: what the caller of a product tells it
    estimator: Callable[[Device], Estimator] | None = None


class LibraryProvider(Protocol):
    """A library by its name: what the entry point of a package gives, or hwsim's own. files: ends of the names of files
    with a user's own answers that it reads.
    """

    name: str
    files: tuple[str, ...] = ()

    def on(self, request: LibraryRequest) -> LibraryRules:
        """The rules of a version on a device. Raises UnsupportedError for a version or a device that nothing is known
        of.
        """

    def from_file(self, path: Path, request: LibraryRequest) -> LibraryRules:
        """The rules with the answers of a file. Raises ConfigError for a file that is none."""
        raise UnsupportedError(f"{path}: library {self.name} reads no file of answers")


def gemm_of(call: OperationCall, library: LibraryId) -> GemmCall:
    """The call as a GEMM. Raises UnsupportedError for another operation, which the library does not have."""
    if isinstance(call, GemmCall):
        return call
    raise UnsupportedError(f"library {library.name} {library.version} has no operation {call.operation!r}; it has gemm")


__all__ = [
    "ChoicesByM",
    "AnyDevice",
    "EstimatedTile",
    "Estimator",
    "GemmCall",
    "KernelTimes",
    "LibraryChoice",
    "LibraryProvider",
    "LibraryRequest",
    "LibraryRules",
    "OperationCall",
    "SummationOrder",
    "gemm_of",
]
