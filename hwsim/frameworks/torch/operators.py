"""The operators hwsim::product and hwsim::convolution of PyTorch: schemas, shapes, gradients and batching rules.

They stay in compiled graphs as they are. The module knows PyTorch's registrations; what is computed is products' and
convolutions'.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.autograd import forward_ad

from hwsim.frameworks.torch import convolutions
from hwsim.frameworks.torch.multiplication import multiply, multiply_scaled
from hwsim.frameworks.torch.place import Place, of_gradient
from hwsim.frameworks.torch.tensors import layout

DIFFERENTIATED = (
    "inside hwsim.torch.emulate torch.func's derivatives are run eagerly, as torch.compile takes no tangents of a "
    "registered operator: leave fullgraph=True out, or call backward() or torch.autograd.grad outside of what is "
    "compiled"
)
MATRIX = 2  # dimensions
PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)
LIBRARY = torch.library.Library("hwsim", "DEF")
_WHERE = "str key, str layer, str stage, str operation, str gradient"
LIBRARY.define(
    f"product(Tensor a, Tensor b, Tensor? c, float alpha, float beta, ScalarType dtype, {_WHERE}) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
LIBRARY.define(
    "scaled_product(Tensor a, Tensor b, Tensor[] scale_a, Tensor[] scale_b, Tensor? bias, ScalarType dtype, str key, "
    "str layer, str operation) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
#: is_transposed: a transposed convolution, or a gradient of one.
_SHAPE = "int[] stride, int[] padding, int[] dilation, int groups, bool is_transposed"
LIBRARY.define(
    f"convolution(Tensor x, Tensor w, Tensor? bias, {_SHAPE}, str key, str layer, str stage) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
LIBRARY.define(
    f"convolution_input(Tensor dy, Tensor w, SymInt[] size, {_SHAPE}, str key, str layer, str stage) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
LIBRARY.define(
    f"convolution_weight(Tensor dy, Tensor x, SymInt[] size, {_SHAPE}, str key, str layer, str stage) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)


# --- products --------------------------------------------------------------------------------------------------------


def product(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None,
    key: str,
    layer: str,
    operation: str,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    dtype: torch.dtype | None = None,
    stage: str = "forward",
    gradient: str = "",
) -> torch.Tensor:
    """alpha a b + beta c by the settings of `key`. a (m, k) or (count, m, k), b alike; c: (n,) or broadcast to it."""
    rest = (float(alpha), float(beta), dtype or a.dtype, key, layer, stage, operation, gradient)
    if _is_alone(a, b, c):
        if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in (a, b, c)):
            result: torch.Tensor = _Differentiable.apply(a, b, c, *rest)
            return result
        with torch._C._DisableTorchDispatch():  # what the record measures is not caught
            return _product(a, b, c, *rest)
    return call("product", a, b, c, *rest)


def scaled_product(
    operands: tuple[torch.Tensor, torch.Tensor],
    scale_a: Sequence[torch.Tensor],
    scale_b: Sequence[torch.Tensor],
    bias: torch.Tensor | None,
    key: str,
    layer: str,
    operation: str,
    dtype: torch.dtype,
) -> torch.Tensor:
    """The product of `operands`, a (m, k) and b (k, n), with scales as of torch._scaled_mm, plus a bias (n,)."""
    a, b = operands
    rest = (list(scale_a), list(scale_b), bias, dtype, key, layer, operation)
    if _is_alone(a, b, bias, *scale_a, *scale_b):
        with torch._C._DisableTorchDispatch():
            return _scaled_product(a, b, *rest)
    result: torch.Tensor = torch.ops.hwsim.scaled_product(a, b, *rest)
    return result


def call(name: str, *arguments: Any) -> torch.Tensor:
    """The operator hwsim::`name`, under transforms of torch.func and forward-mode differentiation too."""
    if torch.compiler.is_dynamo_compiling() and _is_differentiated():
        torch._dynamo.graph_break(msg=DIFFERENTIATED)
    function = FUNCTIONS[name].apply if is_transformed() else getattr(torch.ops.hwsim, name)
    result = function(*arguments)
    assert isinstance(result, torch.Tensor)
    return result


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # asked while the call is traced
def _is_differentiated() -> bool:
    """Whether torch.func differentiates what is compiled: a registered operator has no tangents there."""
    kinds = torch._C._functorch.TransformType
    return any(
        interpreter.key() in (kinds.Grad, kinds.Jvp)
        for interpreter in torch._C._functorch.get_interpreter_stack() or ()
    )


def is_transformed() -> bool:
    """Whether tangents or several gradients at once are asked for, which PyTorch gives to no registered operator."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


