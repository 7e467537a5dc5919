"""The operators hwsim::attended and hwsim::expf: a kernel's own bits, with the gradient of what stands beside them.

The module knows tensors, settings and PyTorch's registrations; which kernel there is, and its order, is
hwsim.compute.attention_kernel's.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from hwsim.compute.attention_kernel import kernel_of, widest_head
from hwsim.compute.timed_attention import fused_attention
from hwsim.devices import at_clock
from hwsim.frameworks.torch.multiplication import active
from hwsim.frameworks.torch.operators import LIBRARY
from hwsim.frameworks.torch.own_kernels import cuda_math
from hwsim.frameworks.torch.place import VALUES, Place, part
from hwsim.frameworks.torch.tensors import array_of, format_name, tensor_of
from hwsim.gemm.attention_record import FusedAttention, Mask
from hwsim.libraries.gemm_call import PYTORCH
from hwsim.machines.l2_state import DEFAULT

if TYPE_CHECKING:
    from hwsim.analysis.program_times import Times
    from hwsim.devices.device import Device

NATIVE = "native"
CACHED = 64  # attentions whose times stay in the cache
#: By a record, a device's id, which so stays its own, launches and the state of L2.
_TIMES: dict[tuple[FusedAttention, int, bool, str], tuple[Device, Times]] = {}
NEAR, TENSORS = 3, 5  # of the operands of hwsim::attended: the place of `near`, and how many are tensors or None
LIBRARY.define("expf(Tensor x, Tensor near) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
LIBRARY.define(
    "attended(Tensor query, Tensor key, Tensor value, Tensor near, Tensor? mask, str backend, bool is_causal, "
    "float factor, int groups, str settings, str layer, str stage) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def widest_known(
    settings: str, layer: str, stage: Any, backend: str, format: str, has_mask: bool, has_one_query: bool
) -> int:
    """The widest head for which the order of a backend's kernel is known, with a mask or without, and with one query or
    more; 0: for none.
    """
    arguments = active(settings)[0].of(layer, stage).arguments
    if arguments is None or arguments.get("library") != PYTORCH:
        return 0
    if arguments["scheme"].name != NATIVE or arguments.get("format") is not None:
        return 0
    return widest_head(arguments["device"], backend, format, has_mask=has_mask, has_one_query=has_one_query)


def attended(query: Tensor, key: Tensor, value: Tensor, near: Tensor, mask: Tensor | None, *rest: Any) -> Tensor:
    """Attention of stacks (..., heads, rows, width) in the order of a kernel; with the shape, dtype and gradient of
    `near`. mask: of the operands' dtype, which broadcasts to (..., heads, queries, keys) and is added to the scores.
    rest: as of the operator.
    """
    if _is_transformed():
        transformed: Tensor = FUNCTIONS["attended"].apply(query, key, value, near, mask, *rest)
        return transformed
    result: Tensor = torch.ops.hwsim.attended(query, key, value, near, mask, *rest)
    return result


def _attended(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    near: Tensor,
    mask: Tensor | None,
    backend: str,
    is_causal: bool,
    factor: float,
    groups: int,
    settings: str,
    layer: str,
    stage: Any,
) -> Tensor:
    chosen, record = active(settings)
    arguments = chosen.of(layer, stage).arguments
    if arguments is None or 0 in (*query.shape, *key.shape, *value.shape):
        return near.clone()
    threads = arguments.get("threads") or torch.get_num_threads()
    lead = near.shape[:-2]
    stacks = [_codes(x.expand(*lead, *x.shape[-2:])) for x in (query, key, value)]
    shapes = tuple(stack.shape for stack in stacks)
    kernel = kernel_of(
        arguments["device"], backend, format_name(query.dtype), shapes, groups=groups, is_causal=is_causal
    )
    if record.timing and stage == "forward":
        place = Place(settings, layer, stage, part(backend, VALUES))
        of_mask: Mask = "none" if mask is None else "shared" if prod(mask.shape[:-2]) == 1 else "own"
        work = kernel.record(shapes, groups=groups, factor=factor, mask=of_mask)
        record.timed(place, _times(work, kernel.instruction, arguments))
    added = None if mask is None else _codes(mask.expand(*lead, query.shape[-2], key.shape[-2]))
    codes = kernel.attend(*stacks, factor=factor, threads=threads, mask=added).reshape(near.shape)
    like = array_of(torch.empty(0, dtype=query.dtype)).dtype
    return tensor_of(np.ascontiguousarray(codes).view(like), near.dtype, near.device)


def _times(record: FusedAttention, unit: str, arguments: Mapping[str, Any]) -> Times:
    """The times of a record by the options that count for its cycles; an attention that is asked for again, as by the
    layers of a model, is timed once.
    """
    device, mhz = arguments["device"], arguments.get("clock_mhz")
    device = device if mhz is None else at_clock(device, mhz)
    overhead, l2 = bool(arguments.get("launch_overhead")), arguments.get("l2") or DEFAULT
    key = record, id(device), overhead, l2
    if key not in _TIMES:
        times = fused_attention(record, device, unit).times(launch_overhead=overhead, l2=l2)
        if len(_TIMES) >= CACHED:
            _TIMES.clear()
        _TIMES[key] = device, times
    return _TIMES[key][1]


def _codes(x: Tensor) -> Any:
    """(..., rows, width) as codes (heads, rows, width)."""
    values = array_of(x.reshape(-1, *x.shape[-2:]).contiguous())
    return values.view(np.uint16)


def _like(query: Any, key: Any, value: Any, near: Any, *_: Any) -> Tensor:
    result: Tensor = torch.empty_like(near)
    return result


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return (None, None, None, grad, *(None for _ in range(8)))


def _vmap(info: Any, dims: tuple[Any, ...], *inputs: Any) -> tuple[Tensor, int]:
    """The mapped dimension leads; the heads of each call are counted alone."""
    tensors, rest = inputs[:TENSORS], inputs[TENSORS:]
    calls = [
        attended(
            *(x if dim is None else x.select(dim, i) for x, dim in zip(tensors, dims[:TENSORS], strict=True)), *rest
        )
        for i in range(info.batch_size)
    ]
    return torch.stack(calls), 0


def _expf(x: Tensor, near: Tensor) -> Tensor:
    return torch.from_numpy(cuda_math().expf(array_of(x))).to(near.device)


def _expf_vmap(info: Any, dims: tuple[Any, ...], x: Tensor, near: Tensor) -> tuple[Tensor, int]:
    first, second = (y.movedim(dim, 0) for y, dim in zip((x, near), dims, strict=True))
    return expf(first, second), 0


def expf(x: Tensor, near: Tensor) -> Tensor:
    """CUDA's expf of x <= 0, fp32, with the gradient of `near`, which is nearly that."""
    if _is_transformed():
        transformed: Tensor = FUNCTIONS["expf"].apply(x, near)
        return transformed
    result: Tensor = torch.ops.hwsim.expf(x, near)
    return result


