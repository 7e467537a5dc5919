"""The records that kernels read, as the sources lay them out (tile.cuh, elements.cuh, hw_convert.h, hw_lanes.h).

The module knows formats' fields; it knows no GPU and no array.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from hwsim.formats import ROUNDINGS, Exact, code_dtype, round_to

if TYPE_CHECKING:
    from hwsim.formats import Format

ADDRESSES = ("a", "b", "c", "out")
STRIDES = (
    *("a_row", "a_column", "b_row", "b_column", "c_row", "c_column"),
    *("a_matrix", "b_matrix", "c_matrix", "out_matrix"),
)
OF_SCALES = (
    *("a_scale_row", "a_scale_column", "b_scale_row", "b_scale_column"),
    *("a_scale_matrix", "b_scale_matrix"),
)
AXES, MOST_OPERANDS, MOST_STEPS = 6, 32, 64  # of elements.cuh
INTEGER_PLACES = 33  # an integer is rounded as a number with places of 1 and room above the largest int32
BEYOND = 12  # log2 of an exponent far beyond that of every format's largest value
ALL_ONES = (1 << 64) - 1
FP32_BITS = 24  # of a significand


class ProductArguments(ctypes.Structure):
    """struct Arguments of tile.cuh: a product's arrays with their strides in bytes."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ADDRESSES),
        *((name, ctypes.c_int64) for name in STRIDES),
        *((name, ctypes.c_uint64) for name in ("a_scale", "b_scale")),
        *((name, ctypes.c_int64) for name in OF_SCALES),
        *((name, ctypes.c_uint64) for name in ("divide", "marks")),
        *((name, ctypes.c_int32) for name in ("m", "n", "k")),
    ]


class Strided(ctypes.Structure):
    """struct Strided of elements.cuh. type: bits of an element, or its hw_lane_type."""

    _fields_ = [("data", ctypes.c_uint64), ("stride", ctypes.c_int64 * AXES), ("type", ctypes.c_int32)]


class StridedShape(ctypes.Structure):
    """struct Shape of elements.cuh."""

    _fields_ = [("length", ctypes.c_int64 * AXES), ("count", ctypes.c_int64), ("axes", ctypes.c_int32)]


class LaneRecord(ctypes.Structure):
    """hw_lane_step of hw_lanes.h."""

    _fields_ = [("op", ctypes.c_int32), ("index", ctypes.c_int32), ("factor", ctypes.c_double)]


class LaneArguments(ctypes.Structure):
    """struct Lanes of elements.cuh: steps, operands, edges."""

    _fields_ = [
        ("steps", LaneRecord * MOST_STEPS),
        ("operands", Strided * MOST_OPERANDS),
        ("saturate", ctypes.c_int32),
        ("nan", ctypes.c_uint64),
        ("step_count", ctypes.c_int32),
    ]


class ConversionStep(ctypes.Structure):
    """hw_step of hw_convert.h."""

    _fields_ = [("scale", ctypes.c_double), ("saturate", ctypes.c_int32), ("zero_nan", ctypes.c_int32)]


class Encoder(ctypes.Structure):
    """hw_encoder of hw_convert.h."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("rounding", "source_bits", "code_bits", "exponent_bits")),
        *((name, ctypes.c_int32) for name in ("fraction_bits", "min_exponent", "ignored_bits")),
        *((name, ctypes.c_uint64) for name in ("hidden", "largest", "sign_bit", "code_mask", "nan")),
        *((name, ctypes.c_uint64 * 2) for name in ("zero", "small", "overflow", "infinity")),
        ("negative_is_nan", ctypes.c_uint64),
    ]


class Decoder(ctypes.Structure):
    """hw_decoder of hw_convert.h."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("code_bits", "value_bits", "exponent_bits", "fraction_bits")),
        *((name, ctypes.c_int32) for name in ("min_exponent", "ignored_bits", "is_signed", "bias", "subnormals")),
        *((name, ctypes.c_int32) for name in ("has_infinity", "minus_zero_is_nan")),
        ("largest", ctypes.c_uint64),
    ]


