"""The product of two arrays by the settings of a pass: formats of gradients, scales by powers of two, output format.

The module knows settings and arrays; it knows no framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.environment import in_default_environment
from hwsim.formats import decode, format_of
from hwsim.frameworks.settings import PassSettings, power_of_two
from hwsim.repeated import Ready

Array = NDArray[Any]
PLAIN_EXPONENT = 126  # powers of two that fp32 holds, both ways
NARROW = ("fp16", "bf16", "e4m3", "e5m2")  # result formats that the epilogue rounds to


@in_default_environment  # scaling is NumPy's arithmetic
def multiplied(chosen: PassSettings, a: Array, b: Array, *, gradient: str = "", **more: Any) -> tuple[Array, Ready]:
    """The product of a (..., m, k) and b (..., k, n), and its time.

    chosen: not PyTorch's or JAX's own product. gradient: the operand that is a gradient, "a", "b" or "". more:
    arguments of `hwsim.run` beside the settings'; with scales C and the bias are the caller's to add.
    """
    if chosen.scale is None:
        return chosen.repeated.product(a, b, _formats(chosen, gradient), more, gradient)
    arguments = _formats(chosen, gradient)
    more = {name: value for name, value in more.items() if name != "output"}
    factor = more.pop("alpha", 1.0)
    left, right, exponent = _scaled(a, b, arguments)
    found, ready = chosen.repeated.product(left, right, arguments, more, gradient)
    values = found.astype(np.float32, copy=False)  # nobody else's
    product = _times_power(values, -exponent, out=values)
    return (product if factor == 1 else product * np.float32(factor)), ready


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


def _times_power(values: Array, exponent: int, out: Array | None = None) -> Array:
    """fp32 values times 2^exponent, rounded once where the result is subnormal. out: filled and returned."""
    if abs(exponent) > PLAIN_EXPONENT:  # such a factor is no fp32 number; this is slower
        return np.ldexp(values, exponent, out=out)
    product: Array = np.multiply(values, np.float32(2.0**exponent), out=out)
    return product
