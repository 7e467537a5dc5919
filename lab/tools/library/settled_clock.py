"""Whether a recorded call ran at a settled clock. It knows rows of recorded calls (fit_times.py), and no fit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

SETTLED = 0.96  # of the highest recorded clock of the device


def highest_clocks(rows: Iterable[Mapping[str, str]]) -> dict[str, float]:
    """The highest recorded clock by device, in MHz; 0 where none was recorded."""
    highest: dict[str, float] = defaultdict(float)
    for row in rows:
        highest[row["device"]] = max(highest[row["device"]], float(row.get("clock_mhz") or 0))
    return highest


def is_settled(row: Mapping[str, str], highest: Mapping[str, float]) -> bool:
    """Whether the clock before the call, else after it, is near the highest; True where none was recorded."""
    clock = row.get("clock_before_mhz") or row.get("clock_mhz")
    return not clock or float(clock) >= SETTLED * highest[row["device"]]
