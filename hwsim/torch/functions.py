"""PyTorch's functions with matrix products, as calls of hwsim's operators: what `emulate` puts in their place.

Each takes a `Caller` and the function's own arguments, and returns None for operands that it leaves to PyTorch. The
module knows PyTorch's signatures and shapes; it knows no device and no setting.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  its usual name
from torch import Tensor

from hwsim import contraction
from hwsim.errors import UnsupportedError
from hwsim.torch import operators
from hwsim.torch.tensors import is_known

MATRIX, STACK = 2, 3  # dimensions


@dataclass(frozen=True, slots=True)
class Caller:
    """The settings' key and the layer's name of the products of a call; below autograd also the pass, and the operand
    that is a gradient.
    """

    key: str
    layer: str
    stage: str = "forward"
    gradient: str = ""

    def product(self, a: Tensor, b: Tensor, c: Tensor | None, operation: str, **more: Any) -> Tensor:
        """See hwsim.torch.operators.product."""
        return operators.product(
            a, b, c, self.key, self.layer, operation, stage=self.stage, gradient=self.gradient, **more
        )


def takes(*tensors: Any) -> bool:
    """Whether these are dense tensors of one dtype that hwsim multiplies (no integers: `_int_mm` alone takes these)."""
    first = tensors[0]
    return all(
        isinstance(x, Tensor)
        and x.layout == torch.strided
        and x.is_floating_point()
        and is_known(x)
        and x.dtype == first.dtype
        for x in tensors
    )


def _multiplies(a: Tensor, b: Tensor, dim: int = MATRIX) -> bool:
    """Whether a and b are matrices (`dim` 2) or stacks of as many (3) whose sizes fit; PyTorch says what is wrong."""
    return a.dim() == b.dim() == dim and a.shape[-1] == b.shape[-2] and a.shape[:-2] == b.shape[:-2]


def _spreads(c: Tensor, *shape: Any) -> bool:
    """Whether c broadcasts to `shape`."""
    own = tuple(c.shape)
    return len(own) <= len(shape) and all(x in (1, y) for x, y in zip(own, shape[len(shape) - len(own) :], strict=True))


def mm(caller: Caller, a: Tensor, b: Tensor, *, out: Any = None) -> Tensor | None:
    """torch.mm"""
    if out is not None or not takes(a, b) or not _multiplies(a, b):
        return None
    return caller.product(a, b, None, "mm")


def bmm(caller: Caller, a: Tensor, b: Tensor, *, out: Any = None) -> Tensor | None:
    """torch.bmm"""
    if out is not None or not takes(a, b) or not _multiplies(a, b, STACK):
        return None
    return caller.product(a, b, None, "bmm")


def matmul(caller: Caller, a: Tensor, b: Tensor, *, out: Any = None) -> Tensor | None:
    """torch.matmul: a stack by one matrix is one product, as in PyTorch."""
    if out is not None or not takes(a, b):
        return None
    return _matmul(caller, a, b, "matmul")


def rmatmul(caller: Caller, b: Tensor, a: Tensor) -> Tensor | None:
    """Tensor.__rmatmul__"""
    return matmul(caller, a, b)


def _rows(x: Tensor) -> Tensor:
    """(..., k) as a matrix; -1 would not do where x has no elements."""
    if x.dim() == MATRIX:
        return x
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _stack(x: Tensor) -> Tensor:
    """(..., m, k) as one stack."""
    if x.dim() == STACK:
        return x
    return x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])


def _matmul(caller: Caller, a: Tensor, b: Tensor, operation: str) -> Tensor | None:
    if a.dim() == 0 or b.dim() == 0:
        return None
    left = a.unsqueeze(0) if a.dim() == 1 else a
    right = b.unsqueeze(-1) if b.dim() == 1 else b
    if left.shape[-1] != right.shape[-2]:
        return None  # PyTorch says what is wrong
    if left.dim() == right.dim() == MATRIX:
        made = caller.product(left, right, None, operation)
    elif right.dim() == MATRIX:
        made = caller.product(_rows(left), right, None, operation).reshape(*left.shape[:-1], right.shape[-1])
    else:
        lead = left.shape[:-2]
        if right.shape[:-2] != lead:
            lead = torch.broadcast_shapes(lead, right.shape[:-2])
            left, right = left.expand(*lead, *left.shape[-2:]), right.expand(*lead, *right.shape[-2:])
        made = caller.product(_stack(left), _stack(right), None, operation)
        made = made if len(lead) == 1 else made.reshape(*lead, *made.shape[-2:])
    if a.dim() == 1:
        made = made.squeeze(-2)
    return made.squeeze(-1) if b.dim() == 1 else made


def addmm(
    caller: Caller, c: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Any = None
) -> Tensor | None:
    """torch.addmm"""
    if out is not None or not takes(a, b, c) or not _multiplies(a, b) or not _spreads(c, a.shape[0], b.shape[1]):
        return None
    return caller.product(a, b, c, "addmm", alpha=alpha, beta=beta)


def baddbmm(
    caller: Caller, c: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Any = None
) -> Tensor | None:
    """torch.baddbmm"""
    if out is not None or not takes(a, b, c) or not _multiplies(a, b, STACK):
        return None
    shape = (a.shape[0], a.shape[1], b.shape[2])
    if not _spreads(c, *shape):
        return None
    return caller.product(a, b, c.expand(shape), "baddbmm", alpha=alpha, beta=beta)


def mv(caller: Caller, a: Tensor, x: Tensor, *, out: Any = None) -> Tensor | None:
    """torch.mv"""
    if out is not None or not takes(a, x) or a.dim() != MATRIX or x.dim() != 1 or a.shape[1] != x.shape[0]:
        return None
    return caller.product(a, x.unsqueeze(1), None, "mv").squeeze(1)


def dot(caller: Caller, x: Tensor, y: Tensor, *, out: Any = None) -> Tensor | None:
    """torch.dot, torch.inner of vectors"""
    if out is not None or not takes(x, y) or x.dim() != 1 or y.dim() != 1 or x.shape != y.shape:
        return None
    return caller.product(x.unsqueeze(0), y.unsqueeze(1), None, "dot").reshape(())


def inner(caller: Caller, x: Tensor, y: Tensor, *, out: Any = None) -> Tensor | None:
    """torch.inner"""
    if out is not None or not takes(x, y) or not x.dim() or not y.dim() or x.shape[-1] != y.shape[-1]:
        return None
    flat = caller.product(_rows(x), _rows(y).mT, None, "inner")
    return flat.reshape(*x.shape[:-1], *y.shape[:-1])


def tensordot(caller: Caller, x: Tensor, y: Tensor, dims: Any = 2, out: Any = None) -> Tensor | None:
    """torch.tensordot"""
    if out is not None or not takes(x, y) or isinstance(dims, Tensor):
        return None
    if isinstance(dims, int):
        left, right = list(range(x.dim() - dims, x.dim())), list(range(dims))
    else:
        left, right = [i % x.dim() for i in dims[0]], [i % y.dim() for i in dims[1]]
    rows, columns = [i for i in range(x.dim()) if i not in left], [i for i in range(y.dim()) if i not in right]
    depth = math.prod([x.shape[i] for i in left])
    if [x.shape[i] for i in left] != [y.shape[i] for i in right]:
        return None  # PyTorch says what is wrong
    high, wide = [x.shape[i] for i in rows], [y.shape[i] for i in columns]
    a = x.permute(rows + left).reshape(math.prod(high), depth)
    b = y.permute(right + columns).reshape(depth, math.prod(wide))
    return caller.product(a, b, None, "tensordot").reshape([*high, *wide])


def einsum(caller: Caller, equation: Any, *operands: Any) -> Tensor | None:
    """torch.einsum with plain letters; anything else is PyTorch's, and its products are caught below."""
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    if not isinstance(equation, str) or len(operands) < MATRIX or not takes(*operands):
        return None
    parsed = contraction.parse(equation, len(operands))
    if parsed is None or not _fit(parsed[0], operands):
        return None

    def multiply(a: Any, b: Any) -> Any:
        lead = a.shape[:-2]
        if not lead:
            return caller.product(a, b, None, "einsum")
        made = caller.product(_stack(a), _stack(b), None, "einsum")
        return made.reshape(*lead, *made.shape[-2:])

    made: Any = contraction.einsum(*parsed, operands, multiply, torch.einsum)
    return made