def _is_transformed() -> bool:
    """Whether torch.func or forward mode asks for more than a registered operator gives."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def _function(name: str, place: int, batched: Any) -> type[torch.autograd.Function]:
    """An operator, whose gradient is of the operand at `place`, as torch.func and forward mode take it."""

    def forward(*inputs: Any) -> Any:
        return getattr(torch.ops.hwsim, name)(*inputs)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.count = len(inputs)

    def backward(ctx: Any, grad: Any) -> Any:
        return tuple(grad if index == place else None for index in range(ctx.count))

    def jvp(ctx: Any, *tangents: Any) -> Any:
        return tangents[place]

    members = {"forward": forward, "setup_context": setup_context, "backward": backward, "jvp": jvp, "vmap": batched}
    return type(
        f"_{name}", (torch.autograd.Function,), {member: staticmethod(function) for member, function in members.items()}
    )


FUNCTIONS = {"attended": _function("attended", NEAR, _vmap), "expf": _function("expf", 1, _expf_vmap)}

LIBRARY.impl("expf", _expf, "CompositeExplicitAutograd")
torch.library.register_fake("hwsim::expf", lambda x, near: torch.empty_like(near), lib=LIBRARY)
torch.library.register_autograd("hwsim::expf", lambda ctx, grad: (None, grad), lib=LIBRARY)
torch.library.register_vmap("hwsim::expf", _expf_vmap, lib=LIBRARY)
LIBRARY.impl("attended", _attended, "CompositeExplicitAutograd")
torch.library.register_fake("hwsim::attended", _like, lib=LIBRARY)
torch.library.register_autograd("hwsim::attended", _backward, lib=LIBRARY)
torch.library.register_vmap("hwsim::attended", _vmap, lib=LIBRARY)

__all__ = ["attended", "expf", "widest_known"]
