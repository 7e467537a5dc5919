"""Writes a trace as .npz: one NumPy array per field, written in blocks, so that no column is in memory as a whole."""

from __future__ import annotations

import zipfile
from typing import IO

import numpy as np
from numpy.typing import NDArray

from hwsim.trace.rows import TRACE_DTYPE, TraceRows

ROWS_PER_WRITE = 1 << 16
DATE = (1980, 1, 1, 0, 0, 0)  # of every member, so that the bytes depend on the trace alone


def write(trace: TraceRows, file: IO[bytes]) -> None:
    """Write `trace` to a binary file: an array per field of TRACE_DTYPE, `names_<field>` for the names, and device,
    clock_mhz, complete.
    """
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in TRACE_DTYPE.names or ():
            with archive.open(_member(name), "w", force_zip64=True) as out:
                head = {"descr": TRACE_DTYPE[name].str, "fortran_order": False, "shape": (len(trace),)}
                np.lib.format.write_array_header_1_0(out, head)
                for part in trace.blocks(ROWS_PER_WRITE):
                    out.write(np.ascontiguousarray(part.rows[name]).tobytes())
        for name, value in _about(trace).items():
            with archive.open(_member(name), "w") as out:
                np.lib.format.write_array(out, value, allow_pickle=False)


def _about(trace: TraceRows) -> dict[str, NDArray[np.generic]]:
    names: dict[str, NDArray[np.generic]] = {
        f"names_{field}": np.array(values, str) for field, values in trace.names.items()
    }
    return names | {
        "device": np.array(trace.device),
        "clock_mhz": np.array(trace.clock_mhz),
        "complete": np.array(trace.complete),
    }


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(f"{name}.npy", DATE)
    info.compress_type = zipfile.ZIP_DEFLATED
    return info
