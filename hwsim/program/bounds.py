"""Minimum and maximum of affine expressions over the loops around an instruction.

Interval arithmetic comes first: it never misses a value, but treats quotients and remainders of one number as
independent. Where that matters, the values are enumerated: every combination of the variables that derived ones are
made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
from numpy.typing import NDArray

from hwsim.program.ir import Affine, Derived

Interval = tuple[int, int]
OUTSIDE: Interval = (1, 0)  # the empty range of a loop that is not around the instruction
POINTS = 1 << 22  # combinations looked at, at most


class Bounds:
    """Bounds of affine expressions. ranges: of the loop variables and CORE; a variable in neither these nor `derived`
    is a counter.
    """

    def __init__(self, ranges: Mapping[str, Interval], derived: Mapping[str, Derived]) -> None:
        self.ranges, self.derived = ranges, derived
        self.known: dict[str, Interval | None] = {}  # of derived variables
        self.inside: dict[str, bool] = {}  # the same: all loops that they depend on are around the instruction

    def is_around(self, loop: str) -> bool:
        """Whether the instruction is in the body of a loop."""
        return self.ranges.get(loop, OUTSIDE) != OUTSIDE

    def outside(self, affine: Affine) -> str | None:
        """The name of a loop in the expression that is not around the instruction, or None."""
        for name, _ in affine.terms:
            if not self._is_inside(name):
                break
        else:
            return None
        return next((name for name in sorted(self._base(affine)) if self.ranges.get(name) == OUTSIDE), None)

    def extremes(self, affine: Affine) -> Interval | None:
        """An interval that contains every value; None if the expression depends on a counter."""
        low = high = affine.constant
        for name, coefficient in affine.terms:
            interval = self._of(name)
            if interval is None:
                return None
            first, last = coefficient * interval[0], coefficient * interval[1]
            low += min(first, last)
            high += max(first, last)
        return low, high

    def exact(self, affine: Affine) -> Interval | None:
        """The minimum and maximum, exactly; None if they depend on a counter, or on more than POINTS combinations."""
        base = sorted(self._base(Affine(0, tuple(t for t in affine.terms if t[0] in self.derived))))
        spans = [self.ranges.get(name) for name in base]
        rest = self.extremes(
            Affine(affine.constant, tuple(t for t in affine.terms if t[0] not in self.derived and t[0] not in base))
        )
        known = [span for span in spans if span is not None]
        sizes = [last - first + 1 for first, last in known]
        if rest is None or len(known) < len(spans) or prod(sizes) > POINTS:
            return None
        axes = np.meshgrid(*(np.arange(first, last + 1) for first, last in known), indexing="ij", sparse=True)
        values: dict[str, NDArray[np.int64]] = dict(zip(base, axes, strict=True))
        for name, variable in self.derived.items():
            if self._base(variable.of) <= set(base):
                values[name] = _part(variable, _sum(variable.of, values))
        sums = _sum(Affine(0, tuple(t for t in affine.terms if t[0] in values)), values)
        return int(sums.min()) + rest[0], int(sums.max()) + rest[1]

    def _is_inside(self, name: str) -> bool:
        variable = self.derived.get(name)
        if variable is None:
            return self.ranges.get(name) != OUTSIDE
        if name not in self.inside:
            self.inside[name] = all(self._is_inside(other) for other, _ in variable.of.terms)
        return self.inside[name]

    def _of(self, name: str) -> Interval | None:
        variable = self.derived.get(name)
        if variable is None:
            return self.ranges.get(name)
        if name not in self.known:
            self.known[name] = self._of_derived(variable)
        return self.known[name]

    def _of_derived(self, variable: Derived) -> Interval | None:
        interval = self.extremes(variable.of)
        if variable.part == "remainder" and (
            interval is None or interval[0] // variable.divisor != interval[1] // variable.divisor
        ):
            return 0, variable.divisor - 1
        if interval is None:
            return None
        low, high = (divmod(end, variable.divisor)[variable.part == "remainder"] for end in interval)
        return low, high

    def _base(self, affine: Affine) -> set[str]:
        """The loops, counters and CORE that an expression depends on."""
        base: set[str] = set()
        for name, _ in affine.terms:
            base |= self._base(self.derived[name].of) if name in self.derived else {name}
        return base


def _sum(affine: Affine, values: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    total = np.array(affine.constant, np.int64)
    for name, coefficient in affine.terms:
        total = total + coefficient * values[name]
    return total


def _part(variable: Derived, of: NDArray[np.int64]) -> NDArray[np.int64]:
    return of // variable.divisor if variable.part == "quotient" else of % variable.divisor
