"""Variants of an accelerator on the page of a sweep: a verdict in words, time against energy and area with the front
marked, and a table.

The module knows variants of a study; it knows no device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hwsim.report.page.figures import axis, figure
from hwsim.report.page.page import PageSection, Part, Plot, Table
from hwsim.report.page.style import BUSY, OTHER
from hwsim.report.text.cost_text import area_text, joules_text
from hwsim.report.text.words import cell_text, count, duration, plural
from hwsim.studies.variants import COSTS, DesignVariant, costs_of, front_of, variants_of

if TYPE_CHECKING:
    from hwsim.studies.sweep import SweepTable

HEIGHT = 440
WIDE = 10  # the most over the least of a cost, from which on its axis is logarithmic
TEXT_ACROSS, TEXT_UP = 0.2, 0.08  # room of a text to the right of its point and above it, of a narrow plot's sides
#: Units of an axis, the largest first: how many there are in a second, a joule or a square millimetre.
UNITS: Mapping[str, tuple[tuple[str, float], ...]] = {
    "seconds": (("s", 1.0), ("ms", 1e3), ("us", 1e6)),
    "joules": (("J", 1.0), ("mJ", 1e3), ("uJ", 1e6)),
    "area_mm2": (("mm2", 1.0),),
}
WORDS: Mapping[str, str] = {"seconds": "time", "joules": "energy", "area_mm2": "area"}
LEAST: Mapping[str, str] = {"seconds": "fastest", "joules": "least energy", "area_mm2": "smallest"}
NOTE = " Energies and areas are the numbers of the device file, and none is made up."


def has_variants(table: SweepTable) -> bool:
    """Whether the sweep compares designs: it sets numbers of a device, or knows energy or area."""
    return bool(table.paths) or any(row.get(name) is not None for row in table.rows for name in ("joules", "area_mm2"))


def variant_sections(table: SweepTable) -> list[PageSection]:
    """The sections on variants; none where the sweep compares no designs."""
    if not has_variants(table):
        return []
    variants = variants_of(table.rows, table.parameters)
    if len(variants) < 2:
        return []
    costs = costs_of(variants)
    marked = f"none is better in {_joined(costs)} at once" if len(costs) > 1 else "none takes less time"
    about = f"Each variant over all shapes, each shape once. Marked: {marked}."
    about += NOTE if costs != ["seconds"] else ""
    return [PageSection("Variants", about, [*_plots(variants, costs), _table(variants)])]


def variant_lead(table: SweepTable) -> list[str]:
    """The verdict on the variants: how many are on the front, and the best in each cost."""
    if not has_variants(table):
        return []
    variants = variants_of(table.rows, table.parameters)
    ran = [variant for variant in variants if not variant.refused]
    costs = costs_of(variants)
    if len(variants) < 2 or not ran or not costs:
        return []
    front = [variant for variant in ran if variant.is_on_front]
    are = "are" if len(front) > 1 else "is"
    place = f"on the front of {_joined(costs)}" if len(costs) > 1 else "the fastest"
    lines = [f"{count(len(front))} of {plural(len(variants), 'variant')} {are} {place}"]
    if len(ran) < len(variants):
        lines[0] += f"; {count(len(variants) - len(ran))} do not run"
    for cost in costs:
        best = min(front, key=lambda variant: variant.totals[cost])
        others = sum(variant.totals[cost] == best.totals[cost] for variant in front) - 1
        equal = f"; {plural(others, 'other variant')} {'takes' if others == 1 else 'take'} as much" if others else ""
        lines.append(f"{LEAST[cost]}: {design_name(best)}: {', '.join(_quantities(best))}{equal}")
    return lines


def design_name(variant: DesignVariant) -> str:
    """What tells a variant from the others, in words: the last two parts of a number's path and its value."""
    asked = [(".".join(name.split(".")[-2:]), value) for name, value in variant.asked.items()]
    return ", ".join(f"{name} {cell_text(value)}" for name, value in asked) or "the device"


def _quantities(variant: DesignVariant) -> list[str]:
    return [_quantity(name, variant.totals[name]) for name in COSTS if name in variant.totals]


