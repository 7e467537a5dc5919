"""Conversions between float arrays and codes, compiled: the fast twin of `round_to` and `decode` in hwsim.formats.

Knows formats' fields and arrays of any shape and strides. Edge codes (overflow, infinities, NaNs, zeros) are
asked of hwsim.formats, so that the rules stand there alone. Knows nothing of plans, units or devices.
"""

from cpython.buffer cimport PyBUF_CONTIG, PyBUF_STRIDED_RO, PyBuffer_Release, PyObject_GetBuffer
from libc.math cimport ldexp
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc

from functools import lru_cache

import numpy as np

import hwsim._kernels
from hwsim import formats
from hwsim.errors import InputError, nearest

include "environment.pxi"
include "threads.pxi"


cdef extern from "hw_convert.h" nogil:
    ctypedef struct hw_encoder:
        int rounding, source_bits, code_bits, exponent_bits, fraction_bits, min_exponent, ignored_bits
        uint64_t hidden, largest, sign_bit, code_mask, nan, negative_is_nan
        uint64_t zero[2]
        uint64_t small[2]
        uint64_t overflow[2]
        uint64_t infinity[2]
    ctypedef struct hw_decoder:
        int code_bits, value_bits, exponent_bits, fraction_bits, min_exponent, ignored_bits
        int is_signed, bias, subnormals, has_infinity, minus_zero_is_nan
        uint64_t largest
    ctypedef struct hw_step:
        double scale
        int saturate, zero_nan
    ctypedef struct hw_convert_kernels:
        const char *name
    ctypedef struct hw_source:
        const char *data
        size_t rows, cols
        Py_ssize_t row_stride, col_stride
        int bits
    ctypedef struct hw_piece:
        hw_step step
        hw_encoder encoder
        hw_decoder decoder
        void *codes
    const hw_convert_kernels *hw_convert_find(const char *variant)
    void hw_convert_encode(const hw_convert_kernels *, const hw_encoder *, const hw_source *, void *, int)
    void hw_convert_decode(const hw_convert_kernels *, const hw_decoder *, const hw_source *, void *, int)
    void hw_convert_split(const hw_convert_kernels *, const hw_piece *, int, int, const hw_source *, int)
    void hw_convert_scale(const hw_convert_kernels *, const hw_step *, const hw_source *, void *, int)
    uint64_t hw_convert_largest(const hw_convert_kernels *, const hw_source *, int)


_VARIANTS = ("avx512", "avx2", "baseline")
_OVERFLOWS = ("ieee", "infinity", "saturate")
_NANS = ("quiet", "zero", "all-ones")
# An integer is rounded as a fixed-point number: places of 1, with room above the largest int32.
_INTEGER_PLACES = 33


cdef class _Encoder:
    """The fields of a format and the codes of one policy, as the kernels read them."""

    cdef hw_encoder fields


cdef class _Decoder:
    """The fields of a format, as the kernels read them."""

    cdef hw_decoder fields


def _sign_pair(fmt, kind, significand, exponent, rounding, overflow):
    return [
        formats.round_to(fmt, formats.Exact(kind, sign, significand, exponent), rounding, overflow=overflow)
        for sign in (0, 1)
    ]


def _refuse_whole_words(fmt):
    """64-bit integers stay what they are: neither float type holds them, nor does a lane round to them."""
    if fmt.is_integer and fmt.bits > 32:
        raise InputError(f"{fmt.name}: there are no conversions between it and float arrays; keep NumPy's own int64")


def _nan_code(fmt, nan, zero_code):
    if nan == "zero" or fmt.is_integer or fmt.nan == "none":
        return zero_code
    if nan == "all-ones" and fmt.nan == "ieee" and fmt.signed:
        return ((1 << (fmt.bits - 1)) - 1) >> fmt.ignored_bits << fmt.ignored_bits
    return fmt.nan_code


