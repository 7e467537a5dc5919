"""Series of a sweep as lines over an axis: one panel or several, bands of seeds, bound lines, slopes.

The module knows series and axes; it knows no column of a sweep beyond those that a caller names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any

from hwsim.errors import InputError
from hwsim.formats import format_of
from hwsim.report.plot_style import GUIDE, LINES, PlotPanels, line_style, new_panels
from hwsim.report.plots.bounds import error_bound
from hwsim.report.plots.series import (
    SIZE,
    PlotRow,
    PlotSeries,
    has_factors,
    is_undefined,
    series_of,
    shared,
    size_of,
    value_text,
    varying,
)

ERROR = "relative_frobenius"
ERRORS = (ERROR, "max_relative")
SEED = "seed"
#: What a column is, with its unit; another one is called by its name.
AXIS_LABELS: Mapping[str, str] = {
    "k": "K, products in each dot product",
    "m": "m, rows of C",
    "n": "n, columns of C",
    SIZE: "size, cube root of m n k",
    "exponent": "binary exponent that A's elements are scaled by",
    ERROR: "error, Frobenius norm, relative to the exact product",
    "max_relative": "largest relative error of an element",
    "tflops": "TFLOP/s",
    "cycles": "cycles of the core clock",
    "seconds": "time, s",
    "peak_fraction": "share of the peak rate",
    "joules": "energy, J",
    "area_mm2": "area, mm2",
}
#: A short name of a column for a title.
SHORT: Mapping[str, str] = {
    ERROR: "Error",
    "max_relative": "Largest error",
    "tflops": "Rate",
    "k": "K",
    "exponent": "A's exponent",
    "seconds": "Time",
    "joules": "Energy",
    "area_mm2": "Area",
    "peak_fraction": "Share of the peak",
}
TITLE_LETTERS = 60  # in a line
WIDE = 8.0  # largest over smallest place, from which an axis is logarithmic
DOUBLED = 2.0  # the same, where a logarithmic error is drawn over K: its law is a line
LEAST_SPAN = 4.0  # of a logarithmic axis: below, its places have equal labels
LINEAR = ("tflops", "peak_fraction")
DEPTH = ("k", SIZE)  # axes along which K grows


def over(
    rows: Iterable[PlotRow],
    x: str,
    y: str,
    *,
    title: str = "",
    bounds: Sequence[str] = (),
    bound_format: str = "fp32",
    slopes: bool | tuple[float, float] = False,
) -> Any:
    """Figure: column y of a sweep's rows over column x (or "size", the cube root of m n k), a line for each series.

    Colours tell devices apart, marks and dashes schemes; further parameters that differ give panels. Several seeds of a
    point are its mean, with a band from the least to the largest. bounds: lines to compare with, such as "K u",
    "3 sqrt(K) u" or "2^-16", where u is the unit roundoff of bound_format; K is x. slopes: the exponent p of y ~ x^p in
    the legend, of all places, or of the ones from the first to the second number. Points that were refused, or are
    infinite or NaN, are named below. Raises InputError as `hwsim.report.plots.series.series_of`, and for an unknown
    bound.
    """
    listed = list(rows)
    series = series_of(listed, x, y)
    fixed = ", ".join(
        [
            *shared([row for row in listed if not row.get("refused")], apart=(x,)),
            *(_operands(listed) if y in ERRORS else []),
            *_sizes(listed, x),
            *([] if x == SEED else _seeds(listed)),
        ]
    )
    heading = title or f"{_name(y)} over {_name(x)}"
    names = list(dict.fromkeys(line.panel for line in series))
    of_file = ", times the file's" if has_factors(listed, x) else ""
    panels = new_panels("\n".join([heading, *wrap(fixed, TITLE_LETTERS)]), _label(x) + of_file, _label(y), names)
    colours, marks = max(line.colour for line in series), max(line.mark for line in series)
    is_one_column = all(line.colour == line.mark for line in series)
    for line in series:
        above = (colours - line.colour, 0 if is_one_column else marks - line.mark)
        look = line_style(line.colour, line.mark, above)
        _draw(panels.axes[names.index(line.panel)], line, look, slopes)
    is_log = _scale(panels.axes, series, x, y)
    _draw_bounds(panels, series, x, bounds, bound_format, has_slopes=bool(slopes))
    if is_log:
        _widen(panels.axes[0])
    zeros = _zeros(series) if is_log else ""
    notes = equal_lines(series), zeros, undefined(listed, x, y), left_out(listed, y)
    return panels.finish("\n".join(note for note in notes if note))


def undefined(rows: Sequence[PlotRow], x: str, y: str) -> str:
    """One sentence on the points that are infinite or NaN: who they are, and where. Empty where there is none."""
    rows_without = [row for row in rows if is_undefined(row, y)]
    names = varying(rows, list(dict.fromkeys(name for row in rows for name in row)), x, y)
    places: dict[str, dict[str, None]] = {}
    for row in rows_without:
        who = ", ".join(value_text(name, row) for name in names if row.get(name) is not None) or "all"
        at = f"{size_of(row) if x == SIZE else row.get(x)}"
        places.setdefault(who, {})[at] = None
    told = "; ".join(f"{who} at {', '.join(at)}" for who, at in places.items())
    return f"not drawn, infinite or NaN: {told}" if told else ""


def left_out(rows: Sequence[PlotRow], y: str) -> str:
    """One sentence on the points without a value: who they are. Empty where there is none."""
    refused = [row for row in rows if row.get("refused")]
    names = varying(rows, ("device", "scheme", "format"), "", y)
    told = dict.fromkeys(", ".join(str(row[name]) for name in names if row.get(name) is not None) for row in refused)
    return f"not drawn, refused: {'; '.join(name or 'some points' for name in told)}" if refused else ""


def equal_lines(series: Sequence[PlotSeries]) -> str:
    """One sentence on the lines of a panel that are equal, the later one over the wider one. Empty where none are."""
    first: dict[tuple[object, ...], str] = {}
    told = []
    for line in series:
        key = (line.panel, *line.points)
        if key in first:
            told.append(f"{line.label} = {first[key]}{f' ({line.panel})' if line.panel else ''}")
        first.setdefault(key, line.label)
    return f"equal lines, one over the other: {'; '.join(told)}" if told else ""


def _draw(axes: Any, line: PlotSeries, look: dict[str, Any], slopes: bool | tuple[float, float]) -> None:
    between = slopes if isinstance(slopes, tuple) else (0.0, math.inf)
    slope = line.slope(*between) if slopes else None
    of_part = f" from {between[0]:g} to {between[1]:g}" if isinstance(slopes, tuple) else ""
    label = line.label + (f"{', ' if line.label else ''}slope {slope:.2f}{of_part}" if slope is not None else "")
    xs, ys = [point.x for point in line.points], [point.y for point in line.points]
    if any(isinstance(x, str) for x in xs):
        look["linestyle"] = ""
        xs = [str(x) for x in xs]
    axes.plot(xs, ys, label=label, **look)
    lows, highs = [point.low for point in line.points], [point.high for point in line.points]
    if lows != highs:
        axes.fill_between(xs, lows, highs, color=look["color"], alpha=0.18, linewidth=0)


def _scale(panels: Sequence[Any], series: Sequence[PlotSeries], x: str, y: str) -> bool:
    """Choose linear or logarithmic axes, the same for all panels; whether y is logarithmic."""
    xs = [point.x for line in series for point in line.points if isinstance(point.x, float)]
    ys = [point.y for line in series for point in line.points]
    positive = [value for value in ys if value > 0]
    is_error = y in ERRORS
    spreads = min(ys) > 0 and max(ys) / min(ys) >= WIDE and y not in LINEAR
    is_log = bool(positive) and min(ys) >= 0 and (is_error or spreads)
    wide = DOUBLED if x in DEPTH and is_log else WIDE
    for axes in panels:
        if xs and min(xs) > 0 and max(xs) / min(xs) >= wide:
            axes.set_xscale("log", base=2 if all(x == int(x) for x in xs) or min(xs) >= 1 else 10)
        elif xs and all(x == int(x) for x in xs):
            axes.xaxis.get_major_locator().set_params(integer=True)
        if is_log:
            axes.set_yscale("log", nonpositive="mask")
    if not is_log and min(ys) >= 0:
        panels[0].set_ylim(bottom=0)  # the others share it
    return is_log


def _widen(axes: Any) -> None:
    """Give a logarithmic y axis its least span, around what is drawn; panels share it."""
    low, high = axes.get_ylim()
    if high / low < LEAST_SPAN:
        factor = math.sqrt(LEAST_SPAN * low / high)
        axes.set_ylim(low / factor, high * factor)


def _zeros(series: Sequence[PlotSeries]) -> str:
    """One sentence on the points at 0, which a logarithmic axis does not show."""
    told = []
    for line in series:
        places = [f"{point.x:g}" if isinstance(point.x, float) else point.x for point in line.points if point.y == 0]
        if places:
            told.append(
                f"{', '.join(part for part in (line.label, line.panel) if part) or 'all'} at {', '.join(places)}"
            )
    return f"exactly 0, not drawn: {'; '.join(told)}" if told else ""


def _draw_bounds(
    panels: PlotPanels,
    series: Sequence[PlotSeries],
    x: str,
    bounds: Sequence[str],
    bound_format: str,
    *,
    has_slopes: bool,
) -> None:
    places = sorted({point.x for line in series for point in line.points if isinstance(point.x, float)})
    for number, bound in enumerate(bounds):
        line = error_bound(bound)
        if line.power and x not in DEPTH:
            raise InputError(
                f"bound {bound!r} grows with K; the axis is {x}: take 'u', or an axis of {', '.join(DEPTH)}"
            )
        bits = format_of(bound_format).precision
        label = f"{bound}, u = 2^-{bits} ({bound_format})" if line.has_roundoff else bound
        label += f", slope {line.power:.2f}" if has_slopes else ""
        for axes in panels.axes:
            axes.plot(
                places,
                [line.at(place, math.ldexp(1.0, -bits)) for place in places],
                label=label,
                linestyle=LINES[1 + number % (len(LINES) - 1)],
                **GUIDE,
            )


def _label(column: str) -> str:
    return AXIS_LABELS.get(column, column)


def _name(column: str) -> str:
    """The short name of a column, or the last part of a path."""
    return SHORT.get(column, column.rpartition(".")[2].replace("_", " "))


def _sizes(rows: Sequence[PlotRow], x: str) -> list[str]:
    """The sizes that all rows share, where they are not the axis."""
    if x == SIZE:
        return []
    fixed = {name: {row.get(name) for row in rows} - {None} for name in ("m", "n", "k")}
    return [f"{name} = {next(iter(values))}" for name, values in fixed.items() if len(values) == 1 and name != x]


def _operands(rows: Sequence[PlotRow]) -> list[str]:
    """The formats in which A and B were, where rows say it."""
    formats = dict.fromkeys(str(row["memory_format"]) for row in rows if row.get("memory_format") is not None)
    return [f"A and B in {' and '.join(formats)}"] if formats else []


def _seeds(rows: Sequence[PlotRow]) -> list[str]:
    count = len({row.get(SEED) for row in rows} - {None})
    return [f"mean and range of {count} seeds"] if count > 1 else []
