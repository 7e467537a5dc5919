"""Which instructions of which cores make some elements of a program's output, found backwards from the output.

It knows the text of a program; it knows no data and no device. Elements are followed from the place that an instruction
writes to the places that it reads. What a matrix instruction reads as A and B is followed too, within its kernel, but
does not count as a part of the element: it is the instruction's operand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hwsim.program.ir import LANE_COLUMNS, LANE_WIDTHS, LANES, REDUCING, CoreGroup, Program
from hwsim.program.peers import turns, written_arrays
from hwsim.program.roles import K_AXES, Opcode
from hwsim.program.sequence import ARRAY, CoreText, PlacedInstr, PlacedTile, has_store, whole_array

ElementNumbers = frozenset[int]  # numbers of the elements of the output that a value is a part of
Needs = dict[tuple[str, int], dict[int, ElementNumbers]]  # by store and host byte
OPERAND: ElementNumbers = frozenset()


@dataclass(frozen=True, slots=True)
class NeededInstr:
    """An instruction with the elements (row, column) of its target that are needed, and what they are a part of."""

    placed: PlacedInstr
    cells: tuple[tuple[int, int, ElementNumbers], ...]


@dataclass(frozen=True, slots=True)
class CorePart:
    """What one core of a kernel executes for the elements, in a legal order."""

    core: int
    instrs: tuple[NeededInstr, ...]


def provenance(program: Program, elements: Sequence[tuple[int, int]]) -> dict[int, list[CorePart]]:
    """By kernel's number, the cores' parts in a legal order. elements: rows and columns of the output array."""
    arrays = {array.name: array for array in program.arrays}
    output = whole_array(arrays[program.output])
    parts_of_kernel: dict[int, list[CorePart]] = {}
    needs: Needs = {}
    for number, (row, col) in enumerate(elements):
        _add(needs, output, row, col, frozenset([number]))
    for number in reversed(range(len(program.kernels))):
        kernel = program.kernels[number]
        if not written_arrays(kernel) & {name for name, _ in needs}:
            continue
        text, parts = CoreText(kernel, arrays), []
        for turn in reversed(turns(kernel)):
            for group in reversed([kernel.groups[i] for i in turn]):
                for core in reversed(_cores(text, group, needs)):
                    parts.append(CorePart(core, _of_core(text.sequence(group, core), needs)))
        if parts:
            parts_of_kernel[number] = parts[::-1]
        needs = _of_elements(needs)
    return parts_of_kernel


def _cores(text: CoreText, group: CoreGroup, needs: Needs) -> list[int]:
    """The cores of a group that write a needed element of a global array."""
    names = {name for name, _ in needs}
    if not has_store(group, names):
        return []
    cores = range(group.first, group.first + group.count)
    return [core for core in cores if any(any(_covered(place, needs)) for place in text.stores(group, core, names))]


def _of_core(sequence: Sequence[PlacedInstr], needs: Needs) -> tuple[NeededInstr, ...]:
    """The needed instructions of a core. needs: before the core's end; afterwards before its begin."""
    needed = []
    for placed in reversed(sequence):
        target = placed.target
        covered = list(_covered(target, needs))
        if not covered:
            continue
        for offset, _, _ in covered:
            del needs[target.store][offset]
        cells = []
        for _, (row, col), elements in covered:
            cells.append((row, col, elements))
            if placed.instr.opcode == "mma":
                for role, source in placed.operands:
                    for k in range(source.cols if K_AXES[role] == "columns" else source.rows):
                        _add(needs, source, *((row, k) if K_AXES[role] == "columns" else (k, col)), OPERAND)
                if not placed.starts_at_zero:
                    _add(needs, target, row, col, elements)
            else:
                sources = list(placed.sources)
                if is_reduction(placed.instr.opcode):
                    reduced, *sources = sources
                    for place in reduced_cells(placed.instr.opcode, reduced, target, row, col):
                        _add(needs, reduced, *place, OPERAND)
                for source in sources:
                    _add(needs, source, *source.nearest(row, col), elements)
        needed.append(NeededInstr(placed, tuple(cells)))
    for store in [store for store in needs if store[1] != ARRAY]:
        del needs[store]
    return tuple(needed[::-1])


def is_reduction(opcode: Opcode) -> bool:
    """Whether an element of what an instruction writes is made of several of its source."""
    return opcode in REDUCING or opcode in LANE_WIDTHS


def reduced_cells(opcode: Opcode, source: PlacedTile, target: PlacedTile, row: int, col: int) -> list[tuple[int, int]]:
    """What a reduction reads of `source` for the element (row, col) of its target: a row or a column, or of a row the
    columns of a lane.
    """
    if opcode == "reduce_lanes":
        return [(row, at) for at in range(source.cols) if at // LANE_COLUMNS % LANES == col]
    if (target.rows, target.cols) == (source.rows, 1):
        return [(row, at) for at in range(source.cols)]
    return [(at, col) for at in range(source.rows)]


def _add(needs: Needs, place: PlacedTile, row: int, col: int, elements: ElementNumbers) -> None:
    """Need the element (row, col) of a tile."""
    cells, offset = needs.setdefault(place.store, {}), place.offset(row, col)
    cells[offset] = cells.get(offset, OPERAND) | elements


def _covered(place: PlacedTile, needs: Needs) -> Iterator[tuple[int, tuple[int, int], ElementNumbers]]:
    """The needed elements that lie in a tile: host byte in the store, row and column in the tile, part of what."""
    for offset, elements in needs.get(place.store, {}).items():
        element = place.element(offset)
        if element is not None:
            yield offset, element, elements


def _of_elements(needs: Needs) -> Needs:
    """What earlier kernels made of the elements themselves; their operands are there when a kernel begins."""
    parts = {store: {offset: x for offset, x in cells.items() if x} for store, cells in needs.items()}
    return {store: cells for store, cells in parts.items() if cells}
