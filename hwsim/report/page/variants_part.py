"""Variants of an accelerator on the page of a sweep: a verdict in words, time against energy and area with the front
marked, and a table.

The module knows variants of a study; it knows no device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hwsim.report.page.figures import axis, figure
from hwsim.report.page.page import PageSection, Part, Plot, Table
from hwsim.report.page.style import BUSY, OTHER
from hwsim.report.text.words import count, duration, plural
from hwsim.studies.variants import DesignVariant, costs_of, front_of, variants_of

if TYPE_CHECKING:
    from hwsim.studies.sweep import SweepTable

HEIGHT = 440
AXES: Mapping[str, str] = {"seconds": "time (s)", "joules": "energy (J)", "area_mm2": "area (mm2)"}
WORDS: Mapping[str, str] = {"seconds": "time", "joules": "energy", "area_mm2": "area"}
LEAST: Mapping[str, str] = {"seconds": "fastest", "joules": "least energy", "area_mm2": "smallest"}
NOTE = "Energies and areas are the numbers of the device file, none is made up."


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
    about = (
        f"Each variant over all shapes, each shape once. Marked: no other variant has less {_joined(costs)} without "
        f"more of another. {NOTE if len(costs) > 1 or 'seconds' not in costs else ''}"
    )
    return [PageSection("Variants", about.strip(), [*_plots(variants, costs), _table(variants)])]


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
    lines = [f"{count(len(front))} of {plural(len(variants), 'variant')} {are} on the front of {_joined(costs)}"]
    if len(ran) < len(variants):
        lines[0] += f"; {count(len(variants) - len(ran))} do not run"
    for cost in costs:
        best = min(front, key=lambda variant: variant.totals[cost])
        others = [f"{_quantity(name, best.totals[name])}" for name in COST_ORDER if name in best.totals]
        lines.append(f"{LEAST[cost]}: {design_name(best)}: {', '.join(others)}")
    return lines


COST_ORDER = tuple(AXES)


def design_name(variant: DesignVariant) -> str:
    """What tells a variant from the others, in words: the last part of a number's path and its value."""
    return ", ".join(f"{name.rpartition('.')[2]} {value}" for name, value in variant.asked.items()) or "the device"


def _joined(costs: Sequence[str]) -> str:
    words = [WORDS[cost] for cost in costs] or ["time"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _quantity(cost: str, number: float) -> str:
    if cost == "seconds":
        return duration(number)
    return f"{number * 1e3:,.4g} mJ" if cost == "joules" else f"{number:,.4g} mm2"


def _plots(variants: Sequence[DesignVariant], costs: Sequence[str]) -> list[Part]:
    ran = [variant for variant in variants if not variant.refused]
    parts: list[Part] = []
    for x, y in (("seconds", "joules"), ("seconds", "area_mm2"), ("area_mm2", "joules")):
        if x not in costs or y not in costs:
            continue
        line = front_of(ran, x, y)
        data = [
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"front of {WORDS[x]} and {WORDS[y]}",
                "x": [variant.totals[x] for variant in line],
                "y": [variant.totals[y] for variant in line],
                "line": {"color": BUSY, "width": 1, "dash": "dot", "shape": "hv"},
                "hoverinfo": "skip",
            },
            _points(
                [variant for variant in ran if not variant.is_on_front], x, y, "beaten by another", OTHER, "circle-open"
            ),
            _points(
                [variant for variant in ran if variant.is_on_front],
                x,
                y,
                f"on the front of {_joined(costs)}",
                BUSY,
                "diamond",
            ),
        ]
        look = figure(data, axis(AXES[x], rangemode="tozero"), axis(AXES[y], rangemode="tozero"), showlegend=True)
        parts.append(Plot(look, HEIGHT, f"{AXES[y]} against {AXES[x]} of each variant"))
    return parts


def _points(variants: Sequence[DesignVariant], x: str, y: str, name: str, colour: str, symbol: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [variant.totals[x] for variant in variants],
        "y": [variant.totals[y] for variant in variants],
        "text": [
            "<br>".join([design_name(variant), *(_quantity(c, variant.totals[c]) for c in AXES if c in variant.totals)])
            for variant in variants
        ],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": colour, "symbol": symbol, "size": 10},
    }


def _table(variants: Sequence[DesignVariant]) -> Table:
    """The variants, those on the front first, then by time; refused ones last, with the reason."""
    asked = list(dict.fromkeys(name for variant in variants for name in variant.asked))
    known = [name for name in ("cycles", *AXES) if any(name in variant.totals for variant in variants)]
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
    return count(value) if isinstance(value, int) and not isinstance(value, bool) else str(value)