def _fit(terms: list[str], operands: tuple[Tensor, ...]) -> bool:
    """Whether each index letter has one size; a size 1 that stands for others is PyTorch's."""
    sizes: dict[str, Any] = {}
    for term, operand in zip(terms, operands, strict=True):
        if len(term) != operand.dim():
            return False
        if any(sizes.setdefault(letter, size) != size for letter, size in zip(term, operand.shape, strict=True)):
            return False
    return True


def linear(caller: Caller, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """torch.nn.functional.linear"""
    if not takes(x, w, *(() if bias is None else (bias,))) or w.dim() not in (1, MATRIX):
        return None
    if not x.dim() or x.shape[-1] != w.shape[-1]:
        return None
    if bias is not None and w.dim() == MATRIX and bias.shape != w.shape[:1]:
        return None
    if w.dim() == 1:
        made = _matmul(caller, x, w, "linear")
        return made if bias is None or made is None else made + bias
    return caller.product(_rows(x), w.t(), bias, "linear").reshape(*x.shape[:-1], w.shape[0])


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
    """torch.nn.functional.scaled_dot_product_attention in its math form: two products and a softmax between, each
    rounded to the tensors' dtype. Rows that a mask hides entirely are 0.
    """
    if not takes(query, key, value) or min(query.dim(), key.dim(), value.dim()) < MATRIX:
        return None
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        return None  # PyTorch says what is wrong
    if attn_mask is not None and (is_causal or attn_mask.dtype not in (torch.bool, torch.float32, query.dtype)):
        return None
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    scores = _matmul(caller, query, key.mT, "attention scores")
    if scores is None:
        return None
    scores = scores * factor
    hidden: Any = None
    if is_causal:
        hidden = ~torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    elif attn_mask is not None and attn_mask.dtype == torch.bool:
        hidden = ~attn_mask
    elif attn_mask is not None:
        scores = scores + attn_mask.to(scores.dtype)
        hidden = scores == -math.inf
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    weights = torch.softmax(scores, -1)
    if attn_mask is not None:
        weights = weights.masked_fill(hidden.all(-1, keepdim=True), 0)
    weights = torch.dropout(weights, dropout_p, dropout_p > 0)
    return _matmul(caller, weights, value, "attention values")


def scaled_mm(
    caller: Caller,
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor | None:
    """torch._scaled_mm with one scale per tensor. Raises UnsupportedError for scales by row or block."""
    if scale_a.numel() != 1 or scale_b.numel() != 1:
        raise UnsupportedError(
            f"_scaled_mm: scales of shapes {tuple(scale_a.shape)} and {tuple(scale_b.shape)}; hwsim.torch takes one "
            "scale per tensor (by rows and by blocks: not yet)"
        )
    if scale_result is not None:
        raise UnsupportedError("_scaled_mm: scale_result is not taken; scale the result outside")
    if not is_known(a) or not is_known(b) or not _multiplies(a, b):
        return None
    dtype = out_dtype or a.dtype
    product = caller.product(a, b, None, "_scaled_mm", dtype=torch.float32)
    made = product * (scale_a * scale_b)
    if bias is not None:
        made = made + bias.float()
    return made.to(dtype)


def scaled_mm_v2(
    caller: Caller,
    a: Tensor,
    b: Tensor,
    scale_a: list[Tensor],
    recipe_a: Any,
    swizzle_a: Any,
    scale_b: list[Tensor],
    recipe_b: Any,
    swizzle_b: Any,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    contraction_dim: Any = (),
    use_fast_accum: bool = False,
) -> Tensor | None:
    """aten::_scaled_mm_v2, below torch.nn.functional.scaled_mm. Raises UnsupportedError for more than one scale per
    tensor.
    """
    if len(scale_a) != 1 or len(scale_b) != 1:
        raise UnsupportedError(
            f"_scaled_mm_v2: {len(scale_a)} and {len(scale_b)} tensors of scales; hwsim.torch takes one scale per "
            "tensor (by rows and by blocks: not yet)"
        )
    return scaled_mm(caller, a, b, scale_a[0], scale_b[0], bias, None, out_dtype, use_fast_accum)


def int_mm(caller: Caller, a: Tensor, b: Tensor, *, out: Any = None) -> Tensor | None:
    """torch._int_mm: int8 by int8 to int32"""
    if out is not None or a.dtype != torch.int8 or b.dtype != torch.int8 or not _multiplies(a, b):
        return None
    return caller.product(a, b, None, "_int_mm", dtype=torch.int32)


# --- convolutions ----------------------------------------------------------------------------------------------------


def _tuple(value: Any, count: int) -> list[int]:
    if isinstance(value, int):
        return [value] * count
    values = [int(x) for x in value]
    return values * count if len(values) == 1 else values


def _is_window(steps: list[int], around: list[int], gaps: list[int], groups: int) -> bool:
    """Whether PyTorch takes such strides, paddings, dilations and groups."""
    return min(steps) > 0 and min(around) >= 0 and min(gaps) > 0 and groups > 0


def convolution(count: int) -> Callable[..., Tensor | None]:
    """torch.nn.functional.conv1d, conv2d or conv3d: `count` spatial dimensions."""

    def conv(
        caller: Caller,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor | None:
        if not takes(x, weight, *(() if bias is None else (bias,))):
            return None
        if weight.dim() != count + 2 or x.dim() not in (count + 1, count + 2):
            return None  # here and below PyTorch says what is wrong
        is_single = x.dim() == count + 1
        image = x.unsqueeze(0) if is_single else x
        steps, gaps = _tuple(stride, count), _tuple(dilation, count)
        if padding == "valid":
            around = [0] * count
        elif padding == "same":
            if any(step != 1 for step in steps):
                return None
            reach = [d * (r - 1) for d, r in zip(gaps, weight.shape[2:], strict=True)]
            image = F.pad(image, [side for x in reversed(reach) for side in (x // 2, x - x // 2)])
            around = [0] * count
        elif isinstance(padding, str):
            return None
        else:
            around = _tuple(padding, count)
        channels, out = image.shape[1], weight.shape[0]
        if not _is_window(steps, around, gaps, groups) or channels != weight.shape[1] * groups or out % groups:
            return None
        if bias is not None and bias.shape != (out,):
            return None
        sizes = zip(image.shape[2:], weight.shape[2:], around, gaps, strict=True)
        if any(size + 2 * p < d * (r - 1) + 1 for size, r, p, d in sizes):
            return None
        made: Tensor = operators.call(
            "convolution", image, weight, bias, steps, around, gaps, groups, caller.key, caller.layer, "forward"
        )
        return made.squeeze(0) if is_single else made

    return conv


def transposed(count: int) -> Callable[..., Tensor | None]:
    """torch.nn.functional.conv_transpose1d, 2d or 3d: a convolution's gradient of the input."""

    def conv(
        caller: Caller,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Tensor | None:
        if not takes(x, weight, *(() if bias is None else (bias,))):
            return None
        if weight.dim() != count + 2 or x.dim() not in (count + 1, count + 2):
            return None  # here and below PyTorch says what is wrong
        is_single = x.dim() == count + 1
        image = x.unsqueeze(0) if is_single else x
        steps, around, more, gaps = (_tuple(v, count) for v in (stride, padding, output_padding, dilation))
        if not _is_window(steps, around, gaps, groups) or image.shape[1] != weight.shape[0]:
            return None
        if image.shape[1] % groups or (bias is not None and bias.shape != (weight.shape[1] * groups,)):
            return None
        if any(not 0 <= o < max(s, d) for o, s, d in zip(more, steps, gaps, strict=True)):
            return None
        sizes = zip(image.shape[2:], weight.shape[2:], steps, around, more, gaps, strict=True)
        out = [(size - 1) * s - 2 * p + d * (r - 1) + o + 1 for size, r, s, p, o, d in sizes]
        if any(size < 1 for size in out):
            return None
        size = [image.shape[0], weight.shape[1] * groups, *out]
        made: Tensor = operators.call(
            "convolution_input", image, weight, size, steps, around, gaps, groups, caller.key, caller.layer, "forward"
        )
        if bias is not None:
            made = made + bias.reshape(-1, *(1 for _ in out))
        return made.squeeze(0) if is_single else made

    return conv


def general_convolution(
    caller: Caller,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    is_transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor | None:
    """torch.convolution, aten::convolution"""
    count = weight.dim() - MATRIX
    if is_transposed:
        return transposed(count)(caller, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return convolution(count)(caller, x, weight, bias, stride, padding, dilation, groups)


#: {PyTorch's function: what stands in for it}
FUNCTIONS: dict[Any, Callable[..., Tensor | None]] = {
    torch.mm: mm,
    Tensor.mm: mm,
    torch.bmm: bmm,
    Tensor.bmm: bmm,
    torch.matmul: matmul,
    Tensor.matmul: matmul,
    torch.linalg.matmul: matmul,
    Tensor.__matmul__: matmul,
    Tensor.__rmatmul__: rmatmul,
    torch.addmm: addmm,
    Tensor.addmm: addmm,
    torch.baddbmm: baddbmm,
    Tensor.baddbmm: baddbmm,
    torch.mv: mv,
    Tensor.mv: mv,
    torch.dot: dot,
    Tensor.dot: dot,
    torch.inner: inner,
    Tensor.inner: inner,
    torch.tensordot: tensordot,
    torch.einsum: einsum,
    F.linear: linear,
    F.scaled_dot_product_attention: attention,
    torch._scaled_mm: scaled_mm,
    torch._int_mm: int_mm,
    torch.convolution: general_convolution,
    **{x: convolution(1) for x in (F.conv1d, torch.conv1d)},
    **{x: convolution(2) for x in (F.conv2d, torch.conv2d)},
    **{x: convolution(3) for x in (F.conv3d, torch.conv3d)},
    **{x: transposed(1) for x in (F.conv_transpose1d, torch.conv_transpose1d)},
    **{x: transposed(2) for x in (F.conv_transpose2d, torch.conv_transpose2d)},
    **{x: transposed(3) for x in (F.conv_transpose3d, torch.conv_transpose3d)},
}

#: Functions whose operands autocast leaves alone.
UNCAST = frozenset({torch.mv, Tensor.mv, torch.dot, Tensor.dot, torch._scaled_mm, torch._int_mm})

_ATEN = torch.ops.aten
#: {aten's operator: what stands in for it}: products that PyTorch's own C++ functions call.
OPERATORS: dict[Any, Callable[..., Tensor | None]] = {
    _ATEN.mm.default: mm,
    _ATEN.bmm.default: bmm,
    _ATEN.addmm.default: addmm,
    _ATEN.baddbmm.default: baddbmm,
    _ATEN.mv.default: mv,
    _ATEN.dot.default: dot,
    _ATEN.convolution.default: general_convolution,
    _ATEN._scaled_mm.default: scaled_mm,
    _ATEN._int_mm.default: int_mm,
    # of PyTorch 2.10 and later
    **{getattr(_ATEN, name).default: scaled_mm_v2 for name in ("_scaled_mm_v2",) if hasattr(_ATEN, name)},
}
