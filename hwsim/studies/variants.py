"""Variants of an accelerator in a sweep: what each takes over all shapes, and which of them no other one beats.

The module knows a sweep's rows; it runs nothing and knows no device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

#: What is summed over the shapes of a variant; the area is the same for all.
SUMMED = ("cycles", "seconds", "joules")
#: What a variant is to have little of.
COSTS = ("seconds", "joules", "area_mm2")
#: Columns that tell shapes and repetitions apart, not variants.
OF_SHAPES = ("shape", "m", "n", "k", "seed")


@dataclass(frozen=True, slots=True)
class DesignVariant:
    """A device with its other numbers, scheme and options, over all shapes of a study.

    asked: what tells it from the others. totals: cycles, seconds and joules, each shape once, and area_mm2; those that
    are known. is_on_front: no other variant has less of one cost and no more of any. refused: why a shape does not run;
    it has no totals then.
    """

    asked: Mapping[str, Any]
    totals: Mapping[str, float]
    is_on_front: bool = False
    refused: str = ""


def variants_of(rows: Sequence[Mapping[str, Any]], parameters: Sequence[str]) -> list[DesignVariant]:
    """The variants of a sweep, in the order of its rows. parameters: columns of what was asked."""
    names = [name for name in parameters if name not in OF_SHAPES]
    varied = [name for name in names if len({str(row.get(name)) for row in rows}) > 1]
    grouped: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        grouped.setdefault(tuple(str(row.get(name)) for name in names), []).append(row)
    variants = [_variant(group, varied) for group in grouped.values()]
    costs = costs_of(variants)
    return [replace(variant, is_on_front=_is_on_front(variant, variants, costs)) for variant in variants]


def costs_of(variants: Sequence[DesignVariant]) -> list[str]:
    """The costs that all variants that run have, and that are not the same for all of them."""
    ran = [variant.totals for variant in variants if not variant.refused]
    known = [name for name in COSTS if ran and all(name in totals for totals in ran)]
    return [name for name in known if len(ran) == 1 or len({totals[name] for totals in ran}) > 1]


def front_of(variants: Sequence[DesignVariant], x: str, y: str) -> list[DesignVariant]:
    """The variants that no other one beats in these two costs, by x."""
    ran = [variant for variant in variants if not variant.refused]
    return sorted(
        (variant for variant in ran if _is_on_front(variant, ran, [x, y])), key=lambda variant: variant.totals[x]
    )


def _variant(rows: Sequence[Mapping[str, Any]], varied: Sequence[str]) -> DesignVariant:
    asked = {name: rows[0].get(name) for name in varied if rows[0].get(name) is not None}
    refused = next((str(row["refused"]) for row in rows if row.get("refused")), "")
    if refused:
        return DesignVariant(asked, {}, refused=refused)
    totals = {name: sum(row[name] for row in rows) for name in SUMMED if all(_is_number(row.get(name)) for row in rows)}
    if _is_number(rows[0].get("area_mm2")):
        totals["area_mm2"] = rows[0]["area_mm2"]
    if "seconds" not in totals:
        note = next((str(row["timing_note"]) for row in rows if row.get("timing_note")), "no time")
        return DesignVariant(asked, {}, refused=note)
    return DesignVariant(asked, totals)


def _is_on_front(variant: DesignVariant, variants: Sequence[DesignVariant], costs: Sequence[str]) -> bool:
    """Whether no other one has less of one cost and no more of any."""
    if variant.refused or not costs:
        return False
    here = [variant.totals[name] for name in costs]
    for other in variants:
        if other.refused:
            continue
        there = [other.totals[name] for name in costs]
        if there != here and all(less <= more for less, more in zip(there, here, strict=True)):
            return False
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
