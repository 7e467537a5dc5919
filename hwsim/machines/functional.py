"""The functional machine: computes the bits of a program. It knows no time and no scheme.

Each core's streams are first coalesced into array operations (hwsim._kernels.coalesce): transfers of unchanged data
cost nothing, and products accumulated in one place become one chain over all of their K. The operations are then
executed on arrays of codes by a backend, with simulated cores in parallel on host threads; a group of cores that awaits
others (hwsim.program.peers) after those. The bits do not depend on the number of threads: within a kernel, cores write
different elements. A product whose K is not a multiple of the instruction's is padded with zeros, as in the direct
evaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwsim._kernels.coalesce import Coalescer
from hwsim.arithmetic.vector import VectorUnit, gives_all_ones
from hwsim.backend.cpu import CPU
from hwsim.devices import dot_spec, instruction
from hwsim.errors import ProgramError
from hwsim.formats import Format, code_dtype, format_of
from hwsim.machines.products import check_products, in_steps, product
from hwsim.machines.storage import bytes_per_slot_byte
from hwsim.machines.words import as_read
from hwsim.program.flat import TILE_GLOBAL, FlatKernel, flatten
from hwsim.program.ir import AnyTile, GlobalTile, Instr, Kernel, LocalTile, Program
from hwsim.program.peers import turns
from hwsim.program.roles import K_AXES

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.devices.device import Device
    from hwsim.numerics.units import DotSpec

Codes = NDArray[Any]


def run(
    program: Program,
    device: Device,
    inputs: Mapping[str, Codes],
    *,
    threads: int = 1,
    progress: Callable[[float], None] | None = None,
    backend: Backend = CPU,
    before_kernel: Callable[[int, Mapping[str, Codes]], None] | None = None,
) -> Codes:
    """Execute a program and return the codes of its output array.

    inputs: for each name in `program.inputs`, codes of the array's shape and format. threads: host threads.
    progress: called with the share of the work done, 0 to 1. backend: computes the bits. before_kernel: called with
    the number of each kernel and global memory at its begin. Raises ProgramError when the program deadlocks.
    """
    check_products(program)
    inputs = as_read(program, device, inputs, backend)
    arrays: dict[str, Codes] = {}
    for array in program.arrays:
        given = inputs.get(array.name)
        if given is not None:
            arrays[array.name] = given
        else:
            arrays[array.name] = backend.empty((array.rows, array.cols), code_dtype(format_of(array.format)))
    specs = {unit: dot_spec(device, unit) for unit in program.units}
    report = _Progress(program, progress)
    for number, kernel in enumerate(program.kernels):
        if before_kernel is not None:
            before_kernel(number, arrays)
        _KernelRun(
            program=program, kernel=kernel, device=device, arrays=arrays, specs=specs, report=report, backend=backend
        ).run(threads)
    return arrays[program.output]


class _Progress:
    """Reports progress by counting finished cores over all kernels."""

    def __init__(self, program: Program, report: Callable[[float], None] | None) -> None:
        self.total = sum(group.count for kernel in program.kernels for group in kernel.groups)
        self.done, self.report = 0, report

    def core(self) -> None:
        """Count one finished core."""
        self.done += 1
        if self.report is not None:
            self.report(self.done / self.total)


class _Shape(NamedTuple):
    """Size and form of a tile. dtype: of its codes. width: elements per row of its slot, 0: as many as it has."""

    rows: int
    cols: int
    format: Format
    dtype: np.dtype[Any]
    width: int


class _KernelRun:
    """The execution of one kernel: its tables, and the global arrays that it works on."""

    def __init__(
        self,
        program: Program,
        kernel: Kernel,
        device: Device,
        arrays: dict[str, Codes],
        specs: Mapping[str, DotSpec],
        report: _Progress,
        backend: Backend,
    ) -> None:
        self.kernel, self.specs, self.report, self.backend = kernel, specs, report, backend
        self.names = [array.name for array in program.arrays]
        self.formats = {array.name: array.format for array in program.arrays}
        self.arrays = arrays
        self.vector = VectorUnit(device.vector, backend, any(map(gives_all_ones, specs.values())))
        self.engines = {name: i for i, name in enumerate(device.engines)}
        self.flat: FlatKernel = flatten(kernel, self.engines, {name: i for i, name in enumerate(self.names)})
        self.instrs = self.flat.instrs
        written = {t.array for instr in self.instrs for t in instr.writes if isinstance(t, GlobalTile)}
        self.written = [name in written for name in self.names]
        self.rules = {unit: instruction(device, unit).scale_input_d_rule for unit in specs}
        self.depths = {unit: instruction(device, unit).k for unit in specs}
        self.room = bytes_per_slot_byte(self.instrs)
        self.steps = [self.depths[instr.unit] if instr.unit else 1 for instr in self.instrs]
        chains: dict[Hashable, int] = {}
        self.chains = [chains.setdefault(_chain_of(instr), len(chains)) for instr in self.instrs]
        self.along_rows = [_along_rows(instr) for instr in self.instrs]
        layouts: dict[tuple[int, int], int] = {}
        self.layouts = [
            layouts.setdefault(_layout_of(tile), len(layouts))
            for instr in self.instrs
            for tile in (*instr.writes, *instr.reads)
        ]
        self.shapes = [[self._shape(tile) for tile in (*instr.writes, *instr.reads)] for instr in self.instrs]

    def run(self, threads: int) -> None:
        """Execute the kernel on all cores, with `threads` host threads."""
        for turn in turns(self.kernel):
            groups = [(number, self.kernel.groups[number]) for number in turn]
            self._cores([(number, group.first + i) for number, group in groups for i in range(group.count)], threads)

    def _cores(self, cores: Sequence[tuple[int, int]], threads: int) -> None:
        """Execute cores, each a group and an index, none of which awaits another."""
        if threads <= 1 or len(cores) == 1:
            for group, core in cores:
                self._core(group, core)
            return
        with ThreadPoolExecutor(threads) as pool:
            started = [pool.submit(self._core, group, core) for group, core in cores]
            try:
                for done in started:
                    done.result()
            except BaseException:  # an interrupt among them: begin no further core
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _core(self, group: int, core: int) -> None:
        coalescer = Coalescer(
            self.flat, len(self.engines), self.written, self.steps, self.chains, self.along_rows, self.layouts
        )
        try:
            jobs, segments = coalescer.run(group, core)
        except RuntimeError as error:
            raise ProgramError(f"kernel {self.kernel.name}, core {core}: the streams wait for each other") from error
        storage: dict[tuple[int, int], Codes] = {}
        work = segments.tolist()
        with np.errstate(all="ignore"):
            for job in jobs.tolist():
                instr = self.instrs[job[1]]
                if job[0]:
                    self._chain(instr, job, work[job[7] : job[7] + job[8]], storage)
                else:
                    self._elementwise(instr, job, work[job[7]], storage)
        self.report.core()

    def _shape(self, tile: AnyTile) -> _Shape:
        name, width = (self.formats[tile.array], 0) if isinstance(tile, GlobalTile) else (tile.format, tile.width)
        fmt = format_of(name)
        return _Shape(tile.rows, tile.cols, fmt, code_dtype(fmt), width)

    def _view(
        self, place: list[int], rows: int, cols: int, shape: _Shape, storage: dict[tuple[int, int], Codes]
    ) -> Codes:
        """A view of a tile's codes: a region of a global array, or of a slot's bytes. rows, cols: of the tile."""
        kind, obj, slot, row, col = place[:5]
        if kind == TILE_GLOBAL:
            return self.arrays[self.names[obj]][row : row + rows, col : col + cols]
        key, dtype = (obj, slot), shape.dtype
        if key not in storage:
            storage[key] = self.backend.zeros((self.kernel.buffers[obj].slot_bytes * self.room,), np.uint8)
        width = shape.width or cols
        flat = storage[key][: (row + rows) * width * dtype.itemsize].view(dtype).reshape(row + rows, width)
        return flat[row:, col : col + cols]

    def _chain(
        self, instr: Instr, job: list[int], segments: list[list[int]], storage: dict[tuple[int, int], Codes]
    ) -> None:
        """Execute the products of one accumulator as a chain, in order."""
        target, unit = instr.writes[0], instr.unit
        assert isinstance(target, LocalTile) and unit is not None
        spec, depth, rule = self.specs[unit], self.depths[unit], self.rules[unit]
        shape, *shapes = self.shapes[job[1]]
        out = self._view([1, *job[3:5], target.row, target.col], shape.rows, shape.cols, shape, storage)
        value, scale = None if job[9] else out, job[10]
        operands = [
            (role, 6 * number, K_AXES[role] == "rows", one)
            for number, (role, one) in enumerate(zip(instr.roles, shapes, strict=True))
        ]
        for segment in segments:
            codes = {}
            for role, at, along_rows, one in operands:
                rows, cols = (segment[at + 5], one.cols) if along_rows else (one.rows, segment[at + 5])
                codes[role] = self._view(segment[at : at + 5], rows, cols, one, storage)
            for part in in_steps(codes, depth, spec.scale_block):
                scale_d = scale if value is not None else 0
                value, scale = product(spec, part, value, scale_d=scale_d, rule=rule, backend=self.backend), 0
        out[...] = value

    def _elementwise(
        self, instr: Instr, job: list[int], segment: list[int], storage: dict[tuple[int, int], Codes]
    ) -> None:
        target, *shapes = self.shapes[job[1]]
        codes = self._view(job[2:7], target.rows, target.cols, target, storage)
        sources = [
            (self._view(segment[at : at + 5], one.rows, one.cols, one, storage), one.format)
            for at, one in zip(range(0, len(segment), 6), shapes, strict=False)
        ]
        self.vector.execute(instr, (codes, target.format), sources)


def _chain_of(instr: Instr) -> Hashable:
    """What instructions of one chain have in common: all but where their operands lie, and how long K is."""
    if instr.opcode != "mma":
        return None
    operands = [(x.format, x.width) if isinstance(x, LocalTile) else x.array for x in instr.reads]
    target = instr.writes[0]
    assert isinstance(target, LocalTile)
    place = target.row, target.col, target.rows, target.cols, target.format, target.width
    return instr.unit, instr.roles, *operands, place


def _along_rows(instr: Instr) -> int:
    """A bit for each operand of a matrix instruction: whether K runs along its rows."""
    if instr.opcode != "mma":
        return 0
    return sum(1 << number for number, role in enumerate(instr.roles) if K_AXES[role] == "rows")


def _layout_of(tile: AnyTile) -> tuple[int, int]:
    """What tells codes of a slot apart: their bytes, and how many lie in a row. Of a tile in global memory: nothing."""
    if isinstance(tile, GlobalTile):
        return 0, 0
    return code_dtype(format_of(tile.format)).itemsize, tile.width or tile.cols
