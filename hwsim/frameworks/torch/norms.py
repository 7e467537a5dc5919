"""PyTorch's layer norm, softmax and reciprocal root with the bits of its CUDA kernels; gradients stay PyTorch's own.

The module knows PyTorch's operators and which of their calls a kernel takes whose order is known; it knows no order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses import FakeTensor

from hwsim.arithmetic.cuda_math import CudaMath
from hwsim.arithmetic.layer_norm import NormKernel, layer_norm
from hwsim.devices.special_functions import nvidia_tables
from hwsim.frameworks.torch.caller import Caller
from hwsim.frameworks.torch.multiplication import active
from hwsim.frameworks.torch.softmax import SoftmaxKernels, softmax
from hwsim.frameworks.torch.tensors import array_of
from hwsim.libraries.gemm_call import PYTORCH
from hwsim.libraries.pytorch.routes import pytorch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_ATEN = torch.ops.aten


def native_layer_norm(
    caller: Caller,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Any:
    """aten::native_layer_norm: the result, mean and reciprocal deviation, of which the result alone is the kernel's;
    None where PyTorch runs another kernel.
    """
    rule = pytorch().layer_norm
    tensors = [x for x in (input, weight, bias) if x is not None]
    if not _is_of_kernels(caller, rule.families, *tensors) or not input.numel():
        return None
    width = int(np.prod(normalized_shape))
    is_aligned = all(x.storage_offset() % rule.vector == 0 for x in tensors if x.is_contiguous())
    if width % rule.vector or width > rule.most or not is_aligned:
        return None
    active(caller.key)[1].own_kernels["layer_norm"] += 1
    near = _ATEN.native_layer_norm.default(input, normalized_shape, weight, bias, eps)
    rows, *factors = (None if x is None else array_of(x.float().contiguous()) for x in (input, weight, bias))
    assert rows is not None
    flat = [None if x is None else x.reshape(-1) for x in factors]
    kernel = NormKernel(rule.threads, rule.lanes, rule.vector)
    out = layer_norm(rows.reshape(-1, width), flat[0], flat[1], eps, kernel, _math())
    return torch.from_numpy(out).reshape(input.shape).to(input.dtype), *near[1:]


def row_softmax(caller: Caller, input: Tensor, dim: int, half_to_float: bool) -> Tensor | None:
    """aten::_softmax along the last dimension; None where PyTorch runs a kernel whose order is not known."""
    rule = pytorch().softmax
    if not _is_of_kernels(caller, rule.families, input) or not input.numel() or not input.dim() or half_to_float:
        return None
    is_long = input.dtype != torch.float32 and input.shape[-1] > rule.most
    if dim not in (-1, input.dim() - 1) or is_long:
        return None
    active(caller.key)[1].own_kernels["softmax"] += 1
    sizes = rule.lanes, rule.most, rule.threads, rule.registers, rule.vector, rule.shared_bytes
    return softmax(input.float().contiguous(), SoftmaxKernels(*sizes)).to(input.dtype)


def rsqrt(caller: Caller, input: Tensor) -> Tensor | None:
    """aten::rsqrt, in fp32 and rounded; None where PyTorch runs another function."""
    if not _is_of_kernels(caller, pytorch().functions["rsqrt"].families, input):
        return None
    active(caller.key)[1].own_kernels["rsqrt"] += 1
    with np.errstate(all="ignore"):
        out = _math().rsqrtf(array_of(input.float().contiguous()))
    return torch.from_numpy(out).reshape(input.shape).to(input.dtype)


def _is_of_kernels(caller: Caller, families: Sequence[str], *tensors: Tensor) -> bool:
    """Whether the settings follow PyTorch's kernels on the chip, and these are tensors of one dtype of theirs, with
    values that the host has.
    """
    arguments = active(caller.key)[0].of(caller.layer, "forward").arguments
    if arguments is None or arguments.get("library") != PYTORCH or arguments["device"].family not in families:
        return False
    dtype = tensors[0].dtype
    return dtype in DTYPES and all(
        x.dtype == dtype and x.device.type == "cpu" and x.layout == torch.strided and not isinstance(x, FakeTensor)
        for x in tensors
    )


@cache
def _math() -> CudaMath:
    return CudaMath(nvidia_tables())


__all__ = ["native_layer_norm", "row_softmax", "rsqrt"]
