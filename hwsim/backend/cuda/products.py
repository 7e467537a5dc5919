"""Products on the GPU: a unit's compiled kernels, and the call for arrays. It knows units, formats and CuPy's arrays."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from hwsim.backend.cuda.device import Program, cupy, grid_for
from hwsim.backend.cuda.records import Arguments
from hwsim.backend.cuda.source import loop_of, program_text
from hwsim.errors import InputError
from hwsim.formats import code_dtype, format_of
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import DotSpec

COLUMN_TILE = 128  # of tile.cuh
MARK_BITS = 32
MOST_UNITS = 256  # whose programs are kept


class UnitProgram:
    """The kernels of a unit. divided: whether the accumulator is divided before steps."""

    def __init__(self, spec: DotSpec, divided: bool) -> None:
        self.program = Program(program_text(spec, divided))
        self.has_loop = loop_of(spec, divided) is not None
        if not self.has_loop:
            return
        found = cupy().zeros(3, np.int32)
        self.program.kernel("sizes")((1,), (1,), (found,))
        self.shared_bytes, self.threads, self.rows = (int(x) for x in found.get())
        self.program.allow_shared_bytes("tiles", self.shared_bytes)

    def run(self, arguments: Arguments, matrices: int, m: int, n: int) -> None:
        """Compute all elements. arguments.marks: zeros, a word more than there are bits for the elements."""
        count = matrices * m * n
        if self.has_loop:
            grid = (math.ceil(n / COLUMN_TILE), math.ceil(m / self.rows), matrices)
            self.program.start("tiles", [arguments], grid=grid, threads=self.threads, shared_bytes=self.shared_bytes)
        others = (np.int64(count), np.int32(not self.has_loop))
        self.program.start("scalar", [arguments], others, grid=grid_for(count))


@lru_cache(MOST_UNITS)
def unit_program(spec: DotSpec, divided: bool) -> UnitProgram:
    """The kernels of a unit, compiled once."""
    return UnitProgram(spec, divided)


def product(spec: DotSpec, operands: DotOperands, out: Any) -> Any:
    """Codes of c + a b, as Backend.gemm says."""
    gpu = cupy()
    a, b, c, scale_a, scale_b, scale_d = operands
    shape = _checked(spec, operands, out)
    if out is None:
        out = gpu.empty(shape, code_dtype(format_of(spec.d)))
    if not out.size:
        return out
    divide = None if isinstance(scale_d, int) else gpu.asarray(scale_d)
    program = unit_program(spec, divide is not None)
    (m, n), k, matrices = shape[-2:], a.shape[-1], math.prod(shape[:-2])
    marks = gpu.zeros(1 + math.ceil(matrices * m * n / MARK_BITS) if program.has_loop else 1, np.uint32)
    given = {"a": a, "b": b, "c": c, "a_scale": scale_a, "b_scale": scale_b}
    arguments = Arguments(out=out.data.ptr, out_matrix=m * n * out.itemsize, marks=marks.data.ptr, m=m, n=n, k=k)
    arguments.divide = 0 if divide is None else divide.data.ptr
    kept = []
    for name, array in given.items():
        if array is None:
            continue
        stack = array if array.ndim <= 3 else array.reshape(-1, *array.shape[-2:])  # noqa: PLR2004
        kept.append(stack)
        setattr(arguments, name, stack.data.ptr)
        setattr(arguments, f"{name}_row", stack.strides[-2])
        setattr(arguments, f"{name}_column", stack.strides[-1])
        setattr(arguments, f"{name}_matrix", stack.strides[0] if stack.ndim == 3 else 0)  # noqa: PLR2004
    program.run(arguments, matrices, m, n)
    return out


def _checked(spec: DotSpec, operands: DotOperands, out: Any) -> tuple[int, ...]:
    """The result's shape. Raises InputError for shapes and dtypes that do not fit."""
    a, b, c, scale_a, scale_b, scale_d = operands
    for name, array, fmt in (("a", a, spec.a), ("b", b, spec.b), ("c", c, spec.c), ("out", out, spec.d)):
        wanted = code_dtype(format_of(fmt))
        if array is not None and (array.dtype != wanted or array.ndim < 2):  # noqa: PLR2004
            raise InputError(f"gemm: {name} must be a matrix, or a stack of them, of {fmt} codes ({wanted}); got {array.dtype}")
    if a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        raise InputError(f"gemm: a (..., M, K) and b (..., K, N) are needed; got {a.shape} and {b.shape}")
    shape = (*a.shape[:-1], b.shape[-1])
    if c is not None and c.shape != shape:
        raise InputError(f"gemm: c must have the shape {shape}; got {c.shape}")
    if out is not None and (out.shape != shape or not out.flags.c_contiguous):
        raise InputError(f"gemm: out must be a C-contiguous array of shape {shape}; got {out.shape}")
    if (spec.scale_format is None) != (scale_a is None) or (scale_a is None) != (scale_b is None):
        raise InputError("gemm: scale_a and scale_b belong to units with block scales, and to these alone")
    if scale_a is not None:
        blocks = math.ceil(a.shape[-1] / (spec.scale_block or 1))
        for name, array, lines in (("scale_a", scale_a, (shape[-2], blocks)), ("scale_b", scale_b, (blocks, shape[-1]))):
            if array.shape != (*shape[:-2], *lines):
                raise InputError(f"gemm: {name} must have the shape {(*shape[:-2], *lines)}; got {array.shape}")
    if not isinstance(scale_d, int):
        steps = math.ceil(a.shape[-1] / spec.unit.terms)
        if scale_d.shape != (steps,) or scale_d.dtype != np.uint8:
            raise InputError(f"gemm: scale_d must be uint8 ({steps},); got {scale_d.dtype} {scale_d.shape}")
    return shape
