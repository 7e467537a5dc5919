"""Whether an operator without products has the bits of PyTorch's kernel on the chip, the record of those that have, and
CUDA's functions.

The module knows settings and tensors; it knows no operator's order.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch._subclasses import FakeTensor

from hwsim.arithmetic.cuda_math import CudaMath
from hwsim.devices.special_functions import nvidia_tables
from hwsim.frameworks.settings import Device, Settings
from hwsim.frameworks.torch.caller import Caller
from hwsim.frameworks.torch.multiplication import active
from hwsim.libraries.gemm_call import PYTORCH
from hwsim.libraries.pytorch.routes import evidence_of_kernel, families_of_kernel

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def follows(caller: Caller, name: str, *tensors: Tensor) -> bool:
    """Whether the settings follow PyTorch's kernel `name` on the chip, and these are tensors of one dtype of its, with
    elements, and with values that the host has. Counts the call where they do.
    """
    settings, record = active(caller.key)
    device = chip_of(settings, caller.layer, name)
    if device is None:
        return False
    dtype = tensors[0].dtype
    if dtype not in DTYPES or not all(
        x.dtype == dtype and x.device.type == "cpu" and x.layout == torch.strided and not isinstance(x, FakeTensor)
        for x in tensors
    ):
        return False
    if not all(x.numel() for x in tensors):
        return False
    record.ran_own(name, evidence_of_kernel(name, device.name))
    return True


def chip_of(settings: Settings, layer: str, name: str) -> Device | None:
    """The chip whose bits PyTorch's kernel `name` has by a layer's settings; None: this CPU's. name: a function of
    elements, "softmax", "layer_norm", "sum", or "mean".
    """
    arguments = settings.of(layer, "forward").arguments
    if arguments is None or arguments.get("library") != PYTORCH:
        return None
    device: Device = arguments["device"]
    return device if device.family in families_of_kernel(name) else None


@cache
def cuda_math() -> CudaMath:
    """CUDA's functions by the tables of NVIDIA's special-function unit."""
    return CudaMath(nvidia_tables())


__all__ = ["chip_of", "cuda_math", "follows"]
