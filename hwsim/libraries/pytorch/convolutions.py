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
from hwsim.libraries.pytorch.depthwise import VOLUME, OwnDepthwise, own_depthwise
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

    @property
    def begins_with_bias(self) -> bool:
        """Whether each sum starts from the bias."""
        return self.bias == "first"


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
) -> ConvolutionKernel:
    """The kernel of one convolution that is not transposed. Arguments: as of `own_kernel` and `cudnn_kernel`.

    Raises UnsupportedError as `cudnn_kernel` does, where it is no depthwise one of PyTorch's own.
    """
    kernel = own_kernel(name, device, sizes, format=format, stored=stored, direction=direction, is_nchw=is_nchw)
    if kernel is not None:
        return kernel
    return cudnn_kernel(name, device, sizes, format=format, output=output, direction=direction, is_nchw=is_nchw)


def own_kernel(
    name: object,
    device: AnyDevice,
    sizes: ConvolutionSizes,
    *,
    format: str,
    stored: str,
    direction: Direction,
    is_nchw: bool,
) -> ConvolutionKernel | None:
    """PyTorch's own kernel of one depthwise convolution; None where it has none, or the library is not PyTorch.

    It computes no transposed convolution, and no gradient of one (ConvParams::is_depthwise of ATen). name: of the
    library that was asked for. format: of the operands, as of ConvolutionCall, like what follows. stored: format of the
    arrays, the bias's too.
    """
    if name != PYTORCH:
        return None
    chip, operand = load(device), stored if format == "tf32" else format
    about = (chip.name, chip.family, chip.cores), sizes.image, sizes.groups, sizes.plane
    rules = own_depthwise(*about, operand, direction, is_nchw=is_nchw)
    if rules is None:
        return None
    begins_with_bias = rules.begins_with_bias and operand == stored  # a bias of another format is no operand
    bias: BiasPlace = "first" if begins_with_bias else "last"
    return ConvolutionKernel(LibraryOnDevice(rules), "crs", rules.is_known, False, bias, rules)


def cudnn_kernel(
    name: object,
    device: AnyDevice,
    sizes: ConvolutionSizes,
    *,
    format: str,
    output: str | None,
    direction: Direction,
    is_nchw: bool,
) -> ConvolutionKernel:
    """cuDNN's kernel of one convolution. name: of the library that was asked for. Others: as of ConvolutionCall.

    Raises UnsupportedError for a library without convolutions, and where cuDNN's choice is not known, as in three
    dimensions.
    """
    if sizes.plane is None:
        what = "in three dimensions" if len(sizes.image) == VOLUME + 2 else "for a convolution without elements"
        raise UnsupportedError(f"library = {name!r}: its kernels {what} are not known; leave library out")
    call = ConvolutionCall(shape=sizes.plane, format=format, output=output, direction=direction, is_nchw=is_nchw)
    return ConvolutionKernel(*of_cudnn(name, device, call))


def unknown_kernel(name: object, device: AnyDevice) -> ConvolutionKernel:
    """What stands for a kernel that is not known: the unit's own order, and the bias where PyTorch adds it."""
    is_apart = name == PYTORCH and load(device).family in pytorch().convolution_bias_apart
    return ConvolutionKernel(bias="apart" if is_apart else "last")


__all__ = ["ConvolutionKernel", "convolution_kernel", "cudnn_kernel", "own_kernel", "unknown_kernel"]
