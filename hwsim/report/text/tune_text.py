"""The result of a search over mappings as text and data: best points, a heat map over tile sizes, CSV, PNG."""

from __future__ import annotations

import csv
import io
import math
import re
from typing import IO, TYPE_CHECKING, Any

from hwsim.errors import UnsupportedError
from hwsim.machines.l2_state import STATES
from hwsim.report.text.cost_text import joules_text
from hwsim.report.text.words import count, data, duration, facts, percent, plural, table
from hwsim.studies.tuned_point import NUMBERS

if TYPE_CHECKING:
    from hwsim.studies.landscape import Landscape, LibraryKernel
    from hwsim.studies.tuned_point import TunedPoint

BEST = 10  # groups of points listed
REFUSED = "not legal, with an example of each reason"
REASONS = 3  # why configurations are not legal, listed
NUMBER = re.compile(r"\d[\d,.]*")
LEAST_SHARE = 0.001  # a smaller difference has no number
TIME_ERROR = 0.08  # mean |error| of bf16 GEMM times over six chips: lab/docs/cycles.md, "Times that others measured"
#: The choices of papers' formulas, by their names in the report.
FORMULAS = {
    "eq11": "the tile of SGEMM-cube's formula for least traffic (Eq. 11)",
    "tlp": "the tile of LE-GEMM's model of thread parallelism (Eq. 12 and 15)",
}
SAME_BITS_MEANING = "the best configuration that adds K in the default's order; the best of all adds it in another"
#: A search times some tiles: of plain products on GPUs those of the vendor's library.
SAME_BITS = "same bits"  # the row of the best configuration with the default's bits
OTHER_TILES = "tiles outside the search may be faster (hwsim run --tile)"
SHADES = " .:-=+*#%@"  # from far above the best to the best


def tune_text(landscape: Landscape) -> str:
    """The report of a search."""
    m, n, k = (count(size) for size in landscape.sizes)
    ranked, stack = landscape.ranked, f" in a stack of {count(math.prod(landscape.lead))}" if landscape.lead else ""
    looked = f"{plural(len(ranked), 'configuration')} timed, {count(len(landscape.refused))} not legal, of "
    looked += f"{plural(landscape.combinations, 'combination')} of tiles and options"
    unfinished = "" if landscape.complete else "the search stopped at its budget (--budget): "
    lines = facts(
        [
            ("verdict", f"{unfinished}{gap_text(landscape)}"),
            *([("", rank)] if (rank := _rank_text(landscape)) else []),
            ("problem", f"C[{m} x {n}], K = {k}{stack}; {landscape.scheme} on {landscape.device}"),
            ("searched", f"{looked}; least {landscape.quantity}"),
            ("state", state_text(landscape)),
        ]
    )
    least = ranked[0].value(landscape.objective)
    rows = [(name, *_cells(point, least, landscape.objective)) for name, point in named_points(landscape)]
    energy = ("energy",) if landscape.objective == "energy" else ()
    head = ("configuration", "time", "cycles", "MHz", "TFLOP/s", "HBM", *energy, "of best")
    right = range(2, len(head) + 1)
    rows += _library_cells(landscape, len(head))
    lines += ["", *table(rows, ("", *head), right=right)]
    if any(name == SAME_BITS for name, *_ in rows):
        lines += [f"  {SAME_BITS}: {SAME_BITS_MEANING}"]
    lines += [f"  {name}: {FORMULAS[name]}" for name in landscape.analytic]
    groups = alike(landscape)
    if len(groups) > 1:
        listed = [
            (str(i + 1), *_cells(group[0], least, landscape.objective), _others(group))
            for i, group in enumerate(groups[:BEST])
        ]
        lines += ["", f"the best {len(listed)} by {landscape.quantity}; configurations with the same are one row"]
        lines += [*table(listed, ("", *head, ""), right=(0, *right)), "", near_text(landscape)]
    beside = [] if landscape.library is None else [_library_text(landscape.library)]
    return "\n".join([*lines, *_refused_text(landscape), *_heat_text(landscape), *beside])


