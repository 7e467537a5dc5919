"""The product of two arrays by the settings of a pass: formats of gradients, scales by powers of two, output format.

The module knows settings and arrays; it knows no framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.backend.by_name import backend_of
from hwsim.backend.environment import in_default_environment
from hwsim.formats import format_of
from hwsim.frameworks.repeated import Ready
from hwsim.frameworks.settings import PassSettings
from hwsim.host.threads import worker_count
from hwsim.operands.operand import operand
from hwsim.operands.powers import exponent_for, times_power

AnyArray = NDArray[Any]
MATRIX = 2  # dimensions
NARROW = ("fp16", "bf16", "e4m3", "e5m2")  # result formats that the epilogue rounds to


@in_default_environment  # what NumPy scales too
def multiplied(
    chosen: PassSettings, a: AnyArray, b: AnyArray, *, gradient: str = "", **more: Any
) -> tuple[AnyArray, Ready]:
    """The product of a (..., m, k) and b (..., k, n), and its time.

    chosen: not PyTorch's or JAX's own product. gradient: the operand that is a gradient, "a", "b" or "". more:
    arguments of `hwsim.run` beside the settings'; with scales C and the bias are the caller's to add.
    """
    arguments = _formats(chosen, gradient)
    if arguments["scheme"].quantizes is not None and max(a.ndim, b.ndim) > MATRIX:
        return _one_by_one(chosen, a, b, gradient, more)
    if chosen.scale is None:
        return chosen.repeated.product(a, b, arguments, more, gradient)
    more = {name: value for name, value in more.items() if name != "output"}
    factor = more.pop("alpha", 1.0)
    threads = worker_count(more.get("threads") or arguments.get("threads"))
    left, right, exponents = scaled_operands(chosen, a, b, gradient, threads)
    result, ready = chosen.repeated.product(left, right, arguments, more, gradient, exponents)
    values = result.astype(np.float32, copy=False)  # nobody else's
    product = times_power(values, -sum(exponents), out=values, threads=threads, backend=backend_of(values))
    return (product if factor == 1 else product * np.float32(factor)), ready


def _one_by_one(
    chosen: PassSettings, a: AnyArray, b: AnyArray, gradient: str, more: Mapping[str, Any]
) -> tuple[AnyArray, Ready]:
    """A product of stacks by a scheme that quantises, which takes matrices: each is a call of its own on the device."""
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    stacks = {"a": a, "b": b} | ({"c": more["c"]} if more.get("c") is not None else {})
    wide = {name: np.broadcast_to(x, (*lead, *x.shape[-2:])) for name, x in stacks.items()}
    calls = [
        multiplied(chosen, gradient=gradient, **{**more, **{name: x[index] for name, x in wide.items()}})
        for index in np.ndindex(*lead)
    ]
    times = [
        None if any(value is None for value in values) else sum(values)
        for values in zip(*((ready.cycles, ready.seconds) for _, ready in calls), strict=True)
    ]
    products = np.stack([product for product, _ in calls]).reshape(*lead, a.shape[-2], b.shape[-1])
    return products, replace(calls[0][1], cycles=times[0], seconds=times[1])


def scaled_operands(
    chosen: PassSettings, a: AnyArray, b: AnyArray, gradient: str, threads: int = 1
) -> tuple[AnyArray, AnyArray, tuple[int, int]]:
    """Both operands in fp32, and the exponents of the powers of two that scale them to their formats."""
    arguments = _formats(chosen, gradient)
    names = arguments["format"], arguments.get("format_b") or arguments["format"]
    left, right = (_fp32(x) for x in (a, b))
    first, second = (
        exponent_for(x, format_of(name), threads, backend=backend_of(x))
        for x, name in zip((left, right), names, strict=True)
    )
    return left, right, (first, second)


def _fp32(x: AnyArray) -> AnyArray:
    return x if x.dtype == np.float32 else operand("operand", x).fp32(backend_of(x)).array


def _formats(chosen: PassSettings, gradient: str) -> Mapping[str, Any]:
    """The arguments with the gradient's format at its operand."""
    assert chosen.arguments is not None
    if chosen.gradient_format is None or not gradient:
        return chosen.arguments
    own_format = chosen.arguments["format"]
    first, second = (chosen.gradient_format, own_format) if gradient == "a" else (own_format, chosen.gradient_format)
    return {**chosen.arguments, "format": first, "format_b": second}
