"""Whether an operator without products has the bits of PyTorch's kernel on the chip, the record of those that have, and
CUDA's functions.

The module knows settings and tensors; it knows no operator's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor
from torch._subclasses import FakeTensor

from hwsim.arithmetic.cuda_math import CudaMath
from hwsim.devices.special_functions import nvidia_tables
from hwsim.frameworks.torch.caller import Caller
from hwsim.frameworks.torch.multiplication import active
from hwsim.libraries.gemm_call import PYTORCH
from hwsim.libraries.pytorch.routes import evidence_of_kernel, families_of_function, pytorch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def follows(caller: Caller, name: str, families: Sequence[str], *tensors: Tensor) -> bool:
    """Whether the settings follow PyTorch's kernel `name` on the chip, and these are tensors of one dtype of its, with
    elements, and with values that the host has. Counts the call where they do.
    """
    settings, record = active(caller.key)
    arguments = settings.of(caller.layer, "forward").arguments
    if arguments is None or arguments.get("library") != PYTORCH or arguments["device"].family not in families:
        return False
    dtype = tensors[0].dtype
    if dtype not in DTYPES or not all(
        x.dtype == dtype and x.device.type == "cpu" and x.layout == torch.strided and not isinstance(x, FakeTensor)
        for x in tensors
    ):
        return False
    if not all(x.numel() for x in tensors):
        return False
    record.ran_own(name, evidence_of_kernel(name, arguments["device"].name))
    return True


def families_of(name: str) -> Sequence[str]:
    """The families of chips with the bits of PyTorch's kernel `name`: a function of elements, "softmax", "layer_norm",
    "sum", "mean", or "pow".
    """
    file = pytorch()
    sums = file.row_sums.families
    rules = {"softmax": file.softmax.families, "layer_norm": file.layer_norm.families, "sum": sums, "mean": sums}
    return rules[name] if name in rules else families_of_function("pow_3" if name == "pow" else name)


@cache
def cuda_math() -> CudaMath:
    """CUDA's functions by the tables of NVIDIA's special-function unit."""
    return CudaMath(nvidia_tables())


__all__ = ["cuda_math", "families_of", "follows"]
