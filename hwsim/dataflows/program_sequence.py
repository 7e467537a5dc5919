"""Programs one after another as one program, over parts of the same operands. It knows programs; it knows no plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from hwsim.dataflows.elementwise import Pass, lower_pass
from hwsim.dataflows.reductions import LineReduction
from hwsim.program.ir import AnyTile, GlobalArray, GlobalTile, Instr, Kernel, Loop, Program, StreamItem

if TYPE_CHECKING:
    from hwsim.devices.device import Device

C_INPUT = "C.in"  # the array of C that a program reads


@dataclass(frozen=True, slots=True)
class ArrayPlace:
    """A replacement for an array: another array, and an offset in it."""

    name: str
    row: int = 0
    col: int = 0


class JoinedKernels:
    """Kernels one after another, over arrays by name."""

    def __init__(self, *arrays: GlobalArray) -> None:
        self.arrays = {array.name: array for array in arrays}
        self.kernels: list[Kernel] = []

    def add_pass(self, work: Pass | LineReduction, device: Device) -> None:
        """Append a pass."""
        of_pass = (work.source, work.target) if isinstance(work, LineReduction) else (*work.inputs, *work.outputs)
        for array in of_pass:
            self.arrays.setdefault(array.name, array)
        self.kernels.append(lower_pass(work, device))

    def add_kernel(self, kernel: Kernel, *arrays: GlobalArray) -> None:
        """Append a kernel over these arrays."""
        for array in arrays:
            self.arrays.setdefault(array.name, array)
        self.kernels.append(kernel)

    def add_program(self, name: str, part: Program, names: Mapping[str, str]) -> None:
        """Append a program. names: of arrays here, by the program's; its other arrays are its own."""
        self.append(name, part, {of_part: ArrayPlace(of_all) for of_part, of_all in names.items()})

    def append(self, name: str, part: Program, places: Mapping[str, ArrayPlace]) -> None:
        """Append a program. places: of arrays by the program's names; its other arrays are its own."""
        names = {x.name: places.get(x.name, ArrayPlace(f"{name}.{x.name}")) for x in part.arrays}
        for array in part.arrays:
            place = names[array.name]
            self.arrays.setdefault(place.name, dataclasses.replace(array, name=place.name))
        self.kernels += [_renamed(kernel, name, names) for kernel in part.kernels]

    def program(self, inputs: Iterable[str], output: str) -> Program:
        """The concatenated program."""
        return Program(tuple(self.arrays.values()), tuple(self.kernels), tuple(inputs), output)


class ProgramSequence:
    """Concatenates programs; their operands are parts of one A and one B, their results one array."""

    def __init__(self, a: GlobalArray, b: GlobalArray) -> None:
        self.a, self.b = a, b
        self.joined = JoinedKernels(a, b)
        self.inputs = [a.name, b.name]

    def add(
        self, name: str, part: Program, target: str, start: int = 0, shared: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Append a program whose K begins at `start`. target: the array of its result. shared: the arrays of the
        sequence that it uses beside A and B, by its own names; other inputs than A and B are the sequence's.
        """
        a, b, *more = part.inputs
        names = {
            a: ArrayPlace(self.a.name, 0, start),
            b: ArrayPlace(self.b.name, start, 0),
            part.output: ArrayPlace(target),
        }
        names |= {array_name: ArrayPlace(array_name) for array_name in more} | {
            array_name: ArrayPlace(other) for array_name, other in shared.items()
        }
        self.inputs += [array_name for array_name in more if array_name not in shared]
        self.joined.append(name, part, names)

    def add_apart(self, name: str, part: Program) -> None:
        """Append a program with arrays of its own."""
        self.joined.append(name, part, {})

    def add_epilogue(self, part: Program) -> None:
        """Append a program from `sum` to the result; its other inputs are the sequence's."""
        self.inputs += part.inputs[1:]
        self.joined.append("", part, {array.name: ArrayPlace(array.name) for array in part.arrays})

    def add_input(self, array: GlobalArray) -> None:
        """Declare an array that the caller fills."""
        self.joined.arrays[array.name] = array
        self.inputs.append(array.name)

    def add_pass(self, work: Pass, device: Device) -> None:
        """Append a pass over arrays of the sequence."""
        self.joined.add_pass(work, device)

    def program(self) -> Program:
        """The concatenated program."""
        return self.joined.program(self.inputs, "C")


class StackSequence:
    """Concatenates programs of matrices that lie one below another; they share the arrays between their kernels.

    part: any of them. count: of matrices. sizes: m, n, k of each.
    """

    def __init__(self, part: Program, count: int, sizes: tuple[int, int, int]) -> None:
        (m, _, k), (a, b, *_) = sizes, part.inputs
        #: Rows of a matrix in each array that all share
        self.rows = {a: m, b: k, part.output: m, **{name: m for name in part.inputs if name == C_INPUT}}
        self.arrays: dict[str, GlobalArray] = {}
        self.kernels: list[Kernel] = []
        self.count, self.inputs, self.output = count, part.inputs, part.output

    def add(self, number: int, part: Program) -> None:
        """Append the program of matrix `number`."""
        places = {array.name: ArrayPlace(array.name, number * self.rows.get(array.name, 0)) for array in part.arrays}
        for array in part.arrays:
            tall = self.count * array.rows if array.name in self.rows else array.rows
            self.arrays.setdefault(array.name, dataclasses.replace(array, rows=tall))
        self.kernels += [_renamed(kernel, f"matrix{number + 1}", places) for kernel in part.kernels]

    def program(self) -> Program:
        """The concatenated program."""
        return Program(tuple(self.arrays.values()), tuple(self.kernels), self.inputs, self.output)


def _renamed(kernel: Kernel, name: str, names: Mapping[str, ArrayPlace]) -> Kernel:
    def tile(accessed: AnyTile) -> AnyTile:
        if not isinstance(accessed, GlobalTile):
            return accessed
        place = names[accessed.array]
        return dataclasses.replace(
            accessed, array=place.name, row=accessed.row + place.row, col=accessed.col + place.col
        )

    def node(item: StreamItem) -> StreamItem:
        if isinstance(item, Loop):
            return dataclasses.replace(item, body=tuple(map(node, item.body)))
        if isinstance(item, Instr):
            return dataclasses.replace(item, writes=tuple(map(tile, item.writes)), reads=tuple(map(tile, item.reads)))
        return item

    groups = tuple(
        dataclasses.replace(
            group,
            streams=tuple(dataclasses.replace(s, body=tuple(map(node, s.body))) for s in group.streams),
        )
        for group in kernel.groups
    )
    return dataclasses.replace(kernel, name=f"{name}.{kernel.name}" if name else kernel.name, groups=groups)
