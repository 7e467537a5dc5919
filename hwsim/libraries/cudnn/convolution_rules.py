"""One version of cuDNN on one chip: the kernel for a convolution or a gradient, and its order of summation.

What is a product of matrices as they are stored, it asks the library of products for. It knows calls, trees and rules;
no array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from hwsim.errors import UnsupportedError
from hwsim.formats import Rounding, format_of
from hwsim.gemm.record import LibraryId
from hwsim.gemm.schedule import Schedule
from hwsim.libraries.convolution_call import ConvolutionCall
from hwsim.libraries.cudnn.choices import KernelChoice, KernelForest, forest_of, formats_of
from hwsim.libraries.cudnn.orders import order_key, schedule_of
from hwsim.libraries.gemm_call import GemmCall, OperationCall
from hwsim.libraries.kernel_choice import ASSUMED, LibraryChoice, SummationOrder
from hwsim.libraries.model.convolution_model import ConvolutionKernels, KernelSumsModel, KOrder
from hwsim.libraries.protocol import ChipRules, LibraryRules

INSTRUCTION_BYTES = 32  # of K in one matrix instruction
NARROW = ("bf16", "fp16")  # results to which a sum is rounded before PyTorch adds the bias
FITTED = "fitted"  # a level of hwsim.datafiles.provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionChoice(LibraryChoice):
    """A kernel of cuDNN. k_order, backwards: how the K of its GEMM runs. product: what the library of products runs,
    whose kernel it is; asked: that call.
    """

    k_order: KOrder = "rsc"
    backwards: bool = False
    product: LibraryChoice | None = None
    asked: GemmCall | None = None


@dataclass(frozen=True, slots=True)
class CudnnRules(ChipRules):
    """What cuDNN runs for convolutions on a chip. is_asked: it was asked on such a chip. products: the library of
    products; None: it is not known on this chip.
    """

    kernels: ConvolutionKernels
    is_asked: bool
    products: LibraryRules | None = None

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
        forest = forest_of(call, self.kernels.choices.file)
        if forest is None:
            raise UnsupportedError(
                f"library cudnn {self.kernels.version}: convolutions of {call.format}; its choices are known for "
                f"{', '.join(formats_of(call, self.kernels.choices.file))}"
            )
        if call.is_pointwise and call.format in self.kernels.pointwise.formats:
            with suppress(UnsupportedError):  # the trees have such calls too
                return self._product(call)
        _, share, kernel = self.elected(call, forest)
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
            k_order=row.k_order,
            backwards=row.backwards,
            confidence=forest.right_of(share),
            evidence=FITTED if self.is_asked else ASSUMED,
        )

    def elected(
        self, call: ConvolutionCall, forest: KernelForest
    ) -> tuple[tuple[object, ...] | None, float, KernelChoice]:
        """The order of summation with the most votes (None: it is not known), its share of them, and its kernel with
        the most: kernels that add alike share their votes. Raises UnsupportedError where no vote is for a kernel that
        was seen in the call's format.
        """
        kernels, shares = forest.votes(call), dict[tuple[object, ...] | None, float]()
        if not kernels:
            shape = call.shape
            raise UnsupportedError(
                f"library cudnn {self.kernels.version}: {call.direction} of {shape.batch} x {shape.channels} x "
                f"{shape.height} x {shape.width} by filters of {shape.r} x {shape.s} in {call.format}: such "
                "convolutions ran kernels that were never seen in this format; leave library out"
            )
        orders = {kernel: self.order_key(call, kernel) for kernel in kernels}
        for kernel, share in kernels.items():
            shares[orders[kernel]] = shares.get(orders[kernel], 0.0) + share
        best = max(shares, key=lambda order: shares[order])
        alike = [kernel for kernel in kernels if orders[kernel] == best]
        return best, shares[best], max(alike, key=lambda kernel: kernels[kernel])

    def order_key(self, call: ConvolutionCall, kernel: KernelChoice) -> tuple[object, ...] | None:
        """How a kernel adds for a call: equal keys give equal bits. None: it is not known."""
        row = self.row_of(kernel.name)
        key = order_key(row, call.k_channels, call.taps, self._step(row, call), kernel.tile_k, kernel.slices)
        return key and (row.instruction or row.operand or call.format, self._rounding(row, call, kernel.name), *key)

    def order(self, call: OperationCall, choice: LibraryChoice) -> SummationOrder:
        """The order of summation of that kernel, over all of K; of a kernel without a rule the unit's own."""
        assert isinstance(call, ConvolutionCall)
        return self.order_over(call, choice, call.taps)

    def order_over(self, call: ConvolutionCall, choice: LibraryChoice, taps: int) -> SummationOrder:
        """The same where so many elements of the filter meet."""
        output = call.output or call.format
        product = output if output in NARROW and call.direction == "forward" else None
        if isinstance(choice, ConvolutionChoice) and choice.product is not None and choice.asked is not None:
            assert self.products is not None
            order = self.products.order(choice.asked, choice.product)
            return replace(order, product_format=product or order.product_format)
        row = self.row_of(choice.family)
        schedule = schedule_of(row, call.k_channels, taps, self._step(row, call), choice.tile_k, choice.split_k)
        if schedule is None:
            return SummationOrder(Schedule(), known=False, product_format=product)
        rounding = self._rounding(row, call, choice.family) or schedule.operand_rounding
        return SummationOrder(
            replace(schedule, instruction=row.instruction, operand_rounding=rounding), product_format=product
        )

    def _step(self, row: KernelSumsModel, call: ConvolutionCall) -> int:
        """K of one matrix instruction."""
        return INSTRUCTION_BYTES * 8 // format_of(row.operand or call.format).bits

    def _rounding(self, row: KernelSumsModel, call: ConvolutionCall, kernel: str) -> Rounding | None:
        return self.rounding_of(kernel) if call.format == "tf32" and row.instruction is None else None

    def _product(self, call: ConvolutionCall) -> ConvolutionChoice:
        """What the library of products runs for the product of a convolution. Raises UnsupportedError where it is not
        known.
        """
        if self.products is None:
            raise UnsupportedError(f"{self.chip}: no library of products")
        (m, n, k), output = call.gemm, call.output or call.format
        layouts = {"forward": ("rows", "columns"), "backward_input": ("rows", "rows")}
        a_layout, b_layout = layouts.get(call.direction, ("columns", "rows"))
        asked = GemmCall(
            m=m, n=n, k=k, format=call.format, output=output if output in NARROW else "fp32",
            a_layout=a_layout, b_layout=b_layout, reductions="any",
            workspace_bytes=self.kernels.pointwise.workspace_bytes,
        )  # fmt: skip
        product = self.products.choose(asked)
        return ConvolutionChoice(
            family=product.family,
            kernel=product.kernel,
            tile=product.tile,
            operand=product.operand,
            split_k=product.split_k,
            tile_k=product.tile_k,
            stages=product.stages,
            cluster=product.cluster,
            confidence=product.confidence,
            evidence=product.evidence if self.is_asked else ASSUMED,
            is_estimated=product.is_estimated,
            product=product,
            asked=asked,
        )

    def bound(self, call: ConvolutionCall) -> BoundConvolution:
        """The rules of the GEMM that stands for one convolution."""
        return BoundConvolution(self, call)

    def row_of(self, kernel: str) -> KernelSumsModel:
        """How kernels of a name add over K."""
        rows = self.kernels.kernels.values()
        return next(row for row in rows if any(fnmatchcase(kernel, name) for name in row.names))

    def rounding_of(self, kernel: str) -> Rounding | None:
        """How a kernel rounds fp32 operands to TF32; None: to nearest even."""
        names: Mapping[Rounding, Sequence[str]] = {"RNA": self.kernels.ties_away, "RZ": self.kernels.truncating}
        return next((how for how, those in names.items() if any(fnmatchcase(kernel, name) for name in those)), None)


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
        """The order of summation of that kernel, over the elements of the filter that this product has."""
        whole = self.convolution
        taps = call.k // whole.k_channels if isinstance(call, GemmCall) else whole.taps
        return self.rules.order_over(whole, choice, taps)
