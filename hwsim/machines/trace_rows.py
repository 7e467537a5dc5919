"""Trace rows of the timing machine: one record per executed instruction of the simulated cores, with the names behind
its indices.

Writers (Perfetto, CSV, reports) read them. Nothing here knows a file format.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.host.files import ScratchFile

# Ticks count from the start of the program. `core` is the first of `cores` that do the same. `array` with `row`
# and `col` say the tile in global memory that a copy moves (-1: none); `slot` (not yet taken modulo the buffer's
# slots), `row` and `col` the tile that any other instruction writes. free: the engine may start the next; end:
# completion, when signals are given. bytes and macs: of one core. number: in order of start, over the program;
# signaller: the number of the instruction whose signal ended the wait (-1: no wait for a semaphore).
ROW_DTYPE = np.dtype(
    [
        ("kernel", np.int32),
        ("core", np.int32),
        ("cores", np.int32),
        ("engine", np.int32),
        ("opcode", np.int32),
        ("label", np.int32),
        ("instr", np.int32),
        ("array", np.int32),
        ("row", np.int64),
        ("col", np.int64),
        ("slot", np.int64),
        ("issue", np.int64),
        ("start", np.int64),
        ("free", np.int64),
        ("end", np.int64),
        ("bytes", np.int64),
        ("macs", np.int64),
        ("cause", np.int32),
        ("number", np.int64),
        ("signaller", np.int64),
    ]
)
IN_MEMORY = 1 << 18  # rows; what is beyond goes to a temporary file


@dataclass(frozen=True, slots=True)
class TraceWindow:
    """Which instructions are recorded: those of `core` or the core that stands for it (None: of one core of each
    kind), complete at cycle `first` or later and started before cycle `last`, counted from the program's start.
    """

    core: int | None = None
    first: float = 0.0
    last: float = math.inf


class RowStore:
    """Rows of one dtype, appended in blocks: in memory, from IN_MEMORY rows on in a temporary file without a name."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype, self.count = dtype, 0
        self.parts: list[NDArray[Any]] = []
        self.file: ScratchFile | None = None

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows (n,); they are copied or written at once."""
        self.parts.append(rows)
        self.count += len(rows)
        if self.count <= IN_MEMORY:
            return
        if self.file is None:
            self.file = ScratchFile()
        for part in self.parts:
            self.file.append(part)
        self.parts.clear()

    def array(self) -> NDArray[Any]:
        """All rows (n,), read-only where they are in a file: the system then reads what is looked at."""
        if self.file is None:
            return np.concatenate(self.parts) if self.parts else np.zeros(0, self.dtype)
        return self.file.array(self.dtype, self.count)


@dataclass(frozen=True, slots=True)
class TickRows:
    """Trace rows in ticks, in the order in which occupancies end, at most the number asked for.

    rows: ROW_DTYPE, (n,). The other fields are the names that kernel, engine, opcode, label, array and cause
    index; causes[0] is "" (did not wait), then "empty" (nothing had been issued) and "semaphore:<name>".
    complete: False when there were more instructions than rows asked for. events: how many there were. fills: by
    (kernel, instr), the slots that it takes from a buffer when it starts (name, number) or, negative, gives back when
    it is complete, as the buffer's semaphore NAME.free counts them.
    """

    rows: NDArray[Any]
    ticks_per_cycle: int
    kernels: tuple[str, ...]
    engines: tuple[str, ...]
    opcodes: tuple[str, ...]
    labels: tuple[str, ...]
    arrays: tuple[str, ...]
    causes: tuple[str, ...]
    complete: bool
    events: int = 0
    fills: Mapping[tuple[int, int], tuple[tuple[str, int], ...]] = field(default_factory=dict)
