"""The compiled dot units: hwsim.numerics.reference's twin on whole arrays of codes.

Reads a `DotSpec` into C once, checks arrays, and hands blocks to the C kernels (kernels_ext/src/dot*.c,
kernels_ext/variant/dot) without the interpreter lock. Knows formats and units; no device, no time.
"""

from cpython.buffer cimport PyBUF_FORMAT, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memset

import numpy as np

from hwsim.errors import InputError, UnsupportedError, nearest
from hwsim.formats import format_of

include "environment.pxi"

cdef extern from "hw_dot_promote.h" nogil:
    ctypedef struct hw_lane_edges:
        int saturate
        uint64_t nan
    ctypedef struct hw_promotion:
        ptrdiff_t length
        hw_lane_edges edges

cdef extern from "hw_dot.h" nogil:
    ctypedef struct hw_format:
        const char *name
        int storage_bits
        int exponent_bits
        int fraction_bits
        int bias
        int pad
        int is_signed
        int special
    const hw_format *hw_format_find(const char *name)
    uint64_t hw_default_nan(const hw_format *f)
    enum:
        HW_MAX_TERMS, HW_MAX_EXACT_TERMS
    enum:
        HW_EXACT, HW_FMA_CHAIN, HW_FUSED, HW_PAIRWISE, HW_TWO_LEVEL, HW_INTEGER_MODEL, HW_COMPOSITE, HW_BLOCK_SCALED
    enum:
        HW_RNE, HW_RNA, HW_RZ, HW_RU, HW_RD
    enum:
        HW_INTEGER
    ctypedef struct hw_spec:
        hw_format a, b, c, d, result
        int model, terms, rounding, fraction_bits, floor_exponent
        int saturate_operands, saturate_overflow, ieee_zero, flush_operands, flush_results
        uint64_t nan_code
        char nan_order[4]
        int product_fraction_bits, sum_fraction_bits, accumulator_fraction_bits, final_fraction_bits
        int interleaved, accumulator_drop_bits
        hw_spec *inner
        int modulus, selections
        uint64_t selection[8]
        hw_format scale
        int scale_block, group, zero_exponent
    ctypedef struct hw_block:
        const hw_spec *spec
        const char *a
        const char *b
        char *out
        ptrdiff_t a_row, a_column, b_row, b_column, out_row
        ptrdiff_t m, n, k
        const char *a_scale
        const char *b_scale
        ptrdiff_t a_scale_row, a_scale_column, b_scale_row, b_scale_column
        const uint8_t *divide
        const hw_promotion *promotion
    ctypedef struct hw_variant:
        const char *name
    int hw_variants(const hw_variant **table)
    int hw_scalar_first_step(const hw_block *block, const char *c, ptrdiff_t c_row, ptrdiff_t c_column)
    const hw_variant hw_scalar_variant
    int hw_gemm_threads(const hw_variant *variant, const hw_block *block, ptrdiff_t batches,
                        const ptrdiff_t *a_offset, const ptrdiff_t *b_offset, const ptrdiff_t *out_offset,
                        const ptrdiff_t *a_scale_offset, const ptrdiff_t *b_scale_offset, int threads)

cdef const hw_variant *_table = NULL
cdef int _runnable = hw_variants(&_table)
cdef int _chosen = _runnable - 1

cdef dict _ROUNDINGS = {"RNE": HW_RNE, "RNA": HW_RNA, "RZ": HW_RZ, "RU": HW_RU, "RD": HW_RD}
cdef dict _MODELS = {
    "exact": HW_EXACT, "fma_chain": HW_FMA_CHAIN, "fused": HW_FUSED, "pairwise": HW_PAIRWISE,
    "two_level": HW_TWO_LEVEL, "integer": HW_INTEGER_MODEL, "composite": HW_COMPOSITE,
    "block_scaled": HW_BLOCK_SCALED,
}
cdef dict _BUFFER_BITS = {b"B": 8, b"H": 16, b"I": 32, b"L": 64 if sizeof(long) == 8 else 32, b"Q": 64}


