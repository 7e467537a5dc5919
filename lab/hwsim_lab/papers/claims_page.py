"""The page of claims: verdicts by paper and by kind, every claim with what was measured, figures of the series."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

from hwsim.report.page.figures import Figure, axis, figure
from hwsim.report.page.page import Page, PageSection, Part, Plot, Table, Text
from hwsim.report.page.style import PALETTE
from hwsim.result import plain
from hwsim_lab.papers.claims import Kind
from hwsim_lab.papers.experiment import Series
from hwsim_lab.papers.reproduce import ClaimOutcome, Reproduction
from hwsim_lab.papers.reproduce_text import VERDICTS, numbers_text

BAR_PX, LEAST_PX = 34, 200


def claims_page(title: str, found: Reproduction) -> Page:
    """The page of a reproduction."""
    outcomes = found.outcomes
    papers = list(dict.fromkeys(one.paper for one in outcomes))
    kinds = [kind for kind in get_args(Kind) if any(one.claim.kind == kind for one in outcomes)]
    sections = [
        PageSection(
            "Verdicts",
            "holds: as the paper says; order: its ranking or direction alone; fails: neither.",
            [
                _counts("paper", {name: [x for x in outcomes if x.paper == name] for name in papers}),
                _counts("kind of claim", {name: [x for x in outcomes if x.claim.kind == name] for name in kinds}),
                Text(
                    "Definitions and most designs hold because hwsim follows the paper: they show agreement. Bits, "
                    "errors and times come out."
                ),
            ],
        ),
        PageSection("Claims", "What the paper states, its numbers, and what was measured.", [_table(outcomes)]),
        PageSection(
            "Notes",
            "What was run otherwise than the paper's setting says, and why a claim fails where that is known.",
            [Table(("claim", "verdict", "note"), [(x.id, x.verdict, x.note) for x in outcomes if x.note], filter=True)],
        ),
    ]
    for paper, series in found.series.items():
        plots = [part for one in series if one.x and one.y for part in _plot(one)]
        if plots:
            sections.append(PageSection(f"Figures of {paper}", "The series that the verdicts rest on.", plots))
    data = {"claims": [one.to_dict() for one in outcomes]}
    counts = Counter(one.verdict for one in outcomes)
    said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    lead = f"{len(outcomes)} claims: {said}"
    return Page(title, sections, plain(json.loads(json.dumps(data, default=str))), [lead])


def _counts(what: str, groups: dict[str, list[ClaimOutcome]]) -> Plot:
    """Stacked bars: claims of each group by verdict."""
    names = list(groups)[::-1]
    counts = {name: Counter(one.verdict for one in own) for name, own in groups.items()}
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": verdict,
            "y": names,
            "x": [counts[name][verdict] for name in names],
            "text": [str(counts[name][verdict] or "") for name in names],
            "marker": {"color": PALETTE[index % len(PALETTE)]},
        }
        for index, verdict in enumerate(VERDICTS)
    ]
    look = figure(data, axis("claims"), axis(what, type="category"), barmode="stack")
    return Plot(look, max(LEAST_PX, 130 + BAR_PX * len(names)), f"claims by verdict and {what}")


def _table(outcomes: Sequence[ClaimOutcome]) -> Table:
    rows = [
        (
            one.id,
            one.claim.item,
            one.claim.kind,
            one.claim.stated,
            numbers_text(one.claim.paper),
            numbers_text(one.measured),
            one.verdict,
        )
        for one in outcomes
    ]
    return Table(("claim", "item", "kind", "stated", "paper", "hwsim", "verdict"), rows, filter=True)


def _plot(series: Series) -> list[Part]:
    assert series.x is not None and series.y is not None
    x, y = series.columns[series.x], series.columns[series.y]
    across, up = (axis(name, **({"type": "log"} if letter in series.log else {})) for name, letter in
                  ((series.x, "x"), (series.y, "y")))  # fmt: skip
    look = _map(series, across, up) if series.value is not None else figure(_lines(series, x, y), across, up)
    return [Text(series.name), Plot(look, 420, f"{series.name}: {series.y} over {series.x}")]


def _lines(series: Series, x: Sequence[Any], y: Sequence[Any]) -> list[dict[str, Any]]:
    """A trace for each value of the column `by`: bars over names, else lines with markers."""
    by = series.columns[series.by] if series.by else [""] * len(x)
    is_names = any(isinstance(one, str) for one in x)
    traces = []
    for index, name in enumerate(dict.fromkeys(by)):
        own = [i for i, other in enumerate(by) if other == name]
        colour = PALETTE[index % len(PALETTE)]
        kind: dict[str, Any] = {"type": "bar"} if is_names else {"type": "scatter", "mode": "lines+markers"}
        traces.append(
            kind
            | {"name": str(name), "x": [x[i] for i in own], "y": [_number(y[i]) for i in own]}
            | {"marker": {"color": colour, "symbol": index % 8} if not is_names else {"color": colour}}
            | {"showlegend": bool(series.by)}
        )
    return traces


def _map(series: Series, across: dict[str, Any], up: dict[str, Any]) -> Figure:
    assert series.x is not None and series.y is not None and series.value is not None
    cell: dict[str, Any] = {
        "type": "heatmap",
        "x": list(series.columns[series.x]),
        "y": list(series.columns[series.y]),
        "z": [_number(value) for value in series.columns[series.value]],
        "colorscale": "Cividis",
        "colorbar": {"title": {"text": series.value, "side": "right"}},
        "hoverongaps": False,
    }
    return figure([cell], across, up)


def _number(value: Any) -> float | None:
    """A value that JSON holds; None for text and for what is not finite."""
    if not isinstance(value, int | float) or value != value or abs(value) == float("inf"):
        return None
    return float(value)
