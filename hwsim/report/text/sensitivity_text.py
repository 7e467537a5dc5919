"""Sensitivity of a program's cycles to assumed numbers, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hwsim.report.text.words import count, facts, percent, table
from hwsim.studies.sensitivity import SPREAD

if TYPE_CHECKING:
    from hwsim.studies.sensitivity import Influence

WORTH = 0.0005  # numbers that move the cycles less are counted, not listed


def sensitivity_text(influences: Sequence[Influence], problem: str, cycles: int) -> str:
    """A table of the numbers that change the cycles, and the count of those that do not."""
    lines = facts(
        [
            ("problem", problem),
            ("cycles", count(cycles)),
            ("ranges", f"span: between what sources give; assumed: {percent(SPREAD)} less and more, our choice"),
        ]
    )
    worth = [influence for influence in influences if influence.moved >= WORTH or influence.refused]
    rows = [
        (
            influence.path,
            f"{influence.value:g}",
            f"{influence.low:g} to {influence.high:g}",
            "span" if influence.from_span else "assumed",
            influence.evidence,
            _end(influence, influence.cycles_low),
            _end(influence, influence.cycles_high),
            influence.refused,
        )
        for influence in worth
    ]
    head = ("number", "value", "range", "", "evidence", "low end", "high end", "")
    lines += ["", *table(rows, head, right=(1, 5, 6))] if rows else []
    rest = len(influences) - len(worth)
    if rest:
        lines.append(
            f"{'  ' if rows else ''}{count(rest)} other numbers move the cycles by less than {100 * WORTH:g} %"
        )
    if not influences:
        lines.append("no number that this time rests on is assumed, and sources agree")
    return "\n".join(lines)


def _end(influence: Influence, cycles: int | None) -> str:
    return "refused" if cycles is None else f"{100 * (cycles - influence.cycles) / influence.cycles:+.1f} %"
