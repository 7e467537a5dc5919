"""The functional machine's account of some elements of a program's output: each instruction that made them.

It executes, one at a time, the instructions that hwsim.machines.provenance names. Elementwise instructions work on
whole tiles, and matrix instructions on the needed elements alone. It knows no time and no scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.vector import VectorUnit, gives_all_ones
from hwsim.devices import dot_spec, instruction
from hwsim.devices.special_functions import special_functions
from hwsim.errors import MismatchError
from hwsim.formats import code_dtype, format_of
from hwsim.machines.element_steps import CodedValue, ElementStep, ExecutedInstr
from hwsim.machines.mma_product import SCALES, check_products, product, whole_steps
from hwsim.machines.provenance import CorePart, ElementNumbers, NeededInstr, is_reduction, provenance, reduced_cells
from hwsim.machines.storage import bytes_per_slot_byte
from hwsim.program.roles import K_AXES, ROLES
from hwsim.program.sequence import PlacedInstr, PlacedTile

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.devices.device import Device
    from hwsim.devices.model import InstructionModel
    from hwsim.program.ir import Program

Codes = NDArray[Any]


class ElementValues:
    """Follows elements of a program's output while the functional machine executes the program.

    elements: rows and columns of the output array. steps: of each element, the instructions that made it so far.
    """

    def __init__(self, program: Program, device: Device, elements: Sequence[tuple[int, int]], backend: Backend) -> None:
        check_products(program)
        self.program, self.device, self.backend, self.elements = program, device, backend, elements
        self.parts = provenance(program, elements)
        self.steps: list[list[ElementStep]] = [[] for _ in elements]
        specs = [dot_spec(device, unit) for unit in program.units]
        all_ones = any(map(gives_all_ones, specs))
        self.vector = VectorUnit(device.vector, backend, all_ones, partial(special_functions, device))
        #: Of each element, what its instructions last left in each place.
        self._left: list[dict[_Where, CodedValue]] = [{} for _ in elements]

    def before_kernel(self, number: int, arrays: Mapping[str, Codes]) -> None:
        """Execute the elements' part of a kernel. arrays: global memory at its begin; it stays as it is."""
        parts = self.parts.get(number)
        if not parts:
            return
        kernel, read = self.program.kernels[number], _read_again(parts)
        memory = {name: codes.copy() if name in read else codes for name, codes in arrays.items()}
        room = bytes_per_slot_byte(kernel.instrs())
        slot_bytes = {buffer.name: buffer.slot_bytes * room for buffer in kernel.buffers}
        for left in self._left:  # slots are empty at a kernel's begin
            for where in [where for where in left if where.core is not None]:
                del left[where]
        with np.errstate(all="ignore"):
            for part in parts:
                _CoreRun(self, number, part, memory, read, slot_bytes).run()

    def record(self, element: int, where: _Where, after: CodedValue, step: Callable[..., ElementStep]) -> None:
        """Add an instruction to an element's. step: makes its record from before and after."""
        left = self._left[element]
        self.steps[element].append(step(before=left.get(where), after=after))
        left[where] = after

    def checked(self, output: Codes) -> list[tuple[ElementStep, ...]]:
        """The instructions of each element, in order. output: the codes of the program's output.

        Raises MismatchError where the last of them does not leave the element of the output.
        """
        for (row, col), steps in zip(self.elements, self.steps, strict=True):
            code = int(output[row, col])
            if not steps or steps[-1].after.code != code:
                last = steps[-1].after.hex if steps else "nothing"
                raise MismatchError(
                    f"values: the instructions of element ({row}, {col}) leave {last}, the program's output has "
                    f"{code:#x}; please report it, with the call"
                )
        return [tuple(steps) for steps in self.steps]


class _Where(NamedTuple):
    """A place of an element: the core (None: global memory), the store and the host byte in it."""

    core: int | None
    store: tuple[str, int]
    offset: int


