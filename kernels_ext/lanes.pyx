"""Elementwise work beside the matrix unit, compiled: joining, promoting, scaling, looking for specials, patching.

Knows arrays of float32 and float64 and small programs of steps, each rounded once to nearest even. Knows nothing of
plans, units or devices.
"""

from cpython.buffer cimport PyBUF_STRIDED, PyBUF_STRIDED_RO, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint64_t

import numpy as np

import hwsim._kernels
from hwsim.errors import InputError, nearest

include "environment.pxi"
include "threads.pxi"


cdef extern from "hw_lanes.h" nogil:
    enum:
        HW_LANE_LOAD, HW_LANE_CONSTANT, HW_LANE_ADD, HW_LANE_SUBTRACT, HW_LANE_TIMES, HW_LANE_SCALE, HW_LANE_FUSED
        HW_LANE_FMA
    enum:
        HW_LANE_DEPTH
    enum:
        HW_LANE_FLOAT, HW_LANE_DOUBLE, HW_LANE_INT32
    ctypedef struct hw_lane_step:
        int op, index
        double factor
    ctypedef struct hw_lane_array:
        char *data
        Py_ssize_t row_stride, col_stride
        int type
    ctypedef struct hw_lane_edges:
        int saturate
        uint64_t nan
    ctypedef struct hw_lane_kernels:
        const char *name
    ctypedef struct hw_lane_job:
        const hw_lane_kernels *kernels
        const hw_lane_step *steps
        int step_count, wide
        hw_lane_edges edges
        const hw_lane_array *operands
        hw_lane_array out
        size_t rows, cols
    const hw_lane_kernels *hw_lanes_find(const char *variant)
    void hw_lanes_combine(const hw_lane_job *, int threads)
    void hw_lanes_special(const hw_lane_kernels *, const hw_lane_array *, size_t, size_t, unsigned char *,
                          unsigned char *, int)
    void hw_lanes_patch(const hw_lane_array *, const hw_lane_array *, size_t, size_t, size_t, const unsigned char *,
                        const unsigned char *, int)


cdef enum:
    MAX_STEPS = 64
    MAX_OPERANDS = 32

Step = tuple  # its members: lanes.pyi

_VARIANTS = ("avx512", "avx2", "baseline")
# Name of a step: (operation, number of values it takes from the stack, what stands beside its name).
_STEPS = {
    "load": (HW_LANE_LOAD, 0, "index"),
    "constant": (HW_LANE_CONSTANT, 0, "factor"),
    "add": (HW_LANE_ADD, 2, ""),
    "subtract": (HW_LANE_SUBTRACT, 2, ""),
    "times": (HW_LANE_TIMES, 2, ""),
    "scale": (HW_LANE_SCALE, 1, "factor"),
    "fused": (HW_LANE_FUSED, 2, "factor"),
    "fma": (HW_LANE_FMA, 3, ""),
}
_FLOAT, _DOUBLE, _INT = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int32)
_TYPES = {_FLOAT: HW_LANE_FLOAT, _DOUBLE: HW_LANE_DOUBLE, _INT: HW_LANE_INT32}


def variants():
    """Names of the builds of the kernels that this processor runs, fastest first."""
    return tuple(name for name in _VARIANTS if hw_lanes_find(name.encode()) is not NULL)


cdef const hw_lane_kernels *_kernels(object variant) except NULL:
    cdef const hw_lane_kernels *found
    if variant is None:
        variant = hwsim._kernels.variant
    name = str(variant).encode()
    found = hw_lanes_find(name)
    if found is NULL:
        raise InputError(f"there is no variant {variant!r} of the kernels here; allowed: {', '.join(variants())}")
    return found


cdef class _Plane:
    """A matrix held for the kernels while the lock is released."""

    cdef Py_buffer buffer
    cdef hw_lane_array array
    cdef bint held

    def __cinit__(self, plane, bint writeable):
        PyObject_GetBuffer(plane, &self.buffer, PyBUF_STRIDED if writeable else PyBUF_STRIDED_RO)
        self.held = True
        self.array.data = <char *>self.buffer.buf
        self.array.row_stride = self.buffer.strides[0]
        self.array.col_stride = self.buffer.strides[1]
        self.array.type = _TYPES.get(plane.dtype, HW_LANE_FLOAT)

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buffer)


