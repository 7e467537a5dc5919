"""Trace rows of the timing machine: one record per executed instruction of the simulated cores, with the names behind
its indices.

Writers (Perfetto, CSV, reports) read them. Nothing here knows a file format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Ticks count from the start of the program. `core` is the first of `cores` that do the same. `array` with `row`
# and `col` say the tile in global memory that a copy moves (-1: none); `slot` (not yet taken modulo the buffer's
# slots), `row` and `col` the tile that any other instruction writes. free: the engine may start the next; end:
# completion, when signals are given. bytes and macs: of one core.
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
    ]
)


@dataclass(frozen=True, slots=True)
class TickRows:
    """Trace rows in ticks, in the order in which occupancies end, at most the number asked for.

    rows: ROW_DTYPE, (n,). The other fields are the names that kernel, engine, opcode, label, array and cause
    index; causes[0] is "" (did not wait), then "empty" (nothing had been issued) and "semaphore:<name>".
    complete: False when there were more instructions than rows asked for.
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
