"""Products on the GPU: a unit's compiled kernels, and the call for arrays. It knows units, formats, CuPy's arrays."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from hwsim.backend.cuda.device import (
    CompilationError,
    CompiledProgram,
    cupy,
    current,
    grid_for,
    most_shared_bytes,
    processors,
    record_on_gpu,
    to_gpu,
)
from hwsim.backend.cuda.records import ProductArguments
from hwsim.backend.cuda.source import FEWER, MOST_TERMS_OF_FEWER, SUMS, loop_of, program_text
from hwsim.backend.cuda.trial import trial
from hwsim.formats import code_dtype, format_of
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import DotSpec

COLUMN_TILE = 128  # of tile.cuh
MOST_BLOCKS = (1 << 16) - 1  # of a grid, along its second and third axis
MARK_BITS = 32
MOST_UNITS = 256  # whose programs are kept
MATRIX_AXES = 2


class TileProgram:
    """The kernels of a unit. fewer: see `program_text`. fits: whether a block has the shared memory that it needs."""

    def __init__(self, spec: DotSpec, divided: bool, fewer: int) -> None:
        self.program = CompiledProgram(program_text(spec, divided, fewer))
        sizes = cupy().zeros(3, np.int32)
        self.program.start("sizes", (sizes,), grid=(1,), threads=1)
        self.shared_bytes, self.threads, self.rows = (int(x) for x in sizes.get())
        self.fits = self.shared_bytes <= most_shared_bytes()
        if self.fits:
            self.program.allow_shared_bytes("tiles", self.shared_bytes)

    def grid(self, m: int, n: int, matrices: int) -> tuple[int, int, int]:
        """Blocks of threads."""
        return math.ceil(n / COLUMN_TILE), math.ceil(m / self.rows), matrices


class UnitProgram:
    """The kernels of a unit. divided: whether the accumulator is divided before steps.

    Blocks with fewer rows compute products that have too few blocks for the GPU's processors, and all where larger
    blocks do not fit.
    """

    def __init__(self, spec: DotSpec, divided: bool) -> None:
        self.spec, self.divided = spec, divided
        self.most_rows = self.most_matrices = sys.maxsize  # of one start
        self.has_fewer = spec.unit.terms <= MOST_TERMS_OF_FEWER
        self.tiles: list[TileProgram] = []
        if loop_of(spec, divided) is not None:
            self.tiles = self._usable(1)
            if not self.tiles and self.has_fewer:
                self.tiles = self.of_fewer
        self.has_loop = bool(self.tiles)
        if self.has_loop:
            self.most_rows, self.most_matrices = MOST_BLOCKS * (self.tiles[0].rows // FEWER), MOST_BLOCKS
            self.scalar = self.tiles[0].program
            return
        self.scalar = CompiledProgram(program_text(spec, divided))
        if not self._has_the_cpus_bits(None):
            raise CompilationError(f"the kernels of {_name(spec)} have other bits than the CPU's: a compiler's fault")

    def _usable(self, fewer: int) -> list[TileProgram]:
        """The program with so many fewer rows, if it fits and has the CPU's bits."""
        program = TileProgram(self.spec, self.divided, fewer)
        if not program.fits:
            return []
        if self._has_the_cpus_bits(program):
            return [program]
        warnings.warn(
            f"engine cuda: the main loop of {_name(self.spec)} has other bits than the CPU's kernels, a fault of the "
            "compiler; scalar steps compute this unit, slower",
            stacklevel=2,
        )
        return []

    @cached_property
    def of_fewer(self) -> list[TileProgram]:
        """The program of blocks with fewer rows, if it can be used."""
        return self._usable(FEWER)

    def _chosen(self, m: int, n: int, matrices: int) -> TileProgram:
        """The program for a product."""
        (whole,) = self.tiles
        if self.has_fewer and math.prod(whole.grid(m, n, matrices)) < processors() and m > whole.rows // FEWER:
            return next(iter(self.of_fewer), whole)
        return whole

    def run(self, arguments: ProductArguments, matrices: int) -> None:
        """Compute all elements of a stack. arguments.marks: zeros, a word, and a bit for each element."""
        tiles = self._chosen(arguments.m, arguments.n, matrices) if self.has_loop else None
        _run(tiles, self.scalar, arguments, matrices)

    def _has_the_cpus_bits(self, tiles: TileProgram | None) -> bool:
        """Whether kernels give a small product the bits of the CPU's. tiles: None: scalar steps alone."""
        operands, want = trial(self.spec, self.divided)
        places = to_gpu(operands.scale_d) if self.divided else None
        a, b, c, scale_a, scale_b = (None if x is None else to_gpu(x)[None] for x in operands[:-1])
        out = cupy().empty((1, *want.shape), want.dtype)
        arguments, _marks = _arguments(DotOperands(a, b, c, scale_a, scale_b, places), out, tiles is not None)
        _run(tiles, self.scalar if tiles is None else tiles.program, arguments, 1)
        return bool(np.array_equal(out.get()[0], want))


def _name(spec: DotSpec) -> str:
    return f"{type(spec.unit).__name__} ({spec.a} x {spec.b} + {spec.c} to {spec.d})"


