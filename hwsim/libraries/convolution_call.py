"""A convolution, or one of its gradients, as a library is called for it: sizes, format and storage order.

It knows no library, no device and no array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from hwsim.gemm.convolution import ConvShape
from hwsim.libraries.gemm_call import OperationCall

Direction = Literal["forward", "backward_input", "backward_weight"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionCall(OperationCall):
    """A 2-D convolution of x (batch, channels, height, width) with w (filters, channels / groups, r, s), or a gradient.

    direction: "forward", or of which operand the gradient is. format: of the operands by hwsim's name; "tf32": fp32
    arrays whose products may be TF32. is_nchw: images are stored channel by channel, else pixel by pixel.
    """

    operation: ClassVar[str] = "convolution"

    shape: ConvShape
    format: str
    direction: Direction = "forward"
    is_nchw: bool = False
