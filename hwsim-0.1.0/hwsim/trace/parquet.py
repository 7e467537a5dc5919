"""Writes a trace as Parquet, with pyarrow: one column per field, names as dictionaries, times in cycles."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Any

from hwsim.errors import UnsupportedError
from hwsim.trace.rows import TRACE_DTYPE, TraceRows

ROWS_PER_GROUP = 1 << 16


def check() -> None:
    """Raise UnsupportedError where pyarrow is missing."""
    _pyarrow()


def write(trace: TraceRows, file: IO[bytes], progress: Callable[[float], Any] | None = None) -> None:
    """Write `trace` to a binary file; device, clock_mhz and complete are in the metadata of its schema.

    Columns: the fields of TRACE_DTYPE, those with names as dictionary<int32, string> (null where there is none), and
    `tile` as text. progress: called with the share done. Raises UnsupportedError where pyarrow is missing.
    """
    arrow, parquet = _pyarrow()
    fields = [(name, _type(arrow, trace, name)) for name in TRACE_DTYPE.names or ()]
    about = {"device": trace.device, "clock_mhz": repr(trace.clock_mhz), "complete": str(trace.complete).lower()}
    schema = arrow.schema([*fields, ("tile", arrow.string())], metadata=about)
    with parquet.ParquetWriter(file, schema) as writer:
        for part in trace.blocks(ROWS_PER_GROUP, progress):
            columns = [_column(arrow, part, name) for name, _ in fields]
            writer.write_table(arrow.Table.from_arrays([*columns, arrow.array(part.tiles())], schema=schema))


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