def _run(tiles: TileProgram | None, scalar: CompiledProgram, arguments: ProductArguments, matrices: int) -> None:
    """Start a main loop, and scalar steps for what it marks; without one, for all."""
    m, n, record = arguments.m, arguments.n, record_on_gpu(arguments)
    if tiles is not None:
        grid, size = tiles.grid(m, n, matrices), tiles.shared_bytes
        tiles.program.start("tiles", (record,), grid=grid, threads=tiles.threads, shared_bytes=size)
    count = matrices * m * n
    scalar.start("scalar", (record, np.int64(count), np.int32(tiles is None)), grid=grid_for(count))


def unit_program(spec: DotSpec, divided: bool, gpu: int) -> UnitProgram:
    """The kernels of a unit, compiled and tried once. gpu: the current one. Raises CompilationError where they cannot
    be used.
    """
    program = _program_or_fault(spec, divided, gpu)
    if isinstance(program, str):
        raise CompilationError(program)
    return program


@lru_cache(MOST_UNITS)
def _program_or_fault(spec: DotSpec, divided: bool, gpu: int) -> UnitProgram | str:
    """The kernels of a unit, or why they cannot be used."""
    try:
        return UnitProgram(spec, divided)
    except CompilationError as error:
        return str(error)


@lru_cache(MOST_UNITS)
def program_of(text: str, gpu: int) -> CompiledProgram:
    """The kernels of a text, compiled once. gpu: the current one."""
    return CompiledProgram(text)


def product(spec: DotSpec, operands: DotOperands) -> Any:
    """Codes of c + a b on the GPU, as Backend.gemm says, of arrays of the GPU whose shapes and dtypes fit.

    scale_d: of the host.
    """
    gpu = cupy()
    a, b, c, scale_a, scale_b, scale_d = operands
    shape = (*a.shape[:-1], b.shape[-1])
    out = gpu.empty(shape, code_dtype(format_of(spec.d)))
    if not out.size:
        return out
    divide = None if isinstance(scale_d, int) else gpu.asarray(scale_d)
    program = unit_program(spec, divide is not None, current())
    left, right, start, left_scale, right_scale, whole = map(_stack, (a, b, c, scale_a, scale_b, out))
    for matrices, rows in parts(whole.shape, program.most_matrices, program.most_rows):
        few = DotOperands(
            left[matrices, rows],
            right[matrices],
            None if start is None else start[matrices, rows],
            None if left_scale is None else left_scale[matrices, rows],
            None if right_scale is None else right_scale[matrices],
            divide,
        )
        _start(program, few, whole[matrices, rows])
    return out


def parts(shape: tuple[int, int, int], most_matrices: int, most_rows: int) -> Iterator[tuple[slice, slice]]:
    """Matrices and rows of a stack, so many at a time."""
    for first in range(0, shape[0], most_matrices):
        for row in range(0, shape[1], most_rows):
            yield slice(first, first + most_matrices), slice(row, row + most_rows)


def _stack(array: Any) -> Any:
    """A matrix, or a stack with any axes, as a stack with one; None: None."""
    if array is None:
        return None
    if array.ndim == MATRIX_AXES:
        return array[None]
    return array if array.ndim == MATRIX_AXES + 1 else array.reshape(-1, *array.shape[-MATRIX_AXES:])


def _start(program: UnitProgram, operands: DotOperands, out: Any) -> None:
    """Start the kernels for stacks with one axis. scale_d: None, or on the GPU."""
    arguments, _marks = _arguments(operands, out, program.has_loop)
    program.run(arguments, len(out))


def _arguments(operands: DotOperands, out: Any, has_loop: bool) -> tuple[ProductArguments, Any]:
    """The kernels' record for stacks with one axis, and the memory of its marks: to keep until kernels are started."""
    a, b, c, scale_a, scale_b, divide = operands
    matrices, m, n = out.shape
    marks = cupy().zeros(1 + math.ceil(matrices * m * n / MARK_BITS) if has_loop else 1, np.uint32)
    arguments = ProductArguments(out=out.data.ptr, out_matrix=out.strides[0], marks=marks.data.ptr)
    arguments.m, arguments.n, arguments.k = m, n, a.shape[-1]
    arguments.divide = 0 if divide is None else divide.data.ptr
    for name, array in (("a", a), ("b", b), ("c", c), ("a_scale", scale_a), ("b_scale", scale_b)):
        if array is not None:
            setattr(arguments, name, array.data.ptr)
            for axis, stride in zip(("matrix", "row", "column"), array.strides, strict=True):
                setattr(arguments, f"{name}_{axis}", stride)
    return arguments, marks


def add_chains(
    spec: DotSpec, operands: DotOperands, total: Any, *, length: int, saturate: bool, nan_code: int | None
) -> None:
    """Add the chains of a b over each `length` of K to total, in place, as Backend.promote says; arrays of the GPU."""
    a, b, fmt = operands.a, operands.b, format_of(spec.d)
    nan = fmt.nan_code if nan_code is None else nan_code
    edges = (np.int64(total.size), np.int32(fmt.name == "fp64"), np.int32(saturate), np.uint64(nan))
    for start in range(0, a.shape[1], length):
        k = slice(start, start + length)
        chain = product(spec, DotOperands(a[:, k], b[k], scale_d=operands.scale_d))
        program_of(SUMS, current()).start("add", (total, chain, *edges), grid=grid_for(total.size))
