"""Whether the rows of a study multiply operands of one format. It knows rows and schemes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hwsim.formats import format_of
from hwsim.request.declarations import AUTO
from hwsim.schemes import Scheme, scheme_of
from hwsim.studies.sweep_study import SweepPoint

#: A point, its scheme or the scheme's name, and its results by column.
StudyRun = tuple[SweepPoint, str | Scheme, Mapping[str, Any]]


def two_problems(runs: Sequence[StudyRun], *, exact: bool) -> list[str]:
    """A sentence where A and B lie in several formats, though nobody asked for that. exact: whether bits are computed.

    A point with an input_format was asked for as it is. Where cycles alone are wanted, operands lie in the format that
    a point asks for, or that its scheme quantises to. Such a point counts only where it and others take the widest
    format, and some of these lie in a narrower one.
    """
    ran = [run for run in runs if run[2].get("memory_format") and dict(run[0].options).get("input_format") is None]
    if not ran:
        return []
    widest = max((_stored(run) for run in ran), key=lambda name: format_of(name).bits)
    takers = [run for run in ran if _takes(*run[1:], widest)]
    told = [run for run in ran if exact or not _lies_as_asked(*run)]
    if not exact and any(_stored(run) != widest for run in takers):
        told = takers
    named: dict[str, dict[str, None]] = {}
    for run in told:
        point, _, row = run
        form = row.get("chosen_format")
        name = str(row.get("chosen_scheme") or point.scheme) + (f" ({form})" if form else "")
        named.setdefault(_stored(run), {})[name] = None
    if len({*named, widest} if told is takers else named) <= 1:
        return []
    listed = "; ".join(f"in {stored} for {', '.join(names)}" for stored, names in named.items())
    others = "" if widest in named else f", in {widest} for others"
    return [
        f"rows are of different problems: A and B are {listed}{others}; options: {{input_format: {widest}}} gives all "
        "of them one"
    ]


def _stored(run: StudyRun) -> str:
    """The format that a run's operands lie in."""
    return str(run[2]["memory_format"])


def _lies_as_asked(point: SweepPoint, scheme: str | Scheme, row: Mapping[str, Any]) -> bool:
    """Whether operands of which only sizes are known lie in the format that the point, or its scheme, needs."""
    return _scheme(scheme, row).quantizes is not None or dict(point.options).get("format") == row["memory_format"]


def _takes(scheme: str | Scheme, row: Mapping[str, Any], format: str) -> bool:
    """Whether a scheme takes operands of a format without rounding them, as a row chose its own format."""
    chosen = _scheme(scheme, row)
    if chosen.quantizes is not None:
        return False
    if any(option.name == "format" for option in chosen.options):
        return row.get("chosen_format") == format
    return format in chosen.input_formats


def _scheme(scheme: str | Scheme, row: Mapping[str, Any]) -> Scheme:
    if scheme == AUTO:
        scheme = str(row.get("chosen_scheme"))
    return scheme_of(scheme) if isinstance(scheme, str) else scheme