def runnable_variants() -> tuple:
    """Names of the builds that this machine can run, the fastest last."""
    return tuple([_table[i].name.decode() for i in range(_runnable)])


cdef int _variant_index(name) except -1:
    names = runnable_variants()
    if name not in names:
        raise InputError(f"kernel build {name!r}: this machine can run {', '.join(names)}{nearest(str(name), names)}")
    return names.index(name)


def choose_variant(name: str) -> None:
    """Make one build the default. Raises InputError for a name that this machine cannot run."""
    global _chosen
    _chosen = _variant_index(name)


def chosen_variant() -> str:
    """Name of the build in use."""
    return _table[_chosen].name.decode()


cdef dict _fields_of_format(const hw_format *f):
    return {
        "storage_bits": f.storage_bits, "exponent_bits": f.exponent_bits, "fraction_bits": f.fraction_bits,
        "bias": f.bias, "pad": f.pad, "is_signed": bool(f.is_signed), "special": f.special,
    }


def format_fields(name: str) -> dict:
    """The kernels' own record of a format, for comparison with hwsim.formats."""
    cdef const hw_format *f = hw_format_find(name.encode())
    if f == NULL:
        raise InputError(f"the kernels have no format {name!r}")
    return {**_fields_of_format(f), "default_nan": hw_default_nan(f)}


cdef int _read_format(hw_format *to, str name) except -1:
    format_of(name)     # an unknown name: InputError with the nearest
    cdef const hw_format *found = hw_format_find(name.encode())
    if found == NULL:
        raise UnsupportedError(f"the kernels have no format {name!r}")
    to[0] = found[0]
    return 0


cdef class _Prepared:
    """A DotSpec in C. Holds the Python spec, so that its identity stays taken."""
    cdef hw_spec spec
    cdef hw_spec inner
    cdef object source
    cdef bint integer

    def __cinit__(self):
        memset(&self.spec, 0, sizeof(hw_spec))
        memset(&self.inner, 0, sizeof(hw_spec))

    def __init__(self, source):
        self.source = source
        _fill(&self.spec, source.unit, source.a, source.b, source.c, source.d)
        self.integer = self.spec.model == HW_INTEGER_MODEL
        if source.scale_format is not None or self.spec.model == HW_BLOCK_SCALED:
            _fill_scales(&self.spec, source)
        if self.spec.model == HW_COMPOSITE:
            unit = source.unit
            wide = format_of(unit.operand_format)
            for name in (source.a, source.b):
                if not wide.holds(format_of(name)):
                    raise InputError(f"composite unit: operand_format {wide.name} does not hold all values of {name}")
            _fill(&self.inner, unit.inner, unit.operand_format, unit.operand_format, source.d, source.d)
            self.spec.inner = &self.inner
            self.spec.modulus = unit.modulus
            self.spec.selections = len(unit.selections)
            if unit.modulus > 64 or len(unit.selections) > 8:
                raise UnsupportedError("composite unit: a modulus up to 64 and up to 8 selections are supported")
            for i, residues in enumerate(unit.selections):
                for residue in residues:
                    self.spec.selection[i] |= <uint64_t>1 << <int>residue
                taken = sum(k % unit.modulus in residues for k in range(unit.terms))
                if taken > unit.inner.terms:
                    raise InputError(
                        f"composite unit: selection {i} takes {taken} products, its inner unit {unit.inner.terms}"
                    )


