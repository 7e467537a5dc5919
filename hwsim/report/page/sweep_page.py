"""The page of a sweep: its points over axes that the reader picks, what was refused and why, and the table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hwsim.report.page.explorer import Explorer
from hwsim.report.page.page import Facts, Page, PageSection, Part, Table, Text
from hwsim.report.page.variants_part import variant_lead, variant_sections
from hwsim.report.text.sweep_text import columns_of, is_number_column, lead_lines, refusals, row_cells
from hwsim.report.text.words import count
from hwsim.result import plain

if TYPE_CHECKING:
    from hwsim.studies.sweep import SweepTable

MOST_ROWS, MOST_POINTS = 2000, 10_000
MOST_COLOURS = 12
#: What an axis says of a column; others keep their name.
TITLES = {
    "work": "work, 2 m n k (FLOP)",
    "cycles": "core clock cycles",
    "seconds": "time (s)",
    "tflops": "rate (TFLOP/s)",
    "peak_fraction": "share of the peak rate",
    "relative_frobenius": "relative error (Frobenius norm)",
    "max_relative": "largest relative error of one element",
    "joules": "energy (J)",
    "area_mm2": "area (mm2)",
    "m": "m, rows of C",
    "n": "n, columns of C",
    "k": "k, length of the sums",
}
#: Columns that no axis shows: reasons why something is missing.
NO_AXIS = ("refused", "timing_note", "cost_note")
SIZES = ("k", "m", "n")
NAMES_OF_SIZES = ("m", "n", "k", "shape")
REPEATS = ("seed",)  # parameters that repeat a point
ERROR = "relative_frobenius"


def sweep_page(table: SweepTable) -> Page:
    """The page of a sweep's table."""
    facts = [
        ("points", count(len(table.rows))),
        ("computed", count(table.computed)),
        ("from the cache", count(table.cached)),
        ("refused", count(table.refused)),
    ]
    return Page(
        f"Sweep: {table.title}" if table.title else "Sweep",
        [
            PageSection("Summary", "How many points there are.", [Facts(facts)]),
            *variant_sections(table),
            PageSection(
                "Points",
                "The points that ran. Pick axes, colours and marks; hover for what a point is.",
                _points(table),
            ),
            PageSection("Refused", "What the devices cannot run, and why.", _refused(table)),
            PageSection(
                "Table",
                "All columns, under the names of the CSV file; rows are in the order of the grid.",
                _table(table),
            ),
        ],
        plain(table.to_dict()),
        variant_lead(table) or lead_lines(table),
    )


def _points(table: SweepTable) -> list[Part]:
    rows = [row | {"work": _work(row)} for row in table.rows[:MOST_POINTS] if row.get("refused") is None]
    asked = table.parameters
    columns = [name for name in (*asked, "work", *table.columns[len(asked) :]) if name not in NO_AXIS]
    shown = {name: TITLES.get(name, name) for name in columns if any(row.get(name) is not None for row in rows)}
    y = next((name for name in (ERROR, "tflops", "cycles") if name in shown), "")
    if not y:
        return []
    varied = {name: len({str(row.get(name)) for row in rows}) for name in asked}
    numbers = [name for name in asked if all(isinstance(row.get(name), int | float | None) for row in rows)]
    along = [name for name in (*SIZES, *numbers) if name not in REPEATS]
    x = "k" if y == ERROR and varied.get("k", 0) > 1 else _swept(along, varied)
    x = x or ("device" if varied.get("device", 0) > 1 else "work")
    along_x = [name for name in NAMES_OF_SIZES if _follows(name, x, rows)]
    apart = [name for name in ("device", "scheme", *asked) if name not in (x, *REPEATS, *along_x)]
    left = [name for name in apart if 1 < varied.get(name, 0) <= MOST_COLOURS]
    colour, marks, facet = [*dict.fromkeys(left), "", "", ""][:3]
    explorer = Explorer(
        *(shown, rows, asked),
        x=x,
        y=y,
        colour=colour,
        marks=marks,
        facet=facet,
        repeats=REPEATS,
        sizes=NAMES_OF_SIZES,
    )
    parts: list[Part] = [explorer]
    beyond = len(table.rows) - MOST_POINTS
    return [*parts, Text(f"{count(beyond)} points beyond the first are not drawn.")] if beyond > 0 else parts


def _follows(name: str, x: str, rows: list[dict[str, Any]]) -> bool:
    """Whether a column has one value at each place of x."""
    return len({(str(row.get(x)), str(row.get(name))) for row in rows}) == len({str(row.get(x)) for row in rows})


def _swept(names: list[str], varied: dict[str, int]) -> str:
    """The column of numbers that the study varied most; of equals the first."""
    several = [name for name in names if varied.get(name, 0) > 1]
    return max(several, key=lambda name: varied[name], default="")


def _refused(table: SweepTable) -> list[Part]:
    """Reasons, each with how many points and for which devices and schemes."""
    rows = refusals(table)[:MOST_ROWS]
    return [Table(("refused", "device", "scheme", "reason"), rows)] if rows else []


def _table(table: SweepTable) -> list[Part]:
    columns = columns_of(table)
    right = [number for number, name in enumerate(columns.differing) if is_number_column(table, name)]
    rows = [row_cells(row, columns.differing) for row in table.rows[:MOST_ROWS]]
    parts: list[Part] = [Text(columns.same_text)] if columns.same_text else []
    parts.append(Table(columns.differing, rows, right=right, filter=True))
    left = len(table.rows) - len(rows)
    return [*parts, Text(f"{count(left)} more rows are left out; --out writes all of them.")] if left else parts


def _work(row: dict[str, Any]) -> float | None:
    sizes = [row.get(name) for name in "mnk"]
    return None if any(size is None for size in sizes) else 2.0 * math.prod(int(size or 0) for size in sizes)
