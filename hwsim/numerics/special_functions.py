"""Special functions by quadratic interpolation, as NVIDIA's MUFU computes them: of arrays of fp32 codes.

It knows tables as data and fp32 codes; it knows no device. Source of the rules: configs/special_functions/mufu.yaml.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
WordArray = NDArray[np.uint32]

FRACTION, BIAS, HIDDEN = 23, 127, 1 << 23
INFINITY, NAN, SIGN = 0x7F800000, 0x7FFFFFFF, 1 << 31
LARGEST_EXPONENT = 0xFF
SQUARE_BITS = 17  # of the rest whose square is formed
PART = 1 << 14  # codes at once, whose intermediates stay in caches
EX2_LIMIT = 7  # |x| from 2^7 on overflows, or is 0
LG2_POINT, SIN_POINT, TANH_POINT = 36, 37, 38  # bits behind the point of a sum
TURN = 0xA2F983  # 1 / (2 pi), times 2^26: PTX's sin and cos multiply by it first (FMUL.RZ)
QUADRANT_BITS = 2
TANH_LEAST = BIAS - 8  # the exponent of 2^-8, below which tanh(x) is x
TANH_SEGMENTS = (0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3)  # by binade from there on: bits of the fraction that choose a line


@dataclass(frozen=True, slots=True, eq=False)
class Interpolation:
    """A table. lines: (segments, 3), c0, c1 and c2. rest_bits: of the argument within a segment. shifts, added and
    dropped: as configs/special_functions/mufu.yaml says.
    """

    lines: IntArray
    rest_bits: int
    shifts: tuple[int, int, int]
    added: int
    dropped: int

    def at(self, argument: IntArray, doubled: int = 0) -> IntArray:
        """The interpolated value of an argument: the segment's number above its rest. doubled: the square is of the
        rest times 2^doubled.
        """
        rest = argument & ((1 << self.rest_bits) - 1)
        segment = argument >> self.rest_bits
        value, slope, bend = (column.take(segment) for column in self.lines.T)
        first, second, third = self.shifts
        total: IntArray = (
            (value << first) + (slope * rest << second) + (bend * _squares().take(rest << doubled) << third)
        )
        return (total + self.added) >> self.dropped


Tables = Mapping[str, Interpolation]


@cache
def _squares() -> IntArray:
    """By rest, what the array of adders gives for its square: each bit adds the rest, cut at the last column."""
    rest = np.arange(1 << SQUARE_BITS, dtype=np.int64)
    total = np.zeros_like(rest)
    for bit in range(SQUARE_BITS):
        total += np.where(rest >> bit & 1, rest >> (SQUARE_BITS + 1 - bit), 0)
    return total >> 1


def _by_parts(function: Callable[[WordArray, Tables], WordArray]) -> Callable[[WordArray, Tables], WordArray]:
    """The function, of as many codes at once as caches hold."""

    @wraps(function)
    def of_parts(codes: WordArray, tables: Tables) -> WordArray:
        if codes.size <= PART:
            return function(codes, tables)
        flat = np.ascontiguousarray(codes).reshape(-1)
        result = np.empty_like(flat)
        for first in range(0, len(flat), PART):
            result[first : first + PART] = function(flat[first : first + PART], tables)
        return result.reshape(codes.shape)

    return of_parts


@_by_parts
def ex2(codes: WordArray, tables: Tables) -> WordArray:
    """2^x (ex2.approx.ftz): subnormal arguments and results are zero."""
    sign, exponent, significand = _parts(codes)
    fixed = (significand << EX2_LIMIT) >> np.clip(BIAS + EX2_LIMIT - exponent, 0, 40)
    fixed = (fixed ^ -sign) + (sign & (fixed & (HIDDEN - 1) == 0))  # of negative ones, the complement if not whole
    result = _packed(np.int64(0), (fixed >> FRACTION) + BIAS, tables["ex2"].at(fixed & (HIDDEN - 1)))
    is_large = exponent - BIAS >= EX2_LIMIT
    result = np.where(is_large, np.where(sign, 0, INFINITY), result)
    return _with_nan(codes, result)


@_by_parts
def rcp(codes: WordArray, tables: Tables) -> WordArray:
    """1/x (rcp.approx.ftz): subnormal arguments and results are zero."""
    sign, exponent, significand = _parts(codes)
    result = _packed(sign, 2 * BIAS - exponent - 1, tables["rcp"].at(significand & (HIDDEN - 1), doubled=1))
    top = np.where(sign, SIGN, 0)
    result = np.where(exponent == LARGEST_EXPONENT, top, np.where(significand == 0, top | INFINITY, result))
    return _with_nan(codes, result)


@_by_parts
def rsqrt(codes: WordArray, tables: Tables) -> WordArray:
    """1/sqrt(x) (rsqrt.approx.ftz): subnormal arguments are zero, and negative ones give a NaN."""
    sign, exponent, significand = _parts(codes)
    power = exponent - BIAS
    argument = (significand & (HIDDEN - 1)) | (power & 1) << FRACTION
    is_exact = argument == 0  # an even power of two
    value = np.where(is_exact, HIDDEN, tables["rsqrt"].at(argument))
    result = _packed(np.zeros_like(sign), BIAS - (power >> 1) - 1 + is_exact, value)
    result = np.where(sign, NAN, np.where(exponent == LARGEST_EXPONENT, 0, result))
    result = np.where(significand == 0, np.where(sign, SIGN | INFINITY, INFINITY), result)
    return _with_nan(codes, result)


@_by_parts
def lg2(codes: WordArray, tables: Tables) -> WordArray:
    """log2(x) (lg2.approx.ftz): subnormal arguments are zero, and negative ones give a NaN."""
    sign, exponent, significand = _parts(codes)
    fraction = significand & (HIDDEN - 1)
    is_one = (fraction == 0) & (exponent == BIAS)
    total = np.where(is_one, 0, tables["lg2"].at(fraction)) + (exponent - BIAS << LG2_POINT)
    is_negative = total < 0
    result = _cut(is_negative.astype(np.int64), np.where(is_negative, ~total, total), LG2_POINT)
    result = np.where(exponent == LARGEST_EXPONENT, INFINITY, result)
    result = np.where(significand == 0, SIGN | INFINITY, np.where(sign, NAN, result))
    return _with_nan(codes, result)


@_by_parts
def sqrt(codes: WordArray, tables: Tables) -> WordArray:
    """sqrt(x) (sqrt.approx.ftz): subnormal arguments are zero, and negative ones give a NaN."""
    sign, exponent, significand = _parts(codes)
    power = exponent - BIAS
    value = tables["sqrt"].at((significand & (HIDDEN - 1)) | (power & 1) << FRACTION)
    result = np.where(sign, NAN, _packed(sign, BIAS + (power >> 1), value))
    result = np.where(exponent == LARGEST_EXPONENT, np.where(sign, NAN, INFINITY), result)
    return _with_nan(codes, np.where(significand == 0, sign << 31, result))


@_by_parts
def tanh(codes: WordArray, tables: Tables) -> WordArray:
    """tanh(x) (tanh.approx): x itself, subnormal or not, below 2^-8; 1 from 8 on."""
    table = tables["tanh"]
    sign, exponent, significand = _parts(codes)
    binade = np.clip(exponent - TANH_LEAST, 0, len(TANH_SEGMENTS) - 1)
    bits = np.array(TANH_SEGMENTS)
    first = np.cumsum(2**bits) - 2**bits
    rest = (significand & (HIDDEN - 1)) >> (FRACTION - table.rest_bits - bits)[binade]
    total = table.at((first[binade] << table.rest_bits) + rest)
    result = _cut(sign, total, TANH_POINT - np.minimum(exponent - BIAS, -1))
    result = np.where(exponent < TANH_LEAST, codes, result)
    result = np.where(exponent >= TANH_LEAST + len(TANH_SEGMENTS), sign << 31 | BIAS << FRACTION, result)
    return _with_nan(codes, result)


@_by_parts
def sin(codes: WordArray, tables: Tables) -> WordArray:
    """sin(x) (sin.approx): of turns in fixed point, cut at 25 bits behind the point; infinities give a NaN."""
    sign, quadrant, fraction = _turns(codes)
    return _wave(codes, sign, quadrant, fraction, tables["sin"])


@_by_parts
def cos(codes: WordArray, tables: Tables) -> WordArray:
    """cos(x) (cos.approx): sin a quarter of a turn on, of |x|."""
    sign, quadrant, fraction = _turns(codes)
    return _wave(codes, np.zeros_like(sign), quadrant + 1, fraction, tables["sin"])


def _turns(codes: WordArray) -> tuple[IntArray, IntArray, IntArray]:
    """Sign, quadrant and the 23 bits of a fraction of it: of |x| / (2 pi), with 25 bits behind the point."""
    sign, exponent, significand = _parts(codes)
    product = significand * TURN
    low = FRACTION + (product >> (2 * FRACTION + 1))  # bits of the product that FMUL.RZ cuts
    left = exponent - BIAS - (2 * FRACTION + 3) + FRACTION + QUADRANT_BITS + low
    turns = product >> low
    turns = np.where(left < 0, turns >> np.clip(-left, 0, 40), turns << np.clip(left, 0, FRACTION + QUADRANT_BITS))
    return sign, turns >> FRACTION & 3, turns & (HIDDEN - 1)


def _wave(codes: WordArray, sign: IntArray, quadrant: IntArray, fraction: IntArray, table: Interpolation) -> WordArray:
    """sin at a fraction of a quadrant."""
    total = table.at(np.where(quadrant & 1, fraction ^ (HIDDEN - 1), fraction))
    result = _cut(sign ^ (quadrant >> 1 & 1), total, SIN_POINT)
    return _with_nan(codes, np.where((codes & np.uint32(INFINITY)) == INFINITY, NAN, result))


FUNCTIONS: Mapping[str, Callable[[WordArray, Tables], WordArray]] = {
    "ex2": ex2,
    "rcp": rcp,
    "rsqrt": rsqrt,
    "sqrt": sqrt,
    "lg2": lg2,
    "tanh": tanh,
    "sin": sin,
    "cos": cos,
}
TABLE_OF = {name: "sin" if name == "cos" else name for name in FUNCTIONS}


def narrow(name: str, format: str, tables: Tables) -> NDArray[np.uint16]:
    """By code of a format of 16 bits ("f16", "bf16"), the function's fp32 result, cut to that format."""
    codes = np.arange(1 << 16, dtype=np.uint16)
    if format == "bf16":
        return (FUNCTIONS[name](codes.astype(np.uint32) << np.uint32(16), tables) >> np.uint32(16)).astype(np.uint16)
    wide = FUNCTIONS[name](codes.view(np.float16).astype(np.float32).view(np.uint32), tables).view(np.float32)
    with np.errstate(over="ignore", under="ignore"):
        near = wide.astype(np.float16)
    is_beyond = np.isfinite(wide) & (np.abs(near.astype(np.float32)) > np.abs(wide)) & (np.abs(wide) < 2.0**16)
    return np.where(np.isnan(wide), np.uint16(0x7FFF), near.view(np.uint16) - is_beyond)


