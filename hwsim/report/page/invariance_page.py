"""The page of the classes of batch sizes: for which m a row has the same bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hwsim.report.page.figures import axis, figure
from hwsim.report.page.page import Code, Page, PageSection, Part, Plot, Table
from hwsim.report.page.style import OTHER, PALETTE
from hwsim.report.text.words import count

MOST_RUNS = 5000  # drawn


def invariance_page(title: str, text: str, classes: Sequence[Mapping[str, Any]]) -> Page:
    """The page of classes, each as `hwsim invariance --json` gives it. text: the verb's report."""
    rows = [
        (
            str(number),
            count(entry["count"]),
            f"{count(entry['m'][0][0])} to {count(entry['m'][-1][1])}",
            "; ".join(f"{choice['kernel']}, {choice['split_k']} slices of K" for choice in entry["kernels"]),
            "known" if entry["known"] else "not known",
            "yes" if entry["equal_rows"] else "no",
            f"{entry['confidence']:.2f}",
            f"{entry['least_confidence']:.2f}",
        )
        for number, entry in enumerate(classes, 1)
    ]
    head = (
        *("class", "values of m", "m from, to", "kernels", "order of summation", "all rows alike"),
        *("probability, average", "least"),
    )
    return Page(
        title,
        [
            PageSection("Summary", "Which batch sizes share their bits, and what to do about it.", [Code(text)]),
            PageSection("Classes over m", "Each line is a run of values of m of one class.", _lines(classes)),
            PageSection(
                "Classes", "Probability: of the kernel being the one named.", [Table(head, rows, (0, 1, 6, 7))]
            ),
        ],
    )


def _lines(classes: Sequence[Mapping[str, Any]]) -> list[Part]:
    traces = []
    drawn = 0
    for number, entry in enumerate(classes, 1):
        runs = entry["m"][: max(MOST_RUNS - drawn, 0)]
        drawn += len(runs)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"class {number}",
                "x": [m for first, last in runs for m in (first, last, None)],
                "y": [y for _ in runs for y in (str(number), str(number), None)],
                "line": {"width": 5, "color": PALETTE[(number - 1) % len(PALETTE)] if entry["known"] else OTHER},
                "marker": {"size": 5},
                "hovertemplate": f"class {number}: m = %{{x}}<extra></extra>",
            }
        )
    names = [str(number) for number in range(len(classes), 0, -1)]
    look = figure(
        traces,
        axis("m, the batch size (rows)"),
        axis("class", type="category", categoryorder="array", categoryarray=names),
        showlegend=False,
    )
    return [Plot(look, min(140 + 28 * len(classes), 1200), "classes over m")]