cdef int _fill_scales(hw_spec *s, source) except -1:
    unit, block = source.unit, source.scale_block
    if source.scale_format is None or block is None:
        raise InputError("gemm: the block_scaled unit needs a scale format and block")
    if s.model != HW_FUSED and s.model != HW_BLOCK_SCALED:
        raise InputError(f"gemm: the {unit.model} unit takes no block scales")
    if block < 1 or unit.terms % block:
        raise InputError(f"scale_block: {block} does not divide the {unit.terms} products of a step")
    _read_format(&s.scale, source.scale_format)
    narrow = 16 if s.model == HW_FUSED else 8
    if s.scale.storage_bits != 8 or s.scale.is_signed or s.a.storage_bits > narrow or s.b.storage_bits > narrow:
        raise UnsupportedError(f"gemm: block scales of 8 bits without sign, and operands of up to {narrow} bits, are "
                               f"supported; got {source.scale_format}, {source.a}, {source.b}")
    if source.c != source.d:
        raise UnsupportedError(f"gemm: with block scales c must have d's format; got {source.c}, {source.d}")
    s.scale_block = block
    if s.model == HW_BLOCK_SCALED:
        s.group = unit.group
        s.zero_exponent = unit.zero_exponent
        s.fraction_bits = unit.fraction_bits
        s.floor_exponent = unit.floor_exponent
        if not 1 <= unit.group or not 0 <= unit.fraction_bits <= 64:
            raise UnsupportedError(f"block_scaled unit: groups of at least 1 and up to 64 fraction bits are supported; "
                                   f"got {unit.group} and {unit.fraction_bits}")
    return 0


cdef int _fill(hw_spec *s, unit, a, b, c, d) except -1:
    model = unit.model
    if model not in _MODELS:
        raise UnsupportedError(f"gemm: the kernels have no {model} unit; use hwsim.numerics.reference")
    s.model = _MODELS[model]
    cdef int most = HW_MAX_EXACT_TERMS if s.model == HW_EXACT else HW_MAX_TERMS
    if not 1 <= unit.terms <= most:
        raise UnsupportedError(f"gemm: 1 to {most} products per step are supported; got {unit.terms}")
    s.terms = unit.terms
    _read_format(&s.a, a)
    _read_format(&s.b, b)
    _read_format(&s.c, c)
    _read_format(&s.d, d)
    s.result = s.d
    integers = [name for name in (a, b, c, d) if format_of(name).is_integer]
    if len(integers) != (4 if s.model == HW_INTEGER_MODEL else 0):
        raise InputError(f"gemm: formats {a}, {b}, {c}, {d} do not fit the {model} unit")
    s.accumulator_drop_bits = -1
    if s.model == HW_INTEGER_MODEL:
        s.saturate_overflow = unit.overflow == "saturate"
        return 0
    specials = unit.specials
    s.saturate_operands = specials.operands == "saturate"
    s.saturate_overflow = specials.overflow == "saturate"
    s.ieee_zero = specials.zero == "ieee"
    s.flush_operands = specials.flush_operands
    s.flush_results = specials.flush_results
    s.nan_code = hw_default_nan(&s.d) if specials.nan_code is None else specials.nan_code
    s.rounding = _ROUNDINGS[unit.rounding] if s.model != HW_COMPOSITE else HW_RNE
    if s.model == HW_FMA_CHAIN and unit.nan_order is not None:
        if format_of(d).nan != "ieee":
            raise InputError(f"fma_chain unit: nan_order needs a result format with IEEE NaNs; got {d}")
        for i, operand in enumerate(unit.nan_order):
            s.nan_order[i] = ord(operand)
    if s.model == HW_FUSED:
        if not 0 <= unit.fraction_bits <= 100:
            raise UnsupportedError(f"fused unit: 0 to 100 fraction bits are supported; got {unit.fraction_bits}")
        s.fraction_bits = unit.fraction_bits
        s.floor_exponent = unit.floor_exponent
        if unit.result_format is not None:
            _read_format(&s.result, unit.result_format)
            if (s.result.exponent_bits != s.d.exponent_bits or s.result.bias != s.d.bias
                    or s.result.fraction_bits + s.result.pad != s.d.fraction_bits + s.d.pad):
                raise UnsupportedError(f"result_format {unit.result_format}: not a narrower format in the word of {d}")
    elif s.model == HW_TWO_LEVEL:
        s.product_fraction_bits = unit.product_fraction_bits
        s.sum_fraction_bits = unit.sum_fraction_bits
        s.accumulator_fraction_bits = unit.accumulator_fraction_bits
        s.final_fraction_bits = unit.final_fraction_bits
        s.interleaved = unit.interleaved
        if unit.accumulator_drop_bits is not None:
            s.accumulator_drop_bits = unit.accumulator_drop_bits
        if max(s.product_fraction_bits, s.sum_fraction_bits, s.accumulator_fraction_bits) > 48:
            raise UnsupportedError("two_level unit: up to 48 fraction bits are supported")
    return 0