def state_text(landscape: Landscape) -> str:
    """What all times are of: the state of L2, the clock or the power limit that was asked for, the format in memory."""
    call = landscape.call
    parts = [f"L2 {STATES[landscape.l2].meaning} (l2={landscape.l2})"]
    parts += [f"clock {call['clock_mhz']:,g} MHz"] if "clock_mhz" in call else []
    parts += [f"board of {call['power_limit_w']:,g} W"] if "power_limit_w" in call else []
    parts += [f"operands {call['input_format']} in memory"] if "input_format" in call else []
    return "; ".join(parts)


def refusals(landscape: Landscape) -> list[tuple[str, str]]:
    """Why configurations are not legal: how many, and one of the reasons that are alike but for numbers."""
    alike_but_numbers: dict[str, list[str]] = {}
    for point in landscape.refused:
        alike_but_numbers.setdefault(NUMBER.sub("N", point.refused), []).append(point.refused)
    ranked = sorted(alike_but_numbers.values(), key=len, reverse=True)
    rows = [(count(len(reasons)), reasons[0]) for reasons in ranked[:REASONS]]
    left = sum(map(len, ranked[REASONS:]))
    rows += [(count(left), "for other reasons (--csv FILE lists them)")] if left else []
    return rows


def _refused_text(landscape: Landscape) -> list[str]:
    rows = refusals(landscape)
    return ["", REFUSED, *table(rows, right=(0,))] if rows else []


def _library_text(library: LibraryKernel) -> str:
    words = f"{library.name} runs {library.kernel}, slices of K: {library.split_k}"
    program = "no program"
    if library.cycles is not None and library.program_seconds is not None:
        program = f"as a program {count(library.cycles)} cycles, {duration(library.program_seconds)}"
    fitted = library.is_fitted and library.seconds is not None
    return f"{words}; {program}{f'; by fitted times {duration(library.seconds or 0.0)}' if fitted else ''}"


def _rank_text(landscape: Landscape) -> str:
    """Where a library's kernel would stand by the time that it takes; empty without one."""
    library, ranked = landscape.library, landscape.ranked
    if library is None or not library.seconds:
        return ""
    faster = sum((point.seconds or 0.0) < library.seconds for point in ranked)
    how = "by fitted times" if library.is_fitted else "as a program"
    where = "less than every configuration" if not faster else f"more than {count(faster)} of {count(len(ranked))}"
    return f"{library.name}'s kernel takes {duration(library.seconds)} {how}, {where}; the others' times are simulated"


def _library_cells(landscape: Landscape, columns: int) -> list[tuple[str, ...]]:
    """The row of a library's kernel, by the time that it takes."""
    library = landscape.library
    if library is None or library.seconds is None:
        return []
    m, n, k = landscape.sizes
    work = 2 * m * n * k * math.prod(landscape.lead)
    kernel = f"{library.kernel} split_k {library.split_k}{' (fitted time)' if library.is_fitted else ''}"
    tflops = f"{work / library.seconds / 1e12:,.2f}" if library.seconds else ""
    ratio = (landscape.ranked[0].seconds or 0.0) / library.seconds if library.seconds else 0.0
    by_time = landscape.objective == "time" and bool(ratio)
    cycles = count(library.cycles) if library.cycles is not None and not library.is_fitted else ""
    cells = (kernel, duration(library.seconds), cycles, "", tflops)
    rest = columns - len(cells) - 1
    return [(library.name, *cells, *([""] * rest), f"{ratio:.3f}" if by_time else "")]


