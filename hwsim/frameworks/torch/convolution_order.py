"""How the kernel of a convolution adds over K, where the settings name a library that has convolutions.

It knows settings, sizes and storage orders; no array's values and no kernel.
"""

from __future__ import annotations

import torch

from hwsim.errors import UnsupportedError
from hwsim.frameworks.torch.multiplication import active
from hwsim.frameworks.torch.place import Place
from hwsim.frameworks.torch.switches import NATIVE
from hwsim.frameworks.torch.tensors import format_name
from hwsim.libraries.convolution_call import ConvolutionSizes, Direction
from hwsim.libraries.model.convolution_model import KOrder
from hwsim.libraries.pytorch.convolutions import ConvolutionKernel, cudnn_kernel, own_kernel, unknown_kernel

CHANNELS_LAST: KOrder = "rsc"


def order_of(
    place: Place,
    sizes: ConvolutionSizes,
    image: torch.Tensor,
    other: torch.Tensor,
    direction: Direction,
    *,
    is_transposed: bool,
) -> ConvolutionKernel:
    """The kernel of a convolution under the settings of its place. image, other: its tensors, whose storage orders
    decide a kernel. is_transposed: it is a transposed convolution, or a gradient of one.
    """
    settings, _ = active(place.key)
    chosen = settings.of(place.layer, place.stage)
    arguments = chosen.arguments
    if arguments is None or arguments.get("library") is None:
        return ConvolutionKernel()
    name, device, operand = arguments["library"], arguments["device"], format_name(image.dtype)
    switched = {} if settings.switches is None else settings.switches.arguments(chosen, place, operand)
    format = str(switched.get("format") or arguments.get("format") or operand)
    is_nchw = not any(is_stored_last(tensor) for tensor in (image, other))
    kernel = None
    if not is_transposed:
        kernel = own_kernel(name, device, sizes, format=format, stored=operand, direction=direction, is_nchw=is_nchw)
    if arguments["scheme"].name != NATIVE or chosen.scale is not None or chosen.gradient_format is not None:
        return unknown_kernel(name, device) if kernel is None else ConvolutionKernel()
    if kernel is not None:
        return kernel
    try:
        return cudnn_kernel(name, device, sizes, format=format, output=operand, direction=direction, is_nchw=is_nchw)
    except UnsupportedError:  # the record then counts the convolution as left out
        return unknown_kernel(name, device)


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
