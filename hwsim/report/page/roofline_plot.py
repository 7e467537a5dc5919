"""The roofline diagram of a run: roofs of HBM and of the matrix units, and the point."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hwsim.errors import UnsupportedError
from hwsim.report.page.figures import axis, figure
from hwsim.report.page.page import Facts, Part, Plot, Text
from hwsim.report.page.style import OTHER, PALETTE
from hwsim.report.text.words import data, percent

if TYPE_CHECKING:
    from hwsim.result import Result

DECADES = 1.5  # to either side of the ridge and the point
STEPS = 60
HOVER = "%{x:.3g} FLOP/byte: %{y:,.3g} TFLOP/s<extra></extra>"
#: Marks that are both seen where one lies on the other.
RING = {"color": PALETTE[1], "size": 20, "symbol": "circle-open", "line": {"width": 3}}
DIAMOND = {"color": PALETTE[5], "size": 10, "symbol": "diamond"}


def roofline_parts(result: Result) -> list[Part]:
    """The diagram and its numbers; only words where there is no HBM traffic."""
    try:
        point = result.roofline
    except UnsupportedError as error:
        return [Text(str(error))]
    chip = result.times.chip
    if point is None or chip is None:
        return []
    limit = "the matrix units" if point.bound == "compute" else "HBM"
    pairs = [
        ("achieved", f"{point.achieved:,.2f} TFLOP/s, {percent(point.achieved / point.attainable)} of the attainable"),
        ("attainable", f"{point.attainable:,.2f} TFLOP/s, limited by {limit}"),
        ("peak of the matrix units", f"{point.peak:,.2f} TFLOP/s"),
        ("moved to and from HBM", data(point.hbm_bytes)),
    ]
    if not math.isfinite(point.intensity) or chip.hbm is None:
        says = "Nothing came from HBM (L2 held it all), so that there is no work per byte, and no diagram."
        return [Facts(pairs), Text(says)]
    rate = chip.hbm.bytes_per_second / 1e12
    ridge = point.peak / rate
    low, high = (math.log10(f(ridge, point.intensity)) for f in (min, max))
    places = sorted(
        {10 ** (low - DECADES + step * (high - low + 2 * DECADES) / STEPS) for step in range(STEPS + 1)} | {ridge}
    )
    roof = [min(point.peak, place * rate) for place in places]
    share = percent(point.achieved / point.attainable)
    traces: list[Mapping[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "roofs of HBM and of the matrix units",
            "x": places,
            "y": roof,
            "line": {"color": PALETTE[0], "width": 3},
            "hovertemplate": HOVER,
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": "from achieved to attainable",
            "x": [point.intensity] * 2,
            "y": [point.achieved, point.attainable],
            "line": {"color": OTHER, "width": 2, "dash": "dot"},
            "hoverinfo": "skip",
            "showlegend": False,
        },
        _mark("attainable", point.intensity, point.attainable, "top left", RING),
        _mark(f"achieved, {share} of it", point.intensity, point.achieved, "bottom right", DIAMOND),
    ]
    least = min(point.achieved, roof[0])
    look = figure(
        traces,
        axis("work per byte of HBM (FLOP/byte)", type="log", dtick="D2"),
        axis("rate (TFLOP/s)", type="log", dtick="D2", range=[math.log10(least) - 0.4, math.log10(point.peak) + 0.5]),
    )
    pairs.append(("work per byte of HBM", f"{point.intensity:,.2f} FLOP/byte; the roofs meet at {ridge:,.2f}"))
    pairs.append(("HBM", f"{rate:,.3f} TB/s"))
    return [Plot(look, 420, "roofline diagram"), Facts(pairs)]


def _mark(name: str, x: float, y: float, position: str, marker: Mapping[str, Any]) -> dict[str, Any]:
    """A point with its rate beside it."""
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": name,
        "x": [x],
        "y": [y],
        "text": [f"{y:,.4g}"],
        "textposition": position,
        "cliponaxis": False,
        "marker": dict(marker),
        "hovertemplate": HOVER,
    }
