"""Which rows of a trace made an element of C, with the element's codes before and after each.

The module knows trace rows and element steps; it knows no file format and no time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.machines.element_steps import CodedValue, ElementStep, ExecutedInstr

#: Codes of one element. step: number of the first of the row's entries in `result.values`, -1 in rows that did not make
#: it. The codes of rows without a value are 0. before_format, after_format: numbers into `formats`, -1: no value.
ELEMENT_DTYPE = np.dtype(
    [
        ("step", np.int32),
        ("before", np.uint64),
        ("before_format", np.int32),
        ("after", np.uint64),
        ("after_format", np.int32),
    ]
)
NOTHING = np.array((-1, 0, -1, 0, -1), ELEMENT_DTYPE)


@dataclass(frozen=True, slots=True)
class ElementRows:
    """One element in a trace. rows: numbers of the rows that made it, in ascending order; entries: ELEMENT_DTYPE, one
    for each of them. formats: their names.
    """

    rows: NDArray[np.int64]
    entries: NDArray[Any]
    formats: tuple[str, ...]

    def dense(self, first: int, stop: int) -> NDArray[Any]:
        """Entries (stop - first,) of the trace's rows first .. stop - 1."""
        entries = np.full(stop - first, NOTHING)
        low, high = np.searchsorted(self.rows, (first, stop))
        entries[self.rows[low:high] - first] = self.entries[low:high]
        return entries

    def within(self, first: int, stop: int) -> ElementRows:
        """The same of a trace that has these rows alone."""
        low, high = np.searchsorted(self.rows, (first, stop))
        return ElementRows(self.rows[low:high] - first, self.entries[low:high], self.formats)


def element_rows(
    rows: NDArray[Any], values: Mapping[tuple[int, ...], Sequence[ElementStep]]
) -> dict[tuple[int, ...], ElementRows]:
    """The rows that made each element. rows: TRACE_DTYPE, complete from the program's begin; values: as of a result.

    A row stands for the cores core .. core + cores - 1, so also for the one that made the element.
    """
    return {place: _of_element(rows, steps) for place, steps in values.items()}


def _of_element(rows: NDArray[Any], steps: Sequence[ElementStep]) -> ElementRows:
    executed: dict[ExecutedInstr, list[int]] = {}
    for number, step in enumerate(steps):
        executed.setdefault(step.executed, []).append(number)
    turns: dict[tuple[int, int, int], NDArray[np.int64]] = {}
    formats: dict[str, int] = {}
    entry_of_row: dict[int, tuple[int, int, int, int, int]] = {}
    for (kernel, core, instr, turn), numbers in executed.items():
        at = kernel, core, instr
        if at not in turns:
            of_core = (rows["core"] <= core) & (core < rows["core"] + rows["cores"])
            alike = np.nonzero((rows["kernel"] == kernel) & (rows["instr"] == instr) & of_core)[0]
            turns[at] = alike[np.argsort(rows["number"][alike], kind="stable")]
        if turn < len(turns[at]):  # else the trace was cut before it
            before, after = steps[numbers[0]].before, steps[numbers[-1]].after
            entry_of_row[int(turns[at][turn])] = (numbers[0], *_coded(before, formats), *_coded(after, formats))
    order = sorted(entry_of_row)
    entries = np.array([entry_of_row[row] for row in order], ELEMENT_DTYPE)
    return ElementRows(np.array(order, np.int64), entries, tuple(formats))


def _coded(value: CodedValue | None, formats: dict[str, int]) -> tuple[int, int]:
    return (0, -1) if value is None else (value.code, formats.setdefault(value.format, len(formats)))


def column_name(field: str, place: tuple[int, ...]) -> str:
    """The name of an element's column in a file: before_3_5."""
    return "_".join([field, *map(str, place)])