class _CoreRun:
    """What one core executes of one kernel, by its number. read: the global arrays whose results are read again."""

    def __init__(
        self,
        values: ElementValues,
        number: int,
        part: CorePart,
        memory: Mapping[str, Codes],
        read: Collection[str],
        slot_bytes: Mapping[str, int],
    ) -> None:
        self.values, self.number, self.part, self.memory, self.read = values, number, part, memory, read
        self.backend, self.slot_bytes = values.backend, slot_bytes
        self.slots: dict[tuple[str, int], Codes] = {}

    def run(self) -> None:
        """Execute the instructions in order, those that are repeated as often as they are."""
        for needed in self.part.instrs:
            for _ in range(needed.placed.instr.repeat):
                if needed.placed.instr.opcode == "mma":
                    for row, col, elements in needed.cells:
                        self._mma(needed.placed, row, col, elements)
                else:
                    self._elementwise(needed)

    def _view(self, place: PlacedTile) -> Codes:
        """A view of a tile's codes."""
        dtype = code_dtype(format_of(place.format))
        if place.is_global:
            array = self.memory[place.store[0]]
            return array[place.row : place.row + place.rows, place.col : place.col + place.cols]
        if place.store not in self.slots:
            self.slots[place.store] = self.backend.zeros((self.slot_bytes[place.store[0]],), np.uint8)
        rows = place.row + place.rows
        flat = self.slots[place.store][: rows * place.width * place.size].view(dtype).reshape(rows, place.width)
        return flat[place.row :, place.col : place.col + place.cols]

    def _target(self, place: PlacedTile) -> Codes:
        """Where an instruction writes: a tile of its own where nothing reads the global array again."""
        if place.is_global and place.store[0] not in self.read:
            return self.backend.zeros((place.rows, place.cols), code_dtype(format_of(place.format)))
        return self._view(place)

    def _mma(self, placed: PlacedInstr, row: int, col: int, elements: ElementNumbers) -> None:
        """One element of a program's matrix instruction: the device's instructions over its K, one after another."""
        instr = placed.instr
        assert instr.unit is not None
        spec, model = dot_spec(self.values.device, instr.unit), instruction(self.values.device, instr.unit)
        rows = {role: (self._view(place), K_AXES[role] == "columns") for role, place in placed.operands}
        line = {
            role: codes[row : row + 1] if across else codes[:, col : col + 1] for role, (codes, across) in rows.items()
        }
        out = self._view(placed.target)[row : row + 1, col : col + 1]
        value = self.backend.zeros((1, 1), out.dtype) if placed.starts_at_zero else out.copy()
        scale = 0 if placed.starts_at_zero else instr.scale_exponent
        formats = {"a": spec.a, "b": spec.b, **dict.fromkeys(SCALES, spec.scale_format or "")}
        for start in range(0, line["a"].shape[1], model.k):
            part = {role: _of_step(role, codes, start, model) for role, codes in line.items()}
            step = whole_steps(part, model.k, model.scale_block)
            rule = model.scale_input_d_rule
            after = product(spec, step, value, scale_d=scale, rule=rule, backend=self.backend)
            operands: dict[str, CodedValue | tuple[CodedValue, ...]] = {
                role: self._coded(formats[role], codes) for role, codes in part.items()
            }
            operands["accumulator"] = self._coded(spec.c, value)[0]
            self._record(placed, row, col, elements, operands, self._coded(spec.d, after)[0], scale)
            value, scale = after, 0
        out[...] = value

    def _elementwise(self, needed: NeededInstr) -> None:
        placed = needed.placed
        instr, target = placed.instr, self._target(placed.target)
        sources = [(self._view(place), place) for place in placed.sources]
        read = [self._operands(placed, sources, row, col) if elements else {} for row, col, elements in needed.cells]
        tiles = [(codes, format_of(place.format)) for codes, place in sources]
        self.values.vector.execute(instr, (target, format_of(placed.target.format)), tiles)
        for (row, col, elements), operands in zip(needed.cells, read, strict=True):
            if elements:
                after = self._coded(placed.target.format, target[row, col])[0]
                self._record(placed, row, col, elements, operands, after, instr.scale_exponent)

    def _operands(
        self, placed: PlacedInstr, sources: Sequence[tuple[Codes, PlacedTile]], row: int, col: int
    ) -> dict[str, CodedValue | tuple[CodedValue, ...]]:
        """What an elementwise instruction reads for the element (row, col) of its target, by role."""
        opcode = placed.instr.opcode
        values: dict[str, CodedValue | tuple[CodedValue, ...]] = {}
        for role, (codes, place) in zip(placed.instr.roles, sources, strict=True):
            if is_reduction(opcode) and role == "source":
                cells = reduced_cells(opcode, place, placed.target, row, col)
                values[role] = self._coded(place.format, [codes[cell] for cell in cells])
            else:
                values[role] = self._coded(place.format, codes[place.nearest(row, col)])[0]
        return values

    def _coded(self, fmt: str, codes: Any) -> tuple[CodedValue, ...]:
        return tuple([CodedValue(fmt, code) for code in np.ravel(self.backend.to_host(codes)).tolist()])

    def _record(
        self,
        placed: PlacedInstr,
        row: int,
        col: int,
        elements: ElementNumbers,
        operands: Mapping[str, CodedValue | tuple[CodedValue, ...]],
        after: CodedValue,
        scale_d: int = 0,
    ) -> None:
        """Record what an instruction did to the element (row, col) of its target, for each element of the output."""
        instr, place = placed.instr, placed.target
        slot = "" if place.is_global else f"[{place.store[1]}]"
        step = partial(
            ElementStep,
            device=self.values.device.argument,
            kernel=self.values.program.kernels[self.number].name,
            core=self.part.core,
            engine=instr.engine,
            opcode=instr.opcode,
            instruction=instr.unit,
            operands=operands,
            place=f"{place.store[0]}{slot} ({place.row + row}, {place.col + col})",
            scale_d=scale_d,
            scalar=instr.scalar if "scalar" in ROLES[instr.opcode].immediates.values() else None,
            rounding=instr.rounding if instr.opcode == "cast" else None,
            executed=ExecutedInstr(self.number, self.part.core, placed.number, placed.turn),
        )
        where = _Where(None if place.is_global else self.part.core, place.store, place.offset(row, col))
        for element in sorted(elements):
            self.values.record(element, where, after, step)


def _read_again(parts: Sequence[CorePart]) -> set[str]:
    """The global arrays that some of these instructions write and some read."""
    instrs = [needed.placed for part in parts for needed in part.instrs]
    written = {placed.target.store[0] for placed in instrs if placed.target.is_global}
    return {place.store[0] for placed in instrs for place in placed.sources if place.is_global} & written


def _of_step(role: str, codes: Codes, start: int, model: InstructionModel) -> Codes:
    """The part of an operand's line that the instruction of K = start .. start + model.k - 1 reads."""
    block = (model.scale_block or 1) if role in SCALES else 1
    span = slice(start // block, (start + model.k) // block)
    return codes[:, span] if K_AXES[role] == "columns" else codes[span]
