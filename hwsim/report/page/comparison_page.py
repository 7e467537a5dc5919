"""The page of a model's outputs on several devices: how far they are apart, and which answers change.

It knows the numbers of a comparison as plain data; it knows no model and no tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwsim.report.page.figures import axis, figure
from hwsim.report.page.page import Code, Page, PageSection, Plot, Table
from hwsim.report.page.style import PALETTE

HEAD = (
    *("outputs", "distance", "largest difference", "elements that differ", "KL divergence, nats", "largest KL"),
    "top-1 flips",
)


def comparison_page(text: str, comparison: Mapping[str, Any]) -> Page:
    """The page of a comparison, as its `to_dict` gives it. text: the same as text."""
    names = [f"{pair['left']} and {pair['right']}" for pair in comparison["pairs"]]
    rows = [
        (
            name,
            f"{pair['distance']:.2e}",
            f"{pair['largest']:.2e}",
            f"{pair['differing']:.1%}",
            f"{pair['divergence']:.2e}",
            f"{pair['largest_divergence']:.2e}",
            f"{pair['flips']} of {pair['positions']}",
        )
        for name, pair in zip(names, comparison["pairs"], strict=True)
    ]
    bars = {
        "type": "bar",
        "x": [pair["distance"] for pair in comparison["pairs"]],
        "y": names,
        "orientation": "h",
        "marker": {"color": PALETTE[0]},
        "hovertemplate": "%{y}: %{x:.2e}<extra></extra>",
    }
    look = figure([bars], axis("relative distance of the outputs"), axis("", type="category"), showlegend=False)
    remarks = [
        (side["name"], remark) for side in comparison["sides"] for remark in (side["settings"], *side["remarks"])
    ]
    return Page(
        "Outputs of a model on several devices",
        [
            PageSection("Summary", "The outputs, compared pair by pair.", [Code(text)]),
            PageSection(
                "Distances",
                "||right - left|| / ||left|| over all elements of the outputs.",
                [Plot(look, min(140 + 40 * len(names), 1200), "distances")],
            ),
            PageSection(
                "Pairs", "KL divergence: of the softmax along the last dimension.", [Table(HEAD, rows, (1, 2))]
            ),
            PageSection("Sides", "Settings, evidence, and what was not simulated.", [Table(("side", "what"), remarks)]),
        ],
    )