#: Whether a tensor is a stack by autograd's `is_grads_batched`, which is not torch.func's vmap.
is_batched_gradient = torch._C._functorch.is_legacy_batchedtensor


def _is_alone(*tensors: torch.Tensor | None) -> bool:
    """Whether nobody would see the operator: no transform, compiler or other mode, tensors of no subclass.

    PyTorch's dispatcher, which calls Python for each of these, takes as long as a product of 100 x 100 x 100.
    """
    present = [tensor for tensor in tensors if tensor is not None]
    if any(type(tensor) not in PLAIN_TENSORS for tensor in present) or torch.compiler.is_compiling():
        return False
    if torch._C._get_tracing_state() is not None:  # torch.jit.trace
        return False
    if is_transformed() or any(tensor.is_meta or is_batched_gradient(tensor) for tensor in present):
        return False
    modes = torch._C._len_torch_dispatch_stack()
    return modes == 0 or (modes == 1 and getattr(torch._C._get_dispatch_stack_at(0), "is_of_hwsim", False))


def _product(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None,
    alpha: float,
    beta: float,
    dtype: torch.dtype,
    key: str,
    layer: str,
    stage: Any,
    operation: str,
    gradient: str,
) -> torch.Tensor:
    return multiply(Place(key, layer, stage, operation, gradient), a, b, c, alpha, beta, dtype)


def _scaled_product(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: Sequence[torch.Tensor],
    scale_b: Sequence[torch.Tensor],
    bias: torch.Tensor | None,
    dtype: torch.dtype,
    key: str,
    layer: str,
    operation: str,
) -> torch.Tensor:
    return multiply_scaled(Place(key, layer, "forward", operation), (a, b), scale_a, scale_b, bias, dtype)


def _scaled_shape(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, dtype: torch.dtype, *_: Any) -> torch.Tensor:
    result: torch.Tensor = a.new_empty((a.shape[0], b.shape[1]), dtype=dtype)
    return result


LIBRARY.impl("scaled_product", _scaled_product, "CompositeExplicitAutograd")
torch.library.register_fake("hwsim::scaled_product", _scaled_shape, lib=LIBRARY)


def _product_shape(a: Any, b: Any, c: Any, alpha: Any, beta: Any, dtype: torch.dtype, *_: Any) -> torch.Tensor:
    torch._check(a.dim() == b.dim() and a.dim() in (2, 3), lambda: "hwsim::product: two matrices, or two stacks")
    torch._check(a.shape[-1] == b.shape[-2], lambda: f"hwsim::product: {tuple(a.shape)} by {tuple(b.shape)}")
    result: torch.Tensor = a.new_empty((*a.shape[:-1], b.shape[-1]), dtype=dtype)
    return result


def _product_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    a, b, c, ctx.alpha, ctx.beta, _, ctx.key, ctx.layer, _, ctx.operation, _ = inputs
    ctx.c = None if c is None else (c.shape, c.dtype)
    ctx.save_for_backward(a, b)


