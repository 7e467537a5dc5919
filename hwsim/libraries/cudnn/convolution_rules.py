"""One version of cuDNN on one chip: the kernel for a convolution, and its order of summation.

It knows calls, trees and rules; no array.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from hwsim.errors import UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.record import LibraryId
from hwsim.gemm.schedule import Schedule
from hwsim.libraries.convolution_call import ConvolutionCall
from hwsim.libraries.cudnn.choices import chosen_kernel
from hwsim.libraries.cudnn.orders import schedule_of
from hwsim.libraries.gemm_call import OperationCall
from hwsim.libraries.kernel_choice import ASSUMED, LibraryChoice, SummationOrder
from hwsim.libraries.model.convolution_model import ConvolutionKernels, KernelSumsModel, KOrder
from hwsim.libraries.protocol import ChipRules, LibraryRules

INSTRUCTION_BYTES = 32  # of K in one matrix instruction
NARROW = ("bf16", "fp16")  # results to which a sum is rounded before PyTorch adds the bias
FITTED = "fitted"  # a level of hwsim.datafiles.provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionChoice(LibraryChoice):
    """A kernel of cuDNN. k_order: how the K of its GEMM runs."""

    k_order: KOrder = "rsc"


@dataclass(frozen=True, slots=True)
class CudnnRules(ChipRules):
    """What cuDNN runs for convolutions on a chip. is_asked: it was asked on such a chip."""

    kernels: ConvolutionKernels
    is_asked: bool

    @property
    def id(self) -> LibraryId:
        """cuDNN and its version."""
        return LibraryId(self.kernels.library, self.kernels.version)

    def choose(self, call: OperationCall) -> ConvolutionChoice:
        """What cuDNN runs. Raises UnsupportedError for what is no convolution, and for formats it was not asked for."""
        if not isinstance(call, ConvolutionCall):
            raise UnsupportedError(
                f"library cudnn {self.kernels.version} has no operation {call.operation!r}; it has convolution: give "
                "conv=, or call hwsim.conv2d or hwsim.torch"
            )
        kernel = chosen_kernel(call, self.kernels.choices.file)
        if kernel is None:
            formats = ", ".join(self.kernels.right)
            raise UnsupportedError(
                f"library cudnn {self.kernels.version}: convolutions of {call.format}; its choices are known for "
                f"{formats}"
            )
        row = self.row_of(kernel.name)
        tile = (kernel.tile_m, kernel.tile_n) if kernel.tile_m else None
        sizes = "x".join(map(str, (*tile, kernel.tile_k))) if tile is not None else ""
        return ConvolutionChoice(
            family=kernel.name,
            kernel=f"{kernel.name} {sizes}".rstrip(),
            tile=tile,
            operand=call.format,
            split_k=kernel.slices,
            tile_k=kernel.tile_k,
            k_order=row.k_order if call.direction == "forward" else "crs",
            confidence=self.kernels.right[call.format],
            evidence=FITTED if self.is_asked else ASSUMED,
        )

    def order(self, call: OperationCall, choice: LibraryChoice) -> SummationOrder:
        """The order of summation of that kernel; of gradients and of kernels without a rule the unit's own."""
        assert isinstance(call, ConvolutionCall)
        row = self.row_of(choice.family)
        step = INSTRUCTION_BYTES * 8 // format_of(row.operand or call.format).bits
        schedule = None
        if call.direction == "forward":
            schedule = schedule_of(row.rule, call.shape, step, choice.tile_k, choice.split_k)
        product = call.format if call.format in NARROW else None
        if schedule is None:
            return SummationOrder(Schedule(), known=False, product_format=product)
        ties_away = call.format == "tf32" and row.instruction is None and self._ties_away(choice.family)
        schedule = replace(
            schedule, instruction=row.instruction, operand_rounding="RNA" if ties_away else schedule.operand_rounding
        )
        return SummationOrder(schedule, product_format=product)

    def bound(self, call: ConvolutionCall) -> BoundConvolution:
        """The rules of the GEMM that stands for one convolution."""
        return BoundConvolution(self, call)

    def row_of(self, kernel: str) -> KernelSumsModel:
        """How kernels of a name add over K."""
        rows = self.kernels.kernels.values()
        return next(row for row in rows if any(fnmatchcase(kernel, name) for name in row.names))

    def _ties_away(self, kernel: str) -> bool:
        return any(fnmatchcase(kernel, name) for name in self.kernels.ties_away)


@dataclass(frozen=True, slots=True)
class BoundConvolution(LibraryRules):
    """The rules for the GEMM of one convolution: whatever GEMM is asked about, it is that of `convolution`."""

    rules: CudnnRules
    convolution: ConvolutionCall

    def __repr__(self) -> str:  # products are kept by it
        return f"{self.rules.id} on {self.rules.chip}: {self.convolution}"

    @property
    def id(self) -> LibraryId:
        """cuDNN and its version."""
        return self.rules.id

    @property
    def device(self) -> str:
        """The chip's name."""
        return self.rules.device

    @property
    def cores(self) -> int:
        """The chip's SMs."""
        return self.rules.cores

    def choose(self, call: OperationCall) -> ConvolutionChoice:
        """What cuDNN runs for the convolution."""
        return self.rules.choose(self.convolution)

    def order(self, call: OperationCall, choice: LibraryChoice) -> SummationOrder:
        """The order of summation of that kernel."""
        return self.rules.order(self.convolution, choice)
