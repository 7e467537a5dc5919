"""PyTorch's own product, as its kernels for CPUs compute it: one rounding, C or bias included.

The module knows PyTorch's functions; it knows no setting and no device.
"""

from __future__ import annotations

import torch

MATRIX = 2  # dimensions


def plain_product(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None, alpha: float, beta: float, dtype: torch.dtype
) -> torch.Tensor:
    """alpha a b + beta c, of `dtype`; a, b and c as of hwsim.frameworks.torch.multiplication.multiply. Operands that
    are narrower than the result, and those of 8 bits, are multiplied in fp32.
    """
    if dtype == torch.int32:
        return torch.matmul(a.to(torch.int32), b.to(torch.int32))
    is_wider = dtype.itemsize > a.element_size()
    wide = torch.float32 if a.element_size() == 1 or (is_wider and dtype == torch.float32) else a.dtype
    left, right = a.to(wide), b.to(wide)
    if alpha == 1 and (c is None or beta == 0):
        return torch.matmul(left, right).to(dtype)
    added, factor = (left.new_zeros(1), 0.0) if c is None else (c.to(wide), beta)
    if left.dim() == MATRIX and added.dim() <= MATRIX:
        return torch.addmm(added, left, right, beta=factor, alpha=alpha).to(dtype)
    shape = torch.broadcast_shapes((*left.shape[:-1], right.shape[-1]), added.shape)
    stacks = (x.expand(*shape[:-2], *x.shape[-2:]).flatten(0, -3) for x in (left, right))
    start = added.expand(shape).flatten(0, -3)
    return torch.baddbmm(start, *stacks, beta=factor, alpha=alpha).reshape(shape).to(dtype)


__all__ = ["plain_product"]
