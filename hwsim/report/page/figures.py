"""Plots as plotly figures in plain data: bars, heat maps, points. Axes say what they show, with its unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Figure = dict[str, Any]


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis with its title."""
    return {"title": {"text": title, "standoff": 12}, "exponentformat": "power"} | more


def figure(data: Sequence[Mapping[str, Any]], x: Mapping[str, Any], y: Mapping[str, Any], **more: Any) -> Figure:
    """A figure of traces over two axes; a legend, where there is one, stands above."""
    layout = {
        "xaxis": dict(x),
        "yaxis": dict(y),
        "margin": {"l": 70, "r": 24, "t": 34, "b": 56},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    }
    return {"data": [dict(trace) for trace in data], "layout": layout | more}


def bars(
    names: Sequence[str], values: Sequence[float], texts: Sequence[str], colour: str, *, lying: bool = False
) -> dict[str, Any]:
    """Bars, one per name, with a text each; lying: to the right."""
    along, across = ("x", "y") if lying else ("y", "x")
    return {
        "type": "bar",
        "orientation": "h" if lying else "v",
        along: list(values),
        across: list(names),
        "text": list(texts),
        "textposition": "outside",
        "cliponaxis": False,
        "hoverinfo": "none" if texts else "all",
        "marker": {"color": colour},
        "showlegend": False,
    }