def _product_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    """The two gradient products, with operands as PyTorch's own formulas lay them out: that of a matrix stored column
    by column is computed as a transpose, one of a stack is not (derivatives.yaml: mm, bmm).
    """
    a, b = ctx.saved_tensors
    of_a = of_b = of_c = None
    where = (ctx.key, ctx.layer, of_gradient(ctx.operation))
    if ctx.needs_input_grad[0]:
        if a.dim() == MATRIX and layout(a) == "columns":
            of_a = product(
                b, grad.mT, None, *where, alpha=ctx.alpha, dtype=a.dtype, stage="backward_input", gradient="b"
            ).mT
        else:
            of_a = product(
                grad, b.mT, None, *where, alpha=ctx.alpha, dtype=a.dtype, stage="backward_input", gradient="a"
            )
    if ctx.needs_input_grad[1]:
        if b.dim() == MATRIX and layout(b) == "columns":
            of_b = product(
                grad.mT, a, None, *where, alpha=ctx.alpha, dtype=b.dtype, stage="backward_weight", gradient="a"
            ).mT
        else:
            of_b = product(
                a.mT, grad, None, *where, alpha=ctx.alpha, dtype=b.dtype, stage="backward_weight", gradient="b"
            )
    if ctx.c is not None and ctx.needs_input_grad[2]:
        shape, dtype = ctx.c
        of_c = (grad if ctx.beta == 1 else grad * ctx.beta).sum_to_size(shape).to(dtype)
    return of_a, of_b, of_c, *(None for _ in range(8))


