"""Writes a trace as comma-separated text: one line per row, names in full, times in cycles."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import IO, Any

from hwsim.trace.rows import TraceRows

ROWS_PER_WRITE = 1 << 14
FIELDS = (
    "kernel",
    "core",
    "cores",
    "engine",
    "opcode",
    "label",
    "instr",
    "tile",
    "issue",
    "start",
    "free",
    "end",
    "bytes",
    "macs",
    "waited_for",
    "number",
    "signaller",
)


def write(trace: TraceRows, file: IO[bytes], progress: Callable[[float], Any] | None = None) -> None:
    """Write `trace` to a binary file, UTF-8. progress: called with the share done."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    try:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(FIELDS)
        for part in trace.blocks(ROWS_PER_WRITE, progress):
            columns = [part.tiles() if name == "tile" else part.column(name).tolist() for name in FIELDS]
            writer.writerows(zip(*columns, strict=True))
        text.flush()
    finally:
        text.detach()
