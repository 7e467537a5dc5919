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
from hwsim.libraries.gemm_call import PYTORCH
from hwsim.libraries.model.convolution_model import KOrder
from hwsim.libraries.on_device import LibraryOnDevice
from hwsim.libraries.pytorch.convolutions import convolution_library, own_kernel
from hwsim.libraries.pytorch.depthwise import own_depthwise
from hwsim.libraries.pytorch.routes import pytorch

CHANNELS_LAST: KOrder = "rsc"


@dataclass(frozen=True, slots=True)
class ConvolutionSizes:
    """The sizes of a convolution. plane: in one or two dimensions; None: there are three, or no elements. image:
    (N, C, ...).
    """

    plane: ConvShape | None
    image: tuple[int, ...]
    groups: int


@dataclass(frozen=True, slots=True)
class ConvolutionOrder:
    """The library for the GEMM of a convolution, and how its K runs. library: None: the settings' own order.

    is_known: whether the order of the library's kernel is known; else the unit's own stands for it. backwards: of a
    gradient of images, K runs over the window's elements from the last to the first. begins_with_bias: each sum starts
    from the bias. adds_bias: PyTorch adds the bias to the rounded result itself, and the GEMM has none.
    """

    library: LibraryOnDevice | None = None
    k_order: KOrder = "crs"
    is_known: bool = False
    backwards: bool = True
    begins_with_bias: bool = False
    adds_bias: bool = False


def order_of(
    place: Place, sizes: ConvolutionSizes, image: torch.Tensor, other: torch.Tensor, direction: Direction
) -> ConvolutionOrder:
    """The order for a convolution under the settings of its place. image, other: its tensors, whose storage orders
    decide a kernel.
    """
    settings, _ = active(place.key)
    chosen = settings.of(place.layer, place.stage)
    arguments = chosen.arguments
    if arguments is None or arguments.get("library") is None:
        return ConvolutionOrder()
    is_nchw = not any(is_stored_last(tensor) for tensor in (image, other))
    operand, device = format_name(image.dtype), arguments["device"]
    is_plain = arguments["scheme"].name == NATIVE and chosen.scale is None and chosen.gradient_format is None
    if arguments["library"] == PYTORCH:
        form = arguments.get("format")
        rules = own_depthwise(
            (device.name, device.family, device.cores),
            sizes.image,
            sizes.groups,
            sizes.plane,
            operand if form in (None, "tf32") else form,
            direction,
            is_nchw=is_nchw,
        )
        if rules is not None:
            kernel = own_kernel(rules)._replace(begins_with_bias=rules.begins_with_bias and rules.operand == operand)
            return ConvolutionOrder(*kernel) if is_plain else ConvolutionOrder()
    is_apart = arguments["library"] == PYTORCH and device.family in pytorch().convolution_bias_apart
    of_unit = ConvolutionOrder(adds_bias=is_apart)
    if sizes.plane is None or not is_plain:
        return of_unit
    switched = {} if settings.switches is None else settings.switches.arguments(chosen, place, operand)
    form = str(switched.get("format") or arguments.get("format") or operand)
    call = ConvolutionCall(shape=sizes.plane, format=form, output=operand, direction=direction, is_nchw=is_nchw)
    try:
        return ConvolutionOrder(*convolution_library(arguments["library"], device, call))
    except UnsupportedError:  # the record then counts the convolution as left out
        return of_unit


def is_stored_last(tensor: torch.Tensor) -> bool:
    """Whether PyTorch takes a tensor of four or five dimensions as stored with its channels last, by its strides (c10's
    is_channels_last_strides_2d and _3d).
    """
    if tensor.dim() not in (4, 5) or tensor.stride(1) == 0:
        return False
    least = 0
    for axis in (1, *reversed(range(2, tensor.dim())), 0):
        size, stride = tensor.shape[axis], tensor.stride(axis)
        if size == 0 or stride < least or (axis == 0 and least == tensor.stride(1)):
            return False
        least = stride * size if size > 1 else stride
    return True
