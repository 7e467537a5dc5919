"""Writes a trace as Parquet, with pyarrow: one column per field, names as dictionaries, times in cycles."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Any

from hwsim.errors import UnsupportedError
from hwsim.trace.element_rows import ELEMENT_DTYPE, ElementRows, column_name
from hwsim.trace.rows import TRACE_DTYPE, TraceRows

ROWS_PER_GROUP = 1 << 16


def check() -> None:
    """Raise UnsupportedError where pyarrow is missing."""
    _pyarrow()


def write(trace: TraceRows, file: IO[bytes], progress: Callable[[float], Any] | None = None) -> None:
    """Write `trace` to a binary file; device, clock_mhz and complete are in the metadata of its schema.

    Columns: the fields of TRACE_DTYPE, those with names as dictionary<int32, string> (null where there is none), and
    `tile` as text. Of each element (3, 5) `step_3_5`, `before_3_5`, `before_format_3_5`, `after_3_5` and
    `after_format_3_5`, null in rows that did not make it. progress: called with the share done. Raises UnsupportedError
    where pyarrow is missing.
    """
    arrow, parquet = _pyarrow()
    names_type = arrow.dictionary(arrow.int32(), arrow.string())
    fields = [(name, _type(arrow, trace, name)) for name in TRACE_DTYPE.names or ()]
    about = {"device": trace.device, "clock_mhz": repr(trace.clock_mhz), "complete": str(trace.complete).lower()}
    of_elements = [
        (
            column_name(name, place),
            names_type if name.endswith("format") else arrow.from_numpy_dtype(ELEMENT_DTYPE[name]),
        )
        for place in trace.elements
        for name in ELEMENT_DTYPE.names or ()
    ]
    schema = arrow.schema([*fields, ("tile", arrow.string()), *of_elements], metadata=about)
    with parquet.ParquetWriter(file, schema) as writer:
        for part in trace.blocks(ROWS_PER_GROUP, progress):
            columns = [_column(arrow, part, name) for name, _ in fields]
            values = [column for element in part.elements.values() for column in _columns_of(arrow, element, len(part))]
            writer.write_table(arrow.Table.from_arrays([*columns, arrow.array(part.tiles()), *values], schema=schema))


def _type(arrow: Any, trace: TraceRows, name: str) -> Any:
    if name in trace.names:
        return arrow.dictionary(arrow.int32(), arrow.string())
    return arrow.from_numpy_dtype(TRACE_DTYPE[name])


def _column(arrow: Any, part: TraceRows, name: str) -> Any:
    values = part.rows[name].copy()
    if name not in part.names:
        return arrow.array(values)
    indices = arrow.array(values, mask=values < 0)
    return arrow.DictionaryArray.from_arrays(indices, arrow.array(part.names[name], arrow.string()))


def _columns_of(arrow: Any, element: ElementRows, count: int) -> list[Any]:
    """The columns of an element over all rows of a part."""
    entries, columns = element.dense(0, count), []
    for name in ELEMENT_DTYPE.names or ():
        is_missing = entries["step" if name == "step" else f"{name.partition('_')[0]}_format"] < 0
        values = arrow.array(entries[name].copy(), mask=is_missing)
        if name.endswith("format"):
            values = arrow.DictionaryArray.from_arrays(values, arrow.array(element.formats, arrow.string()))
        columns.append(values)
    return columns


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as arrow  # optional
        import pyarrow.parquet as parquet  # optional
    except ImportError:
        raise UnsupportedError(
            "a .parquet file needs pyarrow, which is not installed: pip install 'hwsim[parquet]'; "
            "without it: .npz or .csv"
        ) from None
    return arrow, parquet
