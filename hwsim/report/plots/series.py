"""Rows of a sweep as series of a plot: which column is along, which one up, and what tells the series apart.

The module knows tidy rows, {column: value}; it draws nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hwsim.analysis.inputs import words_of_draw
from hwsim.errors import InputError, nearest
from hwsim.request.declarations import OPERAND_DISTRIBUTION
from hwsim.studies.sweep_pool import RESULT_COLUMNS, UNDEFINED

PlotRow = Mapping[str, Any]
SIZE = "size"  # instead of a column: `size_of`
SIZES = ("m", "n", "k")
#: Columns that tell series apart, in the order in which a legend names them; further parameters follow.
TOLD_APART = ("device", "scheme", "format", OPERAND_DISTRIBUTION, "library", "accumulate", "output")
#: Columns that tell no series apart: repeated runs of one point, and the name of sizes that are columns themselves.
ASIDE = ("seed", "shape", *RESULT_COLUMNS)
MOST_PANELS = 12
FACTOR = re.compile(r"[0-9]*\.?[0-9]+(e-?[0-9]+)?x")


@dataclass(frozen=True, slots=True)
class PlotPoint:
    """A place along x, and the mean, least and largest y of the rows that have it."""

    x: float | str
    y: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PlotSeries:
    """The points of one line in order of x. colour, mark: the numbers of its look. panel: the panel that it is in."""

    label: str
    panel: str
    colour: int
    mark: int
    points: tuple[PlotPoint, ...]

    def slope(self, low: float = 0.0, high: float = math.inf) -> float | None:
        """The exponent p of y ~ x^p from place `low` to `high`, by least squares of the logarithms; None for fewer than
        two positive places.
        """
        pairs = [
            (math.log(point.x), math.log(point.y))
            for point in self.points
            if isinstance(point.x, float) and point.x > 0 and point.y > 0 and low <= point.x <= high
        ]
        if len({x for x, _ in pairs}) < 2:
            return None
        x_mean, y_mean = (sum(values) / len(pairs) for values in zip(*pairs, strict=True))
        spread = sum((x - x_mean) ** 2 for x, _ in pairs)
        return float(sum((x - x_mean) * (y - y_mean) for x, y in pairs) / spread)


def size_of(row: PlotRow) -> float:
    """The edge of a cube with as many multiply-accumulates: the cube root of m n k."""
    volume = float(row["m"] * row["n"] * row["k"])
    return math.cbrt(volume)


def series_of(rows: Iterable[PlotRow], x: str, y: str) -> list[PlotSeries]:
    """The series of the rows that have a value of y. x: a column, or "size" for `size_of`.

    Rows that differ in nothing but seed and results are one point. The device gives the colour, the scheme mark and
    dashes; what else differs takes the look that is left, and then a panel for each value. Raises InputError for a
    column that there is not, where no row has both x and y, and beyond MOST_PANELS panels.
    """
    listed = list(rows)
    columns = list(dict.fromkeys(name for row in listed for name in row))
    for name in (x, y):
        if name not in columns and not (name == SIZE and set(SIZES) <= set(columns)):
            known = [*columns, SIZE] if set(SIZES) <= set(columns) else columns
            raise InputError(f"no column {name!r}; there are {', '.join(known)}{nearest(name, known)}")
    shown = [row for row in listed if is_drawn(row, y) and (x == SIZE or row.get(x) is not None)]
    if not shown:
        if any(is_undefined(row, y) for row in listed):
            why = "elements of C are infinite or NaN, and the points have no error: take smaller operands"
        else:
            why = "were the points refused, or errors (exact: true) not asked for?"
        raise InputError(f"no row has both {x} and {y}: {why}")
    if wrong := next((row[y] for row in shown if isinstance(row[y], str | bool)), None):
        raise InputError(f"column {y} has {wrong!r}; up (y) goes a column of numbers")
    names = varying(shown, columns, x, y)
    roles = _roles(names, shown)
    panels = {_key(row, roles.panel): None for row in shown}
    if len(panels) > MOST_PANELS:
        told = " and ".join(roles.panel)
        raise InputError(f"{len(panels)} panels, one for each {told}; allowed: {MOST_PANELS}: draw fewer of them")
    colours, marks = (list(dict.fromkeys(_key(row, role) for row in shown)) for role in (roles.colour, roles.mark))
    grouped: dict[tuple[Any, ...], dict[float | str, list[float]]] = {}
    members: dict[tuple[Any, ...], list[PlotRow]] = {}
    is_factor = has_factors(shown, x)
    for row in shown:
        at = size_of(row) if x == SIZE else float(row[x].removesuffix("x")) if is_factor else _place(row[x])
        grouped.setdefault(_key(row, names), {}).setdefault(at, []).append(float(row[y]))
        members.setdefault(_key(row, names), []).append(row)
    series = []
    for key, places in grouped.items():
        values = dict(zip(names, key, strict=True))
        lined = [name for name in names if name not in roles.panel]
        series.append(
            PlotSeries(
                label=_told(values | _format_of(members[key]), lined),
                panel=_told(values | _format_of(shown), roles.panel),
                colour=colours.index(_key(values, roles.colour)),
                mark=marks.index(_key(values, roles.mark)),
                points=_points(places),
            )
        )
    return series


def is_drawn(row: PlotRow, y: str) -> bool:
    """Whether a row has a value of a column that a figure shows: no infinity, no NaN."""
    value = row.get(y)
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def is_undefined(row: PlotRow, y: str) -> bool:
    """Whether a row that ran has no finite value of a column: elements of C are infinite or NaN, or the error is."""
    is_nan = isinstance(row.get(y), float) and not is_drawn(row, y)
    return not row.get("refused") and (is_nan or (row.get(y) is None and bool(row.get(UNDEFINED))))


def has_factors(rows: Iterable[PlotRow], x: str) -> bool:
    """Whether all values of a column are factors of a number in a device file, as "0.5x"."""
    values = [row.get(x) for row in rows if row.get(x) is not None]
    return bool(values) and all(isinstance(value, str) and FACTOR.fullmatch(value) for value in values)


def varying(rows: Sequence[PlotRow], columns: Sequence[str], x: str, y: str) -> list[str]:
    """The parameters in which the rows differ beside x and y: those of TOLD_APART first. A format of the operands that
    is the format computed in is said once.
    """
    is_said = all(row.get("input_format") in (None, row.get("format")) for row in rows)
    aside = {x, y, *ASIDE, *(SIZES if x == SIZE else ()), *(("input_format",) if is_said else ())}
    names = [*TOLD_APART, *(name for name in columns if name not in TOLD_APART)]
    return [name for name in names if name not in aside and len({str(row.get(name)) for row in rows}) > 1]


def shared(rows: Iterable[PlotRow], *, apart: Sequence[str] = ()) -> list[str]:
    """What all rows have in common, for a title. apart: columns that the title does not name."""
    listed = list(rows)
    parts: list[str] = []
    for name in TOLD_APART:
        if any(row.get(name) is None for row in listed):
            continue  # it holds for some of the rows alone
        values = {value_text(name, row) for row in listed}
        parts += values if len(values) == 1 and name not in apart else []
    return parts


def value_text(name: str, row: PlotRow) -> str:
    """A row's value of a column for a legend: alone where it says what it is, else after the last part of its name."""
    value = row[name]
    if name == OPERAND_DISTRIBUTION:  # of a format it says what is drawn in that one
        return words_of_draw(str(value), str(row.get("memory_format")))
    return str(value) if name in TOLD_APART else f"{name.rpartition('.')[2]} {value}"


