"""The operator hwsim::plain_convolution: PyTorch's own convolution of a plain layer, with its bias and its gradients.

PyTorch's kernels for CPUs compute a bias's gradient beside the filters', so one operator has all of them. The module
knows PyTorch's function and registrations; it knows no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hwsim.frameworks.settings import STAGES
from hwsim.frameworks.torch import convolutions
from hwsim.frameworks.torch.convolutions import Window, hidden, memory_format
from hwsim.frameworks.torch.operators import LIBRARY, call, is_batched_gradient, is_transformed
from hwsim.frameworks.torch.place import CONVOLUTION, Place

_ARGUMENTS = (
    "Tensor x, Tensor w, Tensor? bias, int[] stride, int[] padding, int[] dilation, bool transposed, "
    "int[] output_padding, int groups, str settings, str layer"
)
for _schema in (
    f"plain_convolution({_ARGUMENTS}) -> Tensor",
    f"plain_convolution_gradients(Tensor grad, {_ARGUMENTS}, bool[] wanted) -> (Tensor, Tensor, Tensor)",
):
    LIBRARY.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))


def plain_convolution(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    window: Window,
    output_padding: Sequence[int] | None,
    settings: str,
    layer: str,
) -> Tensor:
    """The convolution of a batch of images as PyTorch computes it; the record of the key `settings` counts its
    multiply-accumulates. output_padding: of a transposed one; None: it is none.
    """
    rest = (window.stride, window.padding, window.dilation, output_padding is not None)
    more = [0] * len(window.stride) if output_padding is None else output_padding
    result: Tensor = torch.ops.hwsim.plain_convolution(x, w, bias, *rest, more, window.groups, settings, layer)
    return result


def _forward(x: Tensor, w: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    *arguments, settings, layer = rest
    with hidden():
        result = torch.convolution(x, w, bias, *arguments)
        _count(x, w, result, arguments, Place(settings, layer, "forward", CONVOLUTION))
        return result.contiguous(memory_format=memory_format(x, w))


def _gradients(grad: Tensor, x: Tensor, w: Tensor, bias: Tensor | None, *rest: Any) -> Any:
    *arguments, settings, layer, wanted = rest
    sizes = None if bias is None else list(bias.shape)
    with hidden():
        gradients = torch.ops.aten.convolution_backward(grad, x, w, sizes, *arguments, wanted)
        for is_wanted, stage in zip(wanted, STAGES[1:], strict=False):  # a bias's gradient has no products
            if is_wanted:
                _count(x, w, grad, arguments, Place(settings, layer, stage, CONVOLUTION))
        like = (x, w, x if bias is None else bias)
        return tuple(_laid_out(y, z, x, w) for y, z in zip(gradients, like, strict=True))


def _laid_out(gradient: Tensor | None, like: Tensor, x: Tensor, w: Tensor) -> Tensor:
    """A gradient stored as the graph of compiled code expects it; of one that is not wanted nothing."""
    if gradient is None:
        return like.new_empty(0)
    return gradient.contiguous(memory_format=memory_format(x, w)) if like is x else gradient.contiguous()


def _count(x: Tensor, w: Tensor, out: Tensor, arguments: Sequence[Any], place: Place) -> None:
    stride, padding, dilation, is_transposed, _, groups = arguments
    image = out if is_transposed else x  # a transposed convolution is a gradient of the images
    convolutions.count_plain(place, image.shape, w.shape, Window(stride, padding, dilation, groups))


def _shape(x: Any, w: Any, bias: Any, *rest: Any) -> Tensor:
    stride, padding, dilation, is_transposed, more, groups, *_ = rest
    if is_transposed:
        sizes = zip(x.shape[2:], w.shape[2:], stride, padding, more, dilation, strict=True)
        shape = (
            x.shape[0],
            w.shape[1] * groups,
            *((n - 1) * s - 2 * p + d * (r - 1) + o + 1 for n, r, s, p, o, d in sizes),
        )
    else:
        shape = Window(stride, padding, dilation, groups).out_shape(x.shape, w.shape)
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=memory_format(x, w))


def _gradient_shapes(grad: Any, x: Any, w: Any, bias: Any, *rest: Any) -> tuple[Tensor, ...]:
    *_, wanted = rest
    of_x = torch.empty(x.shape, dtype=x.dtype, device=x.device, memory_format=memory_format(x, w))
    whole = (of_x, w.new_empty(w.shape), x.new_empty(0) if bias is None else bias.new_empty(bias.shape))
    return tuple(y if is_wanted else y.new_empty(0) for y, is_wanted in zip(whole, wanted, strict=True))


def _context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, w, bias, *ctx.rest = inputs
    ctx.save_for_backward(x, w, bias)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, w, bias = ctx.saved_tensors
    wanted = [bool(needed) for needed in ctx.needs_input_grad[:3]]
    if torch.is_grad_enabled() or is_transformed() or is_batched_gradient(grad):  # operators with rules for these
        gradients = _differentiable(grad, x, w, ctx.rest, wanted)
    else:
        gradients = torch.ops.hwsim.plain_convolution_gradients(grad, x, w, bias, *ctx.rest, wanted)
    return *(y if is_wanted else None for y, is_wanted in zip(gradients, wanted, strict=True)), *(
        None for _ in ctx.rest
    )


def _differentiable(grad: Tensor, x: Tensor, w: Tensor, rest: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
    stride, padding, dilation, is_transposed, _, groups, *where = rest
    window = (stride, padding, dilation, groups, is_transposed, *where)
    of_x = of_w = None
    if is_transposed:
        of_x = call("convolution", grad, w, None, *window, "backward_input") if wanted[0] else None
        of_w = call("convolution_weight", x, grad, w.shape, *window, "backward_weight") if wanted[1] else None
    else:
        of_x = call("convolution_input", grad, w, x.shape, *window, "backward_input") if wanted[0] else None
        of_w = call("convolution_weight", grad, x, w.shape, *window, "backward_weight") if wanted[1] else None
    return [of_x, of_w, grad.sum([0, *range(2, grad.dim())]) if wanted[2] else None]


LIBRARY.impl("plain_convolution", _forward, "CompositeExplicitAutograd")
LIBRARY.impl("plain_convolution_gradients", _gradients, "CompositeExplicitAutograd")
torch.library.register_fake("hwsim::plain_convolution", _shape, lib=LIBRARY)
torch.library.register_fake("hwsim::plain_convolution_gradients", _gradient_shapes, lib=LIBRARY)
torch.library.register_autograd("hwsim::plain_convolution", _backward, setup_context=_context, lib=LIBRARY)

__all__ = ["plain_convolution"]
