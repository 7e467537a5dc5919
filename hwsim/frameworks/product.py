"""The product of two arrays by the settings of a pass: formats of gradients, scales by powers of two, output format.

The module knows settings and arrays; it knows no framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.backend.environment import in_default_environment
from hwsim.formats import format_of
from hwsim.frameworks.repeated import Ready
from hwsim.frameworks.settings import PassSettings
from hwsim.host.threads import worker_count
from hwsim.operands.operand import operand
from hwsim.operands.powers import exponent_for, times_power

AnyArray = NDArray[Any]
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
    if chosen.scale is None:
        return chosen.repeated.product(a, b, arguments, more, gradient)
    more = {name: value for name, value in more.items() if name != "output"}
    factor = more.pop("alpha", 1.0)
    threads = worker_count(more.get("threads") or arguments.get("threads"))
    left, right, exponents = scaled_operands(chosen, a, b, gradient, threads)
    result, ready = chosen.repeated.product(left, right, arguments, more, gradient, exponents)
    values = result.astype(np.float32, copy=False)  # nobody else's
    product = times_power(values, -sum(exponents), out=values, threads=threads)
    return (product if factor == 1 else product * np.float32(factor)), ready


def scaled_operands(
    chosen: PassSettings, a: AnyArray, b: AnyArray, gradient: str, threads: int = 1
) -> tuple[AnyArray, AnyArray, tuple[int, int]]:
    """Both operands in fp32, and the exponents of the powers of two that scale them to their formats."""
    arguments = _formats(chosen, gradient)
    names = arguments["format"], arguments.get("format_b") or arguments["format"]
    left, right = (_fp32(x) for x in (a, b))
    first, second = (exponent_for(x, format_of(name), threads) for x, name in zip((left, right), names, strict=True))
    return left, right, (first, second)


def _fp32(x: AnyArray) -> AnyArray:
    return x if x.dtype == np.float32 else operand("operand", x).fp32().array


def _formats(chosen: PassSettings, gradient: str) -> Mapping[str, Any]:
    """The arguments with the gradient's format at its operand."""
    assert chosen.arguments is not None
    if chosen.gradient_format is None or not gradient:
        return chosen.arguments
    own_format = chosen.arguments["format"]
    first, second = (chosen.gradient_format, own_format) if gradient == "a" else (own_format, chosen.gradient_format)
    return {**chosen.arguments, "format": first, "format_b": second}
