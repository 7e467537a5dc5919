"""The result of a search over mappings as text and data: best points, a heat map over tile sizes, CSV, PNG."""

from __future__ import annotations

import csv
import io
from typing import IO, TYPE_CHECKING, Any

from hwsim.errors import UnsupportedError
from hwsim.report.text.words import count, data, duration, facts, plural, table

if TYPE_CHECKING:
    from hwsim.studies.tune import Landscape, TunedPoint

BEST = 10  # groups of points listed
TIME_ERROR = 0.08  # mean |error| of bf16 GEMM times over six chips: lab/docs/cycles.md, "Times that others measured"
SHADES = " .:-=+*#%@"  # from far above the best to the best


def tune_text(landscape: Landscape, device: str, scheme: str, sizes: tuple[int, int, int]) -> str:
    """The report of a search."""
    m, n, k = (count(size) for size in sizes)
    timed = [point for point in landscape.points if point.cycles is not None]
    refused = len(landscape.points) - len(timed)
    what = "cycles" if landscape.objective == "cycles" else "HBM traffic"
    looked = f"{plural(len(timed), 'configuration')} timed, {count(refused)} not legal"
    if not landscape.complete:
        looked += "; stopped at the budget (--budget)"
    lines = facts(
        [("problem", f"C[{m} x {n}], K = {k}; {scheme} on {device}"), ("searched", f"{looked}; least {what}")]
    )
    least = min(_value(point, landscape.objective) for point in timed)
    rows = [(name, *_cells(point, least, landscape.objective)) for name, point in named_points(landscape)]
    lines += [
        "",
        *table(rows, ("", "configuration", "cycles", "time", "TFLOP/s", "HBM", "of best"), right=(2, 3, 4, 5, 6)),
    ]
    groups = alike(landscape)
    if len(groups) > 1:
        listed = [
            (str(i + 1), *_cells(group[0], least, landscape.objective), _others(group))
            for i, group in enumerate(groups[:BEST])
        ]
        head = ("", "configuration", "cycles", "time", "TFLOP/s", "HBM", "of best", "")
        lines += ["", f"the best {len(listed)}", *table(listed, head, right=(0, 2, 3, 4, 5, 6))]
        near = sum(_value(point, landscape.objective) <= least * (1 + TIME_ERROR) for point in timed)
        lines += [
            "",
            f"{count(near)} of {count(len(timed))} configurations are within {100 * TIME_ERROR:.0f} % of the best, the "
            "mean error of simulated times on chips where they were measured: the chip may rank them otherwise",
        ]
    return "\n".join([*lines, *_heat_text(landscape)])


def named_points(landscape: Landscape) -> list[tuple[str, TunedPoint]]:
    """The points that have a name: the best (of a formula alone: its choice, which may not be the best), the default
    and the formulas' choices.
    """
    least = min(_value(point, landscape.objective) for point in landscape.points if point.cycles is not None)
    first = "best" if _value(landscape.best, landscape.objective) == least else "chosen"
    return [(first, landscape.best), ("default", landscape.default), *landscape.analytic.items()]


def alike(landscape: Landscape) -> list[list[TunedPoint]]:
    """The points in groups of one tile, slices, instruction and equal value, the best group first; in a group the first
    that was timed leads.
    """
    groups: dict[tuple[object, ...], list[TunedPoint]] = {}
    for point in landscape.points:
        if point.cycles is not None:
            row = point.row()
            same = tuple(row.get(name) for name in ("tile_m", "tile_n", "tile_k", "split_k", "unit"))
            groups.setdefault((*same, _value(point, landscape.objective)), []).append(point)
    return sorted(groups.values(), key=lambda group: _value(group[0], landscape.objective))


def _others(group: list[TunedPoint]) -> str:
    """What the other points of a group differ in."""
    rows = [point.row() for point in group]
    unlike = [name for name in rows[0] if len({str(row.get(name)) for row in rows}) > 1]
    shown = [f"{name} {', '.join(dict.fromkeys(str(row.get(name)) for row in rows))}" for name in unlike]
    return f"alike: {'; '.join(shown)}" if shown else ""


def _value(point: TunedPoint, objective: str) -> float:
    return float((point.cycles if objective == "cycles" else point.hbm_bytes) or 0)


