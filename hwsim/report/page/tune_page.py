"""The page of a search over mappings: the best beside the default, the landscape of tiles, and all configurations.

It knows the result of a search; how a configuration is timed is others'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hwsim.report.page.figures import axis, figure
from hwsim.report.page.page import Page, PageSection, Part, Plot, Table, Text
from hwsim.report.text.cost_text import joules_text
from hwsim.report.text.tune_text import (
    FORMULAS,
    SAME_BITS,
    SAME_BITS_MEANING,
    alike,
    clock_mhz,
    differing,
    gap_text,
    heat,
    named_points,
    near_text,
    refusals,
    settings_of,
    state_text,
    tune_dict,
)
from hwsim.report.text.words import count, data, duration, percent, plural, value
from hwsim.request.declarations import declared_by_name

if TYPE_CHECKING:
    from hwsim.studies.landscape import Landscape
    from hwsim.studies.tuned_point import TunedPoint

MOST_ROWS = 2000
#: What a column says of a setting; others keep their option's name.
TITLES = {"unit": "instruction", "split_k": "slices of K"}
#: Names of rows, with what they mean.
NAMES = {
    "best": "the best configuration that the search found",
    SAME_BITS: SAME_BITS_MEANING,
    "chosen": "the choice of the formula that was asked for",
    "default": "what a run takes that names no tile and no other setting",
    **FORMULAS,
}
RESULTS = {
    "time": "cycles over the clock under this load, without launches",
    "clock (MHz)": "the core clock that the board's power allows under this load: it differs between configurations",
    "HBM traffic": "bytes read from and written to device memory",
    "energy": "joules by the energies of the device's file or of hwsim's table",
    "of best": "what the search makes least, of the best configuration, divided by this one's; 100 % is best",
}


def tune_page(landscape: Landscape, title: str) -> Page:
    """The page of a search. title: scheme, format, device and shape."""
    named = named_points(landscape)
    timed, refused = len(landscape.ranked), len(landscape.refused)
    says = f"{plural(timed, 'configuration')} timed, {count(refused)} not legal."
    says += f" {state_text(landscape)}."
    says += "" if landscape.complete else " The search stopped at its budget."
    groups = alike(landscape)[:MOST_ROWS]
    settings = list(dict.fromkeys(name for point in landscape.ranked for name in settings_of(point)))
    settings = [name for name in settings if name != "instruction" or "unit" not in settings]
    return Page(
        f"Search: {title}",
        [
            PageSection(
                "Summary",
                f"The configuration of least {landscape.quantity}, or the choice of the formula that was asked for, "
                "beside others.",
                [
                    _table([(name, [point]) for name, point in named], settings, landscape),
                    Text(says),
                    *_refused(landscape),
                ],
            ),
            PageSection(
                "Landscape",
                f"By the tile's m and n: the least {landscape.quantity} of all configurations, divided by the least "
                f"{landscape.quantity} with this tile. 100 % is the best tile.",
                _landscape(landscape),
            ),
            PageSection(
                "Configurations",
                f"By {landscape.quantity}, best first. Configurations of one tile, instruction and equal "
                f"{landscape.quantity} are one row, which lists the settings that do not matter.",
                [
                    Text(f"{near_text(landscape)}."),
                    _table([(str(i + 1), group) for i, group in enumerate(groups)], settings, landscape, filter=True),
                ],
            ),
            PageSection(
                "Words", "What rows and columns mean.", [_words([name for name, _ in named], settings, landscape)]
            ),
        ],
        {"schema": "hwsim.tune/1", "title": title, **tune_dict(landscape)},
        [gap_text(landscape)],
    )


def _refused(landscape: Landscape) -> list[Part]:
    rows = refusals(landscape)
    return [Table(("not legal", "an example of the reason"), rows, right=[0])] if rows else []


def _landscape(landscape: Landscape) -> list[Part]:
    rows, columns, shares = heat(landscape)
    if len(shares) < 2:
        return []
    cells = [[None if (m, n) not in shares else 100 * shares[m, n] for n in columns] for m in rows]
    trace: dict[str, Any] = {
        "type": "heatmap",
        "z": cells,
        "x": [str(n) for n in columns],
        "y": [str(m) for m in rows],
        "colorscale": "Cividis",
        "colorbar": {"title": {"text": "% of the best", "side": "right"}},
        "texttemplate": "%{z:.0f}",
        "hovertemplate": "tile m %{y}, n %{x}: %{z:.1f} % of the best<extra></extra>",
    }
    x, y = axis("n of the tile (elements)", type="category"), axis("m of the tile (elements)", type="category")
    return [Plot(figure([trace], x, y), 200 + 30 * len(rows), "landscape of tiles")]


def _table(
    named: Sequence[tuple[str, list[TunedPoint]]],
    settings: Sequence[str],
    landscape: Landscape,
    *,
    filter: bool = False,
) -> Table:
    """One row for each group of equal points."""
    least = landscape.ranked[0].value(landscape.objective)
    head = ["", "tile (m x n x k)", *(TITLES.get(name, name) for name in settings)]
    has_energy = landscape.objective == "energy"
    energy = ["energy"] if has_energy else []
    results = ["time", "cycles", "clock (MHz)", "rate (TFLOP/s)", "HBM traffic", *energy, "of best"]
    rows = []
    for name, group in named:
        point, several = group[0], differing(group)
        chosen = {key: ", ".join(several[key]) if key in several else value(x) for key, x in settings_of(point).items()}
        numbers = _numbers(point)
        number = point.value(landscape.objective)
        ratio = percent(least / number) if number and point.cycles is not None else ""
        rows.append(
            (
                name,
                _tile(point),
                *(chosen.get(key, "") for key in settings),
                *numbers,
                *([_joules(point)] if has_energy else []),
                ratio,
            )
        )
    right = [len(head) + number for number in range(len(results))]
    return Table((*head, *results), rows, right=right, filter=filter)


def _numbers(point: TunedPoint) -> tuple[str, ...]:
    if point.cycles is None or point.seconds is None or point.hbm_bytes is None:
        return ("refused", "", "", "", "")
    clock = "" if (mhz := clock_mhz(point)) is None else count(mhz)
    return (duration(point.seconds), count(point.cycles), clock, f"{point.tflops:,.2f}", data(point.hbm_bytes))


def _joules(point: TunedPoint) -> str:
    return "" if point.joules is None else joules_text(point.joules)


def _tile(point: TunedPoint) -> str:
    """The tile on one line: its spaces do not break."""
    row = point.row()
    return "\N{NO-BREAK SPACE}x\N{NO-BREAK SPACE}".join(
        str(row[f"tile_{side}"]) for side in "mnk" if row[f"tile_{side}"] is not None
    )


def _words(names: Sequence[str], settings: Sequence[str], landscape: Landscape) -> Table:
    options = declared_by_name()
    meanings = {TITLES.get(name, name): options[name][0].option.help for name in settings if name in options}
    if "unit" in settings:
        meanings["instruction"] = "the matrix instruction that the program has"
    results = {name: text for name, text in RESULTS.items() if name != "energy" or landscape.objective == "energy"}
    rows = [*((name, NAMES[name]) for name in dict.fromkeys(names)), *meanings.items(), *results.items()]
    return Table(("word", "meaning"), rows)
