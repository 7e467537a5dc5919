"""Measured times and microbenchmarks as rows: the tables of lab/hwsim_lab/configs/measured.

Their columns and units: lab/hwsim_lab/configs/measured/README.md. lab/tools/measure appends to them.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from hwsim.errors import InputError
from hwsim_lab import places

FOLDER = places.MEASURED
ROLES = ("calibration", "validation", "blind", "seen", "launch")
STATES = ("rested", "held")
LAYOUTS = ("rows", "columns")


@dataclass(frozen=True, slots=True)
class GemmTime:
    """One measured GEMM, C[m, n] = A[m, k] B[k, n]. Microseconds of one call, launch included; None: not measured.

    device: name of its file. accumulate: as requested of the library, empty where nothing was. role: calibration may
    set numbers of a device file; validation and blind are compared only; seen is compared with nothing, as its shape is
    in an earlier set; launch is the time of a GEMM of 16 x 16 x 16. state: from a rested chip, or after a second of
    load. kernels: what the library launched, in order, with grids ("" for a memset) and microseconds under the
    profiler.
    """

    set: str
    date: str
    device: str
    format: str
    output: str
    accumulate: str
    a_layout: str
    b_layout: str
    m: int
    n: int
    k: int
    batch: int
    role: str
    state: str
    operands: str
    us: float
    least_us: float | None
    first_us: float | None
    last_us: float | None
    replays: int | None
    in_graph: int | None
    sm_mhz: float | None
    kernels: tuple[str, ...]
    grids: tuple[str, ...]
    kernel_us: tuple[float, ...]

    @property
    def shape(self) -> str:
        """The shape as the text MxNxK."""
        return f"{self.m}x{self.n}x{self.k}"


@dataclass(frozen=True, slots=True)
class Observation:
    """One number of a microbenchmark, in the unit with which `quantity` ends."""

    set: str
    date: str
    device: str
    case: str
    quantity: str
    value: float


@dataclass(frozen=True, slots=True)
class Cluster:
    """The thread-block clusters of one GEMM's kernel: CTAs along x and y, its grid, megabytes (1e6) read from L2."""

    set: str
    date: str
    device: str
    format: str
    b_layout: str
    m: int
    n: int
    k: int
    tile: str
    segment_k: int
    cluster_x: int
    cluster_y: int
    grid_x: int
    grid_y: int
    l2_read_mb: float


@dataclass(frozen=True, slots=True)
class TensorPipe:
    """Utilisation of the tensor pipe in one GEMM's kernel, in percent, with the profiler's counts."""

    set: str
    date: str
    device: str
    format: str
    b_layout: str
    m: int
    n: int
    k: int
    role: str
    tensor_pipe_busy_percent: float
    tensor_instructions: float
    shared_load_instructions: float
    shared_load_bank_conflicts: float
    kernels: tuple[str, ...]


Row = TypeVar("Row", GemmTime, Observation, Cluster, TensorPipe)


def path(name: str) -> Path:
    """The path of a file of measurements. Raises InputError where it does not exist."""
    found = FOLDER / name
    if not found.is_file():
        raise InputError(f"no file {found}, which comes with the laboratory; install it again: pip install ./lab")
    return found


@cache
def gemm_times(file: Path | None = None) -> tuple[GemmTime, ...]:
    """The rows of gemm_times.csv (or of `file`) in order. Raises InputError for invalid rows."""
    return tuple(_read(GemmTime, file or path("gemm_times.csv")))


@cache
def microbenchmarks(set: str) -> dict[str, dict[str, float]]:
    """The values of one set of microbenchmarks.csv, by case and quantity. Raises InputError for an unknown set."""
    found: dict[str, dict[str, float]] = {}
    names = dict.fromkeys(row.set for row in _observations())
    if set not in names:
        raise InputError(f"microbenchmarks.csv has no set {set!r}; it has {', '.join(names)}")
    for row in _observations():
        if row.set == set:
            found.setdefault(row.case, {})[row.quantity] = row.value
    return found


@cache
def _observations() -> tuple[Observation, ...]:
    return tuple(_read(Observation, path("microbenchmarks.csv")))


@cache
def clusters() -> tuple[Cluster, ...]:
    """The rows of clusters.csv."""
    return tuple(_read(Cluster, path("clusters.csv")))


@cache
def tensor_pipe() -> tuple[TensorPipe, ...]:
    """The rows of tensor_pipe.csv."""
    return tuple(_read(TensorPipe, path("tensor_pipe.csv")))


def _texts(text: str) -> tuple[str, ...]:
    return tuple(text.split(" | ")) if text else ()


READ: dict[Any, Callable[[str], Any]] = {
    str: str,
    int: int,
    float: float,
    float | None: lambda text: float(text) if text else None,
    int | None: lambda text: int(text) if text else None,
    tuple[str, ...]: _texts,
    tuple[float, ...]: lambda text: tuple(map(float, _texts(text))),
}
ALLOWED = {"role": ROLES, "state": STATES, "a_layout": LAYOUTS, "b_layout": LAYOUTS}


def _read(kind: type[Row], file: Path) -> Iterator[Row]:
    """The rows of a file whose columns are the fields of `kind`."""
    types, names = get_type_hints(kind), [field.name for field in fields(kind)]
    with file.open(encoding="utf-8", newline="") as lines:
        table = csv.reader(lines)
        head = next(table, [])
        if head != names:
            raise InputError(f"{file}: columns {', '.join(head) or 'none'}; needed: {', '.join(names)}")
        for row in table:
            if len(row) != len(names):
                raise InputError(f"{file}:{table.line_num}: {len(row)} fields; needed: {len(names)}")
            values = {}
            for name, text in zip(names, row, strict=True):
                try:
                    values[name] = READ[types[name]](text)
                except ValueError:
                    raise InputError(f"{file}:{table.line_num}: {name}: {text!r} is no number") from None
                if text not in ALLOWED.get(name, (text,)):
                    allowed = ", ".join(ALLOWED[name])
                    raise InputError(f"{file}:{table.line_num}: {name}: {text!r}; allowed: {allowed}")
            yield kind(**values)
