"""How plots look: colours and markers that everybody tells apart, and files written whole or not at all.

The module knows matplotlib (extra `plot`); it knows no result.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hwsim.errors import InputError, UnsupportedError, nearest
from hwsim.host.files import whole_file

#: Okabe and Ito's colours, which are told apart with every kind of colour vision, and markers for those who print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")
MARKERS = "osD^vPX*"
SUFFIXES = (".png", ".svg", ".pdf")
DOTS_PER_INCH = 150


def new_figure(width: float = 6.4, height: float = 4.4, **more: Any) -> Any:
    """An empty matplotlib Figure of that size in inches, without a display. Raises UnsupportedError without
    matplotlib.
    """
    try:
        from matplotlib.figure import Figure  # optional
    except ImportError as error:
        raise UnsupportedError("a plot needs matplotlib: pip install 'hwsim[plot]'") from error
    return Figure(figsize=(width, height), layout="constrained", **more)


def new_axes(title: str, x: str, y: str, **more: Any) -> tuple[Any, Any]:
    """A figure with one pair of axes, with a title and labels."""
    figure = new_figure(**more)
    axes = figure.add_subplot()
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(visible=True, which="major", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def line_style(index: int) -> dict[str, Any]:
    """Colour and marker of the line with this index."""
    marker, colour = MARKERS[index % len(MARKERS)], COLOURS[index % len(COLOURS)]
    return {"color": colour, "marker": marker, "markersize": 4.5, "linewidth": 1.4}


def checked_plot_path(path: Path) -> Path:
    """The path of a plot. Raises InputError for another suffix than those of `SUFFIXES`."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        meant = nearest(suffix, list(SUFFIXES))
        raise InputError(f"plot {path}: allowed: a name that ends in {', '.join(SUFFIXES)}{meant}")
    return path


def save(figure: Any, path: str | Path) -> Path:
    """Write a figure as PNG, SVG or PDF, by the suffix, whole or not at all; returns the path."""
    place = checked_plot_path(Path(path))
    with whole_file(place) as file:
        figure.savefig(file, format=place.suffix.lower().removeprefix("."), dpi=DOTS_PER_INCH)
    return place
