"""A sweep's table as text: the best points in words, what all rows share, the columns that differ, and refusals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from hwsim.formats import format_of
from hwsim.report.text.words import cell_text, count, duration, facts, plural, table
from hwsim.request.declarations import DEFAULT_SCHEME, OPERAND_DISTRIBUTION

if TYPE_CHECKING:
    from hwsim.studies.sweep import SweepTable

MOST_ROWS = 40  # of the text; --out and the page have more
MOST_REASONS = 10
MOST_SHAPES = 4  # whose best points are named
ALIKE = 0.01  # errors of points so near have no best one
SEED, SIZES = "seed", ("m", "n", "k")
MEMORY_FORMAT = "memory_format"
OF_OPERANDS = (OPERAND_DISTRIBUTION, MEMORY_FORMAT)  # columns that say which operands a row has, beside its sizes
SECONDS, NOTE = "seconds", "timing_note"


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


def _text_cells(row: dict[str, Any], names: tuple[str, ...], notes: list[str]) -> list[str]:
    """The cells of a row for a terminal: times with their unit, and the numbers of notes, which stand below."""
    cells = dict(zip(names, row_cells(row, names), strict=True))
    if cells.get(SECONDS):
        cells[SECONDS] = duration(float(row[SECONDS]))
    if cells.get(NOTE):
        cells[NOTE] = str(notes.index(str(row[NOTE])) + 1)
    return list(cells.values())


def is_number_column(sweep: SweepTable, name: str) -> bool:
    """Whether a column has numbers alone."""
    return all(isinstance(row.get(name), int | float | None) for row in sweep.rows)


def lead_lines(sweep: SweepTable) -> list[str]:
    """The fastest and the most accurate point of each shape, in words, and what errors contain beside the arithmetic's.

    Seeds of a point count as their mean. Points of one shape whose errors differ by less than ALIKE have no best one;
    nor have rows of different problems, as a warning says.
    """
    accurate = [] if sweep.warnings else _best_lines(sweep, "relative_frobenius")
    return [*_best_lines(sweep, "tflops"), *accurate, *_rounded(sweep), *sweep.warnings]


def _best_lines(sweep: SweepTable, name: str) -> list[str]:
    """The best points in a column: the highest rates, or the smallest errors."""
    is_error = name == "relative_frobenius"
    words = "most accurate" if is_error else "fastest"
    apart = (*SIZES, *OF_OPERANDS) if is_error else SIZES  # which operands there are is no choice
    shapes: dict[tuple[Any, ...], list[tuple[float, dict[str, Any]]]] = {}
    for row in _means(sweep, name):
        shapes.setdefault(tuple(row.get(side) for side in apart), []).append((float(row[name]), row))
    if sum(len(points) for points in shapes.values()) < 2:
        return []
    columns = (*sweep.parameters, MEMORY_FORMAT)
    varied = [column for column in columns if len({str(row.get(column)) for row in sweep.rows}) > 1]
    aside = (SEED, *apart, MEMORY_FORMAT, "shape", *(("input_format",) if is_error else ()))
    lines = []
    for points in islice(shapes.values(), MOST_SHAPES):
        value, best = (min if is_error else max)(points, key=lambda point: point[0])
        equal = [row for other, row in points if other == value]
        others = [
            column for column in varied if column not in aside and len({str(row.get(column)) for row in equal}) == 1
        ]
        at = [column for column in varied if column in (*apart, "shape") and best.get(column) is not None]
        shape = f" at {', '.join(f'{column} {shown(best[column])}' for column in at)}" if at else ""
        number = f"{value:.3e}" if is_error else f"{value:,.4g} TFLOP/s"
        point = ", ".join(f"{column} {shown(best[column])}" for column in others if best.get(column) is not None)
        if is_error and len(points) > 1 and max(other for other, _ in points) < (1 + ALIKE) * value:
            lines.append(f"{words}{shape}: none, all {len(points)} points are within {100 * ALIKE:.0f} % of {number}")
        else:
            lines.append(f"{words}{shape}: {f'{point}: ' if point else ''}{number}")
    left = len(shapes) - MOST_SHAPES
    return [*lines, f"{words} at {plural(left, 'more shape')}: in the table"] if left > 0 else lines


def _means(sweep: SweepTable, name: str) -> Iterator[dict[str, Any]]:
    """The rows with a positive value of a column; rows that differ in their seed alone are one, with the mean."""
    apart = [column for column in sweep.parameters if column != SEED]
    points: dict[str, list[dict[str, Any]]] = {}
    for row in sweep.rows:
        if _is_positive(row.get(name)):
            points.setdefault(str([row.get(column) for column in apart]), []).append(row)
    for rows in points.values():
        yield rows[0] | {name: sum(float(row[name]) for row in rows) / len(rows)}


def _rounded(sweep: SweepTable) -> list[str]:
    """That errors contain a rounding of the operands, where a format was asked for and they are in a wider one."""
    rows = [
        row for row in sweep.rows if row.get("relative_frobenius") is not None and row.get("scheme") == DEFAULT_SCHEME
    ]
    formats = dict.fromkeys(
        (str(row[MEMORY_FORMAT]), str(row["chosen_format"]))
        for row in rows
        if row.get("chosen_format")
        and not format_of(str(row["chosen_format"])).has_numbers_of(format_of(str(row[MEMORY_FORMAT])))
    )
    return [
        f"errors contain the rounding of operands from {wide} to {narrow}, and times the cast; "
        f"input_format: {narrow} (--input-format) leaves both out"
        for wide, narrow in islice(formats, 1)
    ]


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
    notes = list(dict.fromkeys(str(row[NOTE]) for row in rows if row.get(NOTE))) if NOTE in columns.differing else []
    cells = [_text_cells(row, columns.differing, notes) for row in rows]
    lines += ["", *table(cells, columns.differing, right=right)]
    if len(rows) < len(sweep.rows):
        left = count(len(sweep.rows) - len(rows))
        lines.append(f"  {left} more rows: --out FILE.csv (in Python out=) writes all of them")
    lines += ["", "notes", *facts([(str(i), note) for i, note in enumerate(notes, 1)], indent="  ")] if notes else []
    reasons = refusals(sweep)
    lines += ["", "refused"] if reasons else []
    for points, devices, schemes, reason in reasons[:MOST_REASONS]:
        lines += facts([(points, f"{schemes} on {devices}: {reason}")], indent="  ")
    if len(reasons) > MOST_REASONS:
        lines.append(f"  {count(len(reasons) - MOST_REASONS)} more reasons, in column refused")
    return "\n".join(lines)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0
