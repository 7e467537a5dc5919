"""Rates over size, and the landscapes of tiles that searches have timed.

The module knows rows of a sweep and results of `hwsim.tune`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hwsim.report.plot_style import new_figure
from hwsim.report.plots.lines import over
from hwsim.report.plots.series import SIZE, PlotRow
from hwsim.report.text.tune_text import heat

if TYPE_CHECKING:
    from hwsim.studies.landscape import Landscape


def tflops_over_size(rows: Iterable[PlotRow], **drawn: Any) -> Any:
    """Figure: TFLOP/s (2 m n k / time) of each device and scheme over the size, the cube root of m n k.

    drawn: as of `over`.
    """
    return over(rows, SIZE, "tflops", **drawn)


def tile_landscape(found: Landscape | Mapping[str, Landscape], title: str = "") -> Any:
    """Figure: the best value of every tile as a share of the best of all, in a panel for each search.

    found: of `hwsim.tune`, or several by the names of their panels.
    """
    landscapes = dict(found) if isinstance(found, Mapping) else {"": found}
    maps = {name: heat(landscape) for name, landscape in landscapes.items()}
    columns_most = max(len(columns) for _, columns, _ in maps.values())
    rows_most = max(len(rows) for rows, _, _ in maps.values())
    what = " or ".join(dict.fromkeys(landscape.quantity for landscape in landscapes.values()))
    figure = new_figure((1.6 + 0.6 * columns_most) * len(maps) + 0.8, 1.9 + 0.45 * rows_most)
    panels = figure.subplots(1, len(maps), squeeze=False)[0]
    image: Any = None
    for axes, (name, (rows, columns, shares)) in zip(panels, maps.items(), strict=True):
        grid = [[shares.get((m, n), float("nan")) for n in columns] for m in rows]
        image = axes.imshow(grid, vmin=0, vmax=1, origin="lower", aspect="auto", cmap="cividis")
        axes.set(xlabel="tile n, columns", title=name)
        axes.set_xticks(range(len(columns)), [str(n) for n in columns])
        axes.set_yticks(range(len(rows)), [str(m) for m in rows])
    panels[0].set_ylabel("tile m, rows")
    heading = title or f"tiles by {what}"
    if len(maps) == 1:
        panels[0].set_title(heading)
    else:
        figure.suptitle(heading)
    figure.colorbar(image, ax=list(panels), label=f"best of all / best of the tile, {what}")
    return figure
