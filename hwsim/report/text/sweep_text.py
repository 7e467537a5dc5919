"""A sweep's table as text: the best points in words, what all rows share, the columns that differ, and refusals."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hwsim.report.text.words import cell_text, count, facts, plural, table

if TYPE_CHECKING:
    from hwsim.studies.sweep import SweepTable

MOST_ROWS = 40  # of the text; --out and the page have more
MOST_REASONS = 10


@dataclass(frozen=True, slots=True)
class SweptColumns:
    """The columns with any value. same: {name: value} of those that are equal in every row that ran; differing: the
    others. all_ran: whether no row is refused.
    """

    same: dict[str, Any]
    differing: tuple[str, ...]
    all_ran: bool

    @property
    def same_text(self) -> str:
        """The equal columns as a sentence; empty where there is none."""
        listed = ", ".join(f"{name} {shown(value)}" for name, value in self.same.items())
        return f"In every row{'' if self.all_ran else ' that ran'}: {listed}." if listed else ""


def columns_of(sweep: SweepTable) -> SweptColumns:
    """Which columns tell rows apart."""
    rows = sweep.rows
    filled = [name for name in sweep.columns if any(row.get(name) is not None for row in rows)]
    ran = [row for row in rows if row.get("refused") is None] or rows  # a refused one lacks results
    same = {
        name: ran[0].get(name)
        for name in filled
        if len(rows) > 1
        and name != "refused"
        and len({str(row.get(name)) for row in ran}) == 1
        and {str(row.get(name)) for row in rows} <= {str(ran[0].get(name)), "None"}
    }
    return SweptColumns(same, tuple(name for name in filled if name not in same), len(ran) == len(rows))


def shown(value: Any) -> str:
    """A value in a cell."""
    return "" if value is None else cell_text(value)


def row_cells(row: dict[str, Any], names: tuple[str, ...]) -> list[str]:
    """The cells of a row; the reason of a refusal is told apart from the table."""
    return ["refused" if name == "refused" and row.get(name) else shown(row.get(name)) for name in names]


def is_number_column(sweep: SweepTable, name: str) -> bool:
    """Whether a column has numbers alone."""
    return all(isinstance(row.get(name), int | float | None) for row in sweep.rows)


def lead_lines(sweep: SweepTable) -> list[str]:
    """The fastest and the most accurate point, in words."""
    lines = []
    for name, words, least in (("tflops", "fastest", False), ("relative_frobenius", "most accurate", True)):
        rows = [row for row in sweep.rows if _is_positive(row.get(name))]
        if len(rows) > 1:
            best = (min if least else max)(rows, key=lambda row: float(row[name]))
            varied = [column for column in sweep.parameters if len({str(row.get(column)) for row in sweep.rows}) > 1]
            point = ", ".join(f"{column} {shown(best[column])}" for column in varied if best.get(column) is not None)
            number = f"{best[name]:.3e}" if least else f"{best[name]:,.4g} TFLOP/s"
            lines.append(f"{words}: {point}: {number}")
    return lines


def refusals(sweep: SweepTable) -> list[tuple[str, str, str, str]]:
    """(points, devices, schemes, reason) of each reason, the most frequent first."""
    refused = [row for row in sweep.rows if row.get("refused") is not None]
    listed = []
    for reason, number in Counter(str(row["refused"]) for row in refused).most_common():
        of_reason = [row for row in refused if str(row["refused"]) == reason]
        devices, schemes = (
            ", ".join(dict.fromkeys(str(row[column]) for row in of_reason)) for column in ("device", "scheme")
        )
        listed.append((plural(number, "point"), devices, schemes, reason))
    return listed


def sweep_text(sweep: SweepTable) -> str:
    """The table, up to MOST_ROWS rows."""
    columns, rows = columns_of(sweep), sweep.rows[:MOST_ROWS]
    pairs = [("best" if i == 0 else "", line) for i, line in enumerate(lead_lines(sweep))]
    pairs.append(("points", f"{sweep.counts}{f'; {sweep.title}' if sweep.title else ''}"))
    pairs += [("", columns.same_text)] if columns.same_text else []
    lines = facts(pairs)
    right = [number for number, name in enumerate(columns.differing) if is_number_column(sweep, name)]
    lines += ["", *table([row_cells(row, columns.differing) for row in rows], columns.differing, right=right)]
    if len(rows) < len(sweep.rows):
        lines.append(f"  {count(len(sweep.rows) - len(rows))} more rows: sweep(..., out=FILE.csv) writes all of them")
    reasons = refusals(sweep)
    lines += ["", "refused"] if reasons else []
    for points, devices, schemes, reason in reasons[:MOST_REASONS]:
        lines += facts([(points, f"{schemes} on {devices}: {reason}")], indent="  ")
    if len(reasons) > MOST_REASONS:
        lines.append(f"  {count(len(reasons) - MOST_REASONS)} more reasons, in column refused")
    return "\n".join(lines)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0