cdef dict _fields_of_spec(const hw_spec *s):
    fields = {
        "a": _fields_of_format(&s.a), "b": _fields_of_format(&s.b), "c": _fields_of_format(&s.c),
        "d": _fields_of_format(&s.d), "result": _fields_of_format(&s.result),
        "model": s.model, "terms": s.terms, "rounding": s.rounding, "fraction_bits": s.fraction_bits,
        "floor_exponent": s.floor_exponent, "saturate_operands": s.saturate_operands,
        "saturate_overflow": s.saturate_overflow, "ieee_zero": s.ieee_zero, "flush_operands": s.flush_operands,
        "flush_results": s.flush_results, "nan_code": s.nan_code, "nan_order": [s.nan_order[i] for i in range(4)],
        "product_fraction_bits": s.product_fraction_bits, "sum_fraction_bits": s.sum_fraction_bits,
        "accumulator_fraction_bits": s.accumulator_fraction_bits, "final_fraction_bits": s.final_fraction_bits,
        "interleaved": s.interleaved, "accumulator_drop_bits": s.accumulator_drop_bits,
        "inner": None if s.inner == NULL else _fields_of_spec(s.inner), "modulus": s.modulus,
        "selections": s.selections, "selection": [s.selection[i] for i in range(8)],
        "scale": _fields_of_format(&s.scale), "scale_block": s.scale_block, "group": s.group,
        "zero_exponent": s.zero_exponent,
    }
    return fields


def spec_fields(spec) -> dict:
    """A DotSpec as the kernels' record, field by field in the order of hw_spec: formats and the inner unit as mappings.

    Raises UnsupportedError for a unit without a kernel.
    """
    return _fields_of_spec(&_prepare(spec).spec)


cdef dict _prepared = {}


cdef _Prepared _prepare(spec):
    # By identity: hashing a nested record would cost more than a small product.
    cdef _Prepared found = _prepared.get(id(spec))
    if found is None:
        found = _Prepared(spec)
        if len(_prepared) >= 512:
            _prepared.clear()
        _prepared[id(spec)] = found
    return found


cdef int _buffer(object array, Py_buffer *view, str name, hw_format *f) except -1:
    try:
        PyObject_GetBuffer(array, view, PyBUF_STRIDES | PyBUF_FORMAT)
    except (TypeError, BufferError, ValueError) as error:
        raise InputError(f"{name} must be an array of {f.name.decode()} codes "
                         f"(uint{f.storage_bits}); got {type(array).__name__}") from error
    if view.ndim < 2 or view.format == NULL or _BUFFER_BITS.get(<bytes>view.format) != f.storage_bits:
        got = f"{view.ndim} dimensions of {getattr(array, 'dtype', '?')}"
        PyBuffer_Release(view)
        raise InputError(f"{name} must be a matrix, or a stack of them, of {f.name.decode()} codes "
                         f"(uint{f.storage_bits}); got {got}")
    return 0


cdef ptrdiff_t _offset(Py_buffer *view, ptrdiff_t batch) noexcept nogil:
    """Byte offset of the matrix with this flat index of the leading dimensions."""
    cdef ptrdiff_t offset = 0
    cdef int axis = view.ndim - 3
    while axis >= 0:
        offset += batch % view.shape[axis] * view.strides[axis]
        batch //= view.shape[axis]
        axis -= 1
    return offset


