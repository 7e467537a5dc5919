"""The kernel of a convolution by the library's name, as PyTorch calls it, and where it takes the bias.

A depthwise convolution may be by PyTorch's own kernel; others are cuDNN's. The module knows sizes and formats; no array
and no kernel's order.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from hwsim.devices import load
from hwsim.errors import UnsupportedError
from hwsim.libraries.convolution_call import ConvolutionCall, ConvolutionSizes, Direction
from hwsim.libraries.cudnn.provider import convolution_library as of_cudnn
from hwsim.libraries.gemm_call import PYTORCH
from hwsim.libraries.model.convolution_model import KOrder
from hwsim.libraries.on_device import LibraryOnDevice
from hwsim.libraries.protocol import AnyDevice
from hwsim.libraries.pytorch.depthwise import OwnDepthwise, own_depthwise
from hwsim.libraries.pytorch.routes import pytorch

BiasPlace = Literal["first", "last", "apart"]


class ConvolutionKernel(NamedTuple):
    """The library for the GEMM of one convolution, and how its K runs. library: None: the unit's own order.

    is_known: whether the kernel's order of summation is known; else the unit's own stands for it. backwards: of a
    gradient of images, K runs over the filter's elements from the last to the first. bias: "first": each sum starts
    from it; "last": the GEMM's epilogue adds it, in the format that the library's record says; "apart": PyTorch adds
    it to the rounded result, and the GEMM has none. depthwise: the rules of PyTorch's own kernel.
    """

    library: LibraryOnDevice | None = None
    k_order: KOrder = "crs"
    is_known: bool = False
    backwards: bool = True
    bias: BiasPlace = "last"
    depthwise: OwnDepthwise | None = None


def convolution_kernel(
    name: object,
    device: AnyDevice,
    sizes: ConvolutionSizes,
    *,
    format: str,
    stored: str,
    output: str | None = None,
    direction: Direction = "forward",
    is_nchw: bool = False,
    is_transposed: bool = False,
) -> ConvolutionKernel:
    """The kernel of one convolution. name: of the library that was asked for. format: of the operands, as of
    ConvolutionCall, like what follows. stored: format of the arrays, the bias's too. is_transposed: it stands for a
    transposed convolution or a gradient of one, which PyTorch's own kernels do not compute.

    Raises UnsupportedError for a library without convolutions, and where cuDNN's choice is not known.
    """
    if name == PYTORCH and not is_transposed:
        chip, operand = load(device), stored if format == "tf32" else format
        about = (chip.name, chip.family, chip.cores), sizes.image, sizes.groups, sizes.plane
        rules = own_depthwise(*about, operand, direction, is_nchw=is_nchw)
        if rules is not None:
            is_first = rules.begins_with_bias and operand == stored  # a bias of another format is no operand
            return ConvolutionKernel(
                LibraryOnDevice(rules), "crs", rules.is_known, False, "first" if is_first else "last", rules
            )
    if sizes.plane is None:
        raise UnsupportedError(f"library = {name!r}: its kernels in three dimensions are not known; leave library out")
    call = ConvolutionCall(shape=sizes.plane, format=format, output=output, direction=direction, is_nchw=is_nchw)
    return ConvolutionKernel(*of_cudnn(name, device, call))


def unknown_kernel(name: object, device: AnyDevice) -> ConvolutionKernel:
    """What stands for a kernel that is not known: the unit's own order, and the bias where PyTorch adds it."""
    is_apart = name == PYTORCH and load(device).family in pytorch().convolution_bias_apart
    return ConvolutionKernel(bias="apart" if is_apart else "last")


__all__ = ["ConvolutionKernel", "convolution_kernel", "unknown_kernel"]
