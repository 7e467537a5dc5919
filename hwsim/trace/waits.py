"""The waits of a trace, summed by engine and by what was waited for. It knows rows; it knows no file format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hwsim.trace.rows import TraceRows


@dataclass(frozen=True, slots=True)
class TraceWait:
    """The waits of an engine for one thing, on the cores of a trace: how many, and their cycles.

    waited_for: the semaphore, or another cause; "" where the row names none. longest_cycles: of one wait; number: of
    the instruction that it delayed, by `number` of the rows; from_cycle: where that wait began.
    """

    engine: str
    waited_for: str
    count: int
    cycles: float
    longest_cycles: float
    number: int
    from_cycle: float


def waits_of(trace: TraceRows) -> list[TraceWait]:
    """The waits, the most cycles first.

    An instruction waits from when it is in its queue and its engine is free until it starts.
    """
    rows = trace.rows
    order = np.lexsort((rows["start"], rows["engine"], rows["core"]))
    core, engine, cause = (rows[name][order] for name in ("core", "engine", "waited_for"))
    ready, start = rows["issue"][order].copy(), rows["start"][order]
    follows = (core[1:] == core[:-1]) & (engine[1:] == engine[:-1])
    ready[1:] = np.where(follows, np.maximum(ready[1:], rows["free"][order][:-1]), ready[1:])
    cycles, number = start - ready, rows["number"][order]
    waits = []
    for of_engine, of_cause in sorted({*zip(engine[cycles > 0].tolist(), cause[cycles > 0].tolist(), strict=True)}):
        [places] = np.nonzero((cycles > 0) & (engine == of_engine) & (cause == of_cause))
        longest = places[cycles[places].argmax()]
        waits.append(
            TraceWait(
                engine=trace.names["engine"][of_engine],
                waited_for="" if of_cause < 0 else trace.names["waited_for"][of_cause],
                count=len(places),
                cycles=float(cycles[places].sum()),
                longest_cycles=float(cycles[longest]),
                number=int(number[longest]),
                from_cycle=float(ready[longest]),
            )
        )
    return sorted(waits, key=lambda wait: (-wait.cycles, wait.engine, wait.waited_for))
