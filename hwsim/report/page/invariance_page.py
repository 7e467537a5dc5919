"""The page of the classes of batch sizes: for which m a row has the same bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from hwsim.report.page.figures import axis, figure
from hwsim.report.page.page import Page, PageSection, Part, Plot, Table, Text
from hwsim.report.page.style import OTHER, PALETTE
from hwsim.report.text.library_text import kernel_text
from hwsim.report.text.words import count

MOST_RUNS = 5000  # drawn
#: How sure a kernel is, from the least probability on.
SURENESS = (
    (1.0, "for sure"),
    (0.9, "very likely"),
    (0.5, "uncertainly"),
    (0.0, "hardly: it is more likely another one"),
)


def invariance_page(title: str, lead: Sequence[str], advice: Sequence[str], answer: Mapping[str, Any]) -> Page:
    """The page of an answer, as `hwsim invariance --json` gives it.

    lead: how many classes there are, and the caveat. advice: what to do for equal bits, a sentence each.
    """
    classes = answer["classes"]
    rows = [
        (
            str(number),
            count(entry["count"]),
            span,
            "; ".join(
                kernel_text(choice["kernel"], choice["split_k"], choice["working_slices"])
                for choice in entry["kernels"]
            ),
            known_text(entry["known"], entry["least_confidence"]),
            "yes" if entry["equal_rows"] else "no",
            f"{entry['confidence']:.2f}",
            f"{entry['least_confidence']:.2f}",
        )
        for number, (entry, span) in enumerate(zip(classes, spans_of(classes), strict=True), 1)
    ]
    head = (
        *("class", "values of m", "m", "kernels", "what is known", "all rows alike"),
        *("probability, average", "probability, least"),
    )
    return Page(
        title,
        [
            PageSection("What to do", "How a row gets the same bits for every m.", [Text(line) for line in advice]),
            PageSection("Classes over m", "Each line is a run of values of m of one class.", _lines(classes)),
            PageSection(
                "Classes",
                "A row has the same bits for all values of m of a class, where the kernels are the ones named. "
                "Probability: that they are.",
                [Table(head, rows, (0, 1, 6, 7))],
            ),
        ],
        answer,
        lead,
    )


def known_text(is_known: bool, probability: float) -> str:
    """How sure a class is, in words that agree with its least probability."""
    if not is_known:
        return "the kernel, and not its order of summation"
    level = next(words for least, words in SURENESS if probability >= least)
    return f"the order of summation, and the kernel {level}"


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


def spans_of(classes: Sequence[Mapping[str, Any]]) -> list[str]:
    """By class, from which m to which all that were asked for are of it."""
    asked = sorted((first, last, number) for number, entry in enumerate(classes) for first, last in entry["m"])
    spans: list[list[str]] = [[] for _ in classes]
    for number, group in groupby(asked, itemgetter(2)):
        first, *_, last = [m for run in group for m in run[:2]]
        spans[number].append(count(first) if first == last else f"{count(first)} to {count(last)}")
    return [", ".join(of_class) for of_class in spans]
