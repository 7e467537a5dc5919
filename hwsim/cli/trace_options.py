"""The options --trace, --trace-core, --trace-from, --trace-to and --gantt of verbs that time a program.

The module knows the options and traces; it does not know what was timed.
"""

from __future__ import annotations

import argparse
import math
import shutil
from collections.abc import Callable

from hwsim.errors import InputError
from hwsim.report.text.gantt import gantt_text
from hwsim.report.text.words import plural
from hwsim.trace.trace import Trace, check_suffix

Traced = Callable[[int | None, float, float | None], Trace | None]


def check_trace(arguments: argparse.Namespace) -> None:
    """Refuse options that do not go together, and a suffix that is none of a trace."""
    if arguments.trace is not None:
        check_suffix(arguments.trace)
    elif not arguments.gantt:
        for option in ("trace-core", "trace-from", "trace-to"):
            if getattr(arguments, option.replace("-", "_")) is not None:
                raise InputError(f"--{option}: there is no trace; give --trace FILE or --gantt")
    if arguments.gantt and arguments.json:
        raise InputError("--gantt is text: leave out --json")


def trace_asked_for(arguments: argparse.Namespace, traced: Traced) -> Trace:
    """The trace of the part that the options name. traced: of a core, from a cycle on, to a cycle."""
    trace = traced(arguments.trace_core, arguments.trace_from or 0, arguments.trace_to)
    assert trace is not None  # else the run would have been refused
    return trace


def gantt_asked_for(arguments: argparse.Namespace, traced: Traced) -> str:
    """The Gantt of the whole run; of the trace's part of it where the whole has more rows than a trace may have."""
    width, window = shutil.get_terminal_size().columns, (arguments.trace_from, arguments.trace_to)
    try:
        whole = traced(arguments.trace_core, 0.0, None)
    except InputError:
        if window == (None, None):
            raise
        begin, end = (0.0 if window[0] is None else window[0], math.inf if window[1] is None else window[1])
        return gantt_text(trace_asked_for(arguments, traced), width, (begin, end))
    assert whole is not None  # else the run would have been refused
    return gantt_text(whole, width)


def most_waited(trace: Trace) -> str:
    """The wait with the most cycles, as the end of a sentence; empty where nothing waits."""
    waits = trace.waits()
    if not waits:
        return ""
    most = waits[0]
    return (
        f"; most waited: {most.engine} for {most.waited_for or 'its turn'}, {most.cycles:,.0f} cycles in "
        f"{plural(most.count, 'wait')}, the longest of {most.longest_cycles:,.0f} before instruction {most.number}"
    )
