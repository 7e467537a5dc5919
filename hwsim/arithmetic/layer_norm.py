"""The layer norm of fp32 rows as a block of threads of PyTorch's CUDA kernel computes it, to the bit.

It knows arrays and the order of a block; it knows no tensor, no device and no file. Source: github pytorch/pytorch
(0005c538), aten/src/ATen/native/cuda/layer_norm_kernel.cu: vectorized_layer_norm_kernel. nvcc makes a product and a sum
one fused multiply-add, the left product where both summands are products.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.cuda_math import CudaMath
from hwsim.arithmetic.rounded_once import multiply_add

Single = NDArray[np.float32]
AT_ONCE = 1 << 20  # elements, so that what is in between stays small
ONE = np.float32(1)


class NormKernel(NamedTuple):
    """threads: of a block, which has a row; each takes every so many vectors of `vector` elements. lanes: of a warp."""

    threads: int
    lanes: int
    vector: int


class _Moments(NamedTuple):
    """Of some elements: their mean, the sum of squared distances from it, their number; arrays of one shape."""

    mean: Single
    squares: Single
    number: Single

    def part(self, *index: Any) -> _Moments:
        """The moments of a part of the threads."""
        return _Moments(*(x[index] for x in self))


def layer_norm(
    x: Single, weight: Single | None, bias: Single | None, epsilon: float, kernel: NormKernel, math: CudaMath
) -> Single:
    """(rows, width), fp32: (x - mean) / sqrt(variance + epsilon) times weight plus bias.

    x: (rows, width), fp32; vectors divide the width. weight, bias: (width,), fp32, or None. math: the chip's.
    """
    result, count = np.empty_like(x), max(1, AT_ONCE // x.shape[1])
    with np.errstate(all="ignore"):
        for first in range(0, len(x), count):
            rows = slice(first, first + count)
            result[rows] = _normed(x[rows], weight, bias, epsilon, kernel, math)
    return result


def _normed(
    x: Single, weight: Single | None, bias: Single | None, epsilon: float, kernel: NormKernel, math: CudaMath
) -> Single:
    moments = _of_rows(x, kernel)
    variance = moments.squares / np.float32(x.shape[1])
    centred: Single = math.rsqrtf(variance + np.float32(epsilon)) * (x - moments.mean)
    if bias is None:
        return centred if weight is None else weight * centred
    return centred + bias if weight is None else _fused(weight, centred, bias)


def _of_rows(x: Single, kernel: NormKernel) -> _Moments:
    """The moments of rows, (rows, 1) each: of a thread's elements in order, then of pairs of threads of a warp, half
    as far away each time, then of pairs of warps.
    """
    rows, width = x.shape
    vectors = x.reshape(rows, width // kernel.vector, kernel.vector)
    threads = _Moments(*(np.zeros((rows, kernel.threads), np.float32) for _ in range(3)))
    for first in range(0, vectors.shape[1], kernel.threads):
        turn = vectors[:, first : first + kernel.threads]
        for element in range(kernel.vector):
            _add(threads.part(slice(None), slice(turn.shape[1])), turn[..., element])
    warps = _Moments(*(part.reshape(rows, -1, kernel.lanes) for part in threads))
    return _met(_Moments(*(part[..., 0] for part in _met(warps))))


def _add(threads: _Moments, x: Single) -> None:
    """Add an element to the moments of each thread, in place (Welford)."""
    distance = x - threads.mean
    threads.number[...] += ONE
    threads.mean[...] = _fused(distance, ONE / threads.number, threads.mean)
    threads.squares[...] = _fused(distance, x - threads.mean, threads.squares)


def _met(moments: _Moments) -> _Moments:
    """The moments of all of the last dimension, which is 1 then."""
    while moments.mean.shape[-1] > 1:
        half = moments.mean.shape[-1] // 2
        moments = _joined(moments.part(..., slice(half)), moments.part(..., slice(half, None)))
    return moments


def _joined(near: _Moments, far: _Moments) -> _Moments:
    """The moments of both (Chan); zeros where neither has an element."""
    distance, number = near.mean - far.mean, far.number + near.number
    share = ONE / number
    far_share, near_share = far.number * share, near.number * share
    mean = _fused(far_share, far.mean, near_share * near.mean)
    squares = _fused(distance * distance * far.number, near_share, far.squares + near.squares)
    is_counted = number > 0
    return _Moments(np.where(is_counted, mean, np.float32(0)), np.where(is_counted, squares, np.float32(0)), number)


def _fused(x: Single, y: Single, z: Single) -> Single:
    result: Single = multiply_add(*np.broadcast_arrays(x, y, z))
    return result
