"""How the kernel of a convolution adds over K, where the settings name a library that has convolutions.

It knows settings, sizes and storage orders; no array's values and no kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hwsim.errors import UnsupportedError
from hwsim.frameworks.torch.multiplication import active
from hwsim.frameworks.torch.place import Place
from hwsim.frameworks.torch.switches import NATIVE
from hwsim.frameworks.torch.tensors import format_name
from hwsim.gemm.convolution import ConvShape
from hwsim.libraries.convolution_call import ConvolutionCall, Direction
from hwsim.libraries.cudnn.provider import convolution_library
from hwsim.libraries.gemm_call import PYTORCH
from hwsim.libraries.model.convolution_model import KOrder
from hwsim.libraries.on_device import LibraryOnDevice
from hwsim.libraries.pytorch.routes import pytorch

CHANNELS_LAST: KOrder = "rsc"


@dataclass(frozen=True, slots=True)
class ConvolutionOrder:
    """The library for the GEMM of a convolution, and how its K runs. library: None: the settings' own order.

    is_known: whether the order of the library's kernel is known; else the unit's own stands for it. backwards: of a
    gradient of images, K runs over the window's elements from the last to the first. adds_bias: PyTorch adds the bias
    to the rounded result itself, and the GEMM has none.
    """

    library: LibraryOnDevice | None = None
    k_order: KOrder = "crs"
    is_known: bool = False
    backwards: bool = True
    adds_bias: bool = False


def order_of(
    place: Place, shape: ConvShape | None, image: torch.Tensor, other: torch.Tensor, direction: Direction
) -> ConvolutionOrder:
    """The order for a convolution under the settings of its place. image, other: its tensors, whose storage orders
    decide a kernel. shape: None: of more than two dimensions or without elements, which no library is asked about.
    """
    settings, _ = active(place.key)
    chosen = settings.of(place.layer, place.stage)
    arguments = chosen.arguments
    if arguments is None or arguments.get("library") is None:
        return ConvolutionOrder()
    is_apart = arguments["library"] == PYTORCH and arguments["device"].family in pytorch().convolution_bias_apart
    is_nchw = not any(is_stored_last(tensor) for tensor in (image, other))
    if (
        arguments["library"] == PYTORCH
        and shape is not None
        and is_nchw
        and _is_own_depthwise(shape, format_name(image.dtype), arguments["device"].family)
    ):
        return ConvolutionOrder()
    of_unit = ConvolutionOrder(adds_bias=is_apart)
    if shape is None or arguments["scheme"].name != NATIVE:
        return of_unit
    if chosen.scale is not None or chosen.gradient_format is not None:
        return of_unit
    operand = format_name(image.dtype)
    switched = {} if settings.switches is None else settings.switches.arguments(chosen, place, operand)
    form = str(switched.get("format") or arguments.get("format") or operand)
    call = ConvolutionCall(shape=shape, format=form, output=operand, direction=direction, is_nchw=is_nchw)
    try:
        return ConvolutionOrder(*convolution_library(arguments["library"], arguments["device"], call))
    except UnsupportedError:  # the record then counts the convolution as left out
        return of_unit


def _is_own_depthwise(shape: ConvShape, operand: str, family: str) -> bool:
    """Whether PyTorch's own kernel computes a convolution that is not stored channels last."""
    rule = pytorch().depthwise
    if family not in rule.families or not shape.groups == shape.channels > 1:
        return False
    is_simple = len(set(shape.stride)) == 1 and set(shape.dilation) == {1}
    return operand not in rule.cudnn_operands or shape.channels < rule.cudnn_least_channels or not is_simple


def is_stored_last(tensor: torch.Tensor) -> bool:
    """Whether PyTorch takes a tensor of four dimensions as stored with its channels last, by its strides (c10's
    is_channels_last_strides_2d).
    """
    if tensor.dim() != 4 or tensor.stride(1) == 0:
        return False
    least = 0
    for axis in (1, 3, 2, 0):
        size, stride = tensor.shape[axis], tensor.stride(axis)
        if size == 0 or stride < least or (axis == 0 and least == tensor.stride(1)):
            return False
        least = stride * size if size > 1 else stride
    return True
