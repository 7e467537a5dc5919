"""The records that kernels read, as the CUDA sources lay them out (tile.cuh, elements.cuh). They know no GPU."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

AXES = 6
MOST_OPERANDS, MOST_STEPS = 32, 64
ALIGNMENT = 16  # bytes, of a record in a call's memory


class Arguments(ctypes.Structure):
    """struct Arguments of tile.cuh: a product's arrays with their strides in bytes."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("a", "b", "c", "out")),
        *(
            (name, ctypes.c_int64)
            for name in (
                *("a_row", "a_column", "b_row", "b_column", "c_row", "c_column"),
                *("a_matrix", "b_matrix", "c_matrix", "out_matrix"),
            )
        ),
        ("a_scale", ctypes.c_uint64),
        ("b_scale", ctypes.c_uint64),
        *(
            (name, ctypes.c_int64)
            for name in (
                *("a_scale_row", "a_scale_column", "b_scale_row", "b_scale_column"),
                *("a_scale_matrix", "b_scale_matrix"),
            )
        ),
        ("divide", ctypes.c_uint64),
        ("marks", ctypes.c_uint64),
        *((name, ctypes.c_int32) for name in ("m", "n", "k")),
    ]


class Strided(ctypes.Structure):
    """struct Strided of elements.cuh. type: bits of an element, or its hw_lane_type."""

    _fields_ = [("data", ctypes.c_uint64), ("stride", ctypes.c_int64 * AXES), ("type", ctypes.c_int32)]


class Shape(ctypes.Structure):
    """struct Shape of elements.cuh."""

    _fields_ = [("length", ctypes.c_int64 * AXES), ("count", ctypes.c_int64)]


class LaneStep(ctypes.Structure):
    """hw_lane_step of hw_lanes.h."""

    _fields_ = [("op", ctypes.c_int32), ("index", ctypes.c_int32), ("factor", ctypes.c_double)]


class Lanes(ctypes.Structure):
    """struct Lanes of elements.cuh: steps, operands, edges."""

    _fields_ = [
        ("steps", LaneStep * MOST_STEPS),
        ("operands", Strided * MOST_OPERANDS),
        ("saturate", ctypes.c_int32),
        ("nan", ctypes.c_uint64),
        ("step_count", ctypes.c_int32),
    ]


class ConversionStep(ctypes.Structure):
    """hw_step of hw_convert.h."""

    _fields_ = [("scale", ctypes.c_double), ("saturate", ctypes.c_int32), ("zero_nan", ctypes.c_int32)]


def shape_of(shape: Sequence[int]) -> Shape:
    """A shape of up to AXES axes."""
    padded = (1,) * (AXES - len(shape)) + tuple(shape)
    return Shape((ctypes.c_int64 * AXES)(*padded), math.prod(shape))


def strided(address: int, strides: Sequence[int], kind: int) -> Strided:
    """An array by its address and strides."""
    padded = (0,) * (AXES - len(strides)) + tuple(strides)
    return Strided(address, (ctypes.c_int64 * AXES)(*padded), kind)


def together(records: Sequence[Any]) -> tuple[bytes, list[int]]:
    """Records one after the other, and where each begins."""
    text, places = b"", []
    for record in records:
        text += bytes(-len(text) % ALIGNMENT)
        places.append(len(text))
        text += bytes(record)
    return text, places
