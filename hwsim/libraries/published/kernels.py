"""DeepGEMM's and CUTLASS's FP8 kernels with scales: in which order they multiply, as their source says.

The module knows kernels as data; it knows no device but the families that they are written for.

Sources: DeepGEMM 54e2261 (sm90_fp8_gemm_1d2d.cuh, sm90_fp8_gemm_1d1d.cuh); CUTLASS 7107b055 (fp8_accumulation.hpp,
sm90_mma_tma_gmma_ss_warpspecialized_fp8_blockwise_scaling.hpp, sm100_mma_warpspecialized_blockwise_scaling.hpp);
PyTorch 01386a0d (RowwiseScaledMM.cu). They write acc += s * p, which nvcc fuses unless it is told not to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hwsim.devices import load
from hwsim.errors import UnsupportedError
from hwsim.gemm.record import LibraryId
from hwsim.gemm.schedule import ScaleOrder, Schedule
from hwsim.libraries.gemm_call import OperationCall
from hwsim.libraries.kernel_choice import LibraryChoice, SummationOrder
from hwsim.libraries.protocol import ChipRules, LibraryProvider, LibraryRequest, LibraryRules, gemm_of

EVIDENCE = "datasheet"  # the vendor's own source
FORMATS = ("e4m3", "e5m2")


class PublishedKernel(NamedTuple):
    """A kernel: its name, the order of factors, and how 8-bit floats accumulate (None: as asked for)."""

    name: str
    order: ScaleOrder
    accumulate: str | None = "promoted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedLibrary(LibraryProvider):
    """A library as data. kernels: by the granularity of A's and of B's scales. families: that it is written for."""

    name: str
    version: str
    families: tuple[str, ...]
    kernels: Mapping[tuple[str, str], PublishedKernel]

    def on(self, request: LibraryRequest) -> PublishedRules:
        """Its kernels on a device. Raises UnsupportedError for another version, and a chip that they do not run on."""
        chip = load(request.device)
        if request.version not in (None, self.version):
            raise UnsupportedError(f"{self.name}: no version {request.version!r}; there is {self.version!r}")
        if chip.family not in self.families:
            raise UnsupportedError(
                f"{self.name} is for chips of {', '.join(self.families)}; {chip.name} is of {chip.family}; leave "
                "library out"
            )
        return PublishedRules(chip.name, chip.cores, self)

    def from_file(self, path: Path, request: LibraryRequest) -> LibraryRules:
        """Raises UnsupportedError: it has no files of answers."""
        raise UnsupportedError(f"{path}: library {self.name} reads no file of answers")


@dataclass(frozen=True, slots=True)
class PublishedRules(ChipRules):
    """The kernels of a library on one chip."""

    library: PublishedLibrary

    @property
    def id(self) -> LibraryId:
        """Name and version."""
        return LibraryId(self.library.name, self.library.version)

    def choose(self, call: OperationCall) -> LibraryChoice:
        """The kernel for the call's scales. Raises UnsupportedError where the library has none."""
        gemm = gemm_of(call, self.id)
        kernel = None if gemm.scales is None else self.library.kernels.get(gemm.scales)
        if kernel is None or gemm.format not in FORMATS:
            has = ", ".join(f"{a} and {b}" for a, b in self.library.kernels)
            got = "no scales" if gemm.scales is None else " and ".join(gemm.scales)
            raise UnsupportedError(
                f"library {self.library.name}: operands of {gemm.format} with scales of {got}; hwsim knows its kernels "
                f"for {' and '.join(FORMATS)} with scales of A and B of {has}"
            )
        return LibraryChoice(
            family=self.library.name,
            kernel=kernel.name,
            operand=gemm.format,
            accumulate=kernel.accumulate,
            order=SummationOrder(Schedule(scale_order=kernel.order), seen=True),
            evidence=EVIDENCE,
        )

    def order(self, call: OperationCall, choice: LibraryChoice) -> SummationOrder:
        """The order of summation of that kernel."""
        return choice.order

    def layouts(self, format: str, layouts: tuple[str, str]) -> tuple[str, str]:
        """Operands are K-major."""
        return "rows", "columns"


DEEPGEMM = PublishedLibrary(
    name="deepgemm",
    version="54e2261",
    families=("sm90",),  # on Blackwell its scales are ue8m0, in the instruction
    kernels={
        ("1x128", "128x128"): PublishedKernel("sm90_fp8_gemm_1d2d", "joined"),
        ("1x128", "1x128"): PublishedKernel("sm90_fp8_gemm_1d1d", "joined"),
    },
)
CUTLASS = PublishedLibrary(
    name="cutlass",
    version="7107b055",
    families=("sm80", "sm90", "sm100"),
    kernels={
        ("1x128", "128x128"): PublishedKernel("blockwise, scales of rows of A", "joined"),
        ("128x128", "1x128"): PublishedKernel("blockwise, scales of columns of B", "joined"),
        ("128x128", "128x128"): PublishedKernel("blockwise", "joined"),
        ("1x128", "1x128"): PublishedKernel("blockwise, scales of rows and columns", "a"),
        ("row", "row"): PublishedKernel("row-wise epilogue", "a", None),
    },
)