class _Differentiable(torch.autograd.Function):
    """The product and its gradients, where nobody would see the operator: as registered, without the dispatcher."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> torch.Tensor:
        with torch._C._DisableTorchDispatch():
            result = _product(*inputs)
        _product_context(ctx, inputs, result)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _product_backward(ctx, grads[0])


def _first(x: torch.Tensor, dim: int | None, count: int, at: int = 0) -> torch.Tensor:
    """x with the mapped dimension at `at`; one that is not mapped is repeated `count` times, without a copy."""
    if dim is not None:
        return x.movedim(dim, at)
    shape = list(x.shape)
    shape.insert(at, count)
    return x.unsqueeze(at).expand(shape)


def _product_vmap(
    operator: Callable[..., Any], info: Any, dims: tuple[Any, ...], a: Any, b: Any, c: Any, *rest: Any
) -> tuple[torch.Tensor, int]:
    """One stack of all: the mapped dimension joins the leading ones."""
    count = info.batch_size
    left, right = _first(a, dims[0], count), _first(b, dims[1], count)
    lead = left.shape[:-2]
    shape = (*left.shape[:-1], right.shape[-1])
    added = None
    if c is not None:
        added = _first(c, dims[2], count)
        added = added.reshape(count, *(1 for _ in range(len(shape) - added.dim())), *added.shape[1:])
        added = added.expand(shape).flatten(0, -3)
    out = operator(left.flatten(0, -3), right.flatten(0, -3), added, *rest)
    return out.unflatten(0, lead), 0


LIBRARY.impl("product", _product, "CompositeExplicitAutograd")
torch.library.register_fake("hwsim::product", _product_shape, lib=LIBRARY)
torch.library.register_autograd("hwsim::product", _product_backward, setup_context=_product_context, lib=LIBRARY)
torch.library.register_vmap("hwsim::product", partial(_product_vmap, torch.ops.hwsim.product), lib=LIBRARY)


# --- convolutions ----------------------------------------------------------------------------------------------------


def _forward(x: Any, w: Any, bias: Any, *rest: Any) -> torch.Tensor:
    *shape, is_transposed, key, layer, stage = rest
    place = Place(key, layer, stage, "convolution")
    return convolutions.forward(x, w, bias, convolutions.Window(*shape), place, is_transposed=is_transposed)


def _forward_shape(x: Any, w: Any, bias: Any, *rest: Any) -> torch.Tensor:
    shape = convolutions.Window(*rest[:4]).out_shape(x.shape, w.shape)
    return _laid_out(x, shape, convolutions.memory_format(x, w))


def _laid_out(like: Any, shape: Any, memory_format: torch.memory_format) -> torch.Tensor:
    """An empty tensor of that shape and memory format."""
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=memory_format)


def _input(dy: Any, w: Any, size: Any, *rest: Any) -> torch.Tensor:
    *shape, is_transposed, key, layer, stage = rest
    gradient = "a" if stage != "forward" else ""
    place = Place(key, layer, stage, "convolution", gradient)
    return convolutions.of_input(dy, w, size, convolutions.Window(*shape), place, is_transposed=is_transposed)


def _weight(dy: Any, x: Any, size: Any, *rest: Any) -> torch.Tensor:
    *shape, is_transposed, key, layer, stage = rest
    place = Place(key, layer, stage, "convolution", "a")
    return convolutions.of_weight(dy, x, size, convolutions.Window(*shape), place, is_transposed=is_transposed)


def _input_shape(dy: Any, w: Any, size: Any, *rest: Any) -> torch.Tensor:
    return _laid_out(dy, size, convolutions.memory_format(dy, w))


def _weight_shape(dy: Any, _: Any, size: Any, *rest: Any) -> torch.Tensor:
    return _laid_out(dy, size, torch.contiguous_format)


def _forward_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, w, bias, *ctx.rest, _ = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(x, w)


def _forward_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    x, w = ctx.saved_tensors
    of_x = of_w = of_bias = None
    if ctx.needs_input_grad[0]:
        of_x = call("convolution_input", grad, w, x.shape, *ctx.rest, "backward_input")
    if ctx.needs_input_grad[1]:
        of_w = call("convolution_weight", grad, x, w.shape, *ctx.rest, "backward_weight")
    if ctx.has_bias and ctx.needs_input_grad[2]:
        of_bias = grad.sum([0, *range(2, grad.dim())])
    return of_x, of_w, of_bias, *(None for _ in range(8))


def _input_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    dy, w, _, *ctx.rest, _ = inputs
    ctx.save_for_backward(dy, w)


def _input_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    """Gradients of a transposed convolution: a convolution, and a weight gradient with both images exchanged."""
    dy, w = ctx.saved_tensors
    of_dy = of_w = None
    if ctx.needs_input_grad[0]:
        of_dy = call("convolution", grad, w, None, *ctx.rest, "backward_input")
    if ctx.needs_input_grad[1]:
        of_w = call("convolution_weight", dy, grad, w.shape, *ctx.rest, "backward_weight")
    return of_dy, of_w, *(None for _ in range(9))


def _weight_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    dy, x, _, *ctx.rest, _ = inputs
    ctx.save_for_backward(dy, x)


def _weight_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    dy, x = ctx.saved_tensors
    of_dy = of_x = None
    if ctx.needs_input_grad[0]:
        of_dy = call("convolution", x, grad, None, *ctx.rest, "backward_input")
    if ctx.needs_input_grad[1]:
        of_x = call("convolution_input", dy, grad, x.shape, *ctx.rest, "backward_input")
    return of_dy, of_x, *(None for _ in range(9))


def _convolution_vmap(
    operator: Callable[..., Any], info: Any, dims: tuple[Any, ...], x: Any, w: Any, bias: Any, *rest: Any
) -> tuple[torch.Tensor, int]:
    """Mapped images are more images; mapped windows are groups of channels of their own."""
    count, (stride, padding, dilation, groups, *where) = info.batch_size, rest
    if dims[1] is None and dims[2] is None:
        images = x.movedim(dims[0], 0)
        out = operator(images.flatten(0, 1), w, bias, *rest)
        return out.unflatten(0, images.shape[:2]), 0
    channels = _first(x, dims[0], count, 1).flatten(1, 2)
    windows, biases = _first(w, dims[1], count), None if bias is None else _first(bias, dims[2], count).flatten()
    out = operator(channels, windows.flatten(0, 1), biases, stride, padding, dilation, groups * count, *where)
    return out.unflatten(1, windows.shape[:2]), 1


def _input_vmap(
    operator: Callable[..., Any], info: Any, dims: tuple[Any, ...], dy: Any, w: Any, size: Any, *rest: Any
) -> tuple[torch.Tensor, int]:
    count, (stride, padding, dilation, groups, *where) = info.batch_size, rest
    n, c, *image = size
    if dims[1] is None:
        out = operator(dy.movedim(dims[0], 0).flatten(0, 1), w, [count * n, c, *image], *rest)
        return out.unflatten(0, (count, n)), 0
    channels, windows = _first(dy, dims[0], count, 1).flatten(1, 2), _first(w, dims[1], count).flatten(0, 1)
    out = operator(channels, windows, [n, count * c, *image], stride, padding, dilation, groups * count, *where)
    return out.unflatten(1, (count, c)), 1


def _weight_vmap(
    operator: Callable[..., Any], info: Any, dims: tuple[Any, ...], dy: Any, x: Any, size: Any, *rest: Any
) -> tuple[torch.Tensor, int]:
    count, (stride, padding, dilation, groups, *where) = info.batch_size, rest
    left, right = (_first(y, dim, count, 1).flatten(1, 2) for y, dim in ((dy, dims[0]), (x, dims[1])))
    o, *window = size
    out = operator(left, right, [count * o, *window], stride, padding, dilation, groups * count, *where)
    return out.unflatten(0, (count, o)), 0


for _name, _made, _fake, _context, _gradients, _vmap in (
    ("convolution", _forward, _forward_shape, _forward_context, _forward_backward, _convolution_vmap),
    ("convolution_input", _input, _input_shape, _input_context, _input_backward, _input_vmap),
    ("convolution_weight", _weight, _weight_shape, _weight_context, _weight_backward, _weight_vmap),
):
    LIBRARY.impl(_name, _made, "CompositeExplicitAutograd")
    torch.library.register_fake(f"hwsim::{_name}", _fake, lib=LIBRARY)
    torch.library.register_autograd(f"hwsim::{_name}", _gradients, setup_context=_context, lib=LIBRARY)
    torch.library.register_vmap(f"hwsim::{_name}", partial(_vmap, getattr(torch.ops.hwsim, _name)), lib=LIBRARY)


# --- under torch.func and forward-mode differentiation ---------------------------------------------------------------


def _tangent(name: str, inputs: tuple[Any, ...], tangents: tuple[Any, ...]) -> torch.Tensor:
    """The tangent of an operator that is linear in each of its first two operands; the third one, where it is a tensor,
    is added.
    """
    first, second, third, *rest = inputs
    is_product = name == "product"
    none = None if is_product or name == "convolution" else third  # the gradients' third argument is a size
    parts = [call(name, tangents[0], second, none, *rest)] if tangents[0] is not None else []
    parts += [call(name, first, tangents[1], none, *rest)] if tangents[1] is not None else []
    if tangents[2] is not None:
        beta = rest[1] if is_product else 1.0
        added = tangents[2] if is_product else tangents[2].reshape(-1, *(1 for _ in first.shape[2:]))
        added = added if beta == 1 else beta * added
        if not parts:  # the derivative by the third alone: of the output's shape, and no product
            of_output = getattr(torch.ops.hwsim, name)(first.to("meta"), second.to("meta"), None, *rest)
            added = added.to(of_output.dtype).expand(of_output.shape)
        parts.append(added)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _function(name: str, context: Any, gradients: Any, batched: Any) -> type[torch.autograd.Function]:
    """An operator as a function of torch.autograd, which torch.func and forward mode take."""

    def forward(*inputs: Any) -> Any:
        return getattr(torch.ops.hwsim, name)(*inputs)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        context(ctx, inputs, output)
        ctx.set_materialize_grads(False)
        ctx.inputs = [None if isinstance(value, torch.Tensor) else value for value in inputs]
        ctx.save_for_forward(*(value if isinstance(value, torch.Tensor) else None for value in inputs[:3]))

    def backward(ctx: Any, grad: Any) -> Any:
        return (None,) * len(ctx.inputs) if grad is None else gradients(ctx, grad)

    def jvp(ctx: Any, *tangents: Any) -> Any:
        inputs = [x if y is None else y for x, y in zip(ctx.inputs[:3], ctx.saved_tensors, strict=True)]
        return _tangent(name, (*inputs, *ctx.inputs[3:]), tangents)

    def vmap(info: Any, dims: Any, *inputs: Any) -> Any:
        return batched(partial(call, name), info, dims, *inputs)

    members = {"forward": forward, "setup_context": setup_context, "backward": backward, "jvp": jvp, "vmap": vmap}
    return type(
        f"_{name}", (torch.autograd.Function,), {member: staticmethod(function) for member, function in members.items()}
    )


FUNCTIONS = {
    "product": _function("product", _product_context, _product_backward, _product_vmap),
    "convolution": _function("convolution", _forward_context, _forward_backward, _convolution_vmap),
    "convolution_input": _function("convolution_input", _input_context, _input_backward, _input_vmap),
    "convolution_weight": _function("convolution_weight", _weight_context, _weight_backward, _weight_vmap),
}
