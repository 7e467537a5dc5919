"""A trace: one row per instruction of one core of each kind, in cycles, and the files it can be written to.

It knows rows and their names; it does not know how times come about, or what a program computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError

if TYPE_CHECKING:
    from hwsim.devices.model import Device
    from hwsim.machines.timing import Timing

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
    ]
)
NAMED = ("kernel", "engine", "opcode", "label", "array", "waited_for")
TIMES = ("issue", "start", "free", "end")
SUFFIXES = (".json", ".csv", ".npz")


@dataclass(frozen=True)
class Trace:
    """What the simulated cores did, in the order in which occupancies of engines end.

    rows: structured array (TRACE_DTYPE). core: the first of `cores` that do the same; instr: number of the
    instruction in its kernel. A tile is (array, tile_row, tile_col) in global memory for a copy from or to it,
    else (slot, tile_row, tile_col) of the buffer written; array is -1 then. issue, start: when the instruction
    entered its engine's queue and left it; free: when the engine could take the next; end: when it was
    complete. bytes, macs: of one core. names[field]: what the numbers in kernel, engine, opcode, label, array
    and waited_for mean. complete: False when the trace was cut at the limit.
    """

    LIMIT: ClassVar[int] = 1_000_000

    rows: NDArray[Any]
    names: dict[str, tuple[str, ...]]
    device: str
    clock_mhz: float
    complete: bool

    @classmethod
    def of(cls, timing: Timing, device: Device) -> Trace:
        """The trace that a timing was asked to keep. Raises InputError if it kept none."""
        kept = timing.trace
        if kept is None:
            raise InputError("the timing has no trace; run it with trace=Trace.LIMIT")
        raw = kept.rows
        rows = np.zeros(len(raw), TRACE_DTYPE)
        for field, source in _SOURCES.items():
            rows[field] = raw[source] / kept.ticks_per_cycle if field in TIMES else raw[source]
        names = {
            "kernel": kept.kernels,
            "engine": kept.engines,
            "opcode": kept.opcodes,
            "label": kept.labels,
            "array": kept.arrays,
            "waited_for": tuple(cause.removeprefix("semaphore:") for cause in kept.causes),
        }
        return cls(rows, names, device.name, device.clock_mhz, kept.complete)

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> NDArray[Any]:
        """One field of all rows; for a field with names the names, "" where there is none."""
        values = self.rows[name]
        if name not in self.names:
            return np.asarray(values)
        return np.asarray(np.array([*self.names[name], ""])[values])

    def tiles(self) -> list[str]:
        """The tile of every row as text: `A1[352, 64]` in global memory, `slot 3 [0, 0]` in a buffer."""
        names = self.names["array"]
        where = self.rows[["array", "slot", "tile_row", "tile_col"]].tolist()
        return [
            f"{names[array]}[{row}, {col}]" if array >= 0 else f"slot {slot} [{row}, {col}]"
            for array, slot, row, col in where
        ]

    def write(self, path: str | Path) -> None:
        """Write the file that the suffix of `path` asks for: .json (Perfetto), .csv or .npz.

        Raises InputError for another suffix, or a file that cannot be written.
        """
        path = check_suffix(path)
        {".json": self.to_perfetto, ".csv": self.to_csv, ".npz": self.to_npz}[path.suffix.lower()](path)

    def to_perfetto(self, path: str | Path) -> None:
        """Write trace-event JSON for ui.perfetto.dev: 1 cycle is shown as 1 ns (see hwsim.trace.perfetto)."""
        from hwsim.files import write_whole
        from hwsim.trace.perfetto import write

        write_whole(Path(path), lambda file: write(self, file))

    def to_csv(self, path: str | Path) -> None:
        """Write one line per row, names in full; times in cycles."""
        from hwsim.files import write_whole
        from hwsim.trace.csv import write

        write_whole(Path(path), lambda file: write(self, file))

    def to_npz(self, path: str | Path) -> None:
        """Write one NumPy array per field, `names_<field>` for the names, and device, clock_mhz, complete."""
        from hwsim.files import write_npz

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
    """`path`, if its suffix names a format of traces. Raises InputError."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"trace file {path}: no format has the suffix {path.suffix!r}; allowed: .json (Perfetto), .csv, .npz"
        )
    return path
