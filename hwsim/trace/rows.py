"""Trace rows with their names, as read by the writers of every format. It knows no file format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.trace.element_rows import ElementRows

# Names are numbers into Trace.names. Times are cycles from the start of the program, exact (binary fractions).
TRACE_DTYPE = np.dtype(
    [
        ("kernel", np.int32),
        ("core", np.int32),
        ("cores", np.int32),
        ("engine", np.int32),
        ("opcode", np.int32),
        ("label", np.int32),
        ("instr", np.int32),
        ("array", np.int32),
        ("tile_row", np.int64),
        ("tile_col", np.int64),
        ("slot", np.int64),
        ("issue", np.float64),
        ("start", np.float64),
        ("free", np.float64),
        ("end", np.float64),
        ("bytes", np.int64),
        ("macs", np.int64),
        ("waited_for", np.int32),
        ("number", np.int64),
        ("signaller", np.int64),
    ]
)


@dataclass(frozen=True)
class TraceRows:
    """One row per instruction of one core of each kind, in the order in which occupancies of engines end.

    rows: structured array (TRACE_DTYPE). core: the first of `cores` that do the same; instr: number of the
    instruction in its kernel. A tile is (array, tile_row, tile_col) in global memory for a copy from or to it,
    else (slot, tile_row, tile_col) of the buffer written; array is -1 then. issue, start: when the instruction
    entered its engine's queue and left it; free: when the engine could take the next; end: when it was
    complete. bytes, macs: of one core. names[field]: what the numbers in kernel, engine, opcode, label, array
    and waited_for mean. number: in order of start, over the whole program; signaller: the number of the instruction
    whose signal ended the wait (-1: none; it may be outside the trace). complete: False when the trace was cut at
    the limit. fills: by (kernel, instr), the slots that it takes from a buffer when it starts (name, number) or,
    negative, gives back when it is complete. elements: by place in C, the rows that made it. Rows of a large trace are
    in a temporary file, and read-only.
    """

    rows: NDArray[Any]
    names: dict[str, tuple[str, ...]]
    device: str
    clock_mhz: float
    complete: bool
    fills: Mapping[tuple[int, int], tuple[tuple[str, int], ...]] = field(default_factory=dict)
    elements: Mapping[tuple[int, ...], ElementRows] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> NDArray[Any]:
        """One field of all rows; for a field with names, the names, "" where there is none."""
        values = self.rows[name]
        if name not in self.names:
            return np.asarray(values)
        return np.asarray(np.array([*self.names[name], ""])[values])

    def blocks(self, size: int, progress: Callable[[float], Any] | None = None) -> Iterator[TraceRows]:
        """The trace in consecutive parts of at most `size` rows. progress: called with the share done after each."""
        for first in range(0, len(self.rows), size):
            rows = np.array(self.rows[first : first + size])
            elements = {place: rows_of.within(first, first + size) for place, rows_of in self.elements.items()}
            yield replace(self, rows=rows, elements=elements)
            if progress is not None:
                progress(min(1.0, (first + size) / len(self.rows)))

    def tiles(self) -> list[str]:
        """The tile of every row as text: `A1[352, 64]` in global memory, `slot 3 [0, 0]` in a buffer."""
        names = self.names["array"]
        where = self.rows[["array", "slot", "tile_row", "tile_col"]].tolist()
        return [
            f"{names[array]}[{row}, {col}]" if array >= 0 else f"slot {slot} [{row}, {col}]"
            for array, slot, row, col in where
        ]