def _cells(point: TunedPoint, least: float, objective: str) -> tuple[str, ...]:
    if point.cycles is None or point.seconds is None or point.hbm_bytes is None:
        return (_named(point), "", "", "", "", f"refused: {point.refused}")
    ratio = f"{_value(point, objective) / least:.3f}" if least else "1.000"
    speed = f"{point.tflops:,.2f}"
    return (_named(point), count(point.cycles), duration(point.seconds), speed, data(point.hbm_bytes), ratio)


def _named(point: TunedPoint) -> str:
    """The configuration in full: as given, and what the dataflow chose."""
    row = point.row()
    tile = ",".join(f"{side}={row[f'tile_{side}']}" for side in "mnk" if row[f"tile_{side}"] is not None)
    skipped = ("tile_m", "tile_n", "tile_k", "cycles", "seconds", "tflops", "hbm_bytes", "refused")
    rest = [f"{name} {value}" for name, value in row.items() if name not in skipped and value is not None]
    return " ".join([f"tile {tile}", *rest])


def heat(landscape: Landscape) -> tuple[list[int], list[int], dict[tuple[int, int], float]]:
    """The heat map: (m of tiles, n of tiles, best value / value by (m, n)), which is 1 at the best and smaller
    elsewhere.
    """
    values: dict[tuple[int, int], float] = {}
    for point in landscape.points:
        tile = point.facts.get("tile")
        if point.cycles is not None and tile:
            at = (tile["m"], tile["n"])
            values[at] = min(values.get(at, float("inf")), _value(point, landscape.objective))
    least = min(values.values(), default=1.0)
    shares = {at: least / value if value else 1.0 for at, value in values.items()}
    return sorted({m for m, _ in shares}), sorted({n for _, n in shares}), shares


def _heat_text(landscape: Landscape) -> list[str]:
    rows, columns, shares = heat(landscape)
    if len(shares) < 2:
        return []
    lines = ["", "best over everything else, percent of the best, by the tile's m (down) and n (across)"]
    body = [[str(m), *(_cell(shares.get((m, n))) for n in columns)] for m in rows]
    return [*lines, *table(body, ("", *map(str, columns)), right=range(len(columns) + 1))]


def _cell(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f}{SHADES[min(int(share * len(SHADES)), len(SHADES) - 1)]}"


def tune_csv(landscape: Landscape) -> str:
    """Every point as one line of CSV."""
    rows = [point.row() for point in landscape.points]
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    last = ("cycles", "seconds", "tflops", "hbm_bytes", "refused")
    order = [name for name in names if name not in last] + list(last)
    out = io.StringIO()
    writer = csv.DictWriter(out, order, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def tune_dict(landscape: Landscape) -> dict[str, Any]:
    """The whole result, ready for JSON."""
    return {
        "objective": landscape.objective,
        "complete": landscape.complete,
        "best": landscape.best.row(),
        "default": landscape.default.row(),
        "analytic": {name: point.row() for name, point in landscape.analytic.items()},
        "points": [point.row() for point in landscape.points],
    }


def plotting() -> Any:
    """matplotlib's pyplot, without a display. Raises UnsupportedError where it is not installed."""
    try:
        import matplotlib  # optional
    except ImportError as error:
        raise UnsupportedError("--plot needs matplotlib, which is not installed: pip install matplotlib") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot  # optional

    return pyplot


def write_heat(landscape: Landscape, title: str, file: IO[bytes]) -> None:
    """Write the heat map as PNG. Raises UnsupportedError without matplotlib."""
    pyplot = plotting()
    rows, columns, shares = heat(landscape)
    figure, axes = pyplot.subplots(figsize=(1.8 + 0.6 * len(columns), 1.5 + 0.45 * len(rows)), layout="tight")
    grid = [[shares.get((m, n), float("nan")) for n in columns] for m in rows]
    image = axes.imshow(grid, vmin=0, vmax=1, origin="lower", aspect="auto", cmap="viridis")
    axes.set_xticks(range(len(columns)), [str(n) for n in columns])
    axes.set_yticks(range(len(rows)), [str(m) for m in rows])
    axes.set(xlabel="tile n", ylabel="tile m", title=title)
    figure.colorbar(image, label=f"least {landscape.objective} / {landscape.objective}")
    figure.savefig(file, format="png", dpi=150)
    pyplot.close(figure)
