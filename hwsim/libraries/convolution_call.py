"""A convolution, or one of its gradients, as a library is called for it: sizes, format and storage order.

It knows no library, no device and no array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from hwsim.gemm.convolution import ConvShape
from hwsim.libraries.gemm_call import OperationCall


@dataclass(frozen=True, slots=True)
class ConvolutionSizes:
    """The sizes of a convolution of any dimensions. plane: in one or two; None: there are three, or no elements. image:
    (N, C, ...).
    """

    plane: ConvShape | None
    image: tuple[int, ...]
    groups: int

    @classmethod
    def of(cls, shape: ConvShape) -> ConvolutionSizes:
        """Of a convolution in two dimensions."""
        return cls(shape, (shape.batch, shape.channels, shape.height, shape.width), shape.groups)


Direction = Literal["forward", "backward_input", "backward_weight"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionCall(OperationCall):
    """A 2-D convolution of x (batch, channels, height, width) with w (filters, channels / groups, r, s), or a gradient.

    direction: "forward", or of which operand the gradient is. format: of the operands by hwsim's name; "tf32": fp32
    arrays whose products may be TF32. output: the result's; None: the operands'. is_nchw: images are stored channel by
    channel, else pixel by pixel.
    """

    operation: ClassVar[str] = "convolution"

    shape: ConvShape
    format: str
    output: str | None = None
    direction: Direction = "forward"
    is_nchw: bool = False

    @property
    def gemm(self) -> tuple[int, int, int]:
        """(m, n, k) of one group's product in this direction, of all elements of the filter, gaps of a stride too."""
        shape = self.shape
        m, n, k = shape.gemm
        if self.direction == "backward_weight":
            return n, k, m
        if self.direction == "backward_input":
            return shape.batch * shape.height * shape.width, shape.channels // shape.groups, n * shape.r * shape.s
        return m, n, k

    @property
    def k_channels(self) -> int:
        """The channels that K runs over, element by element of the filter; of a weight's gradient all of K."""
        if self.direction == "backward_weight":
            return self.gemm[2]
        return self.gemm[2] // (self.shape.r * self.shape.s)

    @property
    def taps(self) -> int:
        """How many elements of the filter K runs over, at most: those that meet one pixel; of a weight's gradient 1."""
        shape = self.shape
        if self.direction == "backward_weight":
            return 1
        steps = shape.stride if self.direction == "backward_input" and shape.dilation == (1, 1) else (1, 1)
        return -(-shape.r // steps[0]) * -(-shape.s // steps[1])

    @property
    def is_pointwise(self) -> bool:
        """Whether it is a product of matrices as they are stored, pixel by pixel."""
        shape = self.shape
        window = (shape.r, shape.s, *shape.stride, *shape.padding, shape.groups)
        return window == (1, 1, 1, 1, 0, 0, 1) and not self.is_nchw