def gemm(spec, a, b, c=None, *, scale_a=None, scale_b=None, divide=None, int threads=1, out=None, _variant=None):
    """Codes of c + a b, as the chain of the unit's steps in order of k computes it.

    spec: DotSpec. a (..., M, K), b (..., K, N), c (..., M, N): unsigned arrays of codes of the formats' storage
    width (formats narrower than a byte: one per uint8), any strides, equal leading dimensions; None for c is
    +0. scale_a (..., M, K / block), scale_b (..., K / block, N): codes of block scales, for a spec that has them, the
    last block as short as K leaves it; leading dimensions as of a. c may have another format than d,
    read by the first step. divide (steps,), uint8: before each step the accumulator counts times 2^-divide, exactly,
    though its format may have no such number (tcgen05's scale-input-d); None: times 1. threads: over rows, or
    columns when there are few rows; the result does not depend on it. _variant: one of `runnable_variants`, or
    "scalar" for the integer code behind all of them (for tests). out: array for the result, C-contiguous, of d's
    width; it may be c itself. Returns the codes of the result (..., M, N).
    Raises InputError for arrays or formats that do not fit, UnsupportedError for a unit without a kernel.
    """
    cdef uint64_t environment
    cdef _Prepared prepared = _prepare(spec)
    cdef hw_spec *s = &prepared.spec
    cdef const hw_variant *variant = _variant_of(_variant, threads)
    cdef Py_buffer va, vb, vc, vout
    cdef Py_buffer vscale[2]
    cdef int held = 0, scales = 0, axis, status = 0
    cdef hw_block block
    cdef ptrdiff_t batches = 1, i, count
    cdef ptrdiff_t one[5]
    cdef ptrdiff_t *offsets = one
    cdef bint wide_c = False
    cdef const uint8_t[::1] places
    block.divide = NULL
    block.promotion = NULL
    cdef int width = s.d.storage_bits // 8
    _buffer(a, &va, "gemm: a", &s.a)
    try:
        _buffer(b, &vb, "gemm: b", &s.b)
        held = 1
        if va.ndim != vb.ndim or va.shape[va.ndim - 1] != vb.shape[vb.ndim - 2]:
            raise InputError(f"gemm: a (..., M, K) and b (..., K, N) are needed; got {a.shape} and {b.shape}")
        for axis in range(va.ndim - 2):
            if va.shape[axis] != vb.shape[axis]:
                raise InputError(f"gemm: leading dimensions must be equal; got {a.shape} and {b.shape}")
            batches *= va.shape[axis]
        block.m = va.shape[va.ndim - 2]
        block.k = va.shape[va.ndim - 1]
        block.n = vb.shape[vb.ndim - 1]
        shape = (block.m, block.n) if va.ndim == 2 else (*a.shape[:va.ndim - 2], block.m, block.n)
        if c is not None:
            if c.shape != shape:
                raise InputError(f"gemm: c must have the shape {shape}; got {c.shape}")
            wide_c = s.c.name != s.d.name
        if out is None:
            if c is None:
                out = np.zeros(shape, _DTYPES[width])
            elif wide_c:
                out = np.empty(shape, _DTYPES[width])
            else:
                out = np.array(c, order="C", ndmin=2)
        elif out.shape != shape or not out.flags.c_contiguous:
            raise InputError(f"gemm: out must be a C-contiguous array of shape {shape}; got {out.shape}")
        elif c is None:
            out[...] = 0
        if c is not None:
            _buffer(c, &vc, "gemm: c", &s.c)
            held = 2
            if not wide_c and out is not c:
                out[...] = c
        if s.scale_block:
            blocks = (block.k + s.scale_block - 1) // s.scale_block
            for name, scale, lines in (
                ("scale_a", scale_a, (block.m, blocks)), ("scale_b", scale_b, (blocks, block.n))
            ):
                if scale is None or scale.shape != (*a.shape[:va.ndim - 2], *lines):
                    got = "nothing" if scale is None else str(scale.shape)
                    raise InputError(f"gemm: {name}: {s.scale.name.decode()} codes of shape "
                                     f"{(*a.shape[:va.ndim - 2], *lines)} are needed; got {got}")
                _buffer(scale, &vscale[scales], f"gemm: {name}", &s.scale)
                scales += 1
            block.a_scale = <const char *>vscale[0].buf
            block.b_scale = <const char *>vscale[1].buf
            block.a_scale_row = vscale[0].strides[va.ndim - 2]
            block.a_scale_column = vscale[0].strides[va.ndim - 1]
            block.b_scale_row = vscale[1].strides[va.ndim - 2]
            block.b_scale_column = vscale[1].strides[va.ndim - 1]
        elif scale_a is not None or scale_b is not None:
            raise InputError("gemm: scale_a and scale_b: this unit takes no block scales")
        if divide is not None:
            places = _divisions(s, divide, block.k)
            if places.shape[0]:
                block.divide = &places[0]
        PyObject_GetBuffer(out, &vout, PyBUF_STRIDES | PyBUF_FORMAT | PyBUF_WRITABLE)
        try:
            if _BUFFER_BITS.get(<bytes>vout.format) != s.d.storage_bits:
                raise InputError(f"gemm: out must be uint{s.d.storage_bits}; got {out.dtype}")
            block.spec = s
            block.a = <const char *>va.buf
            block.b = <const char *>vb.buf
            block.out = <char *>vout.buf
            block.a_row = va.strides[va.ndim - 2]
            block.a_column = va.strides[va.ndim - 1]
            block.b_row = vb.strides[vb.ndim - 2]
            block.b_column = vb.strides[vb.ndim - 1]
            block.out_row = block.n * width
            if batches > 1:
                offsets = <ptrdiff_t *>PyMem_Malloc(5 * batches * sizeof(ptrdiff_t))
                if offsets == NULL:
                    raise MemoryError
            for i in range(batches):
                offsets[i] = _offset(&va, i)
                offsets[batches + i] = _offset(&vb, i)
                offsets[2 * batches + i] = i * block.m * block.out_row
                if scales:
                    offsets[3 * batches + i] = _offset(&vscale[0], i)
                    offsets[4 * batches + i] = _offset(&vscale[1], i)
            with nogil:
                environment = hw_enter_environment()
                if wide_c:
                    status = _first_step(block, &vc, batches, offsets)
                    count = s.terms if s.terms < block.k else block.k
                    block.a += count * block.a_column
                    block.b += count * block.b_row
                    block.k -= count
                    if block.divide != NULL:
                        block.divide += 1
                if status == 0 and (block.k or not wide_c):
                    status = hw_gemm_threads(variant, &block, batches, offsets, offsets + batches,
                                             offsets + 2 * batches, offsets + 3 * batches, offsets + 4 * batches,
                                             threads)
                hw_leave_environment(environment)
        finally:
            PyBuffer_Release(&vout)
            if offsets != one:
                PyMem_Free(offsets)
        if status:
            raise MemoryError
        return out
    finally:
        PyBuffer_Release(&va)
        for axis in range(scales):
            PyBuffer_Release(&vscale[axis])
        if held >= 1:
            PyBuffer_Release(&vb)
        if held >= 2:
            PyBuffer_Release(&vc)


