"""Nearly the same K: what a library answered for weights of the same n stands for one that it was not asked about.

It knows where along K nvjet's slices change, and how often such an answer is right; no file, no tree and no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hwsim.library_calls.calls import ELEMENT_BYTES, LINE_BYTES, VECTOR_BYTES
from hwsim.library_calls.orders import NVJET
from hwsim.library_calls.sweeps import Recorded, Sweep

#: Tiles of K: where K passes whole 20 of them the number of slices changes, and hardly between.
SPAN_TILES = 20
#: Shares of such answers that have the library's slices, the fewest of any kind of call on an H100 and an H200, each
#: recorded weight by the others (tools/library/neighbours.py): of two neighbours that agree, one below and one above;
#: of a single one, by how many tiles of K it is away at most.
BOTH_RIGHT = 0.9997
ONE_RIGHT = {4: 0.9947, 10: 0.9886}


class Near(NamedTuple):
    """An answer of the weights beside one. neighbours: 1 or 2. tiles: of K, to the nearer one."""

    answer: Recorded
    neighbours: int
    tiles: float

    @property
    def confidence(self) -> float:
        """The probability that it has the library's slices; 0 where it is too far away to say."""
        if self.neighbours == 2:
            return BOTH_RIGHT
        return next((share for tiles, share in ONE_RIGHT.items() if self.tiles <= tiles), 0.0)


def near(sweep: Sweep, operand: str, sizes_m: Sequence[int], n: int, k: int) -> list[Near | None]:
    """For each m the answer for the nearest k of the same n in the same span, on either side of this one.

    None where there is none, where the two differ, and where the kernel is another than nvjet's. `k` itself does not
    count. operand: format; k, n: elements.
    """
    element = ELEMENT_BYTES[operand]
    tile = LINE_BYTES // element
    span = SPAN_TILES * tile
    first = (k - 1) // span * span
    beside = [one for one in sweep.beside(n, k) if one is not None and first < one <= first + span]
    if not beside or k * element % VECTOR_BYTES:  # rows that nvjet does not load
        return [None] * len(sizes_m)
    tiles = min(abs(one - k) for one in beside) / tile
    columns = [sweep.at(sizes_m, n, one) for one in beside]
    return [_joined(answers, tiles) for answers in zip(*columns, strict=True)]


def _joined(answers: Sequence[Recorded | None], tiles: float) -> Near | None:
    one = answers[0]
    if one is None or one[0] != NVJET or any(other != one for other in answers):
        return None
    return Near(one, len(answers), tiles)
