"""One product of two tensors on a simulated device, as the settings of its layer and pass say, and its record.

The module knows settings, tensors and `hwsim.run`; it knows no operator of PyTorch and no autograd.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hwsim.api import run
from hwsim.errors import InputError
from hwsim.formats import decode, format_of
from hwsim.torch.record import Record
from hwsim.torch.settings import PassSettings, Settings, Stage, power_of_two
from hwsim.torch.tensors import Array, array_of, format_name, layout, tensor_of

#: {key: (settings, the record that their products go to)} of everything that a compiled graph or a module may name.
_ACTIVE: dict[str, tuple[Settings, Record]] = {}
PLAIN_EXPONENT = 126  # powers of two that fp32 holds, both ways
NARROW = ("fp16", "bf16", "e4m3", "e5m2")  # result formats that the epilogue rounds to


def activate(settings: Settings, record: Record) -> None:
    """Make settings known by their key; products under them go to `record` from now on."""
    _ACTIVE[settings.key] = settings, record


def active(key: str) -> tuple[Settings, Record]:
    """The settings of a key and their record. Raises InputError for a key that this process does not know."""
    found = _ACTIVE.get(key)
    if found is None:
        raise InputError(
            f"a compiled graph or module names hwsim settings {key} that this process has not made: enter "
            "hwsim.torch.emulate, or call hwsim.torch.swap, with the same arguments first"
        )
    return found


@dataclass(frozen=True, slots=True)
class Place:
    """Where a product belongs: the settings' key, the layer's name, the pass, the operation (for the record), and which
    operand is a gradient ("a", "b", or "").
    """

    key: str
    layer: str
    stage: Stage
    operation: str
    gradient: str = ""


def multiply(
    place: Place,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None,
    alpha: float,
    beta: float,
    dtype: torch.dtype,
) -> torch.Tensor:
    """alpha a b + beta c, of `dtype`. a (..., m, k), b (..., k, n), the same leading dimensions; c: (n,), a bias, or
    broadcast to the product.
    """
    settings, record = active(place.key)
    chosen = settings.of(place.layer, place.stage)
    if chosen.arguments is None or 0 in (*a.shape, b.shape[-1]):
        return plain_product(a, b, c, alpha, beta, dtype)
    start = time.perf_counter()
    left, right = array_of(a), array_of(b)
    more, is_added = _c_arguments(a, b, c, alpha, beta)
    output = format_name(dtype)
    if output in NARROW:
        more["output"] = output
    if chosen.arguments.get("library") is not None:
        more |= {"a_layout": layout(a), "b_layout": layout(b)}
    arguments = _formats(chosen, place.gradient)
    if chosen.scale is None:
        result = run(left, right, timing=record.timing, threads=_threads(chosen), **more, **arguments)
        assert result.c is not None
        product = result.c
    else:
        more.pop("output", None)
        left, right, exponent = _scaled(left, right, arguments)
        factor = more.pop("alpha", 1.0)
        result = run(left, right, timing=record.timing, threads=_threads(chosen), **arguments)
        assert result.c is not None
        product = _times_power(result.c.astype(np.float32, copy=False), -exponent)
        product = product if factor == 1 else product * np.float32(factor)
        is_added = c is not None
    out = tensor_of(product, dtype, a.device)
    if is_added and c is not None:
        out = out + (c if beta == 1 else beta * c).to(dtype)
    record.product(place, a, b, c, alpha, beta, out, result, time.perf_counter() - start)
    return out


def _c_arguments(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None, alpha: float, beta: float
) -> tuple[dict[str, Any], bool]:
    """alpha, beta, C and the bias as arguments of `hwsim.run`, and whether C has to be added afterwards."""
    more: dict[str, Any] = {} if alpha == 1 else {"alpha": alpha}
    if c is None or beta == 0:
        return more, False
    shape, n = (*a.shape[:-1], b.shape[-1]), b.shape[-1]
    if c.shape == (n,) and beta == 1 and alpha == 1:
        return {"bias": array_of(c.contiguous())}, False
    if c.dim() <= len(shape):
        return {**more, "c": array_of(c.broadcast_to(shape).contiguous()), "beta": beta}, False
    return more, True


def _formats(chosen: PassSettings, gradient: str) -> Mapping[str, Any]:
    """The arguments with the gradient's format at its operand."""
    assert chosen.arguments is not None
    if chosen.gradient_format is None or not gradient:
        return chosen.arguments
    own = chosen.arguments["format"]
    first, second = (chosen.gradient_format, own) if gradient == "a" else (own, chosen.gradient_format)
    return {**chosen.arguments, "format": first, "format_b": second}


def _scaled(a: Array, b: Array, arguments: Mapping[str, Any]) -> tuple[Array, Array, int]:
    """Both operands in fp32, scaled to their formats, and the sum of the exponents."""
    total, found = 0, []
    for x, name in ((a, arguments["format"]), (b, arguments.get("format_b") or arguments["format"])):
        fmt = format_of(name)
        top = decode(fmt, fmt.largest_code())
        values = x.astype(np.float32, copy=False)
        largest = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
        exponent = power_of_two(largest, float(top.significand) * 2.0**top.exponent)
        found.append(_times_power(values, exponent))
        total += exponent
    return found[0], found[1], total


def _times_power(values: Array, exponent: int) -> Array:
    """fp32 values times 2^exponent, rounded once where the result is subnormal."""
    if abs(exponent) > PLAIN_EXPONENT:  # such a factor is no fp32 number; this is slower
        return np.ldexp(values, exponent)
    return values * np.float32(2.0**exponent)


def _threads(chosen: PassSettings) -> int:
    """PyTorch's own number of threads, but where the caller gave one."""
    assert chosen.arguments is not None
    return int(chosen.arguments.get("threads") or torch.get_num_threads())


def plain_product(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None, alpha: float, beta: float, dtype: torch.dtype
) -> torch.Tensor:
    """The product as PyTorch's CPU kernels compute it, of `dtype`."""
    if dtype == torch.int32:
        return torch.matmul(a.to(torch.int32), b.to(torch.int32))
    wide = torch.float32 if a.element_size() == 1 else a.dtype
    product = torch.matmul(a.to(wide), b.to(wide))
    product = product if alpha == 1 else alpha * product
    if c is not None and beta != 0:
        product = product + (c if beta == 1 else beta * c)
    return product.to(dtype)


__all__ = ["Place", "activate", "active", "multiply", "plain_product"]
