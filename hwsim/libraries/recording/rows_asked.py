"""Along m: which numbers of rows to ask a library for, so that hardly a change of its answer is missed.

It knows numbers alone; nothing of libraries, and nothing of hwsim, whose tools load it by its path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TypeVar

#: (largest m, step) of the grid; beyond the last the last step.
STEPS = ((64, 1), (1024, 8), (2048, 16), (8192, 64))

Found = TypeVar("Found")


def grid(first: int, last: int) -> list[int]:
    """The m from first to last that are asked for whatever comes out: each to 64, of larger ones multiples of a step
    and what comes after them, and both ends."""
    rows, start = {first, last}, 1
    for place, (until, step) in enumerate(STEPS):
        stop = last if place == len(STEPS) - 1 else min(until, last)
        begin = max(start, first)
        multiples = range(-(-begin // step) * step, stop + 1, step)
        rows.update(multiples)
        rows.update(m + 1 for m in multiples if m < stop)
        if begin % step == 1 and begin <= stop:
            rows.add(begin)
        start = until + 1
    return sorted(rows)


def runs(ask: Callable[[int], Found], points: Iterable[int]) -> Iterator[tuple[int, Found]]:
    """(first m, answer) of each run of equal answers along m: at the points, and by bisection between two that differ.

    points: ascending. Each m is asked for once.
    """
    seen = {m: ask(m) for m in points}
    for left, right in pairwise(tuple(seen)):
        intervals = [(left, right)]
        while intervals:
            a, b = intervals.pop()
            if seen[a] != seen[b] and b - a > 1:
                middle = (a + b) // 2
                seen[middle] = ask(middle)
                intervals += [(a, middle), (middle, b)]
    previous: Found | None = None
    for m in sorted(seen):
        if seen[m] != previous:
            yield m, seen[m]
            previous = seen[m]
