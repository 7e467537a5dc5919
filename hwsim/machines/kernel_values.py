"""What a kernel computes, as values: matrices that instructions make of regions of global arrays and of other values.

It runs the streams of all cores symbolically (hwsim._kernels.coalesce). It knows programs; no codes, no arithmetic, no
time. What it finds depends on the kernel alone, and is kept for the next execution.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields
from math import copysign
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from hwsim._kernels.coalesce import Coalescer
from hwsim.errors import ProgramError
from hwsim.formats import code_dtype, format_of
from hwsim.program.flat import flatten
from hwsim.program.ir import LANE_WIDTHS, AnyTile, GlobalArray, GlobalTile, Instr, Kernel
from hwsim.program.peers import turns
from hwsim.program.roles import K_AXES

IntTable = NDArray[np.int64]

ARRAY, ZERO, RESULT, OVERLAY = range(4)  # kinds of values
HEAD = ("kind", "source", "axes", "count")  # columns of a value before its operands
OPERAND = ("value", "row", "col", "length")  # columns of an operand
ROWS_FIXED, COLS_FIXED = 1, 2  # bits of an operand's axes
_OF_FORM = attrgetter(
    *(
        field.name
        for field in fields(Instr)
        if field.name
        not in ("engine", "writes", "reads", "waits", "signals", "zero_at", "multicast", "repeat", "label")
    )
)


@dataclass(frozen=True, slots=True)
class KernelValues:
    """The values of a kernel and where they are stored, as tables (columns in coalesce.pyx).

    The first values are the global arrays, then memory that nobody wrote. forms: for each form of instructions the
    first of them; formats: the formats of its tiles. layouts: by number, format and elements per row of a slot's
    content.
    """

    values: IntTable
    layers: IntTable
    stores: IntTable
    forms: tuple[Instr, ...]
    formats: tuple[tuple[str, ...], ...]
    layouts: tuple[tuple[str, int], ...]


def kernel_values(kernel: Kernel, arrays: Sequence[GlobalArray], engines: Sequence[str]) -> KernelValues:
    """The values of a kernel. engines: the device's. Raises ProgramError when the streams of a core deadlock."""
    flat = flatten(
        kernel, {name: i for i, name in enumerate(engines)}, {array.name: i for i, array in enumerate(arrays)}
    )
    tiles = _Tiles(arrays)
    instrs = flat.instrs
    for instr in instrs:
        tiles.add(instr)
    written = {tile.array for instr in instrs for tile in instr.writes if isinstance(tile, GlobalTile)}
    read = {tile.array for instr in instrs for tile in instr.reads if isinstance(tile, GlobalTile)}
    coalescer = Coalescer(
        flat,
        len(engines),
        logged=[array.name in written & read for array in arrays],
        forms=tiles.form_of,
        layouts=tiles.layout_of,
        widths=tiles.widths,
        code_bytes=tiles.code_bytes,
        axes=tiles.axes,
    )
    for turn in turns(kernel):
        for number in turn:
            group = kernel.groups[number]
            for core in range(group.first, group.first + group.count):
                try:
                    coalescer.run(number, core)
                except RuntimeError as error:
                    message = f"kernel {kernel.name}, core {core}: the streams wait for each other"
                    raise ProgramError(message) from error
    values, layers, stores = coalescer.tables()
    return KernelValues(values, layers, stores, tuple(tiles.forms), tuple(tiles.formats), tuple(tiles.layouts))


class _Tiles:
    """What the coalescer is told of instructions and tiles. form_of: of each instruction; the others: of each tile."""

    def __init__(self, arrays: Sequence[GlobalArray]) -> None:
        self.array_formats = {array.name: array.format for array in arrays}
        self.forms: list[Instr] = []
        self.formats: list[tuple[str, ...]] = []
        self.form_of: list[int] = []
        self.layouts: dict[tuple[str, int], int] = {}
        self.layout_of: list[int] = []
        self.widths: list[int] = []
        self.code_bytes: list[int] = []
        self.axes: list[int] = []
        self._forms: dict[Hashable, int] = {}

    def add(self, instr: Instr) -> None:
        """Add an instruction and its tiles."""
        tiles = (*instr.writes, *instr.reads)
        formats = tuple([self._format(tile) for tile in tiles])
        key = (_OF_FORM(instr), copysign(1.0, instr.scalar), formats)  # 0.0 == -0.0
        form = self._forms.setdefault(key, len(self.forms))
        if form == len(self.forms):
            self.forms.append(instr)
            self.formats.append(formats)
        self.form_of.append(form)
        for i, (tile, format) in enumerate(zip(tiles, formats, strict=True)):
            width = 0 if isinstance(tile, GlobalTile) else tile.width or tile.cols
            self.layout_of.append(self.layouts.setdefault((format, width), len(self.layouts)))
            self.widths.append(width)
            self.code_bytes.append(code_dtype(format_of(format)).itemsize)
            self.axes.append(_fixed_axes(instr, i - len(instr.writes)))

    def _format(self, tile: AnyTile) -> str:
        return self.array_formats[tile.array] if isinstance(tile, GlobalTile) else tile.format


def _fixed_axes(instr: Instr, read: int) -> int:
    """Along which axes of a tile that it reads (negative: writes) all regions of the result take the same."""
    if read < 0:
        return 0
    if instr.opcode == "mma":
        return ROWS_FIXED if K_AXES[instr.roles[read]] == "rows" else COLS_FIXED
    if instr.opcode in LANE_WIDTHS and instr.roles[read] == "source":
        return COLS_FIXED  # also where it is as wide as there are lanes
    target, source = instr.writes[0], instr.reads[read]
    return ROWS_FIXED * (source.rows != target.rows) + COLS_FIXED * (source.cols != target.cols)
