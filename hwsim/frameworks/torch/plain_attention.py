"""The operator hwsim::plain_attention: PyTorch's own attention of a plain layer, with gradients that know the layer.

Compiled graphs and gradients of a plain layer stand beside simulated ones, so the operator hides PyTorch's kernels from
what catches products. The module knows PyTorch's function and registrations; it knows no device.
"""

from __future__ import annotations

import contextlib
from math import prod
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  its usual name
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from hwsim.frameworks.torch.multiplication import active
from hwsim.frameworks.torch.operators import LIBRARY

TENSORS = 4  # of the operands, or None
PRODUCTS, GRADIENTS = 1, 2  # of the products of scores and values: how often as many are multiplied
_ARGUMENTS = "Tensor query, Tensor key, Tensor value, Tensor? mask, bool is_causal, float? scale, bool enable_gqa"
for _schema in (
    f"plain_attention({_ARGUMENTS}, str settings, str layer) -> Tensor",
    f"plain_attention_gradients(Tensor grad, {_ARGUMENTS}, str settings, str layer) -> (Tensor, Tensor, Tensor)",
):
    LIBRARY.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))


def plain_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    settings: str,
    layer: str,
) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention without dropout, as PyTorch computes it; the record of the key
    `settings` counts its multiply-accumulates. mask: without gradient.
    """
    rest = (mask, is_causal, scale, enable_gqa, settings, layer)
    result: Tensor = torch.ops.hwsim.plain_attention(query, key, value, *rest)
    return result


def _attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *rest: Any) -> Tensor:
    is_causal, scale, enable_gqa, settings, layer = rest
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        result = F.scaled_dot_product_attention(
            query, key, value, mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
        )
        _count(settings, layer, query, value, PRODUCTS)
        return result.contiguous()


def _gradients(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *rest: Any) -> Any:
    is_causal, scale, enable_gqa, settings, layer = rest
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch._C.DisableTorchFunction())
        stack.enter_context(_disable_current_modes())
        stack.enter_context(torch.enable_grad())
        # an operator's kernel runs below autograd
        stack.enter_context(torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.AutogradFunctionality, False))
        operands = q, k, v = [x.detach().requires_grad_() for x in (query, key, value)]
        result = F.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa)
        gradients = torch.autograd.grad(result, operands, grad)
        _count(settings, layer, query, value, GRADIENTS)
    return tuple(x.contiguous() for x in gradients)


def _count(settings: str, layer: str, query: Tensor, value: Tensor, times: int) -> None:
    """Count the multiply-accumulates of the products of scores and values, so many times."""
    scores = prod(query.shape[:-1]) * value.shape[-2]
    active(settings)[1].left_plain(layer, times * scores * (query.shape[-1] + value.shape[-1]))


def _shape(query: Any, key: Any, value: Any, *_: Any) -> Tensor:
    result: Tensor = query.new_empty((*query.shape[:-1], value.shape[-1]))
    return result


def _gradient_shapes(grad: Any, query: Any, key: Any, value: Any, *_: Any) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in (query, key, value))


def _context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    tensors, ctx.rest = inputs[:TENSORS], inputs[TENSORS:]
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    of_operands = torch.ops.hwsim.plain_attention_gradients(grad, *ctx.saved_tensors, *ctx.rest)
    return *of_operands, *(None for _ in range(6))


LIBRARY.impl("plain_attention", _attention, "CompositeExplicitAutograd")
LIBRARY.impl("plain_attention_gradients", _gradients, "CompositeExplicitAutograd")
torch.library.register_fake("hwsim::plain_attention", _shape, lib=LIBRARY)
torch.library.register_fake("hwsim::plain_attention_gradients", _gradient_shapes, lib=LIBRARY)
torch.library.register_autograd("hwsim::plain_attention", _backward, setup_context=_context, lib=LIBRARY)

__all__ = ["plain_attention"]
