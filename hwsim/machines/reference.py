"""The reference functional machine: executes one instruction at a time, with real copies, in any legal order.

It gives the same bits as `functional`, which coalesces, and is thousands of times slower. Each core has its streams,
its in-order engine queues and its semaphores, but for those of peers; `order` selects at random which stream issues or
which engine executes its next instruction. Products use the integer reference (hwsim.numerics), by whole instructions,
unless `dots` gives another way to compute them. For small problems, to check the fast machine.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.scaled import scaled_reference
from hwsim.arithmetic.vector import VectorUnit, gives_all_ones
from hwsim.backend.cpu import CPU
from hwsim.devices import dot_spec, instruction
from hwsim.devices.special_functions import special_functions
from hwsim.errors import ProgramError
from hwsim.formats import code_dtype, format_of
from hwsim.machines.mma_product import check_products, whole_steps
from hwsim.machines.storage import bytes_per_slot_byte
from hwsim.machines.views import fill_views
from hwsim.machines.words import as_read
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands
from hwsim.program.ir import (
    CORE,
    AnyTile,
    GlobalTile,
    Instr,
    Kernel,
    LocalTile,
    Program,
    evaluate,
)
from hwsim.program.sequence import issued

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.devices.device import Device
    from hwsim.numerics.units import DotSpec

Codes = NDArray[Any]
Variables = dict[str, int]


def run(
    program: Program,
    device: Device,
    inputs: Mapping[str, Codes],
    *,
    order: int = 0,
    dots: Callable[[DotSpec, DotOperands], Codes] = reference.gemm,
    backend: Backend = CPU,
) -> Codes:
    """Execute a program and return the codes of its output.

    order: seed of the random order of execution. dots: computes the products of an instruction from its dot unit and
    the codes of its operands. backend: computes the elementwise instructions.

    Raises ProgramError for a deadlock, UnsupportedError for an operand that no dot unit takes.
    """
    check_products(program)
    inputs = as_read(program, device, inputs, backend)
    arrays = {
        a.name: np.array(inputs[a.name])
        if a.name in inputs
        else np.zeros((a.rows, a.cols), code_dtype(format_of(a.format)))
        for a in program.arrays
    }
    formats = {a.name: a.format for a in program.arrays}
    choose = random.Random(order)
    all_ones = any(gives_all_ones(dot_spec(device, unit)) for unit in program.units)
    vector = VectorUnit(device.vector, backend, all_ones, partial(special_functions, device))
    for kernel in program.kernels:
        fill_views(program, kernel, arrays, backend)
        peers: list[dict[str, int]] = [
            {semaphore.name: semaphore.initial for semaphore in kernel.semaphores if semaphore.peers}
            for _ in range(max(group.count for group in kernel.groups))
        ]
        cores = [
            _Core(
                kernel=kernel,
                device=device,
                vector=vector,
                dots=dots,
                arrays=arrays,
                formats=formats,
                streams=group.streams,
                core=group.first + i,
                peers=peers[i],
            )
            for group in kernel.groups
            for i in range(group.count)
        ]
        waiting: list[_Core] = []
        while cores:
            core = choose.choice(cores)
            if core.step(choose):
                cores, waiting = cores + waiting, []
                continue
            cores.remove(core)
            if core.is_stuck:
                waiting.append(core)
        if waiting:
            stuck = ", ".join(str(core.index) for core in waiting)
            raise ProgramError(f"kernel {kernel.name}, core {stuck}: the engines wait for each other")
    return arrays[program.output]


class _Core:
    """One core that executes one kernel."""

    def __init__(
        self,
        kernel: Kernel,
        device: Device,
        vector: VectorUnit,
        dots: Callable[[DotSpec, DotOperands], Codes],
        arrays: dict[str, Codes],
        formats: dict[str, str],
        streams: Any,
        core: int,
        peers: dict[str, int],
    ) -> None:
        self.kernel, self.arrays, self.formats, self.index = kernel, arrays, formats, core
        self.device, self.dot_spec = device, dot_spec
        self.vector, self.dots = vector, dots
        self.streams = [issued(stream.body, stream.derived, {CORE: core}) for stream in streams]
        self.queues: dict[str, deque[tuple[Instr, Variables]]] = {name: deque() for name in device.engines}
        self.counts = {s.name: s.initial for s in kernel.semaphores if not s.peers}
        self.peers = peers
        room = bytes_per_slot_byte(kernel.instrs())
        self.slots = {b.name: [np.zeros(b.slot_bytes * room, np.uint8) for _ in range(b.slots)] for b in kernel.buffers}

    def step(self, choose: random.Random) -> bool:
        """Issue or execute one instruction; False when everything is done, or nothing can go on."""
        ready = [
            queue
            for queue in self.queues.values()
            if queue and all(self._counts(w.semaphore)[w.semaphore] >= w.count for w in queue[0][0].waits)
        ]
        if self.streams and (not ready or choose.random() < 0.5):
            stream = choose.choice(self.streams)
            try:
                instr, values = next(stream)
            except StopIteration:
                self.streams.remove(stream)
            else:
                self.queues[instr.engine].append((instr, values))
            return True
        if ready:
            instr, values = choose.choice(ready).popleft()
            for wait in instr.waits:
                self._counts(wait.semaphore)[wait.semaphore] -= wait.count
            for _ in range(instr.repeat):
                self._execute(instr, values)
            for signal in instr.signals:
                self._counts(signal.semaphore)[signal.semaphore] += signal.count
            return True
        return False

    @property
    def is_stuck(self) -> bool:
        """Whether something is left, if nothing can go on."""
        return any(self.queues.values())

    def _counts(self, semaphore: str) -> dict[str, int]:
        """Where a semaphore is counted."""
        return self.peers if semaphore in self.peers else self.counts

    def _view(self, tile: AnyTile, values: Variables) -> tuple[Codes, str]:
        if isinstance(tile, GlobalTile):
            row, col = evaluate(tile.row, values), evaluate(tile.col, values)
            return self.arrays[tile.array][row : row + tile.rows, col : col + tile.cols], self.formats[tile.array]
        slots = self.slots[tile.buffer]
        dtype, width = code_dtype(format_of(tile.format)), tile.width or tile.cols
        rows = tile.row + tile.rows
        flat = slots[evaluate(tile.slot, values) % len(slots)][: rows * width * dtype.itemsize]
        return flat.view(dtype).reshape(rows, width)[tile.row :, tile.col : tile.col + tile.cols], tile.format

    def _execute(self, instr: Instr, values: Variables) -> None:
        if instr.opcode == "sync":
            return
        target, *sources = [self._view(tile, values) for tile in (*instr.writes, *instr.reads)]
        if instr.opcode == "mma":
            assert instr.unit is not None and isinstance(instr.writes[0], LocalTile)
            zero = instr.zero_at is not None and all(values[name] == 0 for name in instr.zero_at)
            start = np.zeros_like(target[0]) if zero else target[0].copy()
            spec, model = self.dot_spec(self.device, instr.unit), instruction(self.device, instr.unit)
            codes_of = {role: codes for role, (codes, _) in zip(instr.roles, sources, strict=True)}
            steps = whole_steps(codes_of, model.k, spec.scale_block)
            operands = DotOperands(c=start, scale_d=0 if zero else instr.scale_exponent, **steps)
            if operands.scale_d:
                target[0][...] = scaled_reference(spec, operands, model.scale_input_d_rule)
            else:
                target[0][...] = self.dots(spec, operands)
            return
        with np.errstate(all="ignore"):
            self.vector.execute(
                instr, (target[0], format_of(target[1])), [(codes, format_of(name)) for codes, name in sources]
            )