def gap_text(landscape: Landscape) -> str:
    """How far the default is from the best, in a sentence; of a formula alone, how far its choice is from the
    default.
    """
    best, default = landscape.best, landscape.default
    low, high = (point.value(landscape.objective) for point in (best, default))
    words = [_quantity(point, landscape.objective) for point in (best, default)]
    if _is_search(landscape):
        name = f"the best of {plural(len(landscape.ranked), 'configuration')}"
        same, beside = f"the default is {name}", f"; {OTHER_TILES}"
        if not landscape.complete:
            same = f"none of the first {plural(len(landscape.ranked), 'configuration')} is better than the default"
    else:
        name, same, beside = "the formula's choice", "the formula's choice is as good as the default", ""
    if low == high:
        return f"{same}: {words[0]}{beside}"
    if _is_search(landscape) and landscape.best.has_same_bits is False:
        unchanged = landscape.best_with_same_bits
        quantity = _quantity(unchanged, landscape.objective)
        beside = f"; it changes the bits: with the default's bits the best takes {quantity}{beside}"
    if low < high:
        if 1 - low / high < LEAST_SHARE:
            return f"the default is within {percent(LEAST_SHARE)} of {name}: {words[1]}{beside}"
        return f"{name} takes {words[0]}, {percent(1 - low / high)} less than the default's {words[1]}{beside}"
    more = f"{low / high:.3f} times" if high else "more than"
    return f"the formula's choice takes {words[0]}, {more} the default's {words[1]}"


def _is_search(landscape: Landscape) -> bool:
    """Whether the best is the best of a search, rather than a formula's choice."""
    return landscape.best.value(landscape.objective) == landscape.ranked[0].value(landscape.objective)


def _quantity(point: TunedPoint, objective: str) -> str:
    number = point.value(objective)
    words = {"time": duration, "cycles": _cycles, "traffic": _traffic, "energy": joules_text}
    return words[objective](number)


def _cycles(number: float) -> str:
    return f"{count(number)} cycles"


def _traffic(number: float) -> str:
    return f"{data(number)} of HBM"


def near_text(landscape: Landscape) -> str:
    """How many configurations are too close to the best to be told from it; of energies, what they rest on."""
    ranked = landscape.ranked
    if landscape.objective == "energy":
        evidence = ranked[0].energy_evidence
        return (
            f"evidence of the energies: {evidence} (documentation: page Energy); the chip may rank configurations "
            "otherwise"
        )
    least = ranked[0].value(landscape.objective)
    near = sum(point.value(landscape.objective) <= least * (1 + TIME_ERROR) for point in ranked)
    are = "is" if near == 1 else "are"
    return (
        f"{count(near)} of {count(len(ranked))} configurations {are} within {100 * TIME_ERROR:.0f} % of the best, the "
        "mean error of simulated times on chips where they were measured: the chip may rank them otherwise"
    )


def named_points(landscape: Landscape) -> list[tuple[str, TunedPoint]]:
    """The points that have a name: the best (of a formula alone: its choice, which may not be the best), the best with
    the default's bits where the best has others, the default and the formulas' choices.
    """
    first = "best" if _is_search(landscape) else "chosen"
    unchanged = [] if landscape.best.has_same_bits is not False else [(SAME_BITS, landscape.best_with_same_bits)]
    return [(first, landscape.best), *unchanged, ("default", landscape.default), *landscape.analytic.items()]


def alike(landscape: Landscape) -> list[list[TunedPoint]]:
    """The points in groups of one tile, slices, instruction and equal value, the best group first; in a group the first
    that was timed leads.
    """
    groups: dict[tuple[object, ...], list[TunedPoint]] = {}
    for point in landscape.ranked:
        row = point.row()
        same = tuple(row.get(name) for name in ("tile_m", "tile_n", "tile_k", "split_k", "unit"))
        groups.setdefault((*same, point.value(landscape.objective), point.cycles), []).append(point)
    return list(groups.values())


def _others(group: list[TunedPoint]) -> str:
    """What the other points of a group differ in."""
    shown = [f"{name} {', '.join(values[1:])}" for name, values in differing(group).items()]
    return f"the same with {'; '.join(shown)}" if shown else ""


def differing(group: list[TunedPoint]) -> dict[str, list[str]]:
    """{name: values} of the settings in which the points of a group differ."""
    rows = [point.row() for point in group]
    values = {name: list(dict.fromkeys(str(row.get(name)) for row in rows)) for name in rows[0]}
    return {name: several for name, several in values.items() if len(several) > 1 and name not in NUMBERS}


def clock_mhz(point: TunedPoint) -> float | None:
    """The core clock at which a point was timed: the power that its load takes fixes it."""
    return None if point.cycles is None or not point.seconds else point.cycles / point.seconds / 1e6


