"""The critical path of a trace: back from the last instruction, each time to the one that the start waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CLOSE = 1e-6  # cycles


@dataclass(frozen=True, slots=True)
class CriticalStep:
    """An instruction on the path: index of its row, and the cycles from its start to that of the next one (of the
    last: to its end).
    """

    index: int
    cycles: float


def critical_path(rows: NDArray[Any]) -> list[CriticalStep]:
    """The path through the rows (TRACE_DTYPE) of one core and kernel, in order of time.

    An instruction that started when its engine came free waited for the one before it on the engine; another one for
    the instruction whose signal ended its wait; where none did, it waited for its issue, which follows the one that
    its stream issued last before it. The steps' cycles add up to the time from the first one's start to the last end.
    """
    if not len(rows):
        return []
    place = {number: index for index, number in enumerate(rows["number"].tolist())}
    before = _before_on_engine(rows)
    order = np.argsort(rows["issue"], kind="stable")
    issued = np.empty(len(rows), np.int64)
    issued[order] = np.concatenate([[-1], order[:-1]])
    start, free, signaller = (rows[name] for name in ("start", "free", "signaller"))
    index, until = int(rows["end"].argmax()), float(rows["end"].max())
    steps = []
    seen: set[int] = set()
    while index >= 0 and index not in seen:
        seen.add(index)
        begin = float(start[index])
        steps.append(CriticalStep(index, until - begin))
        until = begin
        last = int(before[index])
        if last >= 0 and abs(float(free[last]) - begin) < CLOSE:
            index = last
        elif int(signaller[index]) in place:
            index = place[int(signaller[index])]
        else:
            index = last if last >= 0 else int(issued[index])
        while index >= 0 and float(start[index]) > until:
            index = int(issued[index])
    return steps[::-1]


def _before_on_engine(rows: NDArray[Any]) -> NDArray[np.int64]:
    """For each row, the row before it on its engine; -1 for the first."""
    before = np.full(len(rows), -1, np.int64)
    order = np.lexsort((rows["start"], rows["engine"]))
    same = rows["engine"][order][1:] == rows["engine"][order][:-1]
    before[order[1:][same]] = order[:-1][same]
    return before
