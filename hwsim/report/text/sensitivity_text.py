"""Sensitivity of a program's cycles to assumed numbers, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hwsim.report.text.words import count, facts, percent, table
from hwsim.studies.sensitivity import SPREAD

if TYPE_CHECKING:
    from hwsim.studies.sensitivity import Influence

WORTH = 0.0005  # numbers that move the cycles less are counted, not listed


def sensitivity_text(found: Sequence[Influence], problem: str, cycles: int) -> str:
    """A table of the numbers that change the cycles, and the count of those that do not."""
    lines = facts(
        [
            ("problem", problem),
            ("cycles", count(cycles)),
            ("ranges", f"span: between what sources give; assumed: {percent(SPREAD)} less and more, our choice"),
        ]
    )
    worth = [one for one in found if one.moved >= WORTH or one.refused]
    rows = [
        (
            one.path,
            f"{one.value:g}",
            f"{one.low:g} to {one.high:g}",
            "span" if one.from_span else "assumed",
            one.evidence,
            _end(one, one.cycles_low),
            _end(one, one.cycles_high),
            one.refused,
        )
        for one in worth
    ]
    head = ("number", "value", "range", "", "evidence", "low end", "high end", "")
    lines += ["", *table(rows, head, right=(1, 5, 6))] if rows else []
    rest = len(found) - len(worth)
    if rest:
        lines.append(
            f"{'  ' if rows else ''}{count(rest)} other numbers move the cycles by less than {100 * WORTH:g} %"
        )
    if not found:
        lines.append("no number that this time rests on is assumed, and sources agree")
    return "\n".join(lines)


def _end(one: Influence, cycles: int | None) -> str:
    return "refused" if cycles is None else f"{100 * (cycles - one.cycles) / one.cycles:+.1f} %"