@dataclass(frozen=True, slots=True)
class _Roles:
    """The columns that give the colour, the mark, and the panel together."""

    colour: tuple[str, ...]
    mark: tuple[str, ...]
    panel: tuple[str, ...]


def _roles(names: Sequence[str], rows: Sequence[PlotRow]) -> _Roles:
    """The device gives the colour and the scheme the mark where both differ; one column alone gives both.

    A format that some schemes do not have belongs to the scheme, and so does a column with one value for each scheme.
    """
    rest = [name for name in names if name not in ("device", "scheme")]
    colour: tuple[str, ...] = ("device",) if "device" in names else ()
    mark: tuple[str, ...] = ("scheme",) if "scheme" in names else ()
    if mark and "format" in rest and any(row.get("format") is None for row in rows):
        rest.remove("format")
        mark = ("scheme", "format")
    if mark:
        of_scheme = [name for name in rest if _follows(name, "scheme", rows)]
        rest = [name for name in rest if name not in of_scheme]
        mark = (*mark, *of_scheme)
    if not mark and rest:
        mark = (rest.pop(0),)
    if not colour and rest:
        colour = (rest.pop(0),)
    return _Roles(colour or mark, mark or colour, tuple(rest))


def _follows(name: str, other: str, rows: Sequence[PlotRow]) -> bool:
    """Whether a column has one value for each value of another."""
    return len({_key(row, (other, name)) for row in rows}) == len({_key(row, (other,)) for row in rows})


def _key(row: PlotRow, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(_plain(row.get(name)) for name in names)


def _plain(value: Any) -> Any:
    """The value, as text where it is a list or a mapping."""
    return str(value) if isinstance(value, list | dict) else value


def _format_of(rows: Sequence[PlotRow]) -> dict[str, Any]:
    """The operands' format, as a column, where the rows have one."""
    formats = {row.get("memory_format") for row in rows}
    return {"memory_format": formats.pop()} if len(formats) == 1 else {}


def _told(values: PlotRow, names: Sequence[str]) -> str:
    return ", ".join(value_text(name, values) for name in names if values[name] is not None)


def _place(value: Any) -> float | str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else str(value)


def _points(places: Mapping[float | str, list[float]]) -> tuple[PlotPoint, ...]:
    """The points in order of x; text keeps the order of the rows."""
    order = list(places)
    numbers = [at for at in order if isinstance(at, float)]
    listed: list[float | str] = [*sorted(numbers), *(at for at in order if isinstance(at, str))]
    return tuple(PlotPoint(at, sum(ys) / len(ys), min(ys), max(ys)) for at, ys in ((at, places[at]) for at in listed))