@lru_cache(maxsize=256)
def _encoder(fmt, rounding, overflow, nan, source_bits):
    cdef _Encoder encoder = _Encoder()
    cdef hw_encoder *e = &encoder.fields
    _check(rounding, formats.ROUNDINGS, "rounding")
    _check(overflow, _OVERFLOWS, "overflow")
    _check(nan, _NANS, "nan")
    _refuse_whole_words(fmt)
    # Far beyond every format's largest value.
    beyond = _sign_pair(fmt, "finite", 1, 1 << 12, rounding, overflow)
    infinity = _sign_pair(fmt, "infinity", 0, 0, rounding, overflow)
    zero = _sign_pair(fmt, "finite", 0, 0, rounding, overflow)
    small = [fmt.zero_code(sign) if fmt.subnormals else fmt.word(sign, 0) for sign in (0, 1)]
    e.rounding = formats.ROUNDINGS.index(rounding)
    e.source_bits = source_bits
    e.code_bits = max(fmt.bits, 8)
    e.exponent_bits = fmt.exponent_bits
    e.fraction_bits = _INTEGER_PLACES if fmt.is_integer else fmt.fraction_bits
    e.min_exponent = _INTEGER_PLACES if fmt.is_integer else fmt.min_exponent
    e.ignored_bits = fmt.ignored_bits
    e.hidden = 0 if fmt.subnormals else 1 << fmt.fraction_bits
    e.largest = fmt.largest_magnitude
    e.sign_bit = fmt.word(1, 0)
    e.code_mask = (1 << fmt.bits) - 1
    e.nan = _nan_code(fmt, nan, zero[0])
    e.negative_is_nan = 0 if fmt.signed else (1 << 64) - 1
    for sign in range(2):
        e.zero[sign], e.small[sign] = zero[sign], small[sign]
        e.overflow[sign], e.infinity[sign] = beyond[sign], infinity[sign]
    return encoder


@lru_cache(maxsize=64)
def _decoder(fmt, value_bits):
    cdef _Decoder decoder = _Decoder()
    cdef hw_decoder *d = &decoder.fields
    _refuse_whole_words(fmt)
    if value_bits == 32 and fmt.precision > 24:
        raise InputError(f"float32 does not hold every value of {fmt.name}; decode to float64")
    d.code_bits = max(fmt.bits, 8)
    d.value_bits = value_bits
    d.exponent_bits = fmt.exponent_bits
    d.fraction_bits = fmt.fraction_bits
    d.min_exponent = fmt.min_exponent
    d.ignored_bits = fmt.ignored_bits
    d.is_signed = fmt.signed
    d.bias = fmt.bias
    d.subnormals = fmt.subnormals
    d.has_infinity = fmt.has_infinity
    d.minus_zero_is_nan = fmt.nan == "minus_zero"
    d.largest = fmt.largest_magnitude
    return decoder


def _check(value, allowed, name):
    if value not in allowed:
        raise InputError(f"{name}={value!r} is not known; allowed: {', '.join(allowed)}{nearest(str(value), allowed)}")


def variants():
    """Names of the builds of the kernels that this processor runs, fastest first."""
    return tuple(name for name in _VARIANTS if hw_convert_find(name.encode()) is not NULL)


cdef const hw_convert_kernels *_kernels(object variant) except NULL:
    cdef const hw_convert_kernels *found
    if variant is None:
        variant = hwsim._kernels.variant
    name = str(variant).encode()
    found = hw_convert_find(name)
    if found is NULL:
        raise InputError(f"there is no variant {variant!r} of the kernels here; allowed: {', '.join(variants())}")
    return found


def _plane(array):
    """The array as rows and columns in C order; copied only where no view does it."""
    if not array.flags.aligned:
        array = array.copy()
    if array.ndim < 2 or array.flags.c_contiguous:
        return array.reshape(1, -1)
    *_, cols = array.shape
    return array.reshape(-1, cols)


def _result(out, shape, dtype, source, where):
    if out is None:
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray) or out.dtype != dtype or out.shape != shape:
        got = f"{out.dtype} {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise InputError(f"{where}: out must be an array of {dtype} and shape {shape}; got {got}")
    if not (out.flags.c_contiguous and out.flags.writeable and out.flags.aligned):
        raise InputError(f"{where}: out must be writeable, aligned and in C order; pass a copy")
    if np.may_share_memory(out, source):
        raise InputError(f"{where}: out shares memory with the source; pass a separate array")
    return out


def _floats(x, dtypes, where):
    if not isinstance(x, np.ndarray) or x.dtype not in dtypes:
        got = f"{x.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
        raise InputError(f"{where}: x must be an array of {' or '.join(str(d) for d in dtypes)}; got {got}")
    return x


