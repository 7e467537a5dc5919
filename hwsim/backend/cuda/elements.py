"""Elementwise work on the GPU: conversions, splits, steps of lanes. It knows formats and CuPy's arrays; no unit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hwsim._kernels import convert, lanes
from hwsim.backend.cuda.device import Program, cupy, grid_for
from hwsim.backend.cuda.records import AXES, ConversionStep, Lanes, LaneStep, Strided, shape_of, strided
from hwsim.errors import InputError
from hwsim.formats import code_dtype

if TYPE_CHECKING:
    from hwsim.formats import Format

TEXT = '#define HW_ON_GPU 1\n#include "elements.cuh"\n'
FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
LANE_TYPES = {np.dtype(np.float32): 0, np.dtype(np.float64): 1, np.dtype(np.int32): 2}
LANE_OPS = ("load", "constant", "add", "subtract", "times", "scale", "fused")  # enum hw_lane_op
DEFAULT_NANS = {4: 0x7FC00000, 8: 0x7FF8000000000000}


@cache
def program() -> Program:
    """The elementwise kernels, compiled once."""
    return Program(TEXT)


def _few_axes(x: Any) -> Any:
    return x if x.ndim <= AXES else x.reshape(-1, x.shape[-1])


def _source(x: Any, kind: int | None = None) -> Strided:
    return strided(x.data.ptr, x.strides, 8 * x.itemsize if kind is None else kind)


def _checked_floats(x: Any, where: str) -> None:
    if x.dtype not in FLOATS:
        raise InputError(f"{where}: x must be an array of float32 or float64; got {x.dtype}")


def _target(out: Any, shape: tuple[int, ...], dtype: Any, where: str) -> Any:
    """An array in C order to fill: out itself, or a new one."""
    if out is None:
        return cupy().empty(shape, dtype)
    if out.dtype != dtype or out.shape != shape or not out.flags.c_contiguous:
        raise InputError(f"{where}: out must be an array of {dtype} and shape {shape} in C order; got {out.dtype} {out.shape}")
    return out


def _refuse_nan(x: Any, fmt: Format, nan: str, where: str) -> None:
    if nan != "zero" and fmt.nan == "none" and not fmt.is_integer and bool(cupy().isnan(x).any()):
        raise InputError(f"{where}: x holds a NaN and {fmt.name} has none; remove it or pass nan='zero'")


def encode(x: Any, fmt: Format, rounding: str = "RNE", overflow: str = "ieee", *, nan: str = "quiet", out: Any = None) -> Any:
    """See Backend.encode."""
    _checked_floats(x, "encode")
    record = convert.encoder_record(fmt, rounding, overflow, nan, 8 * x.itemsize)
    _refuse_nan(x, fmt, nan, "encode")
    codes = _target(out, x.shape, code_dtype(fmt), "encode")
    if x.size:
        x = _few_axes(x)
        records, count = [record, _source(x)], x.size
        _start("encode", records, codes, x.shape, count)
    return codes


def decode(codes: Any, fmt: Format, dtype: Any = np.float32, *, out: Any = None) -> Any:
    """See Backend.decode."""
    dtype = np.dtype(dtype)
    if dtype not in FLOATS or codes.dtype != code_dtype(fmt):
        raise InputError(f"decode: codes of {fmt.name} ({code_dtype(fmt)}) to float32 or float64; got {codes.dtype} to {dtype}")
    record = convert.decoder_record(fmt, 8 * dtype.itemsize)
    values = _target(out, codes.shape, dtype, "decode")
    if codes.size:
        codes = _few_axes(codes)
        _start("decode", [record, _source(codes)], values, codes.shape, codes.size)
    return values


def _start(name: str, records: Sequence[Any], out: Any, shape: tuple[int, ...], count: int) -> None:
    """A kernel of two records, the result and the shape."""
    gpu, whole = cupy(), shape_of(shape)
    memory = gpu.asarray(np.frombuffer(bytes(whole), np.uint8))
    program().start(name, records, (np.uint64(out.data.ptr), np.uint64(memory.data.ptr)), grid=grid_for(count))


def split(
    x: Any, pieces: Sequence[Any], *, overflow: str = "ieee", nan: str = "quiet", clamp: bool = False, out: Any = None
) -> list[Any]:
    """See Backend.split."""
    _checked_floats(x, "split")
    # What is wrong with the pieces is said as the CPU's kernels say it.
    convert.split(np.zeros(0, x.dtype), pieces, overflow=overflow, nan=nan, clamp=clamp)
    if out is not None and len(out) != len(pieces):
        raise InputError(f"split: out has {len(out)} arrays for {len(pieces)} pieces; give one each")
    bits = 8 * x.itemsize
    steps = [(fmt, rounding, exponent, own[0] if own and own[0] is not None else overflow) for fmt, rounding, exponent, *own in pieces]
    codes = [
        _target(None if out is None else out[i], x.shape, code_dtype(step[0]), "split") for i, step in enumerate(steps)
    ]
    if not x.size:
        return codes
    table = b""
    for (fmt, rounding, exponent, edge), array in zip(steps, codes, strict=True):
        table += bytes(ConversionStep(2.0**exponent, overflow == "saturate", nan == "zero"))
        table += convert.encoder_record(fmt, rounding, edge, nan, bits)
        table += convert.decoder_record(fmt, bits)
        table += np.uint64(array.data.ptr).tobytes()
    x = _few_axes(x)
    gpu = cupy()
    rest = gpu.asarray(np.frombuffer(bytes(_source(x)) + bytes(shape_of(x.shape)), np.uint8))
    place = np.uint64(rest.data.ptr), np.uint64(rest.data.ptr + len(bytes(_source(x))))
    program().start("split", [table], (np.int32(len(steps)), np.int32(clamp), *place), grid=grid_for(x.size))
    return codes


def scale(x: Any, exponent: int, *, out: Any = None) -> Any:
    """See Backend.scale."""
    _checked_floats(x, "scale")
    convert.scale(np.zeros(0, x.dtype), exponent)
    values = _target(out, x.shape, x.dtype, "scale")
    if x.size:
        x = _few_axes(x)
        records = [_source(x), shape_of(x.shape)]
        text = cupy().asarray(np.frombuffer(bytes(records[1]), np.uint8))
        others = (np.float64(2.0**exponent), np.uint64(values.data.ptr), np.uint64(text.data.ptr))
        program().start("scale", records[:1], others, grid=grid_for(x.size))
    return values


def largest(x: Any) -> float:
    """See Backend.largest."""
    _checked_floats(x, "largest")
    if not x.size:
        return 0.0
    gpu, dtype = cupy(), x.dtype
    found = gpu.zeros(1, np.uint64)
    x = _few_axes(x)
    _start("largest", [_source(x)], found, x.shape, x.size)
    return float(found.get().astype(f"u{dtype.itemsize}").view(dtype)[0])


def specials(x: Any) -> tuple[Any, Any]:
    """See Backend.specials."""
    gpu = cupy()
    if x.ndim != 2 or x.dtype not in FLOATS:  # noqa: PLR2004
        raise InputError(f"specials: x must be a matrix of float32 or float64; got {x.dtype} {x.shape}")
    rows, columns = gpu.zeros(x.shape[0], np.uint8), gpu.zeros(x.shape[1], np.uint8)
    if x.size:
        memory = gpu.asarray(np.frombuffer(bytes(shape_of(x.shape)), np.uint8))
        others = (np.uint64(rows.data.ptr), np.uint64(columns.data.ptr), np.uint64(memory.data.ptr))
        program().start("specials", [_source(x)], others, grid=grid_for(x.size))
    return rows.view(np.bool_), columns.view(np.bool_)


def combine(
    operands: Sequence[Any],
    steps: Sequence[Any],
    dtype: Any = np.float32,
    *,
    saturate: bool = False,
    nan_code: int | None = None,
    out: Any = None,
) -> Any:
    """See Backend.combine."""
    dtype, gpu = np.dtype(dtype), cupy()
    # What is wrong with the steps is said as the CPU's kernels say it.
    lanes.combine([np.zeros(0, x.dtype) for x in operands], steps, dtype, saturate=saturate, nan_code=nan_code)
    shape = np.broadcast_shapes(*(x.shape for x in operands))
    target = out
    if out is None or not out.flags.c_contiguous or len(shape) > AXES:
        target = gpu.empty(shape, dtype)
    elif out.shape != shape or out.dtype != dtype:
        raise InputError(f"combine: out must be an array of {dtype} and shape {shape}; got {out.dtype} {out.shape}")
    if target.size:
        whole = [_few_axes(gpu.broadcast_to(x, shape)) for x in operands]
        record = Lanes(saturate=int(saturate), step_count=len(steps))
        record.nan = DEFAULT_NANS[dtype.itemsize] if nan_code is None else nan_code
        for i, x in enumerate(whole):
            record.operands[i] = _source(x, LANE_TYPES[np.dtype(x.dtype)])
        for i, (name, *rest) in enumerate(steps):
            index, factor = (rest[0], 0.0) if name == "load" else (0, float(rest[0]) if rest else 0.0)
            record.steps[i] = LaneStep(LANE_OPS.index(name), index, factor)
        memory = gpu.asarray(np.frombuffer(bytes(shape_of(whole[0].shape)), np.uint8))
        others = (np.int32(dtype == np.float64), np.uint64(target.data.ptr), np.uint64(memory.data.ptr))
        program().start("combine", [record], others, grid=grid_for(target.size))
    if out is None or out is target:
        return target
    out[...] = target
    return out
