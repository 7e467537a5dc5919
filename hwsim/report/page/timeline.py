"""The engines of one core over time, and the chain of waits that gives the time, from a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError
from hwsim.report.page.critical_path import critical_path
from hwsim.report.page.figures import axis, figure
from hwsim.report.page.page import Part, Plot, Table, Text
from hwsim.report.page.style import PALETTE
from hwsim.report.text.gantt import longest
from hwsim.report.text.words import count, percent, plural

if TYPE_CHECKING:
    from hwsim.result import Result
    from hwsim.trace.rows import TraceRows

STEPS = 24  # instructions of the busiest engine in a chart
MOST_EVENTS = 1500  # of a chart
MOST_TRACED = 500_000  # instructions of a program that are traced whole, or timed again for each of its parts
HOVER = ("opcode", "label", "array", "waited_for")


def timeline_parts(result: Result) -> list[Part]:
    """Charts of the first tiles and the steady state of the longest kernel on the core that takes longest."""
    if result.times.timed is None:
        return []
    trace = _traced(result)
    if trace is None or not len(trace):
        return [_too_many(result)]
    number, core = longest(trace)
    rows = trace.rows[(trace.rows["kernel"] == number) & (trace.rows["core"] == core)]
    first, last = float(rows["issue"].min()), float(rows["end"].max())
    busy = np.bincount(rows["engine"], rows["free"] - rows["start"])
    span = (last - first) * STEPS / int((rows["engine"] == busy.argmax()).sum())
    charts = [("all of it", first, last)]
    if last - first >= 2 * span:
        middle = (first + last) / 2
        charts = [("first tiles", first, first + span), ("steady state", middle - span / 2, middle + span / 2)]
    parts: list[Part] = [
        Text(f"Kernel {trace.names['kernel'][number]}, core {core}, {plural(len(rows), 'instruction')}.")
    ]
    for name, start, end in charts:
        parts += _chart(trace, rows, name, start, end)
    return parts


def critical_parts(result: Result) -> list[Part]:
    """Where the time of the critical path goes, by engine and operation."""
    if result.times.timed is None:
        return []
    trace = _traced(result)
    if trace is None or not len(trace):
        return [_too_many(result)]
    number, core = longest(trace)
    rows = trace.rows[(trace.rows["kernel"] == number) & (trace.rows["core"] == core)]
    steps = critical_path(rows)
    total = sum(step.cycles for step in steps) or 1.0
    sums: dict[tuple[str, ...], tuple[int, float]] = {}
    for step in steps:
        row = rows[step.index]
        key = tuple(_name(trace, row, field) for field in ("engine", "opcode", "label"))
        amount, cycles = sums.get(key, (0, 0.0))
        sums[key] = amount + 1, cycles + step.cycles
    table = [
        (*key, count(amount), f"{cycles:,.0f}", percent(cycles / total))
        for key, (amount, cycles) in sorted(sums.items(), key=lambda item: -item[1][1])
    ]
    kernel = trace.names["kernel"][number]
    says = (
        f"Kernel {kernel}, core {core}: {plural(len(steps), 'instruction')} of {count(len(rows))}, {total:,.0f} cycles."
    )
    head = ("engine", "operation", "what", "instructions", "cycles", "share")
    return [Text(says), Table(head, table, right=(3, 4, 5))]


def _traced(result: Result) -> TraceRows | None:
    """The trace, where the program is not too long for a page."""
    assert result.times.timed is not None
    try:
        return result.trace if result.times.timed.instructions <= MOST_TRACED else None
    except InputError:
        return None


def _too_many(result: Result) -> Text:
    assert result.times.timed is not None
    return Text(
        f"Left out: the program has {plural(result.times.timed.instructions, 'instruction')}, a page traces at most "
        f"{count(MOST_TRACED)}. `hwsim run --trace run.pftrace --trace-core 0 --trace-to CYCLES` writes a part of them."
    )


def _name(trace: TraceRows, row: Any, field: str) -> str:
    number = int(row[field])
    return trace.names[field][number] if number >= 0 else ""


def _chart(trace: TraceRows, rows: NDArray[Any], name: str, start: float, end: float) -> list[Part]:
    """One chart of the instructions that an engine is at between two times; the first MOST_EVENTS of them."""
    inside = rows[(rows["free"] > start) & (rows["start"] < end)]
    inside = inside[np.argsort(inside["start"], kind="stable")]
    shown = inside[:MOST_EVENTS]
    engines = [trace.names["engine"][number] for number in np.unique(shown["engine"])][::-1]
    traces = []
    for place, number in enumerate(np.unique(shown["opcode"]).tolist()):
        of_opcode = shown[shown["opcode"] == number]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": trace.names["opcode"][number],
                "base": of_opcode["start"].tolist(),
                "x": (of_opcode["free"] - of_opcode["start"]).tolist(),
                "y": [trace.names["engine"][engine] for engine in of_opcode["engine"].tolist()],
                "marker": {"color": PALETTE[place % len(PALETTE)], "line": {"width": 0.5, "color": "#888888"}},
                "customdata": [_hover(trace, row) for row in of_opcode],
                "hovertemplate": "%{customdata}<extra>%{y}</extra>",
            }
        )
    left = len(inside) - len(shown)
    says = f"{name}: cycles {start:,.0f} to {end:,.0f}, {plural(len(shown), 'instruction')}"
    says += f"; {count(left)} more are left out" if left else ""
    look = figure(
        traces,
        axis("time (cycles of the core)", range=[start, end], tickformat=",.0f"),
        axis("engine", categoryorder="array", categoryarray=engines),
        barmode="overlay",
        bargap=0.25,
        showlegend=True,
    )
    return [Text(f"{says[0].upper()}{says[1:]}."), Plot(look, 150 + 32 * len(engines), f"timeline, {name}")]


def _hover(trace: TraceRows, row: Any) -> str:
    names = {field: _name(trace, row, field) for field in HOVER}
    tile = f"{names['array'] or 'tile'} ({row['tile_row']}, {row['tile_col']})"
    waited = f"<br>waited for {names['waited_for']}" if names["waited_for"] else ""
    return (
        f"{names['opcode']} {names['label']} {tile}<br>{row['start']:,.1f} to {row['free']:,.1f}, complete at "
        f"{row['end']:,.1f}{waited}"
    )
