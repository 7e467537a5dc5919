"""PyTorch's own kernels of depthwise convolutions on NVIDIA's chips: which convolutions they compute, and how they add.

It knows sizes, formats and the data of configs/frameworks; no array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwsim.gemm.convolution import ConvShape
from hwsim.gemm.record import LibraryId
from hwsim.gemm.schedule import Schedule
from hwsim.libraries.convolution_call import Direction
from hwsim.libraries.cublas.pytorch import FRAMEWORK
from hwsim.libraries.gemm_call import OperationCall
from hwsim.libraries.kernel_choice import LibraryChoice, SummationOrder
from hwsim.libraries.model.framework_model import DepthwiseModel, WorkloadModel
from hwsim.libraries.protocol import ChipRules
from hwsim.libraries.pytorch.routes import pytorch

VOLUME = 3  # dimensions of images
NOT_KNOWN = "backward_weight"  # the direction whose sums of a block are not followed


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnDepthwise(ChipRules):
    """The rules for the GEMM of one depthwise convolution by PyTorch's own kernel. instruction: of its products; None:
    not known. begins_with_bias: a forward sum starts from the bias; else the bias is added last. skips_padding: a sum
    leaves padding out; else it multiplies zeros.
    """

    kernel: str
    operand: str
    direction: Direction
    instruction: str | None
    begins_with_bias: bool
    skips_padding: bool

    @property
    def id(self) -> LibraryId:
        """PyTorch and its version."""
        return LibraryId(*FRAMEWORK)

    @property
    def is_known(self) -> bool:
        """Whether the kernel's order of summation is known: the filter's elements in turn."""
        return self.instruction is not None and self.direction != NOT_KNOWN

    def choose(self, call: OperationCall) -> LibraryChoice:
        """The kernel."""
        return LibraryChoice(family=self.kernel, kernel=self.kernel, operand=self.operand, order=self.order(call, None))

    def order(self, call: OperationCall, choice: LibraryChoice | None) -> SummationOrder:
        """One chain over the filter's rows and columns, by fused multiply-adds."""
        about = "the source of PyTorch's kernel"
        return SummationOrder(Schedule(instruction=self.instruction), known=self.is_known, seen=False, assumed=about)


def own_depthwise(
    chip: tuple[str, str, int],
    image: Sequence[int],
    groups: int,
    shape: ConvShape | None,
    operand: str,
    direction: Direction,
    *,
    is_nchw: bool,
) -> OwnDepthwise | None:
    """The rules of a depthwise convolution by PyTorch's own kernel; None where cuDNN computes it, or it is none.

    chip: name, family and number of SMs. image: (N, C, ...). shape: in two dimensions; None: there are three. operand:
    format of the tensors.
    """
    name, family, cores = chip
    rule = pytorch().depthwise
    if family not in rule.families or not groups == image[1] > 1:
        return None
    if not (is_nchw or operand in rule.any_storage) or (shape is not None and _is_cudnns(rule, shape, operand)):
        return None
    kernels = rule.volume if len(image) == VOLUME + 2 else rule.plane
    instruction = rule.instructions.get(operand)
    return OwnDepthwise(
        chip=name,
        chip_cores=cores,
        kernel=getattr(kernels, direction),
        operand=operand,
        direction=direction,
        instruction=instruction,
        begins_with_bias=kernels.bias == "first" and direction == "forward",
        skips_padding=direction in kernels.skips_padding,
    )


def _is_cudnns(rule: DepthwiseModel, shape: ConvShape, operand: str) -> bool:
    """Whether PyTorch takes cuDNN for a depthwise convolution whose images are stored channel by channel."""
    if operand not in rule.cudnn_operands or shape.channels < rule.cudnn_least_channels:
        return False
    if set(shape.dilation) != {1} or (shape.stride[0] != shape.stride[1] and shape.height != 1):
        return False
    return any(_fits(workload, shape) for workload in rule.workloads.values())


def _fits(workload: WorkloadModel, shape: ConvShape) -> bool:
    has_filter = not workload.filters or (shape.r == shape.s and shape.s in workload.filters)
    bounds = (
        (workload.least_batch, shape.batch, workload.most_batch),
        (workload.least_channels, shape.channels, None),
        (1, shape.height, workload.most_height),
        (workload.least_width, shape.width, workload.most_width),
    )
    is_within = all(low <= size and (high is None or size <= high) for low, size, high in bounds)
    return has_filter and shape.stride[1] == workload.stride and is_within


__all__ = ["VOLUME", "OwnDepthwise", "own_depthwise"]
