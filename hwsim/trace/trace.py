"""Traces: one row per instruction of one core of each kind, in cycles, and the file formats for them.

The module knows rows and their names; it does not know how times are computed, or what a program computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError
from hwsim.host.files import write_whole
from hwsim.machines.trace_rows import RowStore
from hwsim.trace import csv, npz, parquet, perfetto, pftrace
from hwsim.trace.element_rows import element_rows
from hwsim.trace.rows import TRACE_DTYPE, TraceRows
from hwsim.trace.waits import TraceWait, waits_of

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.machines.element_steps import ElementStep
    from hwsim.machines.timing import Timing

TIMES = ("issue", "start", "free", "end")
BLOCK = 1 << 16  # rows
Progress = Callable[[float], None]


@dataclass(frozen=True)
class Trace(TraceRows):
    """A trace of the simulated cores: its rows (see TraceRows), and methods that write them to files."""

    LIMIT: ClassVar[int] = 10_000_000

    @classmethod
    def of(
        cls,
        timing: Timing,
        device: Device,
        values: Mapping[tuple[int, ...], Sequence[ElementStep]] = MappingProxyType({}),
    ) -> Trace:
        """The trace that a timing run recorded. values: the instructions of elements of C that the same program made,
        for a trace from its begin. Raises InputError if no trace was recorded.
        """
        columns = timing.trace
        if columns is None:
            raise InputError("the timing has no trace; run it with trace=Trace.LIMIT")
        store = RowStore(TRACE_DTYPE)
        for first in range(0, len(columns.rows), BLOCK):
            store.append(_in_cycles(columns.rows[first : first + BLOCK], columns.ticks_per_cycle))
        names = {
            "kernel": columns.kernels,
            "engine": columns.engines,
            "opcode": columns.opcodes,
            "label": columns.labels,
            "array": columns.arrays,
            "waited_for": tuple(cause.removeprefix("semaphore:") for cause in columns.causes),
        }
        rows = store.array()
        elements = element_rows(rows, values)
        return cls(
            rows,
            names,
            device.name,
            device.clock_mhz,
            complete=columns.complete,
            fills=columns.fills,
            elements=elements,
        )

    def waits(self) -> list[TraceWait]:
        """The waits by engine and by what was waited for, the most cycles first (hwsim.trace.waits)."""
        return waits_of(self)

    def write(self, path: str | Path, progress: Progress | None = None) -> None:
        """Write the trace in the format given by the suffix of `path`, of those in FORMATS; see the methods `to_...`.

        progress: called with the share done. Raises InputError for another suffix, or a file that cannot be written;
        UnsupportedError for .parquet without pyarrow.
        """
        path = check_suffix(path)
        {
            ".pftrace": self.to_pftrace,
            ".json": self.to_perfetto,
            ".csv": self.to_csv,
            ".npz": self.to_npz,
            ".parquet": self.to_parquet,
        }[path.suffix.lower()](path, progress)

    def to_perfetto(self, path: str | Path, progress: Progress | None = None) -> None:
        """Write trace-event JSON for ui.perfetto.dev: 1 cycle is shown as 1 ns (see hwsim.trace.events)."""
        write_whole(Path(path), lambda file: perfetto.write(self, file, progress))

    def to_pftrace(self, path: str | Path, progress: Progress | None = None) -> None:
        """Write Perfetto's own form, with flows, for ui.perfetto.dev: 1 cycle is shown as 1 ns (see
        hwsim.trace.events).
        """
        write_whole(Path(path), lambda file: pftrace.write(self, file, progress))

    def to_parquet(self, path: str | Path, progress: Progress | None = None) -> None:
        """Write one column per field, names as dictionaries, `tile`, and those of `elements`. Raises UnsupportedError
        without pyarrow.
        """
        parquet.check()
        write_whole(Path(path), lambda file: parquet.write(self, file, progress))

    def to_csv(self, path: str | Path, progress: Progress | None = None) -> None:
        """Write one line per row, names in full; times in cycles."""
        write_whole(Path(path), lambda file: csv.write(self, file, progress))

    def to_npz(self, path: str | Path, progress: Progress | None = None) -> None:
        """Write one NumPy array per field, `names_<field>` for the names, those of `elements`, and device, clock_mhz,
        complete.
        """
        write_whole(Path(path), lambda file: npz.write(self, file, progress))


_SOURCES = {"tile_row": "row", "tile_col": "col", "waited_for": "cause"} | {
    name: name for name in TRACE_DTYPE.names or () if name not in ("tile_row", "tile_col", "waited_for")
}


#: What each suffix of a trace file stands for.
FORMATS = {
    ".pftrace": "Perfetto, with flows",
    ".json": "Perfetto and Chrome",
    ".csv": "text",
    ".npz": "NumPy columns",
    ".parquet": "Parquet, needs pyarrow",
}


def check_suffix(path: str | Path) -> Path:
    """Return `path` if its suffix is that of a trace format that can be written here.

    Raises InputError for another suffix, UnsupportedError for .parquet without pyarrow.
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        allowed = ", ".join(f"{suffix} ({what})" for suffix, what in FORMATS.items())
        raise InputError(f"trace file {path}: no format has the suffix {path.suffix!r}; allowed: {allowed}")
    if path.suffix.lower() == ".parquet":
        parquet.check()
    return path


def _in_cycles(raw: NDArray[Any], ticks_per_cycle: int) -> NDArray[Any]:
    """Rows of the timing machine (ROW_DTYPE) as TRACE_DTYPE."""
    rows = np.zeros(len(raw), TRACE_DTYPE)
    for field, source in _SOURCES.items():
        rows[field] = raw[source] / ticks_per_cycle if field in TIMES else raw[source]
    return rows
