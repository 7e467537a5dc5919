"""The page of a sweep: its points as plots, and the table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hwsim.report.page.figures import axis, figure
from hwsim.report.page.page import Facts, Page, PageSection, Part, Plot, Table, Text
from hwsim.report.page.style import PALETTE
from hwsim.report.text.words import count

if TYPE_CHECKING:
    from hwsim.studies.sweep import SweepTable

MOST_ROWS, MOST_POINTS = 2000, 10_000
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star")
SERIES = ("device", "scheme")  # a colour each for the first, a symbol for each round of the colours
MOST_SERIES = len(PALETTE) * len(SYMBOLS)
#: Pairs of columns that are plotted where rows have both: (x, its title, y, its title).
PAIRS = (
    ("work", "work, 2 m n k (FLOP)", "tflops", "rate (TFLOP/s)"),
    ("tflops", "rate (TFLOP/s)", "relative_frobenius", "relative error (Frobenius norm)"),
)


def sweep_page(table: SweepTable) -> Page:
    """The page of a sweep's table."""
    facts = [
        ("points", count(len(table.rows))),
        ("computed", count(table.computed)),
        ("from the cache", count(table.cached)),
        ("refused", f"{count(table.refused)}; the column `refused` says why"),
    ]
    return Page(
        f"Sweep: {table.title}" if table.title else "Sweep",
        [
            PageSection("Summary", "How many points there are.", [Facts(facts)]),
            PageSection("Points", "Each point that ran; hover for what it is. Click a name to hide it.", _plots(table)),
            PageSection("Table", "All columns, in the order of the grid.", _table(table)),
        ],
    )


def _plots(table: SweepTable) -> list[Part]:
    rows = [row | {"work": _work(row)} for row in table.rows[:MOST_POINTS]]
    parts: list[Part] = []
    for x, x_title, y, y_title in PAIRS:
        points = [row for row in rows if _is_positive(row.get(x)) and _is_positive(row.get(y))]
        if points:
            look = figure(_series(points, x, y), axis(x_title, type="log"), axis(y_title, type="log"), showlegend=True)
            look["layout"]["legend"] = {"orientation": "v", "x": 1.02, "y": 1}
            parts.append(Plot(look, 460, f"{y_title} against {x_title}"))
    left = len(table.rows) - len(rows)
    return (
        [*parts, Text(f"{count(left)} points beyond the first {count(MOST_POINTS)} are not drawn.")] if left else parts
    )


def _series(points: Sequence[dict[str, Any]], x: str, y: str) -> list[dict[str, Any]]:
    """One trace for each device and scheme, those beyond MOST_SERIES in one."""
    grouped: dict[str, list[dict[str, Any]]] = {}
    for row in points:
        name = ", ".join(str(row[column]) for column in SERIES if row.get(column) is not None)
        grouped.setdefault(name if name in grouped or len(grouped) < MOST_SERIES else "others", []).append(row)
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": [row[x] for row in rows],
            "y": [row[y] for row in rows],
            "text": [_said(row) for row in rows],
            "hovertemplate": "%{text}<extra></extra>",
            "marker": {
                "color": PALETTE[number % len(PALETTE)],
                "symbol": SYMBOLS[number // len(PALETTE) % len(SYMBOLS)],
                "size": 9,
            },
        }
        for number, (name, rows) in enumerate(grouped.items())
    ]


def _table(table: SweepTable) -> list[Part]:
    columns = [name for name in table.columns if any(row.get(name) is not None for row in table.rows)]
    right = [
        number
        for number, name in enumerate(columns)
        if all(isinstance(row.get(name), int | float | None) for row in table.rows)
    ]
    rows = [[_cell(row.get(name)) for name in columns] for row in table.rows[:MOST_ROWS]]
    parts: list[Part] = [Table(columns, rows, right=right, filter=True)]
    left = len(table.rows) - len(rows)
    return [*parts, Text(f"{count(left)} more rows are left out; --out writes all of them.")] if left else parts


def _work(row: dict[str, Any]) -> float | None:
    sizes = [row.get(name) for name in "mnk"]
    return None if any(size is None for size in sizes) else 2.0 * math.prod(int(size or 0) for size in sizes)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0


def _said(row: dict[str, Any]) -> str:
    return "<br>".join(f"{name} {_cell(value)}" for name, value in row.items() if value is not None)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.5g}"
    return count(value) if isinstance(value, int) and not isinstance(value, bool) else str(value)