def _cells(point: TunedPoint, least: float, objective: str) -> tuple[str, ...]:
    if point.cycles is None or point.seconds is None or point.hbm_bytes is None:
        return (_named(point), *([""] * (6 if objective == "energy" else 5)), f"refused: {point.refused}")
    value = point.value(objective)
    ratio = f"{least / value:.3f}" if value else "1.000"
    clock = "" if (mhz := clock_mhz(point)) is None else count(mhz)
    speed = f"{point.tflops:,.2f}"
    return (
        *(_named(point), duration(point.seconds), count(point.cycles), clock, speed, data(point.hbm_bytes)),
        *(() if point.joules is None else (joules_text(point.joules),)),
        ratio,
    )


def _named(point: TunedPoint) -> str:
    """The configuration in full: as given, and what the dataflow chose."""
    return " ".join([f"tile {tile_text(point)}", *(f"{name} {value}" for name, value in settings_of(point).items())])


def tile_text(point: TunedPoint) -> str:
    """The tile as the option takes it."""
    row = point.row()
    return ",".join(f"{side}={row[f'tile_{side}']}" for side in "mnk" if row[f"tile_{side}"] is not None)


def settings_of(point: TunedPoint) -> dict[str, Any]:
    """The settings of a point but for the tile: as given, and what the dataflow chose."""
    skipped = ("tile_m", "tile_n", "tile_k", *NUMBERS)
    return {name: value for name, value in point.row().items() if name not in skipped and value is not None}


def heat(landscape: Landscape) -> tuple[list[int], list[int], dict[tuple[int, int], float]]:
    """The heat map: (m of tiles, n of tiles, best value / value by (m, n)), which is 1 at the best and smaller
    elsewhere.
    """
    values: dict[tuple[int, int], float] = {}
    for point in landscape.ranked:
        tile = point.facts.get("tile")
        if tile:
            values.setdefault((tile["m"], tile["n"]), point.value(landscape.objective))
    least = min(values.values(), default=1.0)
    shares = {at: least / value if value else 1.0 for at, value in values.items()}
    return sorted({m for m, _ in shares}), sorted({n for _, n in shares}), shares


def _heat_text(landscape: Landscape) -> list[str]:
    rows, columns, shares = heat(landscape)
    if len(shares) < 2:
        return []
    lines = ["", "the best with each tile, in percent of the best of all, by the tile's m (down) and n (across)"]
    body = [[str(m), *(_cell(shares.get((m, n))) for n in columns)] for m in rows]
    step = 100 // len(SHADES)
    shades = ", ".join(f"{shade} from {step * i}" for i, shade in reversed([*enumerate(SHADES)]) if shade != " ")
    return [
        *lines,
        *table(body, ("", *map(str, columns)), right=range(len(columns) + 1)),
        f"  marks, in percent: {shades}",
    ]


def _cell(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f}{SHADES[min(int(share * len(SHADES)), len(SHADES) - 1)]}"


def tune_csv(landscape: Landscape) -> str:
    """Every point as one line of CSV, in the order of `tune_dict`."""
    rows = _rows(landscape)
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    order = [name for name in names if name not in NUMBERS] + list(NUMBERS)
    out = io.StringIO()
    writer = csv.DictWriter(out, order, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def tune_dict(landscape: Landscape) -> dict[str, Any]:
    """The whole result, ready for JSON: points best first."""
    return {
        "objective": landscape.objective,
        "complete": landscape.complete,
        "best": landscape.best.row(),
        "default": landscape.default.row(),
        "analytic": {name: point.row() for name, point in landscape.analytic.items()},
        "points": _rows(landscape),
    }


def _rows(landscape: Landscape) -> list[dict[str, Any]]:
    """The points that were timed, best first, then those that are not legal."""
    return [point.row() for point in (*landscape.ranked, *landscape.refused)]


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
    figure.colorbar(image, label=f"least {landscape.quantity} / {landscape.quantity}")
    figure.savefig(file, format="png", dpi=150)
    pyplot.close(figure)
