"""Nearly the same K: what a library answered for weights of the same n stands for one that it was not asked about.

Where along K nvjet's slices change, and how often such an answer is right, is data (`neighbours` of
configs/libraries/*.version.yaml). It knows answers; no file, no tree and no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from hwsim.libraries.cublas.answers.sweeps import Recorded, Sweep
from hwsim.libraries.cublas.calls import ELEMENT_BYTES, LINE_BYTES, VECTOR_BYTES
from hwsim.libraries.cublas.orders.families import NVJET

if TYPE_CHECKING:
    from hwsim.libraries.model.version_model import NeighbourSharesModel, NeighboursModel


class NeighbourAnswer(NamedTuple):
    """An answer of the weights beside one. neighbours: 1 or 2. tiles: of K, to the nearer one. confidence: the
    probability that it has the library's slices; 0 where it is too far away to say.
    """

    answer: Recorded
    neighbours: int
    tiles: float
    confidence: float


def near(
    model: NeighboursModel, sweep: Sweep, operand: str, sizes_m: Sequence[int], n: int, k: int
) -> list[NeighbourAnswer | None]:
    """For each m the answer for the nearest k of the same n in the same span, on either side of this one.

    None where there is none, where the two differ, and where the kernel is another than nvjet's. `k` itself does not
    count. operand: format; k, n: elements.
    """
    element = ELEMENT_BYTES[operand]
    tile = LINE_BYTES // element
    span = model.span_tiles * tile
    first = (k - 1) // span * span
    beside = [near_k for near_k in sweep.beside(n, k) if near_k is not None and first < near_k <= first + span]
    if not beside or k * element % VECTOR_BYTES:  # rows that nvjet does not load
        return [None] * len(sizes_m)
    tiles = min(abs(near_k - k) for near_k in beside) / tile
    columns = [sweep.at(sizes_m, n, near_k) for near_k in beside]
    sure = _confidence(model.right, len(beside), tiles)
    return [_joined(answers, tiles, sure) for answers in zip(*columns, strict=True)]


def _confidence(right: NeighbourSharesModel, neighbours: int, tiles: float) -> float:
    """That of so many neighbours, the nearer one so many tiles of K away."""
    if neighbours == 2:
        return right.both
    return next((share for most, share in right.one if tiles <= most), 0.0)


def _joined(answers: Sequence[Recorded | None], tiles: float, confidence: float) -> NeighbourAnswer | None:
    answer = answers[0]
    if answer is None or answer[0] != NVJET or any(other != answer for other in answers):
        return None
    return NeighbourAnswer(answer, len(answers), tiles, confidence)
