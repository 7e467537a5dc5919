"""The page of a comparison of two ways to compute a product: why, where and how far they differ and from which k on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hwsim.report.page.figures import axis, figure
from hwsim.report.page.page import Code, Facts, Page, PageSection, Part, Plot, Table, Text
from hwsim.report.page.style import PALETTE
from hwsim.report.text.words import count, percent
from hwsim.result import plain

if TYPE_CHECKING:
    from hwsim.studies.diff_parts import Divergence, ElementDifference
    from hwsim.studies.diff_result import Difference

FEWEST_MARKS, MOST_MARKS = 3, 8  # of an axis
EXPLAINED = 4  # instructions of a side with their commands
SIZE = "|left - right| / RMS of C"


def diff_page(difference: Difference) -> Page:
    """The page of a comparison."""
    m, n, k = (count(size) for size in (difference.m, difference.n, difference.k))
    listed = [("largest", difference.largest), ("most ulp", difference.worst)]
    return Page(
        f"Difference: {difference.reason.left} and {difference.reason.right}, {m} x {n} x {k}",
        [
            PageSection("Summary", "The two ways, and how far apart they are.", [Facts(_summary(difference))]),
            PageSection(
                "Sizes", "How large the differences are, measured by the root mean square of C.", _sizes(difference)
            ),
            PageSection("Map", "The largest difference in each block of C.", _map(difference)),
            PageSection(
                "First k",
                "Where the partial sums of one element differ for the first time.",
                _first_k(difference),
            ),
            PageSection(
                "Elements",
                "The one with the largest difference, the one with the most ulp, and the first ones by row and column.",
                [_elements([*((name, x) for name, x in listed if x), *(("", place) for place in difference.first)])]
                if difference.differing
                else [],
            ),
        ],
        data=plain(difference.to_dict()),
        lead=[str(difference.reason), *difference.notes],
    )


def _summary(difference: Difference) -> list[tuple[str, str]]:
    sizes = difference.sizes
    m, n, k = (count(size) for size in (difference.m, difference.n, difference.k))
    facts = [
        ("left", difference.left),
        ("right", difference.right),
        ("shape", f"C[{m} x {n}], K = {k}, {difference.output}"),
        ("operands", difference.operands or "given"),
        *((f"{name}: {text.partition(': ')[0]}", text.partition(": ")[2]) for name, text in _side_lines(difference)),
        *(("also differs", reason) for reason in difference.reason.reasons[1:]),
        (
            "elements that differ",
            f"{count(difference.differing)} of {count(difference.elements)} ({percent(difference.share)})",
        ),
    ]
    if not difference.differing:
        return facts
    return [
        *facts,
        (
            "difference over the RMS of C",
            f"median {sizes.median:.2g}, largest {sizes.largest:.2g}; RMS {sizes.rms:.3g}",
        ),
        ("largest difference in ulp", f"{count(difference.largest_ulps)}; mean {difference.mean_ulps:.3g}"),
        ("largest relative difference", f"{difference.largest_relative:.3g}"),
        ("with an infinity or NaN", count(difference.special)),
    ]


def _side_lines(difference: Difference) -> list[tuple[str, str]]:
    """(side, "error: ..." or "evidence: ...") of both sides."""
    return [(name, part) for name, text in difference.side_facts() for part in text.split("; ")]


def _sizes(difference: Difference) -> list[Part]:
    sizes = difference.sizes
    if not sizes.counts:
        return []
    width = math.log10(2)
    low, high = sizes.exponents[0] * width, (sizes.exponents[-1] + 1) * width
    bars: dict[str, Any] = {
        "type": "bar",
        "x": [(e + 0.5) * width for e in sizes.exponents],
        "y": list(sizes.counts),
        "width": width * 0.94,
        "marker": {"color": PALETTE[0]},
        "customdata": [[f"{2.0**e:.1e}", f"{2.0 ** (e + 1):.1e}"] for e in sizes.exponents],
        "hovertemplate": "%{customdata[0]} to %{customdata[1]}: %{y:,} elements<extra></extra>",
        "showlegend": False,
    }
    look = figure(
        [bars],
        axis(SIZE, **_decades(low, high), range=[low, high]),
        axis("elements", exponentformat="none", separatethousands=True),
    )
    words = f"{count(sizes.equal)} of {count(difference.elements)} elements are equal and not drawn."
    if difference.special:
        words += f" {count(difference.special)} with an infinity or NaN are not drawn."
    return [Text(words), Plot(look, 320, "histogram of the sizes of the differences")]


def _decades(low: float, high: float) -> dict[str, Any]:
    """Marks of an axis of logarithms from `low` to `high`: at powers of ten, or where that are few, at 1, 2 and 5."""
    whole = range(math.floor(low), math.ceil(high) + 1)
    inside = [at for at in whole if low <= at <= high]
    if len(inside) >= FEWEST_MARKS:
        shown = inside[:: -(-len(inside) // MOST_MARKS)]
        return {"tickvals": shown, "ticktext": [f"10<sup>{at}</sup>" for at in shown]}
    parts = [(at + math.log10(part), f"{part}·10<sup>{at}</sup>") for at in whole for part in (1, 2, 5)]
    marks = [(at, text) for at, text in parts if low <= at <= high]
    return {"tickvals": [at for at, _ in marks], "ticktext": [text for _, text in marks]}


def _map(difference: Difference) -> list[Part]:
    if not difference.sizes.counts:
        return []
    largest = difference.where.largest
    with np.errstate(divide="ignore"):
        logarithms = np.log10(largest)
    seen = logarithms[np.isfinite(logarithms)]
    down, across = difference.where.spans
    decades = _decades(float(seen.min()), float(seen.max()))
    heat: dict[str, Any] = {
        "type": "heatmap",
        "z": [[x if math.isfinite(x) else None for x in row] for row in logarithms.tolist()],
        "customdata": [[f"{x:.2g}" for x in row] for row in largest.tolist()],
        "x": [(column + 0.5) * across for column in range(largest.shape[1])],
        "y": [(row + 0.5) * down for row in range(largest.shape[0])],
        "colorscale": "Cividis",
        "colorbar": {"title": {"text": SIZE, "side": "right"}, **decades},
        "hovertemplate": "row %{y:.0f}, column %{x:.0f}: %{customdata}<extra></extra>",
    }
    is_whole = difference.elements == difference.m * difference.n
    names = [f"{name} of C" if is_whole else f"{name}, counted among those compared" for name in ("column", "row")]
    look = figure([heat], axis(names[0]), axis(names[1], autorange="reversed"))
    blocks = f"A block is {down} x {across} elements. " if (down, across) != (1, 1) else ""
    return [Text(f"{blocks}Empty blocks are equal in every bit."), Plot(look, 480, "map of the largest differences")]


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
        facts.insert(3, ("exactly", _exact(step.exact, step.right_exact)))
    if difference.errors is not None and difference.errors.exact is not None:
        exact = _exact(difference.errors.exact, difference.errors.right_exact)
        errors = ("unknown" if x is None else f"{x:.3g}" for x in (difference.errors.left, difference.errors.right))
        facts.append(("over all of K", f"exactly {exact}; relative error {' left, '.join(errors)} right"))
    return [Facts(facts), *_instructions(step)]


def _instructions(step: Divergence) -> list[Part]:
    """The instructions that took these k and differ, each with the command that explains it."""
    sides = (("left", step.left_steps, step.right_steps), ("right", step.right_steps, step.left_steps))
    unlike = [(name, part) for name, parts, others in sides for part in parts if not part.is_as_in(others)]
    if not unlike:
        return []
    rows = [
        (
            name,
            part.instruction,
            str(part.term),
            f"{part.k_start} to {part.k_stop - 1}",
            part.c,
            f"{part.c_value:.9g}",
            part.d,
            f"{part.d_value:.9g}",
        )
        for name, part in unlike
    ]
    explained = [part for name in ("left", "right") for part in [x for side, x in unlike if side == name][:EXPLAINED]]
    return [
        Text("The instructions that took these k, where the two sides differ:"),
        Table(
            (
                "side",
                "instruction",
                "term",
                "k",
                "accumulator before",
                "as a number",
                "accumulator after",
                "as a number",
            ),
            rows,
            right=(5, 7),
        ),
        Text("These commands show them stage by stage:"),
        *(Code(part.command) for part in explained),
    ]


def _exact(left: float, right: float | None) -> str:
    """An exact value; of both sides where their units take unlike operands."""
    return (
        f"{left:.9g}"
        if right in (None, left)
        else f"{left:.9g} of the left side's operands, {right:.9g} of the right's"
    )


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
            "" if place.over_rms is None else f"{place.over_rms:.2g}",
        )
        for name, place in listed
    ]
    head = ("", "row", "column", "left code", "left", "right code", "right", "ulp", "relative", "over RMS")
    return Table(head, rows, right=(1, 2, 4, 6, 7, 8, 9))
