"""Root mean square and largest of relative errors that come one by one; it knows numbers, not what they are of."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(slots=True)
class RunningError:
    """Statistics of the errors added so far. count: how many; squares: their sum of squares."""

    count: int = 0
    squares: float = 0.0
    _largest: float = 0.0

    @property
    def mean(self) -> float | None:
        """Root mean square; None where there is no error."""
        if not self.count:
            return None
        return min(math.sqrt(self.squares / self.count), self._largest)  # of equal errors the mean may be rounded up

    @property
    def largest(self) -> float | None:
        """The largest; None where there is no error."""
        return self._largest if self.count else None

    def add(self, error: float) -> None:
        """Add one error."""
        self.count += 1
        self.squares += error * error
        self._largest = max(self._largest, error)

    def merge(self, other: RunningError) -> None:
        """Add all errors of another."""
        self.count += other.count
        self.squares += other.squares
        self._largest = max(self._largest, other._largest)
