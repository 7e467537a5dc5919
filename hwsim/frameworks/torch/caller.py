"""Who calls a product, which tensors hwsim multiplies, and how PyTorch cuts a product of stacks into products.

The module knows shapes and strides; it knows no function of PyTorch, no device and no setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hwsim.frameworks.settings import PassName
from hwsim.frameworks.torch import operators
from hwsim.frameworks.torch.tensors import is_known

MATRIX, STACK = 2, 3  # dimensions


@dataclass(frozen=True, slots=True)
class Caller:
    """The settings' key and the layer's name of the products of a call; below autograd also the pass, and the operand
    that is a gradient.
    """

    key: str
    layer: str
    stage: PassName = "forward"
    gradient: str = ""

    def product(self, a: Tensor, b: Tensor, c: Tensor | None, operation: str, **more: Any) -> Tensor:
        """See hwsim.frameworks.torch.operators.product."""
        return operators.product(
            a, b, c, self.key, self.layer, operation, stage=self.stage, gradient=self.gradient, **more
        )


def takes(*tensors: Any) -> bool:
    """Whether these are dense tensors of one dtype that hwsim multiplies (no integers: `_int_mm` alone takes these)."""
    first = tensors[0]
    return all(
        isinstance(tensor, Tensor)
        and tensor.layout == torch.strided
        and tensor.is_floating_point()
        and is_known(tensor)
        and tensor.dtype == first.dtype
        for tensor in tensors
    )


def rows_of(x: Tensor) -> Tensor:
    """(..., k) as a matrix."""
    return x.unsqueeze(0) if x.dim() == 1 else x.flatten(0, -2)


def stack_of(x: Tensor) -> Tensor:
    """(..., m, k) as one stack."""
    return x.unsqueeze(0) if x.dim() == MATRIX else x.flatten(0, -3)


def _folds(stack: Tensor, other: Tensor) -> bool:
    """Whether PyTorch multiplies a stack by a matrix or a vector as one matrix, not matrix by matrix (should_fold of
    ATen's LinearAlgebra.cpp): its rows lie one after the other, or the other operand's gradient would need as many
    copies as there are matrices.
    """
    if other.requires_grad or not stack.numel():
        return True
    shape, strides = stack.shape, stack.stride()
    return all(strides[i] == strides[i + 1] * shape[i + 1] for i in range(stack.dim() - MATRIX))


def product_of(caller: Caller, a: Tensor, b: Tensor, operation: str, dtype: torch.dtype | None = None) -> Tensor | None:
    """torch.matmul's product, of `dtype` (None: the operands'); None for sizes that do not fit."""
    if a.dim() == 0 or b.dim() == 0:
        return None
    left = a.unsqueeze(0) if a.dim() == 1 else a
    right = b.unsqueeze(-1) if b.dim() == 1 else b
    if left.shape[-1] != right.shape[-2]:
        return None  # PyTorch says what is wrong
    if left.dim() == right.dim() == MATRIX:
        result = caller.product(left, right, None, operation, dtype=dtype)
    elif right.dim() == MATRIX and _folds(left, b):
        result = caller.product(rows_of(left), right, None, operation, dtype=dtype).reshape(
            *left.shape[:-1], right.shape[-1]
        )
    elif left.dim() == MATRIX and (a.dim() == 1 or a.requires_grad) and _folds(right.mT, a):
        flat = caller.product(rows_of(right.mT), left.t(), None, operation, dtype=dtype)
        result = flat.reshape(*right.shape[:-2], right.shape[-1], left.shape[0]).mT
    else:
        lead = left.shape[:-2]
        if right.shape[:-2] != lead:
            lead = torch.broadcast_shapes(lead, right.shape[:-2])
            left, right = left.expand(*lead, *left.shape[-2:]), right.expand(*lead, *right.shape[-2:])
        result = caller.product(stack_of(left), stack_of(right), None, operation, dtype=dtype)
        result = result if len(lead) == 1 else result.reshape(*lead, *result.shape[-2:])
    if a.dim() == 1:
        result = result.squeeze(-2)
    return result.squeeze(-1) if b.dim() == 1 else result
