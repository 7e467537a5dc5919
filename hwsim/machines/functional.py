"""The functional machine: computes the bits of a program. It knows no time and no scheme.

Each core's streams are first coalesced into array operations (hwsim._kernels.coalesce): transfers of unchanged data
cost nothing, and products accumulated in one place become one chain over all of their K. The operations are then
executed on arrays of codes by a backend, with simulated cores in parallel on host threads; a group of cores that awaits
others (hwsim.program.peers) after those. The bits do not depend on the number of threads: within a kernel, cores write
different elements. A product whose K is not a multiple of the instruction's is padded with zeros, as in the direct
evaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim._kernels.coalesce import Coalescer
from hwsim.arithmetic.instruction_order import in_instruction_order
from hwsim.arithmetic.scaled import scaled_gemm
from hwsim.arithmetic.vector import VectorUnit, gives_all_ones
from hwsim.backend.cpu import CPU
from hwsim.devices import dot_spec, instruction
from hwsim.errors import ProgramError
from hwsim.formats import code_dtype, format_of
from hwsim.machines.storage import bytes_per_slot_byte
from hwsim.machines.words import as_read
from hwsim.program.flat import TILE_GLOBAL, FlatKernel, flatten
from hwsim.program.ir import GlobalTile, Instr, Kernel, LocalTile, Program
from hwsim.program.peers import turns

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
        in_parts = {
            t.array for instr in self.instrs for t in instr.reads if isinstance(t, GlobalTile) and _is_part(instr)
        }
        self.copied = [
            name in written or name in in_parts for name in self.names
        ]  # slots hold its codes, not its place
        self.rules = {unit: instruction(device, unit).scale_input_d_rule for unit in specs}
        self.depths = {unit: instruction(device, unit).k for unit in specs}
        self.room = bytes_per_slot_byte(self.instrs)
        self.steps = [self.depths[instr.unit] if instr.unit else 1 for instr in self.instrs]

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
        coalescer = Coalescer(self.flat, len(self.engines), self.copied, self.steps)
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
                    self._chain(instr, job, work[job[8] : job[8] + job[9]], storage)
                else:
                    self._elementwise(instr, job, storage)
        self.report.core()

    def _view(
        self, place: list[int], rows: int, cols: int, format: str, width: int, storage: dict[tuple[int, int], Codes]
    ) -> Codes:
        """A view of a tile's codes: a region of a global array, or of a slot's bytes."""
        kind, obj, slot, row, col = place
        if kind == TILE_GLOBAL:
            return self.arrays[self.names[obj]][row : row + rows, col : col + cols]
        key = (obj, slot)
        if key not in storage:
            storage[key] = self.backend.zeros((self.kernel.buffers[obj].slot_bytes * self.room,), np.uint8)
        dtype = code_dtype(format_of(format))
        width = width or cols
        flat = storage[key][: (row + rows) * width * dtype.itemsize].view(dtype).reshape(row + rows, width)
        return flat[row:, col : col + cols]

    def _chain(
        self, instr: Instr, job: list[int], segments: list[list[int]], storage: dict[tuple[int, int], Codes]
    ) -> None:
        """Execute the products of one accumulator as a chain, in order."""
        target, (left, right) = instr.writes[0], instr.reads
        assert isinstance(target, LocalTile) and isinstance(left, LocalTile) and isinstance(right, LocalTile)
        assert instr.unit is not None
        spec = self.specs[instr.unit]
        out = self._view(
            [1, *job[3:5], target.row, target.col], target.rows, target.cols, target.format, target.width, storage
        )
        value = None if job[7] else out
        scale = job[10]
        for segment in segments:
            k = segment[0]
            a = self._view(segment[1:6], target.rows, k, left.format, left.width, storage)
            b = self._view(segment[6:11], k, target.cols, right.format, right.width, storage)
            depth = self.depths[instr.unit]
            parts = zip(
                in_instruction_order([a], (0, k), depth, None, 1),
                in_instruction_order([b], (0, k), depth, None, 0),
                strict=True,
            )
            for x, y in parts:
                if scale and value is not None:
                    rule = self.rules[instr.unit]
                    value = scaled_gemm(spec, x, y, value, scale, rule, backend=self.backend)
                    scale = 0
                else:
                    value = self.backend.gemm(spec, x, y, value)
        out[...] = value

    def _elementwise(self, instr: Instr, job: list[int], storage: dict[tuple[int, int], Codes]) -> None:
        tiles = []
        for place, tile in zip((job[2:7], job[10:15], job[15:20]), (*instr.writes, *instr.reads), strict=False):
            format = self.formats[tile.array] if isinstance(tile, GlobalTile) else tile.format
            width = tile.width if isinstance(tile, LocalTile) else 0
            tiles.append((self._view(place, tile.rows, tile.cols, format, width, storage), format_of(format)))
        self.vector.execute(instr, tiles[0], tiles[1:])


def _is_part(instr: Instr) -> bool:
    """Whether an instruction writes a part of what a slot holds, so that others write the rest."""
    return any(isinstance(tile, LocalTile) and tile.width for tile in instr.writes)
