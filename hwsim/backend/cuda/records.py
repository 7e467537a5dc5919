"""The record of a product, as tile.cuh lays it out. It knows no GPU."""

from __future__ import annotations

import ctypes

ADDRESSES = ("a", "b", "c", "out")
STRIDES = (
    *("a_row", "a_column", "b_row", "b_column", "c_row", "c_column"),
    *("a_matrix", "b_matrix", "c_matrix", "out_matrix"),
)
OF_SCALES = (
    *("a_scale_row", "a_scale_column", "b_scale_row", "b_scale_column"),
    *("a_scale_matrix", "b_scale_matrix"),
)


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
