"""Plots of an error map: how many elements have how large an error, and where the error is."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from hwsim.analysis.error_map import ErrorMap
from hwsim.report.page.figures import axis, bars, figure
from hwsim.report.page.page import Part, Plot, Text
from hwsim.report.page.style import PALETTE
from hwsim.report.text.words import count, percent, plural

FIRST, MOST = -1, 16  # powers of two: the first bin above 0, and the last that is shown by itself
PLAIN = 1024  # edges from here on are shown as powers
LEAST = 0.05  # per cent that has a digit
RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def error_parts(error_map: ErrorMap) -> list[Part]:
    """The histogram in units in the last place, the map of blocks, and what they leave out."""
    if not error_map.ulps.size:
        return [Text("No element of C and of the exact product is finite: there is no error to show.")]
    edges = [0.0, *(2.0**power for power in range(FIRST, MOST + 1)), math.inf]
    numbers = [int((error_map.ulps == 0).sum())]
    numbers += [int(((error_map.ulps > low) & (error_map.ulps <= high)).sum()) for low, high in pairwise(edges)]
    names = ["0", *(f"≤ {_power(edge)}" for edge in edges[1:-1]), f"> {_power(edges[-2])}"]
    last = max(number for number, amount in enumerate(numbers) if amount) + 1
    shares = [100 * number / error_map.ulps.size for number in numbers[:last]]
    texts = [
        f"{share:.1f}" if share >= LEAST else "< 0.1" if number else ""
        for share, number in zip(shares, numbers, strict=False)
    ]
    trace = bars(names[:last], shares, texts, PALETTE[0])
    look = figure(
        [trace],
        axis("|C - exact| (units in the last place, each bar from the one before)", type="category"),
        axis("elements of C (%)", range=[0, max(shares) * 1.15]),
    )
    parts: list[Part] = [Plot(look, 340, "histogram of the error in units in the last place")]
    middle, most = np.median(error_map.ulps), error_map.ulps.max()
    says = f"{plural(error_map.ulps.size, 'element')}; median {middle:.3g} ulp, largest {most:.4g} ulp."
    if error_map.undefined:
        share = percent(error_map.undefined / (error_map.undefined + error_map.ulps.size))
        says += f" {count(error_map.undefined)} ({share}) are left out: infinite or NaN, in C or exactly."
    if error_map.spans[0] * error_map.blocks.shape[0] > error_map.rows * 2:
        says += f" Of each matrix {plural(error_map.rows, 'row')}, evenly spaced, were compared."
    rows, columns = error_map.blocks.shape
    heat = {
        "type": "heatmap",
        "z": [[None if not math.isfinite(error) else error for error in row] for row in error_map.blocks.tolist()],
        "x": [(column + 0.5) * error_map.spans[1] for column in range(columns)],
        "y": [(row + 0.5) * error_map.spans[0] for row in range(rows)],
        "colorscale": "Cividis",
        "colorbar": {
            "title": {"text": "error / RMS of C", "side": "right"},
            "exponentformat": "e",
            "tickformat": ".1e",
        },
        "hovertemplate": "row %{y:.0f}, column %{x:.0f}: %{z:.3e}<extra></extra>",
    }
    look = figure([heat], axis("column of C"), axis("row of C", autorange="reversed"))
    parts += [Text(says), Plot(look, 480, "map of the error over C")]
    size = f"{count(error_map.spans[0])} x {count(error_map.spans[1])}"
    parts.append(
        Text(
            f"A cell is a block of {size} elements: the root mean square of its error, over the root mean square of "
            "the whole exact product."
        )
    )
    return parts


def _power(edge: float) -> str:
    return f"{edge:g}" if edge < PLAIN else f"2{str(math.frexp(edge)[1] - 1).translate(RAISED)}"