def _rows(array):
    """The array with two dimensions, its columns contiguous or repeated; copied only where no view does it."""
    if not array.flags.aligned:
        array = array.copy()
    if array.ndim != 2:
        array = array.reshape(1, -1) if array.ndim < 2 else array.reshape(-1, array.shape[array.ndim - 1])
    step = array.strides[1]
    return array if step in (0, array.itemsize) or array.shape[1] == 1 else np.ascontiguousarray(array)


def _checked_operands(operands, dtype):
    if not 1 <= len(operands) <= MAX_OPERANDS:
        raise InputError(f"combine: {len(operands)} operands; allowed: 1 to {MAX_OPERANDS}")
    allowed = (_FLOAT,) if dtype == _FLOAT else (_FLOAT, _DOUBLE, _INT)
    for i, x in enumerate(operands):
        if not isinstance(x, np.ndarray) or x.dtype not in allowed:
            got = f"{x.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
            raise InputError(
                f"combine: operand {i} must be an array of {' or '.join(str(d) for d in allowed)}; got {got}"
            )


def _checked_out(out, shape, dtype, operands):
    if out is None:
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray) or out.dtype != dtype or out.shape != shape:
        got = f"{out.dtype} {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise InputError(f"combine: out must be an array of {dtype} and shape {shape}; got {got}")
    if not (out.flags.writeable and out.flags.aligned) or (out.ndim != 2 and not out.flags.c_contiguous):
        raise InputError("combine: out must be writeable, aligned and a matrix or in C order; pass a copy")
    if out.ndim == 2 and out.shape[1] > 1 and out.strides[1] != out.itemsize:
        raise InputError("combine: the columns of out must be contiguous; pass an array in C order")
    for i, x in enumerate(operands):
        same = x.dtype == out.dtype and x.ctypes.data == out.ctypes.data and x.strides == out.strides
        if not same and np.may_share_memory(out, x):
            raise InputError(f"combine: out overlaps operand {i} without being it; pass a separate array")
    return out


cdef int _compile(object steps, int operand_count, hw_lane_step *table) except -1:
    """The steps as the kernels read them; returns their number."""
    cdef int depth = 0
    cdef int i
    if not 1 <= len(steps) <= MAX_STEPS:
        raise InputError(f"combine: {len(steps)} steps; allowed: 1 to {MAX_STEPS}")
    for i, (name, *rest) in enumerate(steps):
        if name not in _STEPS:
            raise InputError(
                f"combine: step {i}: {name!r} is not known; allowed: {', '.join(_STEPS)}{nearest(str(name), _STEPS)}"
            )
        op, taken, member = _STEPS[name]
        if len(rest) != (1 if member else 0):
            raise InputError(f"combine: step {i}: {name!r} takes {member or 'nothing'} beside its name; got {rest}")
        table[i].op = op
        table[i].index = 0
        table[i].factor = 0
        if member == "index":
            if not 0 <= rest[0] < operand_count:
                raise InputError(f"combine: step {i}: operand {rest[0]}; there are {operand_count}")
            table[i].index = rest[0]
        elif member:
            table[i].factor = rest[0]
        if depth < taken:
            raise InputError(f"combine: step {i}: {name!r} takes {taken} values and {depth} are there")
        depth += 1 - taken
        if depth > HW_LANE_DEPTH:
            raise InputError(f"combine: step {i}: more than {HW_LANE_DEPTH} values wait; add earlier")
    if depth != 1:
        raise InputError(f"combine: the steps leave {depth} values; they must leave one")
    return len(steps)


