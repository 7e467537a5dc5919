"""Elementwise work on the GPU: conversions, splits, steps of lanes, searches. It knows formats and the GPU's arrays.

What is wrong with arguments is said by the CPU's kernels, which are asked with arrays that have no elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hwsim.backend.cpu import CPU
from hwsim.backend.cuda.device import cupy, current, grid_for
from hwsim.backend.cuda.gpu_arrays import GpuArray, word_of
from hwsim.backend.cuda.records import (
    AXES,
    ConversionStep,
    LaneArguments,
    LaneRecord,
    SplitRecord,
    decoder_of,
    encoder_of,
    joined_axes,
    shape_of,
    strided,
)
from hwsim.backend.cuda.unit_programs import program_of
from hwsim.errors import InputError
from hwsim.formats import code_dtype

if TYPE_CHECKING:
    from hwsim.formats import Format

TEXT = '#define HW_ON_GPU 1\n#include "elements.cuh"\n'
LANE_TYPES = {np.dtype(np.float32): 0, np.dtype(np.float64): 1, np.dtype(np.int32): 2}  # enum hw_lane_type
LANE_OPS = ("load", "constant", "add", "subtract", "times", "scale", "fused", "fma")  # enum hw_lane_op
RECORD_ALIGNMENT = 16  # bytes


def encode(
    x: GpuArray, fmt: Format, rounding: str = "RNE", overflow: str = "ieee", *, nan: str = "quiet", out: Any = None
) -> GpuArray:
    """See Backend.encode."""
    CPU.encode(_none_of(x), fmt, rounding, overflow, nan=nan)
    if nan != "zero" and fmt.nan == "none" and not fmt.is_integer and np.isnan(largest(x)):
        CPU.encode(np.full((1, 1), np.nan, x.dtype), fmt, rounding, overflow, nan=nan)  # raises
    codes = _target(out, x.shape, code_dtype(fmt), "encode")
    _start("encode", [encoder_of(fmt, rounding, overflow, nan, 8 * x.itemsize)], x, codes)
    return codes


def decode(codes: GpuArray, fmt: Format, dtype: Any = np.float32, *, out: Any = None) -> GpuArray:
    """See Backend.decode."""
    CPU.decode(_none_of(codes), fmt, dtype)
    values = _target(out, codes.shape, np.dtype(dtype), "decode")
    _start("decode", [decoder_of(fmt, 8 * values.itemsize)], codes, values)
    return values


def split(
    x: GpuArray,
    pieces: Sequence[Any],
    *,
    overflow: str = "ieee",
    nan: str = "quiet",
    clamp: bool = False,
    out: Any = None,
) -> list[GpuArray]:
    """See Backend.split."""
    CPU.split(_none_of(x), pieces, overflow=overflow, nan=nan, clamp=clamp)
    if out is not None and len(out) != len(pieces):
        raise InputError(f"split: out has {len(out)} arrays for {len(pieces)} pieces; give one each")
    table, codes, bits = b"", [], 8 * x.itemsize
    for i, (fmt, rounding, exponent, *edges) in enumerate(pieces):
        edge = edges[0] if edges and edges[0] is not None else overflow
        codes.append(_target(None if out is None else out[i], x.shape, code_dtype(fmt), "split"))
        step = ConversionStep(2.0**exponent, overflow == "saturate", nan == "zero")
        encoder = encoder_of(fmt, rounding, edge, nan, bits)
        table += bytes(SplitRecord(step, encoder, decoder_of(fmt, bits), codes[-1].memory.data.ptr))
    _start("split", [table, np.int32(len(pieces)), np.int32(clamp)], x, None)
    return codes


def scale(x: GpuArray, exponent: int, *, out: Any = None) -> GpuArray:
    """See Backend.scale."""
    CPU.scale(_none_of(x), exponent)
    values = _target(out, x.shape, x.dtype, "scale")
    _start("scale", [np.float64(2.0**exponent)], x, values)
    return values


def largest(x: GpuArray) -> float:
    """See Backend.largest."""
    CPU.largest(_none_of(x))
    highest = cupy().zeros(1, np.uint64)
    _start("largest", [np.uint64(highest.data.ptr)], x, None)
    word = highest.get().astype(word_of(x.dtype))
    return float(word.view(x.dtype)[0])


def specials(x: GpuArray) -> tuple[GpuArray, GpuArray]:
    """See Backend.specials."""
    CPU.specials(np.empty((0, *x.shape[1:]), x.dtype))
    rows, columns = (cupy().zeros(length, np.uint8) for length in x.shape)
    others = [np.uint64(rows.data.ptr), np.uint64(columns.data.ptr), np.int64(max(x.shape[1], 1))]
    _start("specials", others, x, None)
    return GpuArray(rows, np.bool_), GpuArray(columns, np.bool_)


def combine(
    operands: Sequence[GpuArray],
    steps: Sequence[Any],
    dtype: Any = np.float32,
    *,
    saturate: bool = False,
    nan_code: int | None = None,
    out: Any = None,
) -> GpuArray:
    """See Backend.combine."""
    dtype, gpu = np.dtype(dtype), cupy()
    CPU.combine([_none_of(x) for x in operands], steps, dtype, saturate=saturate, nan_code=nan_code)
    shape = np.broadcast_shapes(*(x.shape for x in operands))
    if out is not None and (out.shape != shape or out.dtype != dtype):
        raise InputError(f"combine: out must be an array of {dtype} and shape {shape}; got {out.dtype} {out.shape}")
    target = out if out is not None and out.flags.c_contiguous else GpuArray(gpu.empty(shape, word_of(dtype)), dtype)
    if target.size:
        whole = [gpu.broadcast_to(x.memory, shape) for x in operands]
        lengths, strides = joined_axes(shape, [x.strides for x in whole])
        if len(lengths) > AXES:
            whole = [gpu.ascontiguousarray(x) for x in whole]
            lengths, strides = joined_axes(shape, [x.strides for x in whole])
        record = LaneArguments(saturate=int(saturate), step_count=len(steps))
        record.nan = int(np.array(np.nan, dtype).view(word_of(dtype))) if nan_code is None else nan_code
        for i, (x, operand) in enumerate(zip(whole, operands, strict=True)):
            record.operands[i] = strided(x.data.ptr, strides[i], LANE_TYPES[operand.dtype])
        for i, (name, *rest) in enumerate(steps):
            index, factor = (rest[0], 0.0) if name == "load" else (0, float(rest[0]) if rest else 0.0)
            record.steps[i] = LaneRecord(LANE_OPS.index(name), index, factor)
        addresses, _memory = _on_gpu([record, shape_of(lengths)])
        others = (np.int32(dtype == np.float64), np.uint64(target.memory.data.ptr), addresses[1])
        program_of(TEXT, current()).start("combine", (addresses[0], *others), grid=grid_for(target.size))
    if out is None or out is target:
        return target
    out[...] = target
    return out  # type: ignore[no-any-return]


def _start(name: str, first: Sequence[Any], x: GpuArray, out: GpuArray | None) -> None:
    """A kernel of records and numbers, the source, the result where it has one, and the shape."""
    if not x.size:
        return
    memory = x.memory
    lengths, (strides,) = joined_axes(x.shape, [memory.strides])
    if len(lengths) > AXES:
        memory = cupy().ascontiguousarray(memory)
        lengths, (strides,) = joined_axes(x.shape, [memory.strides])
    records = [*first, strided(memory.data.ptr, strides, 8 * x.itemsize), shape_of(lengths)]
    places, _memory = _on_gpu([record for record in records if not isinstance(record, np.generic)])
    addresses = iter(places)
    arguments = [record if isinstance(record, np.generic) else next(addresses) for record in records]
    if out is not None:
        arguments.insert(-1, np.uint64(out.memory.data.ptr))
    program_of(TEXT, current()).start(name, arguments, grid=grid_for(x.size))


def _on_gpu(records: Sequence[Any]) -> tuple[list[np.uint64], Any]:
    """Addresses of records on the GPU, and their memory: the caller keeps it until the kernel has been started."""
    text, places = b"", []
    for record in records:
        text += bytes(-len(text) % RECORD_ALIGNMENT)
        places.append(len(text))
        text += bytes(record)
    memory = cupy().asarray(np.frombuffer(text, np.uint8))
    return [np.uint64(memory.data.ptr + place) for place in places], memory


def _none_of(x: GpuArray) -> Any:
    """An array of the host of this dtype without elements."""
    return np.empty(0, x.dtype)


def _target(out: GpuArray | None, shape: tuple[int, ...], dtype: Any, where: str) -> GpuArray:
    """An array in C order to fill: out itself, or a new one."""
    if out is None:
        return GpuArray(cupy().empty(shape, word_of(np.dtype(dtype))), dtype)
    if out.dtype != dtype or out.shape != shape or not out.flags.c_contiguous:
        raise InputError(
            f"{where}: out must be an array of {dtype} and shape {shape} in C order; got {out.dtype} {out.shape}"
        )
    return out
