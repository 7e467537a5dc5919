"""The page of a model's outputs on several devices: how far they are apart, and which answers change.

It knows the numbers of a comparison as plain data; it knows no model and no tensor.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from hwsim.report.page.figures import axis, bars, figure
from hwsim.report.page.page import Page, PageSection, Plot, Table
from hwsim.report.page.style import PALETTE
from hwsim.report.text.words import count, percent

HEAD = (
    *("outputs", "distance", "largest difference", "elements that differ", "KL divergence (nats)"),
    *("largest KL divergence (nats)", "top-1 flips"),
)


def comparison_page(comparison: Mapping[str, Any]) -> Page:
    """The page of a comparison, as its `to_dict` gives it."""
    pairs = comparison["pairs"]
    names = [f"{pair['left']} and {pair['right']}" for pair in pairs]
    rows = [
        (
            name,
            f"{pair['distance']:.2e}",
            f"{pair['largest']:.2e}",
            percent(pair["differing"]),
            f"{pair['divergence']:.2e}",
            f"{pair['largest_divergence']:.2e}",
            f"{count(pair['flips'])} of {count(pair['positions'])}",
        )
        for name, pair in zip(names, pairs, strict=True)
    ]
    distances = [pair["distance"] for pair in pairs]
    trace = bars(names[::-1], distances[::-1], [f"{x:.2e}" for x in distances[::-1]], PALETTE[0], lying=True)
    reach = 1.3 * max(distances, default=0.0) or 1.0
    look = figure(
        [trace],
        axis("relative distance of the outputs", range=[0, reach], exponentformat="e"),
        axis("outputs of", type="category"),
    )
    unlike = {side["name"] for side in comparison["sides"] if not side["is_predicted"]}
    sides = [(side["name"], side["settings"], "; ".join(side["remarks"])) for side in comparison["sides"]]
    return Page(
        f"Outputs of a model on {', '.join(side['name'] for side in comparison['sides'])}",
        [
            PageSection(
                "Distances",
                "||right - left|| / ||left|| over all elements of the outputs.",
                [Plot(look, 130 + 36 * len(names), "distances")],
            ),
            PageSection(
                "Pairs",
                "KL divergence: of the softmax along the last dimension, on average over positions and at most. First "
                "answer: the index of the largest element.",
                [Table(HEAD, rows, range(1, len(HEAD)))],
            ),
            PageSection(
                "Sides",
                "Settings, evidence, and what was not simulated.",
                [Table(("side", "settings", "remarks"), sides)],
            ),
        ],
        comparison,
        [
            *(_said(name, pair, unlike) for name, pair in zip(names, pairs, strict=True)),
            *(f"{side['name']}: {side['remarks'][0]}" for side in comparison["sides"] if side["remarks"]),
        ],
    )


def _said(name: str, pair: Mapping[str, Any], unlike: Collection[str]) -> str:
    """How far two outputs are apart, in a sentence. unlike: sides that are not predicted for their library."""
    which = [side for side in (pair["left"], pair["right"]) if side in unlike]
    caveat = f" ({' and '.join(which)}: not predicted for this chip's library)" if which else ""
    if not pair["differing"]:
        return f"{name}{caveat}: equal in every bit"
    return (
        f"{name}{caveat}: {percent(pair['differing'])} of the elements differ, by at most {pair['largest']:.1e} of the "
        f"largest value; {count(pair['flips'])} of {count(pair['positions'])} top-1 flips"
    )
