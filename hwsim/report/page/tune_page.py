"""The page of a search over mappings: the best, and the landscape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwsim.report.page.figures import axis, figure
from hwsim.report.page.page import Page, PageSection, Part, Plot, Table, Text
from hwsim.report.text.tune_text import heat, named_points
from hwsim.report.text.words import count

if TYPE_CHECKING:
    from hwsim.studies.tune import Landscape, TunedPoint

MOST_ROWS = 2000


def tune_page(landscape: Landscape, title: str) -> Page:
    """The page of a search. title: scheme, device and shape."""
    named = named_points(landscape)
    timed = sorted(
        (point for point in landscape.points if point.cycles is not None),
        key=lambda point: (point.cycles if landscape.objective == "cycles" else point.hbm_bytes) or 0,
    )
    refused = len(landscape.points) - len(timed)
    says = f"{count(len(timed))} configurations timed, {count(refused)} not legal."
    says += "" if landscape.complete else " The search stopped at its budget."
    what = "cycles" if landscape.objective == "cycles" else "traffic of HBM"
    return Page(
        f"Search: {title}",
        [
            PageSection(
                "Summary",
                f"The configuration of least {what}, or the choice of the formula that was asked for, beside others.",
                [_table(named), Text(says)],
            ),
            PageSection(
                "Landscape",
                f"By the tile's m and n: {what} of the best configuration of all, over those of the best one with this "
                "tile; 100 % is the best.",
                _landscape(landscape),
            ),
            PageSection(
                "Configurations",
                f"Those timed, best first (at most {count(MOST_ROWS)}).",
                [_table([(str(i + 1), point) for i, point in enumerate(timed[:MOST_ROWS])], filter=True)],
            ),
        ],
    )


def _landscape(landscape: Landscape) -> list[Part]:
    rows, columns, shares = heat(landscape)
    if len(shares) < 2:
        return []
    cells = [[None if (m, n) not in shares else 100 * shares[m, n] for n in columns] for m in rows]
    trace: dict[str, Any] = {
        "type": "heatmap",
        "z": cells,
        "x": [str(n) for n in columns],
        "y": [str(m) for m in rows],
        "colorscale": "Cividis",
        "colorbar": {"title": {"text": "% of the best", "side": "right"}},
        "texttemplate": "%{z:.0f}",
        "hovertemplate": "tile m %{y}, n %{x}: %{z:.1f} % of the best<extra></extra>",
    }
    x, y = axis("n of the tile (elements)", type="category"), axis("m of the tile (elements)", type="category")
    return [Plot(figure([trace], x, y), 200 + 30 * len(rows), "landscape of tiles")]


def _table(points: list[tuple[str, TunedPoint]], *, filter: bool = False) -> Table:
    rows = [(name, point.row()) for name, point in points]
    names = dict.fromkeys(key for _, row in rows for key, value in row.items() if value not in (None, ""))
    right = [
        1 + number
        for number, key in enumerate(names)
        if all(isinstance(row.get(key), int | float | None) for _, row in rows)
    ]
    body = [(name, *(_cell(row.get(key)) for key in names)) for name, row in rows]
    return Table(("", *names), body, right=right, filter=filter)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.5g}"
    return count(value) if isinstance(value, int) and not isinstance(value, bool) else str(value)
