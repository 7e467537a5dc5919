"""Sums of PyTorch's own depthwise kernels, of tensors: a product of matrices, with the elements that it misses.

The module knows tensors; it knows no window and no settings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from hwsim.arithmetic.depthwise_sums import own_elements
from hwsim.frameworks.torch.tensors import FORMATS, AnyArray, array_of

DTYPES = {name: dtype for dtype, (name, _) in FORMATS.items()}


@dataclass(frozen=True, slots=True)
class DepthwiseSums:
    """How such a kernel adds. operand: format of its operands. skipped: gives (m, k), the products that it leaves out;
    None: it multiplies all.
    """

    operand: str
    begins_with_bias: bool
    skipped: Callable[[], Tensor] | None

    def factors(self, a: Tensor, b: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """The operands with a first product of 1 and the bias (..., 1, n): a chain over K then starts from it."""
        ones = a.new_ones((*a.shape[:-1], 1))
        first = bias.expand(*b.shape[:-2], 1, b.shape[-1])
        return torch.cat((ones, a), -1), torch.cat((first, b), -2)

    def mended(self, product: Tensor, a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
        """The product of a (..., m, k) and b (..., k, n), plus the bias, with the bits of the kernel's sums."""
        if not bool(((product == 0) | product.isnan()).any()):
            return product
        is_left_out = torch.zeros(a.shape[-2:], dtype=torch.bool) if self.skipped is None else self.skipped()
        skipped, added = is_left_out.cpu().numpy(), None if bias is None else array_of(bias.float())
        factors, wide = partial(self._arrays, a, b), array_of(product.float())
        at, sums = own_elements(wide, added, skipped, factors, begins_with_bias=self.begins_with_bias)
        if not len(sums):
            return product
        values = torch.from_numpy(sums).to(dtype=product.dtype, device=product.device)
        places = tuple(torch.from_numpy(index).to(product.device) for index in at)
        return product.index_put(places, values)

    def _arrays(self, a: Tensor, b: Tensor) -> tuple[AnyArray, AnyArray]:
        """The operands rounded to their format, in FP32."""
        left, right = (array_of(side.to(DTYPES[self.operand]).float()) for side in (a, b))
        return left, right


__all__ = ["DepthwiseSums"]
