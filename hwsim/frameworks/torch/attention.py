"""PyTorch's scaled_dot_product_attention as products with a softmax between: its math form, and what stands for a
fused kernel.

The module knows the formula's roundings and PyTorch's switches of attention; it knows no device's arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hwsim.frameworks.settings import STAGES
from hwsim.frameworks.torch.attended import attended, widest_known
from hwsim.frameworks.torch.caller import MATRIX, STACK, Caller, product_of, takes
from hwsim.frameworks.torch.compiled_notes import note_function, other_chips
from hwsim.frameworks.torch.multiplication import active, is_plain
from hwsim.frameworks.torch.names import run_by_the_compiler
from hwsim.frameworks.torch.operators import PLAIN_TENSORS, is_transformed
from hwsim.frameworks.torch.place import ATTENTION, SCORES, VALUES, Place, fused, part
from hwsim.frameworks.torch.plain_attention import plain_attention
from hwsim.frameworks.torch.softmax import SoftmaxKernels, softmax
from hwsim.frameworks.torch.switches import NATIVE
from hwsim.frameworks.torch.tensors import format_name
from hwsim.gemm.math_form import roots
from hwsim.libraries.gemm_call import PYTORCH
from hwsim.libraries.pytorch.attention import AttentionKind, Candidate, candidates, first_fit
from hwsim.libraries.pytorch.routes import families_of_kernel, softmax_kernels

FP32, MATH = "fp32", "MATH"
NARROW = (torch.float16, torch.bfloat16)
FORMULA = (tuple(Candidate(MATH)),)
_ATEN = torch.ops.aten

#: PyTorch's names of the backends of a GPU, by their numbers in its order of priority, and how each is switched on.
BACKENDS = {
    0: (MATH, torch._C._get_math_sdp_enabled),
    1: ("FLASH_ATTENTION", torch._C._get_flash_sdp_enabled),
    2: ("EFFICIENT_ATTENTION", torch._C._get_mem_efficient_sdp_enabled),
    3: ("CUDNN_ATTENTION", torch._C._get_cudnn_sdp_enabled),
}
DEFAULT_PRIORITY = [1, 2, 0, 3]  # of PyTorch, unless somebody sets another


@dataclass(frozen=True, slots=True)
class _Operands:
    """Query, key and value, with a head of key and value for each head of the query."""

    query: Tensor
    key: Tensor
    value: Tensor


def attention(
    caller: Caller,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor | None:
    """torch.nn.functional.scaled_dot_product_attention: query (..., heads, rows, width), key and value alike.

    Of a plain layer it is PyTorch's own. Else it is the math form, or with library="pytorch" it has the bits of the
    chip's fused kernel, where its order is known; else it is as near as the unit's own order is. Rows that a mask
    hides entirely are 0. Raises UnsupportedError where no backend that PyTorch's switches allow takes the call.
    """
    if not takes(query, key, value) or min(query.dim(), key.dim(), value.dim()) < MATRIX:
        return None
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        return None  # PyTorch says what is wrong
    if not query.shape[-1] or (enable_gqa and _shared_heads(query, key, value) is None):
        return None
    if attn_mask is not None and (is_causal or attn_mask.dtype not in (torch.bool, torch.float32, query.dtype)):
        return None
    format = format_name(query.dtype)
    by_rows = all(bool(x.stride(-1) == 1 or x.shape[-1] == 1) for x in (query, key, value))
    has_mask = attn_mask is not None
    groups, value_groups = (_shared_heads(query, key, value) if enable_gqa else None) or (1, 1)
    is_grouped = is_broadcast = False  # set in branches, so that they are constants in a graph of symbolic sizes
    if groups > 1 or value_groups > 1:
        is_grouped = True
    alike = -3 if enable_gqa else -2  # the dimensions before are alike
    if query.shape[:alike] != key.shape[:alike] or key.shape[:-2] != value.shape[:-2]:
        is_broadcast = True
    takes_mask = attn_mask is None or not attn_mask.requires_grad
    if takes_mask and not dropout_p and not is_broadcast and not is_transformed() and _is_plain(caller):
        return plain_attention(query, key, value, attn_mask, is_causal, scale, enable_gqa, caller.key, caller.layer)
    kind = format, query.dim(), has_mask, is_causal, by_rows, is_grouped, is_broadcast
    options, is_wide, kernels = _way(caller.key, caller.layer, caller.stage, *kind)
    sizes = query.shape[-1], value.shape[-1], query.shape[-2], key.shape[-2]
    backend = first_fit(options, *sizes, has_mask=has_mask)
    if enable_gqa:
        key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(value_groups, -3)
    mask: Tensor | None = attn_mask
    if is_causal:
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    operands = _Operands(query, key, value)
    if backend != MATH:
        has_one_query = False  # set in a branch, as above
        if query.shape[-2] == 1:
            has_one_query = True
        of_call = backend, format, has_mask, has_one_query
        widest = 0 if dropout_p else _widest(caller.key, caller.layer, caller.stage, *of_call)
        if query.shape[-1] <= widest and value.shape[-1] <= widest:
            near = _fused(caller, operands, mask, dropout_p, factor, backend, is_known=True)
            rest = (backend, is_causal, factor, groups, caller.key, caller.layer, caller.stage)
            added = None if attn_mask is None else _added(attn_mask, query.dtype)
            result = None if near is None else attended(query, key, value, near, added, *rest)
            return _shown(caller, part(backend, ATTENTION), operands, result)
        result = _fused(caller, operands, mask, dropout_p, factor, backend)
        return _shown(caller, fused(backend, ATTENTION), operands, result)
    result = _math(caller, operands, mask, dropout_p, factor, is_wide, kernels)
    return _shown(caller, ATTENTION, operands, result)


def _is_plain(caller: Caller) -> bool:
    """Whether the layer's attention is PyTorch's own, its gradients included."""
    return is_plain(caller.key, caller.layer, *STAGES)


def _shown(caller: Caller, operation: str, operands: _Operands, result: Tensor | None) -> Tensor | None:
    """The result, after the record's observer of attention has seen it; compiled graphs show it to nobody."""
    if result is None or torch.compiler.is_compiling() or is_transformed() or type(result) not in PLAIN_TENSORS:
        return result
    _, record = active(caller.key)
    if record.attention_observer is not None:
        with torch._C.DisableTorchFunction():
            place = Place(caller.key, caller.layer, caller.stage, operation)
            record.attention_observer(place, operands.query, operands.key, operands.value, result)
    return result


