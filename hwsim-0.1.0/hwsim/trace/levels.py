"""Levels over time (bytes in flight, bandwidth, fill) from changes that come nearly in order, in bounded memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class RunningLevel:
    """The sum of all changes up to a time. Changes are held until no earlier one can come."""

    def __init__(self) -> None:
        self.times: list[NDArray[np.int64]] = []
        self.changes: list[NDArray[np.float64]] = []
        self.value = 0.0

    def add(self, times: NDArray[np.int64], changes: NDArray[np.float64]) -> None:
        """Note changes at times (n,), in any order, none before the last `until` of `steps`."""
        self.times.append(times)
        self.changes.append(changes)

    def steps(self, until: int) -> list[tuple[int, float]]:
        """(time, value) after each change before `until` that was not returned yet, one per time."""
        if not self.times:
            return []
        times, changes = np.concatenate(self.times), np.concatenate(self.changes)
        ready = times < until
        self.times, self.changes = [times[~ready]], [changes[~ready]]
        unique, position = np.unique(times[ready], return_inverse=True)
        if not len(unique):
            return []
        values = self.value + np.cumsum(np.bincount(position, changes[ready], len(unique)))
        self.value = float(values[-1])
        values = np.round(values, 6) + 0.0  # sums of rates leave what rounding leaves
        return list(zip(unique.tolist(), values.tolist(), strict=True))
