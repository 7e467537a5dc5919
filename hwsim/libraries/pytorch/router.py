"""`library="pytorch"`: the library that PyTorch calls for a product on a device, as its switches tell it.

It knows which library a chip has and what PyTorch tells it by default; no kernel and no order of summation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from hwsim.devices import load
from hwsim.errors import UnsupportedError
from hwsim.gemm.record import LibraryId
from hwsim.gemm.schedule import Schedule
from hwsim.libraries.cublas.provider import CUBLAS
from hwsim.libraries.cublas.pytorch import FRAMEWORK
from hwsim.libraries.cusparselt.sparse_kernels import FAMILIES as SPARSE_FAMILIES
from hwsim.libraries.cusparselt.sparse_kernels import CusparseltRules
from hwsim.libraries.gemm_call import PYTORCH, GemmCall, OperationCall
from hwsim.libraries.kernel_choice import KernelTimes, LibraryChoice, SummationOrder
from hwsim.libraries.protocol import ChipRules, ChoicesByM, LibraryProvider, LibraryRequest, LibraryRules, gemm_of
from hwsim.libraries.published.kernels import CUTLASS
from hwsim.libraries.pytorch.routes import GEMM, pytorch, route_of

ROWS, VECTORS = ("row", "row"), ("vector", "vector")
LIBRARIES: dict[str, LibraryProvider] = {CUBLAS.name: CUBLAS}  # by the names in the routes


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownKernel(LibraryChoice):
    """Of a library that hwsim does not have: the unit's own order stands for its kernel's. chip: its name."""

    chip: str = ""

    @property
    def why(self) -> str:
        """What is not known."""
        return f"which kernel PyTorch's library runs on {self.chip} is not known; the unit's own order stands for it"


@dataclass(frozen=True, slots=True)
class PytorchRules(ChipRules):
    """What one version of PyTorch runs on one chip. library: what it calls there; None: hwsim has no
    rules of it. of_rows: the library of FP8 products with scales of rows, where it is another one (CUTLASS). sparse:
    the library for a sparse A. promotes: FP8 sums are promoted unless fast accumulation is asked for.
    """

    takes_sparse: ClassVar[bool] = True

    version: str
    library: LibraryRules | None
    of_rows: LibraryRules | None = None
    sparse: LibraryRules | None = None
    promotes: bool = False

    @property
    def id(self) -> LibraryId:
        """PyTorch and its version."""
        return LibraryId(PYTORCH, self.version)

    def choose(self, call: OperationCall) -> LibraryChoice:
        """What the library runs, called as PyTorch calls it with its switches at their defaults, unless the call says
        otherwise; errors as of that library.
        """
        gemm = self._as_called(gemm_of(call, self.id))
        if gemm.sparsity is not None:
            if self.sparse is None:
                raise UnsupportedError(
                    f"{PYTORCH}: its kernels for sparsity {gemm.sparsity} on {self.chip} are not known"
                )
            return self.sparse.choose(gemm)
        if gemm.scales == ROWS and self.of_rows is not None:
            return self.of_rows.choose(gemm)
        if self.library is not None and gemm.scales != VECTORS:
            choice = self.library.choose(gemm)
            return replace(choice, accumulate=gemm.accumulate) if choice.accumulate is None else choice
        name = "kernel of a library that is not known"
        return UnknownKernel(
            family=name, kernel=name, operand=gemm.format, confidence=0.0, accumulate=gemm.accumulate, chip=self.chip
        )

    def order(self, call: OperationCall, choice: LibraryChoice) -> SummationOrder:
        """The order of summation of that kernel; the unit's own where it is not known."""
        gemm = gemm_of(call, self.id)
        if gemm.sparsity is not None:
            return choice.order
        if isinstance(choice, UnknownKernel) or self.library is None:
            return SummationOrder(Schedule(), known=False)
        if gemm.scales == ROWS and self.of_rows is not None:
            return choice.order
        return self.library.order(self._as_called(gemm), choice)

    def times(self, call: OperationCall, choice: LibraryChoice) -> KernelTimes | None:
        """What that kernel takes; None: what its program takes."""
        if self.library is None or isinstance(choice, UnknownKernel):
            return None
        gemm = gemm_of(call, self.id)
        if gemm.sparsity is not None or (gemm.scales == ROWS and self.of_rows is not None):
            return None
        return self.library.times(self._as_called(gemm), choice)

    def choose_each(
        self, call: GemmCall, sizes_m: Sequence[int], progress: Callable[[float], None] | None = None
    ) -> ChoicesByM:
        """The choices for a call with each m."""
        if self.library is None:
            return LibraryRules.choose_each(self, call, sizes_m, progress)
        return self.library.choose_each(self._as_called(call), sizes_m, progress)

    def layouts(self, format: str, layouts: tuple[str, str]) -> tuple[str, str]:
        """The storage orders in which A and B of a format can be given."""
        return layouts if self.library is None else self.library.layouts(format, layouts)

    def _as_called(self, gemm: GemmCall) -> GemmCall:
        """The call with what PyTorch's switches say by default, where it says nothing itself."""
        framework = pytorch(self.version)
        reductions = gemm.reductions
        if reductions is None and gemm.format in framework.reductions.narrow:
            reductions = framework.reductions.default
        promoted = framework.promoting.operands if self.promotes else ()
        is_slow = gemm.format in promoted and gemm.format_b in (None, *promoted)
        accumulate = "promoted" if gemm.accumulate is None and is_slow else gemm.accumulate
        return replace(gemm, caller=PYTORCH, reductions=reductions, accumulate=accumulate)


class Pytorch(LibraryProvider):
    """PyTorch, one of hwsim.libraries.providers."""

    name = PYTORCH

    def on(self, request: LibraryRequest) -> PytorchRules:
        """What a version of PyTorch runs on a device. Raises UnsupportedError for an unknown version."""
        version = FRAMEWORK[1] if request.version is None else request.version
        if version != FRAMEWORK[1]:
            raise UnsupportedError(f"{self.name}: no version {version!r}; there is {FRAMEWORK[1]!r}")
        chip = load(request.device)
        route = route_of(GEMM, "", chip.name, chip.family, version)
        library: LibraryRules | None = None
        if route.library in LIBRARIES:
            try:
                library = LIBRARIES[route.library].on(replace(request, device=chip, version=None))
            except UnsupportedError:  # a chip that its version does not know
                library = None
        framework = pytorch(version)
        is_cutlass = chip.family in CUTLASS.families and chip.family not in framework.cublas_row_scales
        of_rows = CUTLASS.on(replace(request, device=chip, version=None)) if is_cutlass else None
        sparse = CusparseltRules(chip.name, chip.cores) if chip.family in SPARSE_FAMILIES else None
        promotes = chip.family in framework.promoting.families
        return PytorchRules(chip.name, chip.cores, version, library, of_rows=of_rows, sparse=sparse, promotes=promotes)

    def from_file(self, path: Path, request: LibraryRequest) -> LibraryRules:
        """Raises UnsupportedError: answers in files are a library's."""
        raise UnsupportedError(f"{path}: {self.name} reads no file of answers; a library's file is given as library=")


ROUTER = Pytorch()
