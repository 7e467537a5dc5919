"""Traces: one row per instruction of one core of each kind, in cycles, and the file formats for them.

The module knows rows and their names; it does not know how times are computed, or what a program computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hwsim.errors import InputError
from hwsim.files import write_npz, write_whole
from hwsim.trace import csv, perfetto
from hwsim.trace.rows import TRACE_DTYPE, TraceRows

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.machines.timing import Timing

TIMES = ("issue", "start", "free", "end")
SUFFIXES = (".json", ".csv", ".npz")


@dataclass(frozen=True)
class Trace(TraceRows):
    """A trace of the simulated cores: its rows (see TraceRows), and methods that write them to files."""

    LIMIT: ClassVar[int] = 1_000_000

    @classmethod
    def of(cls, timing: Timing, device: Device) -> Trace:
        """The trace that a timing run recorded. Raises InputError if it recorded none."""
        columns = timing.trace
        if columns is None:
            raise InputError("the timing has no trace; run it with trace=Trace.LIMIT")
        raw = columns.rows
        rows = np.zeros(len(raw), TRACE_DTYPE)
        for field, source in _SOURCES.items():
            rows[field] = raw[source] / columns.ticks_per_cycle if field in TIMES else raw[source]
        names = {
            "kernel": columns.kernels,
            "engine": columns.engines,
            "opcode": columns.opcodes,
            "label": columns.labels,
            "array": columns.arrays,
            "waited_for": tuple(cause.removeprefix("semaphore:") for cause in columns.causes),
        }
        return cls(rows, names, device.name, device.clock_mhz, columns.complete)

    def write(self, path: str | Path) -> None:
        """Write the trace in the format given by the suffix of `path`: .json (Perfetto), .csv or .npz.

        Raises InputError for another suffix, or a file that cannot be written.
        """
        path = check_suffix(path)
        {".json": self.to_perfetto, ".csv": self.to_csv, ".npz": self.to_npz}[path.suffix.lower()](path)

    def to_perfetto(self, path: str | Path) -> None:
        """Write trace-event JSON for ui.perfetto.dev: 1 cycle is shown as 1 ns (see hwsim.trace.perfetto)."""
        write_whole(Path(path), lambda file: perfetto.write(self, file))

    def to_csv(self, path: str | Path) -> None:
        """Write one line per row, names in full; times in cycles."""
        write_whole(Path(path), lambda file: csv.write(self, file))

    def to_npz(self, path: str | Path) -> None:
        """Write one NumPy array per field, `names_<field>` for the names, and device, clock_mhz, complete."""
        arrays: dict[str, Any] = {name: self.rows[name] for name in TRACE_DTYPE.names or ()}
        arrays |= {f"names_{name}": np.array(values, str) for name, values in self.names.items()}
        arrays |= {
            "device": np.array(self.device),
            "clock_mhz": np.array(self.clock_mhz),
            "complete": np.array(self.complete),
        }
        write_npz(Path(path), arrays)


_SOURCES = {"tile_row": "row", "tile_col": "col", "waited_for": "cause"} | {
    name: name for name in TRACE_DTYPE.names or () if name not in ("tile_row", "tile_col", "waited_for")
}


def check_suffix(path: str | Path) -> Path:
    """Return `path` if its suffix is that of a trace format. Raises InputError."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"trace file {path}: no format has the suffix {path.suffix!r}; allowed: .json (Perfetto), .csv, .npz"
        )
    return path