def promote(spec, a, b, total, *, ptrdiff_t length, divide=None, saturate=False, nan_code=None, int threads=1,
            _variant=None):
    cdef uint64_t environment
    cdef _Prepared prepared = _prepare(spec)
    cdef hw_spec *s = &prepared.spec
    cdef const hw_variant *variant = _variant_of(_variant, threads)
    cdef Py_buffer va, vb, vt
    cdef int held = 0, status = 0
    cdef hw_block block
    cdef hw_promotion promotion
    cdef ptrdiff_t nothing = 0
    cdef const uint8_t[::1] places
    if spec.d not in ("fp32", "fp64") or spec.c != spec.d or s.scale_block:
        raise UnsupportedError(f"promote: a unit without block scales whose accumulator and result are both fp32, or "
                               f"both fp64, is needed; got {spec.c} and {spec.d}")
    wanted, got = format_of(spec.d).dtype_name, getattr(total, "dtype", type(total).__name__)
    if got != wanted or total.ndim != 2 or not total.flags.c_contiguous:
        raise InputError(f"promote: total must be a C-contiguous matrix of {wanted}; got {got}")
    _buffer(a, &va, "promote: a", &s.a)
    try:
        _buffer(b, &vb, "promote: b", &s.b)
        held = 1
        if va.ndim != 2 or vb.ndim != 2 or va.shape[1] != vb.shape[0] or total.shape != (va.shape[0], vb.shape[1]):
            raise InputError(f"promote: a (M, K), b (K, N) and total (M, N) are needed; got {a.shape}, {b.shape} and "
                             f"{total.shape}")
        if length < 1 or va.shape[1] % length or length % s.terms:
            raise InputError(f"promote: length must be a multiple of {s.terms} that divides K = {va.shape[1]}; got "
                             f"{length}")
        PyObject_GetBuffer(total, &vt, PyBUF_STRIDES | PyBUF_WRITABLE)
        held = 2
        block.spec = s
        block.divide = NULL
        if divide is not None:
            places = _divisions(s, divide, length)
            block.divide = &places[0]
        promotion.length = length
        promotion.edges.saturate = bool(saturate)
        if nan_code is None:
            nan_code = 0x7FF8000000000000 if vt.itemsize == 8 else 0x7FC00000
        promotion.edges.nan = nan_code
        block.promotion = &promotion
        block.a = <const char *>va.buf
        block.b = <const char *>vb.buf
        block.out = <char *>vt.buf
        block.m, block.k, block.n = va.shape[0], va.shape[1], vb.shape[1]
        block.a_row, block.a_column = va.strides[0], va.strides[1]
        block.b_row, block.b_column = vb.strides[0], vb.strides[1]
        block.out_row = vt.strides[0]
        with nogil:
            environment = hw_enter_environment()
            status = hw_gemm_threads(variant, &block, 1, &nothing, &nothing, &nothing, &nothing, &nothing, threads)
            hw_leave_environment(environment)
        if status:
            raise MemoryError
        return total
    finally:
        PyBuffer_Release(&va)
        if held >= 1:
            PyBuffer_Release(&vb)
        if held >= 2:
            PyBuffer_Release(&vt)


