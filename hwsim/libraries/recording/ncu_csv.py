"""Kernels and their durations from a CSV report of Nsight Compute, of `--page raw` or `--page details`."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwsim.errors import InputError
from hwsim.host.input_files import MOST_TABLE_BYTES, read_text
from hwsim.studies.measured import SIZES, MeasuredKernel

ID, NAME = "ID", "Kernel Name"
METRIC, UNIT, VALUE = "Metric Name", "Metric Unit", "Metric Value"
RAW_DURATION = "gpu__time_duration.sum"
#: Metrics of the long form that are the kernel's duration.
DURATIONS = ("Duration", RAW_DURATION)
#: Seconds of each unit, in the spellings of old and new versions.
UNITS = {
    "ns": 1e-9,
    "nsecond": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "usecond": 1e-6,
    "ms": 1e-3,
    "msecond": 1e-3,
    "s": 1.0,
    "second": 1.0,
}
#: Columns that users add: options of hwsim.run.
TEXTS = ("format", "scheme", "a_layout", "b_layout")
NUMBER = re.compile(r"(\d+|\d{1,3}(,\d{3})+)(\.\d*)?([eE][+-]?\d+)?", re.ASCII)
NOTE = "=="  # begins the profiler's own lines: ==PROF== ...


@dataclass(frozen=True, slots=True)
class _Table:
    """The rows of a report, each with its line; a row is {column: text}."""

    path: Path
    columns: Sequence[str]
    rows: Sequence[tuple[int, Mapping[str, str]]]

    def refuse(self, line: int, text: str) -> InputError:
        return InputError(f"{self.path}:{line}: {text}")


def read_ncu_csv(path: Path) -> list[MeasuredKernel]:
    """The kernels of a report, in its order, from `ncu --csv --page raw` (a row of units below the head) or `--page
    details` (one line per metric). Lines before the head and ==PROF== lines are skipped; thousands separators are
    allowed. Columns m, n, k, format, scheme, a_layout and b_layout, where a user added them, say the GEMM.

    Raises InputError with the line for what is not such a report.
    """
    table = _read(path)
    if RAW_DURATION in table.columns:
        return _raw(table)
    if METRIC in table.columns:
        return _details(table)
    raise InputError(
        f"{path}: no column {RAW_DURATION} (page raw) and none {METRIC} (page details); make the report with "
        f"`ncu --csv --page raw --metrics {RAW_DURATION}`"
    )


def _read(path: Path) -> _Table:
    lines = read_text(path, "report", MOST_TABLE_BYTES).split("\n")
    heads = ((number, next(csv.reader([line]), [])) for number, line in enumerate(lines, 1) if NAME in line)
    head = next(((number, cells) for number, cells in heads if ID in cells and NAME in cells), None)
    if head is None:
        raise InputError(
            f'{path}: no head with columns "{ID}" and "{NAME}" in {len(lines)} lines; make the report with `ncu --csv '
            "--page raw` or `--page details`"
        )
    number, columns = head
    twice = sorted({name for name in (ID, NAME, RAW_DURATION, METRIC, *SIZES, *TEXTS) if columns.count(name) > 1})
    if twice:
        raise InputError(f"{path}:{number}: column {twice[0]} stands twice; leave one")
    return _Table(path, columns, list(_rows(path, lines, number, columns)))


def _rows(path: Path, lines: Sequence[str], head: int, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    for number, line in enumerate(lines[head:], head + 1):
        if not line.strip() or line.startswith(NOTE):
            continue
        try:
            cells = next(csv.reader([line], strict=True))
        except csv.Error as error:
            raise InputError(f"{path}:{number}: not readable as CSV: {error}") from error
        if len(cells) != len(columns):
            raise InputError(
                f"{path}:{number}: {len(cells)} fields where the head has {len(columns)}; remove lines that the "
                "program printed (ncu --log-file keeps them apart)"
            )
        yield number, dict(zip(columns, (cell.strip() for cell in cells), strict=True))


def _raw(table: _Table) -> list[MeasuredKernel]:
    if not table.rows:
        raise InputError(f"{table.path}: no row of units and no kernels below the head")
    (line, units), *kernels = table.rows
    if units[ID]:
        raise table.refuse(
            line, f'{ID} is "{units[ID]}" where the row of units is expected (an empty {ID}); leave that row in'
        )
    scale = _scale(table, line, units[RAW_DURATION])
    return [_kernel(table, at, row, _number(table, at, row[RAW_DURATION]) * scale) for at, row in kernels]


def _details(table: _Table) -> list[MeasuredKernel]:
    missing = [name for name in (UNIT, VALUE) if name not in table.columns]
    if missing:
        raise InputError(f"{table.path}: column {METRIC} without {', '.join(missing)}")
    kernels: dict[tuple[str, ...], MeasuredKernel] = {}
    for line, row in table.rows:
        key = (row.get("Process ID", ""), row[ID])
        if row[METRIC] in DURATIONS and key not in kernels:  # several sections may have it
            seconds = _number(table, line, row[VALUE]) * _scale(table, line, row[UNIT])
            kernels[key] = _kernel(table, line, row, seconds)
    if table.rows and not kernels:
        raise InputError(
            f"{table.path}: no metric {' or '.join(DURATIONS)} in {len(table.rows)} rows; profile with `--section "
            f"SpeedOfLight` or `--metrics {RAW_DURATION}`"
        )
    return list(kernels.values())


def _scale(table: _Table, line: int, unit: str) -> float:
    if unit not in UNITS:
        raise table.refuse(line, f'unit of the duration: got "{unit}"; allowed: {", ".join(UNITS)}')
    return UNITS[unit]


def _number(table: _Table, line: int, text: str) -> float:
    if not NUMBER.fullmatch(text) or float(text.replace(",", "")) <= 0:
        raise table.refuse(line, f'duration: got "{text}"; allowed: a number above 0, such as 1,234.56')
    return float(text.replace(",", ""))


def _kernel(table: _Table, line: int, row: Mapping[str, str], seconds: float) -> MeasuredKernel:
    if not row[NAME]:
        raise table.refuse(line, f'"{NAME}" is empty')
    return MeasuredKernel(row[NAME], seconds, _gemm(table, line, row), f"{table.path}:{line}")


def _gemm(table: _Table, line: int, row: Mapping[str, str]) -> dict[str, Any] | None:
    """What the added columns say; None where they are empty or not there."""
    sizes = {name: row[name] for name in SIZES if row.get(name)}
    texts = {name: row[name] for name in TEXTS if row.get(name)}
    if not sizes and not texts:
        return None
    missing = [name for name in SIZES if name not in sizes]
    if missing:
        raise table.refuse(
            line, f"{', '.join({**sizes, **texts})} without {', '.join(missing)}; give m, n and k too, or none of them"
        )
    for name, text in sizes.items():
        if not re.fullmatch(r"\d+|\d{1,3}(,\d{3})+", text, re.ASCII) or int(text.replace(",", "")) < 1:
            raise table.refuse(line, f'{name}: got "{text}"; allowed: an integer of at least 1')
    return {name: int(text.replace(",", "")) for name, text in sizes.items()} | texts
