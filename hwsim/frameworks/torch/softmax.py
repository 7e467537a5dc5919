"""The softmax of an fp32 row as PyTorch's CUDA kernel adds it: each lane its elements in order, then lanes in pairs.

The module knows the kernel's order and CUDA's expf; it knows no product. What the chip's ex2.approx instruction gives
is not known to the last bit: the exact power of two, rounded, stands for it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  its usual name

#: CUDA's expf: exp(x) = 2^k * 2^r, k = floor(252 * saturate(x * STEP + 0.5)) - 126, r = x * LOG2E - k in two parts.
STEP = 0.0057249800302088260650634765625
LOG2E = (1.44269502162933349609375, 1.925963033500011079013347625732421875e-08)
RANGE, LEAST = 252.0, -126.0


def softmax(x: torch.Tensor, lanes: int) -> torch.Tensor:
    """The softmax along the last dimension of x, fp32; lanes: a power of two, of the kernel's warp."""
    count = x.shape[-1]
    padded = 1 << (count - 1).bit_length()
    width = min(lanes, padded)
    powers = _exp(x - x.detach().amax(-1, keepdim=True))
    rows = F.pad(powers, (0, padded - count)).unflatten(-1, (padded // width, width))
    sums = rows[..., 0, :]
    for index in range(1, padded // width):
        sums = sums + rows[..., index, :]
    while sums.shape[-1] > 1:  # each lane adds the partner's sum, half as far away each time
        low, high = sums.chunk(2, -1)
        sums = low + high
    return powers / sums


def _exp(x: torch.Tensor) -> torch.Tensor:
    """CUDA's expf of x <= 0."""
    x = x.clamp_min(-(2.0**10))  # of minus infinity too: 0 from there on
    step = _fma(x, STEP, 0.5).clamp(0, 1).double()
    whole = (step * RANGE).floor().detach() + LEAST
    rest = _fma(x, LOG2E[1], _fma(x, LOG2E[0], -whole))
    return torch.exp2(rest.double()).float() * torch.exp2(whole).float()


def _fma(x: torch.Tensor, factor: float, added: torch.Tensor | float) -> torch.Tensor:
    """x * factor + added, rounded once to fp32: products of two fp32 numbers are exact in fp64."""
    return (x.double() * factor + (added.double() if isinstance(added, torch.Tensor) else added)).float()


__all__ = ["softmax"]
