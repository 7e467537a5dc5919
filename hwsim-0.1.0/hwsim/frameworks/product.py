"""The product of two arrays by the settings of a pass: formats of gradients, scales by powers of two, output format.

The module knows settings, arrays and prepared products; it knows no framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.api import prepared
from hwsim.formats import decode, format_of
from hwsim.frameworks.settings import PassSettings, power_of_two

if TYPE_CHECKING:
    from hwsim.prepared import Prepared

Array = NDArray[Any]
PLAIN_EXPONENT = 126  # powers of two that fp32 holds, both ways
MOST_KINDS = 4096  # of operands, that a pass keeps products ready for
NARROW = ("fp16", "bf16", "e4m3", "e5m2")  # result formats that the epilogue rounds to


@dataclass(frozen=True, slots=True)
class Ready:
    """A product for all operands of one kind (None: asked for anew each time), and its time on the simulated device."""

    product: Prepared | None
    cycles: int | None
    seconds: float | None


def multiplied(chosen: PassSettings, a: Array, b: Array, *, gradient: str = "", **more: Any) -> tuple[Array, Ready]:
    """The product of a (..., m, k) and b (..., k, n), and its time.

    chosen: not PyTorch's or JAX's own product. gradient: the operand that is a gradient, "a", "b" or "". more:
    arguments of `hwsim.run` beside the settings'; with scales C and the bias are the caller's to add.
    """
    if chosen.scale is None:
        return _product(chosen, gradient, a, b, more)
    arguments = _formats(chosen, gradient)
    more = {name: value for name, value in more.items() if name != "output"}
    factor = more.pop("alpha", 1.0)
    left, right, exponent = _scaled(a, b, arguments)
    found, ready = _product(chosen, gradient, left, right, more)
    product = _times_power(found.astype(np.float32, copy=False), -exponent)
    return (product if factor == 1 else product * np.float32(factor)), ready


def _product(chosen: PassSettings, gradient: str, a: Array, b: Array, more: Mapping[str, Any]) -> tuple[Array, Ready]:
    """The product, by what was made ready for operands of this kind, where something was."""
    c, bias = more.get("c"), more.get("bias")
    said = repr([(name, value) for name, value in more.items() if name not in ("c", "bias")])  # tells 0.0 from -0.0
    kind = (gradient, a.shape, a.dtype, b.shape, b.dtype, c is None, bias is None, said)
    ready: Ready | None = chosen.ready.get(kind)
    if ready is not None and ready.product is not None:
        return ready.product(a, b, c, bias), ready
    result, product = prepared(a, b, **{**_formats(chosen, gradient), **more})  # threads may be in both
    assert result.c is not None
    ready = Ready(product, result.cycles, result.seconds)
    if len(chosen.ready) >= MOST_KINDS:
        chosen.ready.clear()
    chosen.ready[kind] = ready
    return result.c, ready


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