cdef const hw_variant *_variant_of(object name, int threads) except NULL:
    """The build to use: one of `runnable_variants`, "scalar", or None for the chosen one."""
    if threads < 1:
        raise InputError(f"threads must be at least 1; got {threads}")
    if name is None:
        return &_table[_chosen]
    return &hw_scalar_variant if name == "scalar" else &_table[_variant_index(name)]


cdef const uint8_t[::1] _divisions(hw_spec *s, divide, ptrdiff_t k):
    steps = (k + s.terms - 1) // s.terms
    if not isinstance(divide, np.ndarray) or divide.dtype != np.uint8 or divide.shape != (steps,):
        got = f"{divide.dtype} {divide.shape}" if isinstance(divide, np.ndarray) else type(divide).__name__
        raise InputError(f"gemm: divide must be uint8 ({steps},): one number for each {s.terms} of K; got {got}")
    if s.c.special == HW_INTEGER or s.d.special == HW_INTEGER:
        raise UnsupportedError(f"gemm: integer accumulators are not divided; got {s.d.name.decode()}")
    return np.ascontiguousarray(divide)


cdef int _first_step(hw_block block, Py_buffer *c, ptrdiff_t batches, ptrdiff_t *offsets) noexcept nogil:
    """The step that reads an accumulator of a format other than d's."""
    cdef ptrdiff_t i
    cdef hw_block part = block
    cdef int status = 0
    for i in range(batches):
        part.a = block.a + offsets[i]
        part.b = block.b + offsets[batches + i]
        part.out = block.out + offsets[2 * batches + i]
        status |= hw_scalar_first_step(&part, <const char *>c.buf + _offset(c, i), c.strides[c.ndim - 2],
                                       c.strides[c.ndim - 1])
    return status


cdef dict _DTYPES = {1: np.dtype("u1"), 2: np.dtype("u2"), 4: np.dtype("u4"), 8: np.dtype("u8")}
