"""Selects the number of split-K slices by estimated time (split_k = "auto").

A library uses split-K where C has too few tiles for the cores; each candidate is a kernel over all slices and a merge
pass. The number changes bits, so it is 1 unless requested. The module knows estimates only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hwsim.libraries.model.kernels import SplitKModel

AUTO = "auto"


def best_split(
    k: int, estimate: Callable[[int], float], bound: Callable[[int], float], rules: SplitKModel
) -> tuple[int, float]:
    """The number of slices with the least `estimate` (seconds; ties: the smaller number), and that estimate relative to
    no split.

    k: elements. bound: a lower bound in seconds for each number; numbers whose bound rules them out are skipped,
    because an estimate evaluates every tile of the family. rules: the library's counts and minimum slice length.
    """
    whole = estimate(1)
    best = (whole, 1)
    for count in rules.counts[1:]:
        if k >= count * rules.min_slice and bound(count) < best[0]:
            best = min(best, (estimate(count), count))
    return best[1], best[0] / whole if whole else 1.0
