"""How many slices of K a GEMM is cut into where the caller leaves it to the estimate (split_k = "auto").

A library cuts K where C has too few tiles for the cores; each candidate is a kernel over all slices and the pass that
merges them. The count changes bits, so nothing is cut unless it is asked for. It knows estimates alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hwsim.libraries.model import SplitKModel

AUTO = "auto"


def best_split(
    k: int, estimate: Callable[[int], float], bound: Callable[[int], float], rules: SplitKModel
) -> tuple[int, float]:
    """The count with the least `estimate` (seconds), of equals the smaller, and that estimate over the one of no cut.

    k: elements. bound: seconds that no estimate of the count is below; counts whose bound rules them out are passed
    over, as an estimate weighs every tile of the family. rules: the library's counts and least slice.
    """
    whole = estimate(1)
    best = (whole, 1)
    for count in rules.counts[1:]:
        if k >= count * rules.min_slice and bound(count) < best[0]:
            best = min(best, (estimate(count), count))
    return best[1], best[0] / whole if whole else 1.0
