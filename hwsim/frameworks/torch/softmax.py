"""The softmax of an fp32 row as PyTorch's CUDA kernel adds it: each lane its elements in order, then lanes in pairs.

The module knows the kernel's order; it knows no product, and no rule of an exponential.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  its usual name

from hwsim.frameworks.torch.attended import expf


def softmax(x: torch.Tensor, lanes: int) -> torch.Tensor:
    """The softmax along the last dimension of x, fp32; lanes: a power of two, of the kernel's warp."""
    count = x.shape[-1]
    padded = 1 << (count - 1).bit_length()
    width = min(lanes, padded)
    distance = x - x.detach().amax(-1, keepdim=True)
    powers = expf(distance.detach(), torch.exp(distance))
    rows = F.pad(powers, (0, padded - count)).unflatten(-1, (padded // width, width))
    sums = rows[..., 0, :]
    for index in range(1, padded // width):
        sums = sums + rows[..., index, :]
    while sums.shape[-1] > 1:  # each lane adds the partner's sum, half as far away each time
        low, high = sums.chunk(2, -1)
        sums = low + high
    return powers / sums


__all__ = ["softmax"]
