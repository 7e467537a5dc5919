"""The trace of a part of a timed run: its program is timed again, with rows.

It knows times and what part of a trace is asked for; it does not know what the program computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from hwsim.errors import InputError
from hwsim.machines import timing
from hwsim.machines.trace_rows import TraceWindow
from hwsim.trace.trace import Trace

if TYPE_CHECKING:
    from hwsim.analysis.program_times import Times
    from hwsim.machines.element_steps import ElementStep


def traced(
    times: Times,
    core: int | None = None,
    from_cycle: float = 0.0,
    to_cycle: float | None = None,
    values: Callable[[], Mapping[tuple[int, ...], Sequence[ElementStep]] | None] = lambda: None,
) -> Trace | None:
    """The trace of a part of the run that `times` is of; None without a program.

    core: the rows of this core, or of the one that stands for it (None: of one core of each kind). from_cycle,
    to_cycle: instructions complete at the first or later, and started before the second (None: the end), in cycles
    from the start of the run. values: gives the instructions of elements, for a trace from cycle 0 on. Raises
    InputError for a core that the program does not use, for a time below 0 or an empty interval, and where there are
    more than Trace.LIMIT instructions.
    """
    if times.program is None or times.chip is None or times.timed is None:
        return None
    last = math.inf if to_cycle is None else to_cycle
    if not 0 <= from_cycle < last:
        raise InputError(f"trace from cycle {from_cycle} to {to_cycle}: allowed: 0 <= from < to")
    window = TraceWindow(core, from_cycle, last)
    if times.timed.instructions > Trace.LIMIT:
        counted = timing.run_in(times.program, times.chip, times.l2, trace=1, window=window).trace
        assert counted is not None
        if counted.events > Trace.LIMIT:
            raise InputError(
                f"trace of {counted.events:,} instructions: allowed: {Trace.LIMIT:,}; take one core (--trace-core, "
                f"core=) or a part of the {times.cycles:,} cycles (--trace-from and --trace-to, from_cycle= and "
                "to_cycle=)"
            )
    timed = timing.run_in(times.program, times.chip, times.l2, trace=Trace.LIMIT, window=window)
    return Trace.of(timed, times.chip, (None if from_cycle else values()) or {})