class SplitRecord(ctypes.Structure):
    """hw_piece of hw_convert.h."""

    _fields_ = [("step", ConversionStep), ("encoder", Encoder), ("decoder", Decoder), ("codes", ctypes.c_uint64)]


def strided(address: int, strides: Sequence[int], kind: int) -> Strided:
    """An array by its address and the strides of up to AXES axes."""
    padded = (0,) * (AXES - len(strides)) + tuple(strides)
    return Strided(address, (ctypes.c_int64 * AXES)(*padded), kind)


def shape_of(shape: Sequence[int]) -> StridedShape:
    """A shape of 1 to AXES axes."""
    padded = (1,) * (AXES - len(shape)) + tuple(shape)
    return StridedShape((ctypes.c_int64 * AXES)(*padded), math.prod(shape), len(shape))


def joined_axes(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """The same elements in the same order with as few axes as these arrays' strides allow, at least one."""
    lengths: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]  # of each array
    for axis, length in enumerate(shape):
        if length == 1:
            continue
        places = [of_array[axis] for of_array in strides]
        if lengths and all(line[-1] == place * length for line, place in zip(steps, places, strict=True)):
            lengths[-1] *= length
            for line, place in zip(steps, places, strict=True):
                line[-1] = place
            continue
        lengths.append(length)
        for line, place in zip(steps, places, strict=True):
            line.append(place)
    return tuple(lengths) or (1,), tuple(tuple(line) or (0,) for line in steps)


@lru_cache(maxsize=256)
def encoder_of(fmt: Format, rounding: str, overflow: str, nan: str, source_bits: int) -> Encoder:
    """The fields of a format and the codes of one policy, as the CPU's kernels have them (kernels_ext/convert.pyx)."""

    def pair(kind: str, significand: int = 0, exponent: int = 0) -> list[int]:
        values = (Exact(kind, sign, significand, exponent) for sign in (0, 1))  # type: ignore[arg-type]
        return [round_to(fmt, x, rounding, overflow=overflow) for x in values]  # type: ignore[arg-type]

    zero, places = pair("finite"), INTEGER_PLACES
    if nan == "zero" or fmt.is_integer or fmt.nan == "none":
        code = zero[0]
    elif nan == "all-ones" and fmt.nan == "ieee" and fmt.signed:
        code = ((1 << (fmt.bits - 1)) - 1) >> fmt.ignored_bits << fmt.ignored_bits
    else:
        code = fmt.nan_code
    small = [fmt.zero_code(sign) if fmt.subnormals else fmt.word(sign, 0) for sign in (0, 1)]
    two = ctypes.c_uint64 * 2
    return Encoder(
        rounding=ROUNDINGS.index(rounding),
        source_bits=source_bits,
        code_bits=8 * code_dtype(fmt).itemsize,
        exponent_bits=fmt.exponent_bits,
        fraction_bits=places if fmt.is_integer else fmt.fraction_bits,
        min_exponent=places if fmt.is_integer else fmt.min_exponent,
        ignored_bits=fmt.ignored_bits,
        hidden=0 if fmt.subnormals else 1 << fmt.fraction_bits,
        largest=fmt.largest_magnitude,
        sign_bit=fmt.word(1, 0),
        code_mask=(1 << fmt.bits) - 1,
        nan=code,
        zero=two(*zero),
        small=two(*small),
        overflow=two(*pair("finite", 1, 1 << BEYOND)),
        infinity=two(*pair("infinity")),
        negative_is_nan=0 if fmt.signed else ALL_ONES,
    )


@lru_cache(maxsize=64)
def decoder_of(fmt: Format, value_bits: int) -> Decoder:
    """The fields of a format, as the CPU's kernels have them."""
    return Decoder(
        code_bits=8 * code_dtype(fmt).itemsize,
        value_bits=value_bits,
        exponent_bits=fmt.exponent_bits,
        fraction_bits=fmt.fraction_bits,
        min_exponent=fmt.min_exponent,
        ignored_bits=fmt.ignored_bits,
        is_signed=fmt.signed,
        bias=fmt.bias,
        subnormals=fmt.subnormals,
        has_infinity=fmt.has_infinity,
        minus_zero_is_nan=fmt.nan == "minus_zero",
        largest=fmt.largest_magnitude,
    )
