"""The page of a comparison of two ways to compute a product: where they differ, and from which k on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwsim.report.page.figures import axis, figure
from hwsim.report.page.page import Code, Facts, Page, PageSection, Part, Plot, Table, Text
from hwsim.report.text.words import count, percent

if TYPE_CHECKING:
    from hwsim.studies.diff_parts import ElementDifference
    from hwsim.studies.diff_result import Difference


def diff_page(difference: Difference) -> Page:
    """The page of a comparison."""
    m, n, k = (count(size) for size in (difference.m, difference.n, difference.k))
    facts = [
        ("left", difference.left),
        ("right", difference.right),
        ("shape", f"C[{m} x {n}], K = {k}, {difference.output}"),
        (
            "elements that differ",
            f"{count(difference.differing)} of {count(difference.elements)} ({percent(difference.share)})",
        ),
        ("largest difference", f"{count(difference.largest_ulps)} ulp; relative {difference.largest_relative:.3g}"),
        ("mean of those that differ", f"{difference.mean_ulps:.3g} ulp"),
        ("with an infinity or NaN", count(difference.special)),
    ]
    listed = [("worst", difference.worst)] if difference.worst is not None else []
    return Page(
        f"Difference: {m} x {n} x {k}",
        [
            PageSection("Summary", "The two ways, and how far apart they are.", [Facts(facts)]),
            PageSection("Map", "The share of elements that differ, block by block.", _map(difference)),
            PageSection(
                "First k",
                "Where the partial sums of one element differ for the first time.",
                _first_k(difference),
            ),
            PageSection(
                "Elements",
                "The worst one, and the first ones by row and column.",
                [_elements([*listed, *(("", place) for place in difference.first)])] if difference.differing else [],
            ),
        ],
    )


def _map(difference: Difference) -> list[Part]:
    if not difference.differing:
        return []
    shares = 100 * difference.where.counts / difference.where.sizes
    down, across = difference.where.spans
    heat: dict[str, Any] = {
        "type": "heatmap",
        "z": shares.tolist(),
        "x": [(column + 0.5) * across for column in range(shares.shape[1])],
        "y": [(row + 0.5) * down for row in range(shares.shape[0])],
        "zmin": 0,
        "colorscale": "Cividis",
        "colorbar": {"title": {"text": "elements that differ (%)", "side": "right"}},
        "hovertemplate": "row %{y:.0f}, column %{x:.0f}: %{z:.1f} %<extra></extra>",
    }
    look = figure([heat], axis("column compared"), axis("row compared", autorange="reversed"))
    return [Plot(look, 480, "map of the elements that differ")]


def _first_k(difference: Difference) -> list[Part]:
    step = difference.step
    if step is None:
        return []
    before = "both from zero" if step.last_equal is None else f"both {step.last_equal}"
    facts = [
        ("element", f"C[{step.row}, {step.column}]"),
        ("k", f"{step.k_first} to {step.k_end - 1}"),
        ("before", before),
        ("left after", f"{step.left_code} ({step.left:.9g}){_error(step.left_error)}"),
        ("right after", f"{step.right_code} ({step.right:.9g}){_error(step.right_error)}"),
        ("equal again at later places", count(step.equal_again)),
    ]
    if step.exact is not None:
        facts.insert(3, ("exactly", f"{step.exact:.9g}"))
    if difference.errors is not None and difference.errors.exact is not None:
        left, right = (_error(error) for error in (difference.errors.left, difference.errors.right))
        facts.append(("over all of K", f"exactly {difference.errors.exact:.9g}; left{left}, right{right}"))
    sides = (("left", step.left_steps, step.right_steps), ("right", step.right_steps, step.left_steps))
    rows = [
        (
            name,
            str(step.term),
            f"{step.k_start} to {step.k_stop - 1}",
            f"{step.c} ({step.c_value:.9g})",
            f"{step.d} ({step.d_value:.9g})",
        )
        for name, steps, others in sides
        for step in steps
        if not step.is_as_in(others)
    ]
    commands = [step.command for _, steps, others in sides for step in steps if not step.is_as_in(others)]
    parts: list[Part] = [Facts(facts)]
    if rows:
        parts += [
            Text("The instructions that took these k, where the two sides differ, and what shows each stage by stage:"),
            Table(("side", "term", "k", "accumulator before", "after"), rows),
            Code("\n".join(commands)),
        ]
    return parts


def _error(error: float | None) -> str:
    return "" if error is None else f", relative error {error:.3g}"


def _elements(listed: list[tuple[str, ElementDifference]]) -> Table:
    rows = [
        (
            name,
            count(place.row),
            count(place.column),
            place.left_code,
            f"{place.left:.9g}",
            place.right_code,
            f"{place.right:.9g}",
            "" if place.ulps is None else count(place.ulps),
            "" if place.relative is None else f"{place.relative:.3g}",
        )
        for name, place in listed
    ]
    head = ("", "row", "column", "left code", "left", "right code", "right", "ulp", "relative")
    return Table(head, rows, right=(1, 2, 4, 6, 7, 8))
