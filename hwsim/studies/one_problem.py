"""Whether the rows of a study multiply operands of one format, where they could. It knows rows and schemes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hwsim.formats import format_of
from hwsim.request.declarations import AUTO
from hwsim.schemes import Scheme, scheme_of
from hwsim.studies.sweep_study import SweepPoint


def two_problems(runs: Sequence[tuple[SweepPoint, str | Scheme, Mapping[str, Any]]]) -> list[str]:
    """A sentence where A and B lie in a narrower format for some runs, though these take the widest one of the others.

    runs: a point, its scheme or the scheme's name, and its results by column. A point with an input_format of its own
    was asked for as it is.
    """
    ran = [run for run in runs if run[2].get("memory_format")]
    if not ran:
        return []
    widest = max((str(row["memory_format"]) for _, _, row in ran), key=lambda name: format_of(name).bits)
    named: dict[str, dict[str, None]] = {}
    is_split = False
    for point, scheme, row in ran:
        options = dict(point.options)
        if options.get("input_format") is None and _takes(scheme, row, widest):
            stored = str(row["memory_format"])
            form = row.get("chosen_format")
            name = str(row.get("chosen_scheme") or point.scheme) + (f" ({form})" if form else "")
            named.setdefault(stored, {})[name] = None
            is_split = is_split or stored != widest
    if not is_split:
        return []
    told = "; ".join(f"in {stored} for {', '.join(names)}" for stored, names in named.items())
    others = "" if widest in named else f", in {widest} for others"
    return [
        f"rows are of different problems: A and B are {told}{others}; options: {{input_format: {widest}}} gives all of "
        "them one"
    ]


def _takes(scheme: str | Scheme, row: Mapping[str, Any], format: str) -> bool:
    """Whether a scheme takes operands of a format without rounding them, as a row chose its own format."""
    if scheme == AUTO:
        scheme = str(row.get("chosen_scheme"))
    chosen = scheme_of(scheme) if isinstance(scheme, str) else scheme
    if chosen.quantizes is not None:
        return False
    if any(option.name == "format" for option in chosen.options):
        return row.get("chosen_format") == format
    return format in chosen.input_formats
