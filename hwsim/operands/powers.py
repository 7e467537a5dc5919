"""Powers of two that bring fp32 arrays into the range of a format: which one, the scaled array, its codes; powers of
four beyond numbers.

The module knows formats, arrays and backends; it knows no operand of a product and no device.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.backend.cpu import CPU
from hwsim.formats import Format, decode, format_of
from hwsim.host.threads import for_elements

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend

AnyArray = NDArray[Any]
LEAST, MOST = -149, 127  # exponents of the powers of two that fp32 holds
FP32 = format_of("fp32")


def power_of_two(largest: float, top: float) -> int:
    """The exponent e with largest * 2^e in (top / 2, top]; 0 for zero, infinity and NaN."""
    if not math.isfinite(largest) or largest == 0:
        return 0
    (significand, place), (most, top_place) = math.frexp(largest), math.frexp(top)
    return top_place - place - (significand > most)


def power_of_four_beyond(values: AnyArray) -> AnyArray:
    """The least integers j with 4^j > values, as int64; values: fp64, not negative; 0 of zero."""
    exponents: AnyArray = (np.frexp(values)[1].astype(np.int64) + 1) >> 1
    return exponents


def exponents_beyond_norms(x: AnyArray, axis: int, factor: float) -> tuple[AnyArray, AnyArray]:
    """Of each row (axis -1) or column (-2): the least e with all magnitudes below 2^e, and the least j with 4^j beyond
    factor times the sum of squares in units of 4^e; int64, the axis kept with length 1. x: fp64, finite.
    """
    top: AnyArray = np.frexp(np.abs(x).max(axis=axis, keepdims=True, initial=0.0))[1].astype(np.int64)
    squares = (np.ldexp(x, -top) ** 2).sum(axis=axis, keepdims=True)
    return top, power_of_four_beyond(squares * factor)


def exponent_for(values: AnyArray, fmt: Format, threads: int = 1, *, backend: Backend = CPU) -> int:
    """The exponent of the power of two that brings the largest magnitude of fp32 values just below the format's largest
    number; 0 where all are zero, or one is infinite or a NaN.
    """
    rows, _ = as_they_lie(values)
    most = backend.largest(rows, threads=for_elements(threads, values.size))
    return power_of_two(most, largest_number(fmt))


@lru_cache(maxsize=64)
def largest_number(fmt: Format) -> float:
    """The largest finite number of a format."""
    top = decode(fmt, fmt.largest_code())
    return math.ldexp(top.significand, top.exponent)


def times_power(
    values: AnyArray, exponent: int, out: AnyArray | None = None, threads: int = 1, *, backend: Backend = CPU
) -> AnyArray:
    """fp32 values times 2^exponent, each rounded once, to nearest even. out: filled and returned; C order, the values
    themselves or no memory of theirs.
    """
    if not LEAST <= exponent <= MOST:  # such a factor is no fp32 number; this is slower
        with np.errstate(over="ignore", under="ignore"):
            return np.ldexp(values, exponent, out=out)
    count = for_elements(threads, values.size)
    if out is not None:
        return backend.scale(values, exponent, out=out, threads=count)
    rows, is_by_columns = as_they_lie(values)
    scaled = backend.scale(rows, exponent, threads=count)
    return scaled.swapaxes(-1, -2) if is_by_columns else scaled


def encoded(
    values: AnyArray,
    exponent: int,
    fmt: Format,
    rounding: str = "RNE",
    overflow: str = "ieee",
    threads: int = 1,
    *,
    backend: Backend = CPU,
) -> AnyArray:
    """Codes of finite fp32 values times 2^exponent: rounded to fp32, then by `rounding` and `overflow` to the format.

    One pass over the values, where fp32 holds the power and the format's numbers.
    """
    if fmt == FP32:
        return times_power(values, exponent, threads=threads, backend=backend).view(np.uint32)
    rows, is_by_columns = as_they_lie(values)
    count = for_elements(threads, values.size)
    if LEAST <= exponent <= MOST and FP32.holds(fmt):
        nan = "zero" if fmt.nan == "none" else "quiet"  # there are no NaNs
        codes = backend.split(rows, [(fmt, rounding, exponent, overflow)], nan=nan, threads=count)[0]
    else:
        scaled = times_power(rows, exponent, threads=threads, backend=backend)
        codes = backend.encode(scaled, fmt, rounding, overflow, threads=count)
    return codes.swapaxes(-1, -2) if is_by_columns else codes


def as_they_lie(values: AnyArray) -> tuple[AnyArray, bool]:
    """The values with rows along memory, and whether that is a transpose: backends read rows."""
    is_by_columns = values.ndim > 1 and values.strides[-1] > values.strides[-2]
    return (values.swapaxes(-1, -2) if is_by_columns else values), is_by_columns
