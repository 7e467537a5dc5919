"""How plots look: colours and marks that everybody tells apart, panels, a legend outside, files written whole.

The module knows matplotlib (extra `plot`); it knows no result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

from hwsim.errors import InputError, UnsupportedError, nearest
from hwsim.host.files import whole_file

#: Okabe and Ito's colours, which are told apart with every kind of colour vision, and marks for those who print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")
MARKERS = "osD^vPX*"
LINES = ("-", "--", ":", "-.")
MOST_COLOURS, MOST_MARKS = 2 * len(COLOURS), len(MARKERS) * len(LINES)  # the second round of colours is darker
MOST_ABOVE = 5  # lines over another, from which on it grows no wider
DARKER = 0.55
SUFFIXES = (".png", ".svg", ".pdf")
DOTS_PER_INCH = 150
PANELS_ACROSS, PANEL_LETTERS = 3, 36
NOTE_LETTER_INCHES = 0.075
LEGEND_INCHES, LEGEND_LINE_INCHES, LETTER_INCHES = 0.6, 0.21, 0.085
GUIDE = {"color": "0.45", "linewidth": 1.0, "marker": ""}  # of bound lines


@dataclass(frozen=True, slots=True)
class PlotPanels:
    """A figure with one pair of axes for each panel, all of one scale."""

    figure: Any
    axes: tuple[Any, ...]

    def finish(self, note: str = "") -> Any:
        """The figure with a legend of all panels' lines to its right, where there are several or the line has a label,
        and a note below.
        """
        entries: dict[str, Any] = {}
        for axes in self.axes:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                entries.setdefault(label, handle)
        if len(entries) > 1 or any(entries):
            width, height = self.figure.get_size_inches()
            wider = LEGEND_INCHES + LETTER_INCHES * max(len(label) for label in entries)
            self.figure.set_size_inches(width + wider, max(height, LEGEND_INCHES + LEGEND_LINE_INCHES * len(entries)))
            self.figure.legend(
                list(entries.values()), list(entries), loc="outside right upper", fontsize=9, frameon=False
            )
        if note:
            letters = int(self.figure.get_size_inches()[0] / NOTE_LETTER_INCHES)
            wrapped = "\n".join(fill(line, letters) for line in note.splitlines())
            self.figure.supxlabel(wrapped, fontsize=8, color="0.35")
        return self.figure


def new_figure(width: float = 6.4, height: float = 4.4, **more: Any) -> Any:
    """An empty matplotlib Figure of that size in inches, without a display. Raises UnsupportedError without
    matplotlib.
    """
    try:
        from matplotlib.figure import Figure  # optional
    except ImportError as error:
        raise UnsupportedError("a plot needs matplotlib: pip install 'hwsim[plot]'") from error
    return Figure(figsize=(width, height), layout="constrained", **more)


def new_panels(
    title: str, x: str, y: str, names: Sequence[str] = ("",), *, width: float = 6.4, height: float = 4.4
) -> PlotPanels:
    """A figure with a panel for each name, a title, and labels of the axes at its edges.

    width, height: inches of the only panel; several are smaller. A name "" gives no title of the panel.
    """
    count = len(names)
    across = min(count, PANELS_ACROSS)
    down = math.ceil(count / across)
    if count > 1:
        width, height, x, y = 0.62 * width, 0.78 * height, fill(x, PANEL_LETTERS), fill(y, PANEL_LETTERS)
    figure = new_figure(width * across, height * down)
    grid = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    listed = [axes for row in grid for axes in row]
    for axes, name in zip(listed, names, strict=False):
        axes.grid(visible=True, which="major", color="0.9", linewidth=0.6)
        axes.set_axisbelow(True)
        if name:
            axes.set_title(name, fontsize=10)
    for axes in listed[count:]:
        axes.set_visible(False)
    for at, axes in enumerate(listed[:count]):
        if at % across == 0:
            axes.set_ylabel(y)
        if at + across >= count:
            axes.set_xlabel(x)
            axes.tick_params(labelbottom=True)
    if count == 1 and not names[0]:
        listed[0].set_title(title)
    else:
        figure.suptitle(title)
    return PlotPanels(figure, tuple(listed[:count]))


def line_style(colour: int, mark: int, above: tuple[int, int] = (0, 0)) -> dict[str, Any]:
    """The look of a line: its colour, mark and dashes by two numbers. above: colours, and marks, that are drawn over
    this line: it is wider and its marks larger than theirs, so that equal lines are all seen. Raises InputError beyond
    MOST_COLOURS and MOST_MARKS.
    """
    colours, marks = above
    for number, most, what in ((colour, MOST_COLOURS, "colours"), (mark, MOST_MARKS, "marks")):
        if number >= most:
            raise InputError(f"a plot has {most} {what} that are told apart; got {number + 1} lines: draw fewer")
    turn, at = divmod(mark, len(MARKERS))
    return {
        "color": _colour(colour),
        "marker": MARKERS[at],
        "linestyle": LINES[(at + turn) % len(LINES)],
        "markersize": 3.5 + 1.2 * min(colours + marks, MOST_ABOVE),
        "linewidth": 1.0 + 0.6 * min(colours, MOST_ABOVE),
    }


def _colour(number: int) -> str:
    turn, at = divmod(number, len(COLOURS))
    text = COLOURS[at]
    if not turn:
        return text
    parts = [int(int(text[i : i + 2], 16) * DARKER) for i in (1, 3, 5)]
    return "#" + "".join(f"{part:02X}" for part in parts) if any(parts) else "#777777"


def checked_plot_path(path: Path) -> Path:
    """The path of a plot. Raises InputError for a suffix that is not in `SUFFIXES`."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        meant = nearest(suffix, list(SUFFIXES))
        raise InputError(f"plot {path}: allowed: a name that ends in {', '.join(SUFFIXES)}{meant}")
    return path


def shaped(figure: Any, inches: tuple[float, float] | None = None, *, has_title: bool = True) -> Any:
    """The figure with this width and height in inches, and without the title above it where has_title is False."""
    if inches is not None:
        figure.set_size_inches(*inches)
    if not has_title:
        figure.suptitle("")
        shown = [axes for axes in figure.axes if axes.get_visible()]
        if len(shown) == 1:
            shown[0].set_title("")
    return figure


def save(figure: Any, path: str | Path) -> Path:
    """Write a figure as PNG, SVG or PDF, by the suffix, whole or not at all; returns the path."""
    place = checked_plot_path(Path(path))
    with whole_file(place) as file:
        figure.savefig(file, format=place.suffix.lower().removeprefix("."), dpi=DOTS_PER_INCH)
    return place
