"""Writes a trace as .npz: one NumPy array per field, written in blocks, so that no column is in memory as a whole."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.host.files import npz_member
from hwsim.trace.element_rows import ELEMENT_DTYPE, column_name
from hwsim.trace.rows import TRACE_DTYPE, TraceRows

ROWS_PER_WRITE = 1 << 16


def write(trace: TraceRows, file: IO[bytes], progress: Callable[[float], Any] | None = None) -> None:
    """Write `trace` to a binary file: an array per field of TRACE_DTYPE, `names_<field>` for the names, and device,
    clock_mhz, complete. Of each element (3, 5) an array per field of ELEMENT_DTYPE: `step_3_5`, `before_3_5` and so on,
    with `names_formats_3_5`. progress: called with the share done.
    """
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        fields = TRACE_DTYPE.names or ()
        for number, name in enumerate(fields):
            with npz_member(archive, name) as out:
                head = {"descr": TRACE_DTYPE[name].str, "fortran_order": False, "shape": (len(trace),)}
                np.lib.format.write_array_header_1_0(out, head)
                for first in range(0, len(trace), ROWS_PER_WRITE):
                    out.write(trace.rows[name][first : first + ROWS_PER_WRITE].tobytes())
            if progress is not None:
                progress((number + 1) / len(fields))
        for place, element in trace.elements.items():
            for name in ELEMENT_DTYPE.names or ():
                with npz_member(archive, column_name(name, place)) as out:
                    head = {"descr": ELEMENT_DTYPE[name].str, "fortran_order": False, "shape": (len(trace),)}
                    np.lib.format.write_array_header_1_0(out, head)
                    for first in range(0, len(trace), ROWS_PER_WRITE):
                        part = element.dense(first, min(first + ROWS_PER_WRITE, len(trace)))
                        out.write(part[name].tobytes())
        for name, value in _about(trace).items():
            with npz_member(archive, name) as out:
                np.lib.format.write_array(out, value, allow_pickle=False)


def _about(trace: TraceRows) -> dict[str, NDArray[np.generic]]:
    names: dict[str, NDArray[np.generic]] = {
        f"names_{field}": np.array(values, str) for field, values in trace.names.items()
    }
    for place, element in trace.elements.items():
        names[column_name("names_formats", place)] = np.array(element.formats, str)
    return names | {
        "device": np.array(trace.device),
        "clock_mhz": np.array(trace.clock_mhz),
        "complete": np.array(trace.complete),
    }
