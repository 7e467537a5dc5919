"""Rows of a sweep as lines of a plot: which column is along, which one up, and what tells the lines apart.

The module knows tidy rows, {column: value}; it draws nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from hwsim.errors import InputError

PlotRow = Mapping[str, Any]
#: Columns that tell lines apart, in the order in which a legend names them.
TOLD_APART = ("device", "scheme", "format", "library", "accumulate", "output")


def size_of(row: PlotRow) -> float:
    """The edge of a cube with as many multiply-accumulates: the cube root of m n k."""
    volume = float(row["m"] * row["n"] * row["k"])
    return math.cbrt(volume)


def lines_of(rows: Iterable[PlotRow], x: str, y: str) -> dict[str, list[tuple[float, float]]]:
    """{name: points in order of x} of the rows that have a value of y. x: a column, or "size" for `size_of`.

    Several rows with one x (seeds) give their mean. Raises InputError where no row has both.
    """
    listed = [row for row in rows if row.get(y) is not None and (x == "size" or row.get(x) is not None)]
    if not listed:
        raise InputError(
            f"no row has both {x} and {y}: were the points refused, or errors (exact: true) not asked for?"
        )
    names = [name for name in TOLD_APART if len({str(row.get(name)) for row in listed}) > 1]
    values: dict[str, dict[float, list[float]]] = {}
    for row in listed:
        label = ", ".join(str(row[name]) for name in names if row.get(name) is not None) or str(row.get("scheme", ""))
        at = size_of(row) if x == "size" else float(row[x])
        values.setdefault(label, {}).setdefault(at, []).append(float(row[y]))
    return {
        label: [(at, sum(values) / len(values)) for at, values in sorted(points.items())]
        for label, points in values.items()
    }


def shared(rows: Iterable[PlotRow]) -> str:
    """What all rows have in common, for a title."""
    listed = list(rows)
    parts: list[str] = []
    for name in TOLD_APART:
        values = {str(row[name]) for row in listed if row.get(name) is not None}
        parts += values if len(values) == 1 else []
    return ", ".join(parts)
