"""Tables as files: CSV, JSON lines or Parquet, by the file's ending."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hwsim.errors import InputError, UnsupportedError
from hwsim.host.files import check_writable, write_whole
from hwsim.result import plain

Columns = Sequence[str]
TableRows = Sequence[Mapping[str, Any]]


def table_csv(columns: Columns, rows: TableRows) -> str:
    """A table as CSV with a head; None is an empty field, a list or mapping is JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_field(row[name]) for name in columns] for row in rows)
    return text.getvalue()


def _field(value: Any) -> Any:
    """A value of a column: scalars as they are, what has parts as JSON."""
    return json.dumps(value) if isinstance(value, list | tuple | dict | bool) else value


def _csv(columns: Columns, rows: TableRows) -> bytes:
    return table_csv(columns, rows).encode()


def _json_lines(columns: Columns, rows: TableRows) -> bytes:
    return "".join(json.dumps(plain({name: row[name] for name in columns})) + "\n" for row in rows).encode()


def _parquet(columns: Columns, rows: TableRows) -> bytes:
    arrow, parquet = _pyarrow()
    arrays = {}
    for name in columns:
        values = [_field(row[name]) if not isinstance(row[name], bool) else row[name] for row in rows]
        kinds = {type(value) for value in values if value is not None}
        if len(kinds) > 1 and kinds != {int, float}:
            values = [None if value is None else str(value) for value in values]
        elif kinds == {int, float}:
            values = [None if value is None else float(value) for value in values]
        arrays[name] = arrow.array(values)
    out = io.BytesIO()
    parquet.write_table(arrow.table(arrays), out)
    return out.getvalue()


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow  # optional
        import pyarrow.parquet  # optional
    except ImportError:
        raise UnsupportedError("a .parquet table needs pyarrow: pip install 'hwsim[parquet]'; or write .csv") from None
    return pyarrow, pyarrow.parquet


WRITERS: Mapping[str, Callable[[Columns, TableRows], bytes]] = {
    ".csv": _csv,
    ".jsonl": _json_lines,
    ".parquet": _parquet,
}


def checked_table_path(path: Path) -> Path:
    """`path`, if a table can be written there; called before the work. Raises InputError and UnsupportedError."""
    ending = path.suffix.lower()
    if ending not in WRITERS:
        raise InputError(f"{path}: a table's name ends in {', '.join(WRITERS)}; got {ending or 'no ending'}")
    check_writable(path)
    if ending == ".parquet":
        _pyarrow()
    return path


def write_table(path: Path, columns: Columns, rows: TableRows) -> None:
    """Write rows, {column: value}, in the format of the file's ending, whole or not at all."""
    data = WRITERS[path.suffix.lower()](columns, rows)
    write_whole(path, lambda file: file.write(data))