cdef class _View:
    """A source held for the kernels while the lock is released."""

    cdef Py_buffer buffer
    cdef hw_source source
    cdef bint held

    def __cinit__(self, plane):
        PyObject_GetBuffer(plane, &self.buffer, PyBUF_STRIDED_RO)
        self.held = True
        self.source.data = <const char *>self.buffer.buf
        self.source.rows = <size_t>self.buffer.shape[0]
        self.source.cols = <size_t>self.buffer.shape[1]
        self.source.row_stride = self.buffer.strides[0]
        self.source.col_stride = self.buffer.strides[1]
        self.source.bits = <int>(8 * self.buffer.itemsize)

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buffer)


cdef class _Target:
    """A contiguous result, held likewise."""

    cdef Py_buffer buffer
    cdef bint held

    def __cinit__(self, array):
        PyObject_GetBuffer(array, &self.buffer, PyBUF_CONTIG)
        self.held = True

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buffer)


def _refuse_nan(x, fmt, nan, where):
    """A NaN has no code in the formats without one; integers take it as 0."""
    if nan != "zero" and fmt.nan == "none" and not fmt.is_integer and np.isnan(x).any():
        raise InputError(f"{where}: x holds a NaN and {fmt.name} has none; remove it or pass nan='zero'")


def encode(x, fmt, rounding="RNE", overflow="ieee", *, nan="quiet", out=None, threads=1, variant=None):
    _floats(x, (np.dtype(np.float32), np.dtype(np.float64)), "encode")
    cdef _Encoder encoder = _encoder(fmt, rounding, overflow, nan, 8 * x.dtype.itemsize)
    cdef const hw_convert_kernels *kernels = _kernels(variant)
    cdef int count = _threads(threads)
    _refuse_nan(x, fmt, nan, "encode")
    codes = _result(out, x.shape, formats.code_dtype(fmt), x, "encode")
    if not x.size:
        return codes
    cdef _View view = _View(_plane(x))
    cdef _Target target = _Target(codes)
    cdef uint64_t environment
    with nogil:
        environment = hw_enter_environment()
        hw_convert_encode(kernels, &encoder.fields, &view.source, target.buffer.buf, count)
        hw_leave_environment(environment)
    return codes


def decode(codes, fmt, dtype=np.float32, *, out=None, threads=1, variant=None):
    dtype = np.dtype(dtype)
    if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise InputError(f"decode: dtype must be float32 or float64; got {dtype}")
    if not isinstance(codes, np.ndarray) or codes.dtype != formats.code_dtype(fmt):
        got = f"{codes.dtype}" if isinstance(codes, np.ndarray) else type(codes).__name__
        raise InputError(f"decode: codes of {fmt.name} must be an array of {formats.code_dtype(fmt)}; got {got}")
    cdef _Decoder decoder = _decoder(fmt, 8 * dtype.itemsize)
    cdef const hw_convert_kernels *kernels = _kernels(variant)
    cdef int count = _threads(threads)
    values = _result(out, codes.shape, dtype, codes, "decode")
    if not codes.size:
        return values
    cdef _View view = _View(_plane(codes))
    cdef _Target target = _Target(values)
    cdef uint64_t environment
    with nogil:
        environment = hw_enter_environment()
        hw_convert_decode(kernels, &decoder.fields, &view.source, target.buffer.buf, count)
        hw_leave_environment(environment)
    return values


def _steps(pieces, overflow):
    """(format, rounding, scale_exponent, overflow of the conversion) of each piece."""
    found = []
    for i, (fmt, rounding, exponent, *more) in enumerate(pieces):
        if len(more) > 1:
            raise InputError(
                f"split: piece {i} has {3 + len(more)} members; allowed: format, rounding, scale_exponent and, "
                "where it differs from the split's, overflow"
            )
        found.append((fmt, rounding, exponent, more[0] if more and more[0] is not None else overflow))
    return found


