"""The library of a convolution by name, as PyTorch calls it: a depthwise one may be its own kernel's, others cuDNN's.

It knows calls; no array and no kernel's order.
"""

from __future__ import annotations

from typing import NamedTuple

from hwsim.devices import load
from hwsim.libraries.convolution_call import ConvolutionCall
from hwsim.libraries.cudnn.provider import convolution_library as of_cudnn
from hwsim.libraries.gemm_call import PYTORCH
from hwsim.libraries.model.convolution_model import KOrder
from hwsim.libraries.on_device import LibraryOnDevice
from hwsim.libraries.protocol import AnyDevice
from hwsim.libraries.pytorch.depthwise import OwnDepthwise, own_depthwise


class ConvolutionKernel(NamedTuple):
    """The library for the GEMM of one convolution, how its K runs, and whether its order of summation is known.
    backwards: of a gradient of images, over the filter's elements from the last to the first. begins_with_bias: each
    sum starts from the bias.
    """

    library: LibraryOnDevice
    k_order: KOrder
    is_known: bool
    backwards: bool
    begins_with_bias: bool = False


def own_kernel(rules: OwnDepthwise) -> ConvolutionKernel:
    """A depthwise convolution by PyTorch's own kernel, over the filter's elements from the first to the last."""
    return ConvolutionKernel(LibraryOnDevice(rules), "crs", rules.is_known, False, rules.begins_with_bias)


def convolution_library(name: object, device: AnyDevice, call: ConvolutionCall) -> ConvolutionKernel:
    """The library for the GEMM of one convolution. name: of the library that was asked for.

    Raises UnsupportedError for a library without convolutions, and where cuDNN's choice is not known.
    """
    if name == PYTORCH:
        chip, shape = load(device), call.shape
        rules = own_depthwise(
            (chip.name, chip.family, chip.cores),
            (shape.batch, shape.channels, shape.height, shape.width),
            shape.groups,
            shape,
            "fp32" if call.format == "tf32" else call.format,
            call.direction,
            is_nchw=call.is_nchw,
        )
        if rules is not None:
            return own_kernel(rules)
    return ConvolutionKernel(*of_cudnn(name, device, call))