def _math(
    caller: Caller,
    operands: _Operands,
    mask: Tensor | None,
    dropout: float,
    factor: float,
    is_wide: bool,
    kernels: tuple[int, ...],
) -> Tensor | None:
    """_scaled_dot_product_attention_math of ATen: both operands of the scores are scaled by the factor's square root;
    operands of 16 bits are fp32 in between (is_wide), and the result alone is rounded.
    """
    query, key, value = operands.query, operands.key, operands.value
    if is_wide and query.dtype in NARROW:
        query, key, value = query.float(), key.float(), value.float()
    of_query, of_key = roots(factor)
    scores = product_of(caller, query * of_query, key.mT * of_key, SCORES)
    if scores is None:
        return None
    if mask is not None:  # PyTorch adds it, also as -infinity: a NaN that it hides stays
        scores = (scores + _added(mask, scores.dtype)).to(scores.dtype)
    hidden = (scores == -math.inf).all(-1, keepdim=True)
    is_of_kernel = bool(kernels) and scores.dtype == torch.float32 and scores.shape[-1] > 0
    if not is_of_kernel and torch.compiler.is_compiling():
        chips = other_chips(caller.key, caller.layer, "softmax")
        if chips:
            note_function(caller.key, caller.layer, "softmax", chips)
    weights = softmax(scores, SoftmaxKernels(*kernels)) if is_of_kernel else torch.softmax(scores, -1)
    weights = weights.masked_fill(hidden, 0)
    if dropout > 0:
        weights = torch.dropout(weights, dropout, True)
    result = product_of(caller, weights, value, VALUES)
    return None if result is None else result.to(operands.query.dtype)


