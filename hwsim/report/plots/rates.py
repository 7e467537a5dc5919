"""Rates over size, and the landscape of tiles that a search has timed.

The module knows rows of a sweep and the result of `hwsim.tune`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hwsim.report.plot_style import line_style, new_axes
from hwsim.report.plots.series import PlotRow, lines_of, shared
from hwsim.report.text.tune_text import heat

if TYPE_CHECKING:
    from hwsim.studies.tune import Landscape


def tflops_over_size(rows: Iterable[PlotRow]) -> Any:
    """Figure: TFLOP/s (2 m n k / time) of each device and scheme over the size, the cube root of m n k."""
    listed = list(rows)
    figure, axes = new_axes(f"rate: {shared(listed)}", "size, cube root of m n k", "TFLOP/s")
    for index, (name, points) in enumerate(lines_of(listed, "size", "tflops").items()):
        axes.plot(*zip(*points, strict=True), label=name, **line_style(index))
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure


def tile_landscape(found: Landscape, title: str = "") -> Any:
    """Figure: the best value of every tile as a share of the best of all. found: of `hwsim.tune`."""
    rows, columns, shares = heat(found)
    what = found.quantity
    figure, axes = new_axes(
        title or f"tiles by {what}",
        "tile n, columns",
        "tile m, rows",
        width=2.4 + 0.6 * len(columns),
        height=1.9 + 0.45 * len(rows),
    )
    axes.grid(visible=False)
    grid = [[shares.get((m, n), float("nan")) for n in columns] for m in rows]
    image = axes.imshow(grid, vmin=0, vmax=1, origin="lower", aspect="auto", cmap="cividis")
    axes.set_xticks(range(len(columns)), [str(n) for n in columns])
    axes.set_yticks(range(len(rows)), [str(m) for m in rows])
    figure.colorbar(image, label=f"best of all / best of the tile, {what}")
    return figure
