"""Convolution and its two gradients as implicit GEMMs in one, two or three dimensions.

K runs over the channels of a group, then over the window, or as a library's kernel says (forward, gradient of the
input), or over images and pixels (gradient of the weight). Padding multiplies as zeros and counts as no work. The
gradient of the input of a strided convolution is one product for each place of a pixel between two strides, so that no
gap is multiplied. Of a plain layer all three are PyTorch's own. The module knows images and windows, and no device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import Any

import torch

from hwsim.frameworks.torch.convolution_order import CHANNELS_LAST, order_of
from hwsim.frameworks.torch.depthwise_sums import DepthwiseSums
from hwsim.frameworks.torch.multiplication import active, is_plain, multiply
from hwsim.frameworks.torch.place import Place
from hwsim.gemm.convolution import ConvShape, conv_shape
from hwsim.libraries.convolution_call import ConvolutionSizes
from hwsim.libraries.model.convolution_model import KOrder
from hwsim.libraries.pytorch.convolutions import ConvolutionKernel


@dataclass(frozen=True, slots=True)
class Window:
    """Stride, padding and dilation of each spatial dimension, and the number of groups."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int

    @property
    def arguments(self) -> tuple[Any, ...]:
        """As PyTorch's operators take them."""
        return self.stride, self.padding, self.dilation, False, [0] * len(self.stride), self.groups

    def out_shape(self, x: Sequence[Any], w: Sequence[Any]) -> tuple[Any, ...]:
        """The shape of the convolution of x (N, C, ...) with w (O, C / groups, ...)."""
        sizes = zip(x[2:], w[2:], self.stride, self.padding, self.dilation, strict=True)
        return x[0], w[0], *((size + 2 * p - d * (r - 1) - 1) // s + 1 for size, r, s, p, d in sizes)

    def sizes(self, x: Sequence[int], w: Sequence[int]) -> ConvShape | None:
        """The sizes of the convolution of x with w in two dimensions; one dimension is a line of height 1. None: more
        dimensions, or no elements.
        """
        if len(self.stride) > 2 or 0 in (*x, *w):
            return None
        flat = len(self.stride) == 1
        lines, paddings = ((1,), (0,)) if flat else ((), ())
        return conv_shape(
            (*x[:2], *lines, *x[2:]),
            (*w[:2], *lines, *w[2:]),
            stride=(*lines, *self.stride),
            padding=(*paddings, *self.padding),
            dilation=(*lines, *self.dilation),
            groups=self.groups,
        )


def memory_format(x: torch.Tensor, w: torch.Tensor) -> torch.memory_format:
    """How PyTorch stores the result: channels last where the image or the window has them last."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())  # dimensions with images of two and three
    if last is None:
        return torch.contiguous_format
    are_last = (y.is_contiguous(memory_format=last) and not y.is_contiguous() for y in (x, w))
    return last if any(are_last) else torch.contiguous_format


def forward(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None,
    window: Window,
    place: Place,
    *,
    is_transposed: bool = False,
) -> torch.Tensor:
    """The convolution of x (N, C, ...) with w (O, C / groups, ...); bias: (O,), of the epilogue, or
    added to the rounded result, as PyTorch does on GPUs. is_transposed: it is a gradient of a transposed convolution.
    """
    if is_plain(place.key, place.layer, place.stage):
        count_plain(place, x.shape, w.shape, window)
        with hidden():
            return torch.convolution(x, w, bias, *window.arguments)
    around = [(p, p) for p in window.padding]
    order = order_of(place, _sizes(x.shape, w.shape, window), x, w, "forward", is_transposed=is_transposed)
    return _convolved(x, w, bias, around, window, place, order).contiguous(memory_format=memory_format(x, w))


def of_input(
    dy: torch.Tensor, w: torch.Tensor, size: Sequence[int], window: Window, place: Place, *, is_transposed: bool = False
) -> torch.Tensor:
    """The gradient of the input, of shape `size`: for each place between two strides, dy convolved with those elements
    of the reversed window that meet it. So K runs over the window's elements backwards, or as a library's kernel says.
    is_transposed: it is a transposed convolution.
    """
    if is_plain(place.key, place.layer, place.stage):
        count_plain(place, size, w.shape, window)
        image = dy.new_empty(tuple(size)).contiguous(memory_format=memory_format(dy, w))
        return _gradients(dy, image, w, window, (True, False, False))[0]
    order = order_of(place, _sizes(size, w.shape, window), dy, w, "backward_input", is_transposed=is_transposed)
    groups, ones = window.groups, [1] * len(window.stride)
    mirrored = w.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
    gradient = dy.new_zeros(tuple(size))
    for places in product(*(range(min(s, wanted)) for s, wanted in zip(window.stride, size[2:], strict=True))):
        taps, around, gaps = [], [], []
        for axis, place_of_axis in enumerate(places):
            stride, dilation = window.stride[axis], window.dilation[axis]
            reach = place_of_axis + window.padding[axis]
            met = [tap for tap in reversed(range(w.shape[axis + 2])) if (reach - dilation * tap) % stride == 0]
            count = -(-(size[axis + 2] - place_of_axis) // stride)
            gap = dilation * (met[0] - met[1]) // stride if len(met) > 1 else 1
            before = -(reach - dilation * met[0]) // stride if met else 0
            around.append((before, count + gap * (len(met) - 1) - dy.shape[axis + 2] - before))
            taps.append(met)
            gaps.append(gap)
        if not all(taps):
            continue
        part = mirrored
        for axis, met in enumerate(taps):
            part = part.index_select(axis + 2, torch.tensor(met, device=w.device))
        steps = (slice(at, None, s) for at, s in zip(places, window.stride, strict=True))
        inner = Window(ones, ones, gaps, groups)
        gradient[(..., *steps)] = _convolved(dy, part, None, around, inner, place, order, not order.backwards)
    return gradient.contiguous(memory_format=memory_format(dy, w))


def of_weight(
    dy: torch.Tensor, x: torch.Tensor, size: Sequence[int], window: Window, place: Place, *, is_transposed: bool = False
) -> torch.Tensor:
    """The gradient of the weight, of shape `size` (O, C / groups, ...): a sum over images and pixels. is_transposed: of
    a transposed convolution.
    """
    if is_plain(place.key, place.layer, place.stage):
        count_plain(place, x.shape, size, window)
        return _gradients(dy, x, dy.new_empty(tuple(size)), window, (False, True, False))[1]
    spatial = list(size[2:])
    columns = _columns(x, spatial, [(p, p) for p in window.padding], window, tuple(dy.shape[2:]))
    groups = window.groups
    left = dy.unflatten(1, (groups, -1)).movedim(1, 0).movedim(2, 1).reshape(groups, size[0] // groups, -1)
    order = order_of(place, _sizes(x.shape, size, window), dy, x, "backward_weight", is_transposed=is_transposed)
    padding = _products_of_padding(
        x.shape, spatial, [(p, p) for p in window.padding], window, tuple(dy.shape[2:]), size[0]
    )
    return _stacked(left, columns, None, place, order, padding).reshape(*size)


def _sizes(x: Sequence[int], w: Sequence[int], window: Window) -> ConvolutionSizes:
    """The sizes of images x (N, C, ...) and filters w."""
    return ConvolutionSizes(window.sizes(x, w), tuple(x), window.groups)


def _gradients(
    dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, window: Window, wanted: tuple[bool, bool, bool]
) -> tuple[Any, ...]:
    """PyTorch's own gradients of a convolution: of the image, the filters and the bias, those that are wanted."""
    with hidden():
        gradients: tuple[Any, ...] = torch.ops.aten.convolution_backward(dy, x, w, None, *window.arguments, wanted)
        return gradients


@contextlib.contextmanager
def hidden() -> Iterator[None]:
    """Inside, nothing catches what PyTorch computes."""
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        yield


def count_plain(place: Place, x: Sequence[int], w: Sequence[int], window: Window) -> None:
    """Count a convolution of images x (N, C, ...) with filters w, or a gradient of it, that is left to PyTorch."""
    out, around = tuple(window.out_shape(x, w)[2:]), [(p, p) for p in window.padding]
    padding = _products_of_padding(x, w[2:], around, window, out, w[0])
    active(place.key)[1].left_plain(place.layer, x[0] * prod(out) * prod(w) - padding)


def _convolved(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None,
    around: Sequence[tuple[int, int]],
    window: Window,
    place: Place,
    order: ConvolutionKernel,
    from_last: bool = False,
) -> torch.Tensor:
    """x padded by `around` (negative: cropped), convolved with w; of any strides. from_last: K runs over the window's
    elements from the last to the first.
    """
    groups, spatial = window.groups, list(w.shape[2:])
    sizes = zip(x.shape[2:], spatial, window.stride, around, window.dilation, strict=True)
    out = tuple((size + lo + hi - d * (r - 1) - 1) // s + 1 for size, r, s, (lo, hi), d in sizes)
    columns = _columns(x, spatial, around, window, out, order.k_order, from_last)
    if from_last:
        w = w.flip(tuple(range(2, w.dim())))
    if order.k_order == CHANNELS_LAST:
        w = w.movedim(1, -1)
    weights = w.reshape(groups, w.shape[0] // groups, -1).mT
    group_bias = bias if bias is None or groups == 1 else bias.reshape(groups, 1, -1)
    padding = _products_of_padding(x.shape, spatial, around, window, out, w.shape[0])
    as_measured = partial(_channels_first, spatial=spatial, k_order=order.k_order, from_last=from_last)
    sums = None
    if order.depthwise is not None and order.is_known:
        skipped = (
            partial(_skipped, x, spatial, around, window, out, from_last) if order.depthwise.skips_padding else None
        )
        sums = DepthwiseSums(order.depthwise.operand, order.begins_with_bias, skipped)
    stack = _stacked(
        columns, weights, group_bias, place, order, padding, as_measured, sums
    )  # (groups, N * pixels, O / groups)
    image = stack.unflatten(1, (x.shape[0], prod(out))).movedim(0, 2).reshape(x.shape[0], *out, w.shape[0])
    return image.movedim(-1, 1)


def _columns(
    x: torch.Tensor,
    spatial: Sequence[int],
    around: Sequence[tuple[int, int]],
    window: Window,
    out: tuple[int, ...],
    k_order: KOrder = "crs",
    from_last: bool = False,
) -> torch.Tensor:
    """One row per output pixel: (groups, N * pixels, C / groups * window), of the window * C / groups."""
    flat = [side for pair in reversed(around) for side in pair]
    full = torch.nn.functional.pad(x, flat)
    lead, strides = full.stride()[:2], full.stride()[2:]
    step = [y * s for y, s in zip(strides, window.stride, strict=True)]
    gap = [y * d for y, d in zip(strides, window.dilation, strict=True)]
    count = x.shape[1] // window.groups
    sizes, strides_of = (count, *spatial), (lead[1], *gap)
    if k_order == CHANNELS_LAST:
        sizes, strides_of = (*spatial, count), (*gap, lead[1])
    windows = full.as_strided(
        (window.groups, x.shape[0], *out, *sizes),
        (lead[1] * count, lead[0], *step, *strides_of),
        full.storage_offset(),
    )
    if from_last:
        first = 2 + len(out) + (k_order != CHANNELS_LAST)
        windows = windows.flip(tuple(range(first, first + len(spatial))))
    return windows.reshape(window.groups, x.shape[0] * prod(out), count * prod(spatial))


def _skipped(
    x: torch.Tensor,
    spatial: Sequence[int],
    around: Sequence[tuple[int, int]],
    window: Window,
    out: tuple[int, ...],
    from_last: bool,
) -> torch.Tensor:
    """Which products of a depthwise convolution are of padding: (N * pixels, C / groups * window). Arguments: as of
    _columns, with K over the channels first.
    """
    of_one = Window(window.stride, window.padding, window.dilation, 1)
    pixels = torch.ones((1, 1, *x.shape[2:]), dtype=torch.bool)
    is_met = _columns(pixels, spatial, around, of_one, out, from_last=from_last)[0]
    return ~is_met.repeat(x.shape[0], x.shape[1] // window.groups)


def _products_of_padding(
    x: Sequence[int],
    spatial: Sequence[int],
    around: Sequence[tuple[int, int]],
    window: Window,
    out: tuple[int, ...],
    filters: int,
) -> int:
    """How many products have an element of the padding as an operand: the others multiply an element of the window
    and a pixel that it meets. x: the images' sizes; other arguments as of _columns. filters: of all groups.
    """
    met = 1
    for axis, (size, taps, (before, _)) in enumerate(zip(x[2:], spatial, around, strict=True)):
        stride, dilation, count = window.stride[axis], window.dilation[axis], 0
        for tap in range(taps):
            offset = before - dilation * tap  # the pixel of output y is stride y - offset
            count += max(0, min(out[axis] - 1, (size - 1 + offset) // stride) - max(0, -(-offset // stride)) + 1)
        met *= count
    return x[0] * x[1] // window.groups * filters * (prod(out) * prod(spatial) - met)


def _channels_first(rows: torch.Tensor, spatial: Sequence[int], k_order: KOrder, from_last: bool) -> torch.Tensor:
    """Rows (..., k) of windows with K over channel and window, from the first element to the last."""
    count = rows.shape[-1] // prod(spatial)
    axes = tuple(range(-len(spatial), 0))
    if k_order == CHANNELS_LAST:
        windows = rows.unflatten(-1, (*spatial, count)).movedim(-1, rows.dim() - 1)
    else:
        windows = rows.unflatten(-1, (count, *spatial))
    return (windows.flip(axes) if from_last else windows).flatten(rows.dim() - 1)


def _stacked(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    place: Place,
    order: ConvolutionKernel,
    padding: int,
    as_measured: Callable[[torch.Tensor], torch.Tensor] | None = None,
    sums: DepthwiseSums | None = None,
) -> torch.Tensor:
    is_single = len(a) == 1  # a matrix, not a stack of one
    operands = (a[0], b[0]) if is_single else (a, b)
    c, last = (None, bias) if order.bias == "apart" else (bias, None)
    product = multiply(
        place,
        *operands,
        c,
        1.0,
        1.0,
        a.dtype,
        order.library,
        order.is_known,
        padding,
        sums,
        added_last=last,
        as_measured=as_measured,
    )
    return product.unsqueeze(0) if is_single else product