def _fused(
    caller: Caller,
    operands: _Operands,
    mask: Tensor | None,
    dropout: float,
    factor: float,
    backend: str,
    *,
    is_known: bool = False,
) -> Tensor | None:
    """What a fused kernel computes, in the unit's own order: scores in fp32, powers rounded to the operands' dtype for
    the second product, the division last. The kernel's blocks of keys are left out. is_known: whether its bits are
    computed beside it.
    """
    query, value = operands.query, operands.value
    named = part if is_known else fused
    scores = product_of(caller, query, operands.key.mT, named(backend, SCORES), torch.float32)
    if scores is None:
        return None
    scores = _masked(scores * factor, mask)
    hidden = (scores == -math.inf).all(-1, keepdim=True)
    powers = torch.exp(scores - scores.detach().amax(-1, keepdim=True)).masked_fill(hidden, 0)
    sums = powers.sum(-1, keepdim=True).masked_fill(hidden, 1)
    if dropout > 0:
        powers = torch.dropout(powers, dropout, True)
    result = product_of(caller, powers.to(value.dtype), value, named(backend, VALUES), torch.float32)
    return None if result is None else (result / sums).to(query.dtype)


def _masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Scores with a mask: added, or False where they are hidden."""
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else (scores + mask).to(scores.dtype)


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as a fused kernel adds it to the scores: of the operands' dtype; what a boolean one hides is -infinity."""
    if mask.dtype != torch.bool:
        return mask.detach().to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, -math.inf)


def fused_attention(
    caller: Caller,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Any:
    """aten::_scaled_dot_product_flash_attention_for_cpu: `attention`, and the logarithms that PyTorch's gradient of
    the operator reads.
    """
    result = attention(caller, query, key, value, attn_mask, dropout_p, is_causal, scale)
    if result is None:
        return None
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.matmul(query.float(), key.float().mT) * factor
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril() if is_causal else attn_mask
    operator = _ATEN._scaled_dot_product_flash_attention_for_cpu.default
    shapes = operator(
        *(x.to("meta") for x in (query, key, value)), dropout_p, is_causal
    )  # compiled graphs rely on these strides
    values = zip(shapes, (result, torch.logsumexp(_masked(scores, mask), -1)), strict=True)
    return tuple(torch.empty_strided(like.shape, like.stride(), dtype=like.dtype).copy_(x) for like, x in values)


def _shared_heads(query: Tensor, key: Tensor, value: Tensor) -> tuple[Any, Any] | None:
    """How many heads of the query share one of the key, and of the value; None where PyTorch refuses."""
    if min(query.dim(), key.dim(), value.dim()) < STACK or not key.shape[-3] or not value.shape[-3]:
        return None
    heads = query.shape[-3]
    if heads % key.shape[-3] or heads % value.shape[-3]:
        return None
    return heads // key.shape[-3], heads // value.shape[-3]


@run_by_the_compiler
def _way(key: str, layer: str, stage: Any, *kind: Any) -> tuple[tuple[tuple[Any, ...], ...], bool, tuple[int, ...]]:
    """How a call of this AttentionKind is computed: the candidates of backends (none: PyTorch refuses it), whether
    operands of 16 bits are taken to fp32, and the SoftmaxKernels of the chip (none: PyTorch's own function for CPUs).
    """
    settings, _ = active(key)
    arguments = settings.of(layer, stage).arguments
    is_wide = not torch._C._get_math_sdp_allow_fp16_bf16_reduction()
    if arguments is None:
        return FORMULA, is_wide, ()
    device = arguments["device"]
    if arguments["scheme"].name == NATIVE and arguments.get("format") is None and FP32 not in device.native:
        is_wide = False
    if arguments.get("library") != PYTORCH:
        return FORMULA, is_wide, ()
    priority = [number for number in torch._C._get_sdp_priority_order() if number in BACKENDS]
    order = None if priority == DEFAULT_PRIORITY else [BACKENDS[number][0] for number in priority]
    enabled = {name for name, is_on in BACKENDS.values() if is_on()}
    options = candidates(AttentionKind(*kind), device.name, device.family, enabled, order)
    kernels: tuple[int, ...] = ()
    if device.family in families_of_kernel("softmax"):
        kernels = softmax_kernels()
    return tuple(map(tuple, options)), is_wide, kernels


_widest = run_by_the_compiler(widest_known)


__all__ = ["attention", "fused_attention"]
