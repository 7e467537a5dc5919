"""The softmax of fp32 rows in tensors, added in the orders of `hwsim.gemm.softmax_sums`, with PyTorch's gradients.

The module knows tensors; it knows no order, no product, and no rule of an exponential.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  its usual name

from hwsim.frameworks.torch.attended import expf
from hwsim.gemm.softmax_sums import SoftmaxKernels


def softmax(x: torch.Tensor, kernels: SoftmaxKernels) -> torch.Tensor:
    """The softmax along the last dimension of x, fp32 and contiguous from a multiple of the vector on."""
    distance = x - x.detach().amax(-1, keepdim=True)
    powers = expf(distance.detach(), torch.exp(distance))
    return powers / _added(powers, kernels)


def _added(powers: torch.Tensor, kernels: SoftmaxKernels) -> torch.Tensor:
    """Sums of rows (..., count) that are not negative, (..., 1), in the order of `kernels.row_sum`."""
    count, rows = powers.shape[-1], powers.reshape(-1, powers.shape[-1])
    kinds, sums, places = kernels.kinds(count), [], []
    for number in range(min(kinds, max(len(rows), 1))):
        order, every = kernels.row_sum(count, number), slice(number, None, kinds)
        total = rows.new_zeros(len(rows[every]), order.width)
        for step in order.steps:
            some = rows[every, step.column : step.last + 1 : step.stride]
            total = total + F.pad(some, (step.first, order.width - step.first - step.threads))
        sums.append(_in_halves(_in_halves(total.unflatten(-1, (-1, order.lanes))).squeeze(-1)))
        places.append(torch.arange(len(rows))[every])
    return torch.cat(sums)[torch.cat(places).argsort()].reshape(*powers.shape[:-1], 1)


def _in_halves(sums: torch.Tensor) -> torch.Tensor:
    """(..., 1): each lane adds the partner's sum, half as far away each time."""
    while sums.shape[-1] > 1:
        low, high = sums.chunk(2, -1)
        sums = low + high
    return sums


__all__ = ["SoftmaxKernels", "softmax"]
