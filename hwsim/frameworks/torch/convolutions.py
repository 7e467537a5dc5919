"""Convolution and its two gradients as implicit GEMMs in one, two or three dimensions.

K runs over the channels of a group, then over the window (forward, gradient of the input), or over images and pixels
(gradient of the weight). Padding, and the gaps that a stride leaves in the gradient of the input, count as zeros. The
module knows images and windows; it knows no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from hwsim.frameworks.torch.multiplication import multiply
from hwsim.frameworks.torch.place import Place


@dataclass(frozen=True, slots=True)
class Window:
    """Stride, padding and dilation of each spatial dimension, and the number of groups."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int

    def out_shape(self, x: Sequence[Any], w: Sequence[Any]) -> tuple[Any, ...]:
        """The shape of the convolution of x (N, C, ...) with w (O, C / groups, ...)."""
        sizes = zip(x[2:], w[2:], self.stride, self.padding, self.dilation, strict=True)
        return x[0], w[0], *((size + 2 * p - d * (r - 1) - 1) // s + 1 for size, r, s, p, d in sizes)


def memory_format(x: torch.Tensor, w: torch.Tensor) -> torch.memory_format:
    """How PyTorch stores the result: channels last where the image or the window has them last."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())  # dimensions with images of two and three
    if last is None:
        return torch.contiguous_format
    are_last = (y.is_contiguous(memory_format=last) and not y.is_contiguous() for y in (x, w))
    return last if any(are_last) else torch.contiguous_format


def forward(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, window: Window, place: Place) -> torch.Tensor:
    """The convolution of x (N, C, ...) with w (O, C / groups, ...); bias: (O,), of the epilogue."""
    around = [(p, p) for p in window.padding]
    return _convolved(x, w, bias, around, window, place).contiguous(memory_format=memory_format(x, w))


def of_input(dy: torch.Tensor, w: torch.Tensor, size: Sequence[int], window: Window, place: Place) -> torch.Tensor:
    """The gradient of the input, of shape `size`: dy with gaps, convolved with the reversed window."""
    spread = [(y - 1) * s + 1 for y, s in zip(dy.shape[2:], window.stride, strict=True)]
    full = dy.new_zeros((*dy.shape[:2], *spread))
    full[(..., *(slice(None, None, s) for s in window.stride))] = dy
    around = []
    sizes = zip(size[2:], spread, w.shape[2:], window.padding, window.dilation, strict=True)
    for wanted, have, r, p, d in sizes:
        before = d * (r - 1) - p
        around.append((before, wanted - have - before + d * (r - 1)))
    groups = window.groups
    mirrored = w.flip(list(range(2, w.dim()))).unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
    ones = [1] * len(window.stride)
    gradient = _convolved(full, mirrored, None, around, Window(ones, ones, window.dilation, groups), place)
    return gradient.contiguous(memory_format=memory_format(dy, w))


def of_weight(dy: torch.Tensor, x: torch.Tensor, size: Sequence[int], window: Window, place: Place) -> torch.Tensor:
    """The gradient of the weight, of shape `size` (O, C / groups, ...): a sum over images and pixels."""
    spatial = list(size[2:])
    columns = _columns(x, spatial, [(p, p) for p in window.padding], window, tuple(dy.shape[2:]))
    groups = window.groups
    left = dy.unflatten(1, (groups, -1)).movedim(1, 0).movedim(2, 1).reshape(groups, size[0] // groups, -1)
    product = _stacked(left, columns, None, place)
    return product.reshape(*size)


def _convolved(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None,
    around: Sequence[tuple[int, int]],
    window: Window,
    place: Place,
) -> torch.Tensor:
    """x padded by `around` (negative: cropped), convolved with w; of any strides."""
    groups, spatial = window.groups, list(w.shape[2:])
    sizes = zip(x.shape[2:], spatial, window.stride, around, window.dilation, strict=True)
    out = tuple((size + lo + hi - d * (r - 1) - 1) // s + 1 for size, r, s, (lo, hi), d in sizes)
    columns = _columns(x, spatial, around, window, out)
    weights = w.reshape(groups, w.shape[0] // groups, -1).mT
    group_bias = bias if bias is None or groups == 1 else bias.reshape(groups, 1, -1)
    product = _stacked(columns, weights, group_bias, place)  # (groups, N * pixels, O / groups)
    image = product.unflatten(1, (x.shape[0], prod(out))).movedim(0, 2).reshape(x.shape[0], *out, w.shape[0])
    return image.movedim(-1, 1)


def _columns(
    x: torch.Tensor,
    spatial: Sequence[int],
    around: Sequence[tuple[int, int]],
    window: Window,
    out: tuple[int, ...],
) -> torch.Tensor:
    """One row per output pixel: (groups, N * pixels, C / groups * window)."""
    flat = [side for pair in reversed(around) for side in pair]
    full = torch.nn.functional.pad(x, flat)
    lead, strides = full.stride()[:2], full.stride()[2:]
    step = [y * s for y, s in zip(strides, window.stride, strict=True)]
    gap = [y * d for y, d in zip(strides, window.dilation, strict=True)]
    count = x.shape[1] // window.groups
    windows = full.as_strided(
        (window.groups, x.shape[0], *out, count, *spatial),
        (lead[1] * count, lead[0], *step, lead[1], *gap),
        full.storage_offset(),
    )
    return windows.reshape(window.groups, x.shape[0] * prod(out), count * prod(spatial))


def _stacked(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None, place: Place) -> torch.Tensor:
    if len(a) == 1:  # a matrix, not a stack of one
        return multiply(place, a[0], b[0], c, 1.0, 1.0, a.dtype).unsqueeze(0)
    return multiply(place, a, b, c, 1.0, 1.0, a.dtype)