def combine(operands, steps, dtype=np.float32, *, saturate=False, nan_code=None, out=None, threads=1, variant=None):
    dtype = np.dtype(dtype)
    if dtype not in (_FLOAT, _DOUBLE):
        raise InputError(f"combine: dtype must be float32 or float64; got {dtype}")
    cdef hw_lane_step table[MAX_STEPS]
    cdef hw_lane_array places[MAX_OPERANDS]
    cdef hw_lane_job job
    cdef _Plane plane
    cdef int count = _threads(threads)
    cdef int i
    job.kernels = _kernels(variant)
    _checked_operands(operands, dtype)
    job.step_count = _compile(steps, len(operands), table)
    shape = np.broadcast_shapes(*[x.shape for x in operands])
    result = _checked_out(out, shape, dtype, operands)
    if not result.size:
        return result
    whole = [x if x.shape == shape else np.broadcast_to(x, shape) for x in operands]
    if result.flags.c_contiguous and all(x.flags.c_contiguous for x in whole):
        whole = [x.reshape(1, -1) for x in whole]
        target = result.reshape(1, -1)
    else:
        whole = [_rows(x) for x in whole]
        target = result if result.ndim == 2 else result.reshape(whole[0].shape)
    planes = [_Plane(x, False) for x in whole]
    for i in range(len(planes)):
        plane = planes[i]
        places[i] = plane.array
    plane = _Plane(target, True)
    job.out = plane.array
    job.steps = table
    job.operands = places
    job.wide = dtype == _DOUBLE
    job.edges.saturate = bool(saturate)
    if nan_code is None:
        nan_code = 0x7FC00000 if dtype == _FLOAT else 0x7FF8000000000000
    job.edges.nan = nan_code
    job.rows, job.cols = target.shape
    cdef uint64_t environment
    with nogil:
        environment = hw_enter_environment()
        hw_lanes_combine(&job, count)
        hw_leave_environment(environment)
    return result


def specials(x, *, threads=1, variant=None):
    cdef uint64_t environment
    if not isinstance(x, np.ndarray) or x.ndim != 2 or x.dtype not in (_FLOAT, _DOUBLE):
        got = f"{x.dtype} {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__
        raise InputError(f"specials: x must be a matrix of float32 or float64; got {got}")
    cdef const hw_lane_kernels *kernels = _kernels(variant)
    cdef int count = _threads(threads)
    is_turned = x.flags.f_contiguous and not x.flags.c_contiguous
    source = _rows(x.T if is_turned else x)
    cdef size_t rows = source.shape[0]
    cdef size_t cols = source.shape[1]
    found = np.zeros(rows, np.bool_), np.zeros(cols, np.bool_)
    cdef unsigned char[::1] in_rows = found[0].view(np.uint8)
    cdef unsigned char[::1] in_cols = found[1].view(np.uint8)
    cdef _Plane plane
    if x.size:
        if source.strides[1] != source.itemsize:
            source = np.ascontiguousarray(source)
        plane = _Plane(source, False)
        with nogil:
            environment = hw_enter_environment()
            hw_lanes_special(kernels, &plane.array, rows, cols, &in_rows[0], &in_cols[0], count)
            hw_leave_environment(environment)
    return found[::-1] if is_turned else found


def patch(target, source, rows, cols, *, threads=1):
    cdef int count = _threads(threads)
    for name, array in (("target", target), ("source", source)):
        if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.hasobject:
            got = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
            raise InputError(f"patch: {name} must be a matrix; got {got}")
        if array.shape[1] > 1 and array.strides[1] != array.itemsize:
            raise InputError(f"patch: the columns of {name} must be contiguous; pass an array in C order")
    if source.shape != target.shape or source.dtype != target.dtype:
        raise InputError(
            f"patch: source is {source.dtype} {source.shape}, target {target.dtype} {target.shape}; they must be alike"
        )
    if not target.flags.writeable:
        raise InputError("patch: target must be writeable")
    for name, flags, size in (("rows", rows, target.shape[0]), ("cols", cols, target.shape[1])):
        if not isinstance(flags, np.ndarray) or flags.dtype != np.bool_ or flags.shape != (size,):
            got = f"{flags.dtype} {flags.shape}" if isinstance(flags, np.ndarray) else type(flags).__name__
            raise InputError(f"patch: {name} must be {size} booleans; got {got}")
    if not target.size or not (rows.any() or cols.any()):
        return target
    cdef const unsigned char[::1] row_flags = np.ascontiguousarray(rows).view(np.uint8)
    cdef const unsigned char[::1] col_flags = np.ascontiguousarray(cols).view(np.uint8)
    cdef size_t width = target.itemsize
    cdef size_t m = target.shape[0]
    cdef size_t n = target.shape[1]
    cdef _Plane to = _Plane(target.view(f"u{target.itemsize}"), True)
    cdef _Plane at = _Plane(source.view(f"u{target.itemsize}"), False)
    cdef uint64_t environment
    with nogil:
        environment = hw_enter_environment()
        hw_lanes_patch(&to.array, &at.array, width, m, n, &row_flags[0], &col_flags[0], count)
        hw_leave_environment(environment)
    return target