def _joined(costs: Sequence[str]) -> str:
    words = [WORDS[cost] for cost in costs] or ["time"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _quantity(cost: str, number: float) -> str:
    if cost == "seconds":
        return duration(number)
    return joules_text(number) if cost == "joules" else area_text(number)


@dataclass(frozen=True, slots=True)
class _CostAxis:
    """A cost as an axis: its title, and how many of its unit there are in a second, a joule or a square millimetre."""

    cost: str
    title: str
    scale: float
    is_wide: bool = False  # the most is WIDE times the least, and more: a logarithmic axis

    def to_dict(self) -> dict[str, Any]:
        """The axis of a figure."""
        return axis(self.title, type="log") if self.is_wide else axis(self.title, rangemode="tozero")

    def place(self, number: float, of_all: Sequence[float]) -> float:
        """Where a number lies between the ends of the axis, from 0 to 1."""
        low, high = (min(of_all), max(of_all)) if self.is_wide else (0.0, max(of_all))
        if self.is_wide:
            number, low, high = math.log(number), math.log(low), math.log(high)
        return (number - low) / (high - low) if high > low else 0.0

    def of(self, variants: Sequence[DesignVariant]) -> list[float]:
        return [variant.totals[self.cost] * self.scale for variant in variants]


def _axis(cost: str, variants: Sequence[DesignVariant]) -> _CostAxis:
    """The axis in the largest unit of which the variants take at least one, or in the smallest; of a wide range all."""
    least, most = (end(variant.totals[cost] for variant in variants) for end in (min, max))
    is_wide = 0 < WIDE * least <= most
    told = least if is_wide else most
    unit, scale = next((pair for pair in UNITS[cost] if told * pair[1] >= 1), UNITS[cost][-1])
    return _CostAxis(cost, f"{WORDS[cost]} ({unit})", scale, is_wide)


def _plots(variants: Sequence[DesignVariant], costs: Sequence[str]) -> list[Part]:
    ran = [variant for variant in variants if not variant.refused]
    front, beaten = ([variant for variant in ran if variant.is_on_front == wanted] for wanted in (True, False))
    parts: list[Part] = []
    for x_cost, y_cost in (("seconds", "joules"), ("seconds", "area_mm2"), ("area_mm2", "joules")):
        if x_cost not in costs or y_cost not in costs:
            continue
        x, y = _axis(x_cost, ran), _axis(y_cost, ran)
        line = front_of(ran, x_cost, y_cost)
        data = [
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"front of {WORDS[x_cost]} and {WORDS[y_cost]}",
                "x": x.of(line),
                "y": y.of(line),
                "line": {"color": BUSY, "width": 1, "dash": "dot", "shape": "hv"},
                "hoverinfo": "skip",
            },
            _points(beaten, x, y, "beaten by another", {"color": OTHER, "symbol": "circle-open", "size": 10}),
            _points(front, x, y, f"on the front of {_joined(costs)}", {"color": BUSY, "symbol": "diamond", "size": 10}),
        ]
        _without_crowded(data[1:], x, y)
        look = figure(data, x.to_dict(), y.to_dict(), showlegend=True)
        parts.append(Plot(look, HEIGHT, f"{y.title} against {x.title} of each variant"))
    return parts


def _points(
    variants: Sequence[DesignVariant], x: _CostAxis, y: _CostAxis, name: str, marker: Mapping[str, Any]
) -> dict[str, Any]:
    """The variants as points; those at one place are one point, with their number and all of their names."""
    places: dict[tuple[float, float], list[DesignVariant]] = {}
    for variant, *place in zip(variants, x.of(variants), y.of(variants), strict=True):
        places.setdefault((place[0], place[1]), []).append(variant)
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": name,
        "x": [place[0] for place in places],
        "y": [place[1] for place in places],
        "text": [f"{len(several)} equal" if len(several) > 1 else "" for several in places.values()],
        "hovertext": [_told(several) for several in places.values()],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": dict(marker),
    }


def _without_crowded(traces: Sequence[dict[str, Any]], x: _CostAxis, y: _CostAxis) -> None:
    """Put each text above its point, to the right or, near the right end, to the left. One that would lie on a point,
    or on a text that stays, is taken away: the pointer shows what it says.
    """
    xs, ys = ([number for trace in traces for number in trace[side]] for side in ("x", "y"))
    points = [(x.place(across, xs), y.place(up, ys)) for across, up in zip(xs, ys, strict=True)]
    placed: list[tuple[float, float]] = []
    texts: list[tuple[str, str]] = []  # with where it stands
    for at, text in enumerate(text for trace in traces for text in trace["text"]):
        right, low = points[at]
        is_left = right + TEXT_ACROSS > 1
        left = right - TEXT_ACROSS if is_left else right
        others = [*points[:at], *points[at + 1 :]]
        on_point = any(0 <= across - left <= TEXT_ACROSS and 0 <= up - low < TEXT_UP for across, up in others)
        on_text = any(abs(across - left) < TEXT_ACROSS and abs(up - low) < TEXT_UP for across, up in placed)
        is_shown = bool(text) and not on_point and not on_text
        placed += [(left, low)] if is_shown else []
        texts.append((text if is_shown else "", "top left" if is_left else "top right"))
    for trace in traces:
        count_of_trace = len(trace["x"])
        trace["text"] = [text for text, _ in texts[:count_of_trace]]
        trace["textposition"] = [where for _, where in texts[:count_of_trace]]
        texts = texts[count_of_trace:]


def _told(variants: Sequence[DesignVariant]) -> str:
    """The variants of one point: what they are, then their costs where they differ in none, else each one's."""
    costs = dict.fromkeys("<br>".join(_quantities(variant)) for variant in variants)
    if len(costs) == 1:
        return "<br>".join([*map(design_name, variants), *costs])
    return "<br>".join("<br>".join([design_name(variant), *_quantities(variant)]) for variant in variants)


def _table(variants: Sequence[DesignVariant]) -> Table:
    """The variants, those on the front first, then by time; refused ones last, with the reason."""
    asked = list(dict.fromkeys(name for variant in variants for name in variant.asked))
    known = [name for name in ("cycles", *COSTS) if any(name in variant.totals for variant in variants)]
    titles = {"cycles": "cycles", "seconds": "time", "joules": "energy", "area_mm2": "area"}
    has_refused = any(variant.refused for variant in variants)
    order = sorted(
        variants,
        key=lambda variant: (bool(variant.refused), not variant.is_on_front, variant.totals.get("seconds", 0.0)),
    )
    rows = [
        [
            *(_cell(variant.asked.get(name)) for name in asked),
            *(_total(name, variant.totals.get(name)) for name in known),
            "yes" if variant.is_on_front else "",
            *([variant.refused] if has_refused else []),
        ]
        for variant in order
    ]
    head = [*asked, *(titles[name] for name in known), "front", *(["refused"] if has_refused else [])]
    numbers = range(len(asked), len(asked) + len(known))
    return Table(head, rows, right=list(numbers), filter=len(rows) > 10)


def _total(name: str, number: float | None) -> str:
    if number is None:
        return ""
    return count(number) if name == "cycles" else _quantity(name, number)


def _cell(value: Any) -> str:
    if value is None:
        return "as the file"
    return cell_text(value)