def _parts(codes: WordArray) -> tuple[IntArray, IntArray, IntArray]:
    """Sign, exponent field and significand with its leading one; of subnormals a significand of 0."""
    wide = codes.astype(np.int64)
    exponent = wide >> FRACTION & LARGEST_EXPONENT
    significand = np.where(exponent == 0, 0, wide & (HIDDEN - 1) | HIDDEN)
    return wide >> (FRACTION + 8), exponent, significand


def _packed(sign: IntArray | np.int64, exponent: IntArray, significand: IntArray) -> IntArray:
    """The code of significand * 2^(exponent - BIAS - FRACTION), significand below 2^24 + 1; subnormals are zero."""
    is_carried = significand >= 2 * HIDDEN
    exponent = exponent + is_carried
    fraction = np.where(is_carried, 0, significand & (HIDDEN - 1))
    code = np.where(exponent >= LARGEST_EXPONENT, INFINITY, exponent << FRACTION | fraction)
    return sign << 31 | np.where((exponent <= 0) | (significand == 0), 0, code)


def _cut(sign: IntArray, magnitude: IntArray, point: IntArray | int) -> IntArray:
    """The code of magnitude / 2^point, a magnitude below 2^53, cut to 24 bits."""
    top = _top_bit(magnitude)
    over = top - FRACTION
    value = np.where(over < 0, magnitude << np.clip(-over, 0, FRACTION), magnitude >> np.clip(over, 0, 53))
    return _packed(sign, top - point + BIAS, value)


def _top_bit(x: IntArray) -> IntArray:
    """The number of the highest bit of positive integers below 2^53."""
    top: IntArray = np.frexp(np.maximum(x, 1).astype(np.float64))[1].astype(np.int64) - 1
    return top


def _with_nan(codes: WordArray, result: Any) -> WordArray:
    """The result as codes, with NVIDIA's NaN for each NaN."""
    is_nan = (codes & np.uint32(SIGN - 1)) > INFINITY
    return np.where(is_nan, NAN, result).astype(np.uint32)
