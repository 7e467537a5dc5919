"""What the engines of one core do over time, as text: engines are rows, time goes to the right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.report.text.words import percent

if TYPE_CHECKING:
    from hwsim.trace.rows import TraceRows

STEPS = 12
LEAST_COLUMNS, MOST_COLUMNS = 20, 200
SHADES = " .-=#"  # idle; busy up to a quarter, a half, three quarters of the cell's time, more
LEGEND = "busy in a cell: # over 3/4, = over 1/2, - over 1/4, . less"


def gantt_text(trace: TraceRows, width: int, window: tuple[float, float] | None = None) -> str:
    """Three charts of the longest kernel on the core that takes longest, in lines of `width` characters (where that is
    at least some 60, and at most some 220): all of it; its first tiles, from the start; and as long a time in the
    middle, the steady state.

    The last two are as long as the busiest engine takes for STEPS instructions on average. window: from and to in
    cycles, where the trace is of a part of the run; the first chart is of that part then.
    """
    if not len(trace):
        return "no instruction in this part of the trace"
    number, core = longest(trace)
    rows = trace.rows[(trace.rows["kernel"] == number) & (trace.rows["core"] == core)]
    first, last = float(rows["issue"].min()), float(rows["end"].max())
    name = "whole"
    if window is not None:
        first, last, name = max(first, window[0]), min(last, window[1]), "part"
    busy = np.bincount(rows["engine"], rows["free"] - rows["start"])
    span = (last - first) * STEPS / int((rows["engine"] == busy.argmax()).sum())
    charts = [(name, first, last)]
    if last - first >= 2 * span:
        middle = (first + last) / 2
        charts += [("first tiles", first, first + span), ("steady", middle - span / 2, middle + span / 2)]
    kernels = [trace.names["kernel"][kernel] for kernel in np.unique(trace.rows["kernel"]).tolist()]
    of = f", the longest of {', '.join(kernels)}" if len(kernels) > 1 else ""
    lines = [f"kernel {trace.names['kernel'][number]}{of}; core {core}", LEGEND]
    for name, start, end in charts:
        lines += ["", *_chart(rows, trace.names["engine"], name, start, end, width)]
    return "\n".join(lines)


def longest(trace: TraceRows) -> tuple[int, int]:
    """Kernel and core with the longest time from the first start to the last end."""
    spans: dict[tuple[int, int], tuple[float, float]] = {}
    for part in trace.blocks(1 << 16):
        for key in np.unique(part.rows[["kernel", "core"]]).tolist():
            core_rows = part.rows[(part.rows["kernel"] == key[0]) & (part.rows["core"] == key[1])]
            start, end = spans.get(key, (np.inf, 0.0))
            spans[key] = min(start, float(core_rows["start"].min())), max(end, float(core_rows["end"].max()))
    return max(spans, key=lambda key: (spans[key][1] - spans[key][0], -key[0], -key[1]))


def _chart(rows: NDArray[Any], engines: tuple[str, ...], name: str, start: float, end: float, width: int) -> list[str]:
    present = np.unique(rows["engine"]).tolist()
    margin = max(len(engines[engine]) for engine in present)
    of_engine = {engine: rows[rows["engine"] == engine] for engine in present}
    whole = np.array([start, end])
    labels = {
        engine: percent(float(np.diff(_busy_until(engine_rows, whole))[0] / (end - start)))
        for engine, engine_rows in of_engine.items()
    }
    columns = min(max(width - margin - 4 - max(6, *map(len, labels.values())), LEAST_COLUMNS), MOST_COLUMNS)
    edges = np.linspace(start, end, columns + 1)
    cell = (end - start) / columns
    lines = [f"{name}: cycles {start:,.0f} to {end:,.0f}, a cell is {cell:,.{0 if cell >= 100 else 2}f}"]
    for engine in present:
        busy = np.diff(_busy_until(of_engine[engine], edges))
        shares = np.clip(busy / cell, 0.0, 1.0)
        cells = "".join(SHADES[int(np.ceil(share * 4 - 1e-9))] for share in shares)
        lines.append(f"{engines[engine]:<{margin}} |{cells}| {labels[engine]:>5}")
    return lines


def _busy_until(rows: NDArray[Any], times: NDArray[np.float64]) -> NDArray[np.float64]:
    """How long an engine was busy before each time, in cycles; its rows do not overlap, and are in order."""
    begins, spent = rows["start"], rows["free"] - rows["start"]
    before = np.concatenate([[0.0], np.cumsum(spent)])
    index = np.searchsorted(begins, times, side="right")
    inside = np.minimum(times - begins[np.maximum(index - 1, 0)], spent[np.maximum(index - 1, 0)])
    busy: NDArray[np.float64] = np.where(index > 0, before[np.maximum(index - 1, 0)] + inside, 0.0)
    return busy
