"""The softmax of fp32 rows as PyTorch's CUDA kernels add them: each lane or thread its elements, then pairs of them.

The module knows the kernels' orders; it knows no product, and no rule of an exponential.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  its usual name

from hwsim.frameworks.torch.attended import expf
from hwsim.gemm.softmax_sums import WORD, SoftmaxKernels


def softmax(x: torch.Tensor, kernels: SoftmaxKernels) -> torch.Tensor:
    """The softmax along the last dimension of x, fp32 and contiguous from a multiple of the vector on."""
    distance = x - x.detach().amax(-1, keepdim=True)
    powers = expf(distance.detach(), torch.exp(distance))
    sums = _of_warps(powers, kernels.lanes) if x.shape[-1] <= kernels.most else _of_blocks(powers, kernels)
    return powers / sums


def _of_warps(powers: torch.Tensor, lanes: int) -> torch.Tensor:
    """Sums of rows (..., count), (..., 1): a warp's lanes add every so many elements."""
    count = powers.shape[-1]
    padded = 1 << (count - 1).bit_length()
    width = min(lanes, padded)
    rows = F.pad(powers, (0, padded - count)).unflatten(-1, (padded // width, width))
    return _in_halves(_in_order(rows))


def _of_blocks(powers: torch.Tensor, kernels: SoftmaxKernels) -> torch.Tensor:
    """Sums of rows (..., count), (..., 1): a block's threads add every so many elements, or vectors where these are too
    many for registers; warps meet in halves, then their sums do.

    A row of vectors that does not fit into shared memory, or whose length no vector divides, begins inside a vector:
    its first elements are added one by one up to the block's width, and so are those behind the last whole turn of
    vectors.
    """
    count, rows = powers.shape[-1], powers.reshape(-1, powers.shape[-1])
    warps, turn = kernels.threads // kernels.lanes, kernels.threads * kernels.vector
    if count <= kernels.threads * kernels.registers:
        steps = _steps(F.pad(rows, (0, -count % kernels.threads)), kernels)
        return _met(_in_order(steps), kernels).reshape(*powers.shape[:-1], 1)
    if count % kernels.vector == 0 and count < kernels.shared_bytes // WORD - warps:
        steps = _vectors(F.pad(rows, (0, -count % turn)), kernels)
        return _met(_in_order(steps), kernels).reshape(*powers.shape[:-1], 1)
    sums, places = [], []
    for number in range(min(kernels.vector, rows.shape[0])):
        shift, every = number * count % kernels.vector, slice(number, None, kernels.vector)
        single = kernels.threads - shift if shift else 0
        first, rest = rows[every, :single], rows[every, single:]
        whole = rest.shape[1] // turn * turn
        behind = F.pad(rest[:, whole:], (0, -(rest.shape[1] - whole) % kernels.threads))
        parts = [_steps(F.pad(first, (kernels.threads - single, 0)), kernels), _vectors(rest[:, :whole], kernels)]
        sums.append(_met(_in_order(torch.cat([*parts, _steps(behind, kernels)], 1)), kernels))
        places.append(torch.arange(rows.shape[0])[every])
    return torch.cat(sums)[torch.cat(places).argsort()].reshape(*powers.shape[:-1], 1)


def _steps(rows: torch.Tensor, kernels: SoftmaxKernels) -> torch.Tensor:
    """Rows (n, steps times threads) as steps (n, steps, threads)."""
    return rows.reshape(rows.shape[0], rows.shape[1] // kernels.threads, kernels.threads)


def _vectors(rows: torch.Tensor, kernels: SoftmaxKernels) -> torch.Tensor:
    """Rows (n, whole turns of vectors) as steps (n, steps, threads)."""
    turns = rows.shape[1] // (kernels.threads * kernels.vector)
    by_turn = rows.reshape(rows.shape[0], turns, kernels.threads, kernels.vector)
    return by_turn.transpose(-1, -2).reshape(rows.shape[0], turns * kernels.vector, kernels.threads)


def _in_order(steps: torch.Tensor) -> torch.Tensor:
    """Sums (..., width) over steps (..., steps, width), one after the other."""
    sums = steps[..., 0, :]
    for index in range(1, steps.shape[-2]):
        sums = sums + steps[..., index, :]
    return sums


def _met(sums: torch.Tensor, kernels: SoftmaxKernels) -> torch.Tensor:
    """The sum of a block's threads (n, threads), (n, 1)."""
    return _in_halves(_in_halves(sums.unflatten(-1, (-1, kernels.lanes))).squeeze(-1))


def _in_halves(sums: torch.Tensor) -> torch.Tensor:
    """(..., 1): each lane adds the partner's sum, half as far away each time."""
    while sums.shape[-1] > 1:
        low, high = sums.chunk(2, -1)
        sums = low + high
    return sums


__all__ = ["SoftmaxKernels", "softmax"]