def split(x, pieces, *, overflow="ieee", nan="quiet", clamp=False, out=None, threads=1, variant=None):
    cdef uint64_t environment
    _floats(x, (np.dtype(np.float32), np.dtype(np.float64)), "split")
    cdef const hw_convert_kernels *kernels = _kernels(variant)
    cdef int count = _threads(threads)
    cdef int total = len(pieces)
    cdef int is_clamped = bool(clamp)
    cdef int i
    cdef hw_piece *table
    cdef _View view
    cdef _Target target
    steps = _steps(pieces, overflow)
    bits = 8 * x.dtype.itemsize
    least, most = _exponents(x.dtype)
    _check(overflow, _OVERFLOWS, "overflow")
    if not total:
        raise InputError("split: pieces is empty; give at least one (format, rounding, scale_exponent)")
    if out is not None and len(out) != total:
        raise InputError(f"split: out has {len(out)} arrays for {total} pieces; give one each")
    for i, (fmt, _, exponent, _) in enumerate(steps):
        if not least <= exponent <= most:
            raise InputError(f"split: piece {i}: 2^{exponent} is no {x.dtype}; scale_exponent lies in {least}..{most}")
        if nan != "zero" and fmt.nan == "none" and not fmt.is_integer:
            raise InputError(f"split: piece {i}: {fmt.name} has no NaN; pass nan='zero'")
    encoders = [_encoder(fmt, rounding, edge, nan, bits) for fmt, rounding, _, edge in steps]
    decoders = [_decoder(fmt, bits) for fmt, *_ in steps]
    codes = [
        _result(None if out is None else out[i], x.shape, formats.code_dtype(step[0]), x, "split")
        for i, step in enumerate(steps)
    ]
    if not x.size:
        return codes
    view = _View(_plane(x))
    targets = [_Target(array) for array in codes]
    table = <hw_piece *>malloc(<size_t>total * sizeof(hw_piece))
    if table is NULL:
        raise MemoryError
    try:
        for i in range(total):
            target = targets[i]
            table[i].step.scale = ldexp(1.0, <int>steps[i][2])
            table[i].step.saturate = overflow == "saturate"
            table[i].step.zero_nan = nan == "zero"
            table[i].encoder = (<_Encoder>encoders[i]).fields
            table[i].decoder = (<_Decoder>decoders[i]).fields
            table[i].codes = target.buffer.buf
        with nogil:
            environment = hw_enter_environment()
            hw_convert_split(kernels, table, total, is_clamped, &view.source, count)
            hw_leave_environment(environment)
    finally:
        free(table)
    return codes


def _exponents(dtype):
    """The exponents of the powers of two that the type has."""
    return (-149, 127) if dtype.itemsize == 4 else (-1074, 1023)


def scale(x, exponent, *, out=None, threads=1, variant=None):
    _floats(x, (np.dtype(np.float32), np.dtype(np.float64)), "scale")
    cdef const hw_convert_kernels *kernels = _kernels(variant)
    cdef int count = _threads(threads)
    cdef hw_step step
    least, most = _exponents(x.dtype)
    if not least <= exponent <= most:
        raise InputError(f"scale: 2^{exponent} is no {x.dtype}; exponent lies in {least}..{most}")
    if out is x and x.flags.c_contiguous and x.flags.writeable and x.flags.aligned:
        values = x
    else:
        values = _result(out, x.shape, x.dtype, x, "scale")
    if not x.size:
        return values
    step.scale, step.saturate, step.zero_nan = ldexp(1.0, exponent), 0, 0
    cdef _View view = _View(_plane(x))
    cdef _Target target = _Target(values)
    cdef uint64_t environment
    with nogil:
        environment = hw_enter_environment()
        hw_convert_scale(kernels, &step, &view.source, target.buffer.buf, count)
        hw_leave_environment(environment)
    return values


def largest(x, *, threads=1, variant=None):
    _floats(x, (np.dtype(np.float32), np.dtype(np.float64)), "largest")
    cdef const hw_convert_kernels *kernels = _kernels(variant)
    cdef int count = _threads(threads)
    cdef uint64_t word = 0
    cdef _View view
    if x.size:
        view = _View(_plane(x))
        with nogil:
            word = hw_convert_largest(kernels, &view.source, count)
    return float(np.array(word, f"u{x.dtype.itemsize}").view(x.dtype)[()])


cdef extern from "hw_environment.h" nogil:
    uint64_t hw_get_environment()
    void hw_set_environment(uint64_t value)
    const uint64_t HW_DEFAULT_ENVIRONMENT, HW_FLUSHING_ENVIRONMENT


def environment():
    return hw_get_environment()


def set_environment(uint64_t value):
    hw_set_environment(value)


DEFAULT_ENVIRONMENT = HW_DEFAULT_ENVIRONMENT
FLUSHING_ENVIRONMENT = HW_FLUSHING_ENVIRONMENT
