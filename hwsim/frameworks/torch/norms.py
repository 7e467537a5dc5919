"""PyTorch's layer norm, softmax and sums of rows with the bits of its CUDA kernels; gradients stay PyTorch's own.

The module knows PyTorch's operators and which of their calls a kernel takes whose order is known; it knows no order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hwsim.arithmetic.layer_norm import NormKernel, layer_norm
from hwsim.arithmetic.row_sums import SumKernel, adds_in_one_block, row_sums
from hwsim.frameworks.torch.caller import Caller
from hwsim.frameworks.torch.own_kernels import DTYPES, cuda_math, follows
from hwsim.frameworks.torch.softmax import softmax
from hwsim.frameworks.torch.tensors import array_of, format_name
from hwsim.libraries.pytorch.routes import pytorch, softmax_kernels

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
    width = int(np.prod(normalized_shape))
    is_aligned = all(x.storage_offset() % rule.vector == 0 for x in tensors if x.is_contiguous())
    if width % rule.vector or width > rule.most or not is_aligned:
        return None
    if not follows(caller, "layer_norm", *tensors):
        return None
    near = _ATEN.native_layer_norm.default(input, normalized_shape, weight, bias, eps)
    rows, *factors = (None if x is None else array_of(x.float().contiguous()) for x in (input, weight, bias))
    assert rows is not None
    flat = [None if x is None else x.reshape(-1) for x in factors]
    kernel = NormKernel(rule.threads, rule.lanes, rule.vector)
    out = layer_norm(rows.reshape(-1, width), flat[0], flat[1], eps, kernel, cuda_math())
    return torch.from_numpy(out).reshape(input.shape).to(input.dtype), *near[1:]


def row_softmax(caller: Caller, input: Tensor, dim: int, half_to_float: bool) -> Tensor | None:
    """aten::_softmax along the last dimension; None where PyTorch runs a kernel whose order is not known."""
    rule = pytorch().softmax
    if not input.dim() or half_to_float or dim not in (-1, input.dim() - 1):
        return None
    is_long = input.dtype != torch.float32 and input.shape[-1] > rule.most
    if is_long or not follows(caller, "softmax", input):
        return None
    return softmax(input.float().contiguous(), softmax_kernels()).to(input.dtype)


def sum_of_rows(name: str) -> Callable[..., Tensor | None]:
    """aten::sum or aten::mean along the last dimension, or of all elements; None where PyTorch adds otherwise."""

    def function(
        caller: Caller,
        input: Tensor,
        dim: Sequence[int] | int | None = None,
        keepdim: bool = False,
        *,
        dtype: torch.dtype | None = None,
    ) -> Tensor | None:
        rule = pytorch().row_sums
        dims = [dim] if isinstance(dim, int) else list(dim or range(input.dim()))
        is_whole = len(dims) == input.dim()
        if not input.dim() or (not is_whole and dims not in ([-1], [input.dim() - 1])):
            return None
        if not input.is_contiguous() or dtype not in (None, input.dtype, torch.float32):
            return None
        width = input.numel() if is_whole else input.shape[-1]
        if not width or input.dtype not in DTYPES:
            return None
        vector = rule.vectors[format_name(input.dtype)]
        sizes = rule.model_dump(exclude={"families", "vectors"})
        kernel = SumKernel(vector=vector, **sizes)
        is_known = adds_in_one_block(input.numel() // width, width, kernel)
        if not is_known or not follows(caller, name, input):
            return None
        rows = array_of(input.float()).reshape(-1, width)
        with np.errstate(all="ignore"):
            sums = row_sums(rows, kernel, input.storage_offset())
            if name == "mean":
                sums = sums * (np.float32(len(rows)) / np.float32(rows.size))
        lead = [1] * input.dim() if is_whole and keepdim else [] if is_whole else list(input.shape[:-1])
        lead += [1] if keepdim and not is_whole else []
        return torch.from_numpy(sums).reshape(lead).to(dtype or input.dtype)

    return function


__all__ = ["native_layer_norm", "row_softmax", "sum_of_rows"]
