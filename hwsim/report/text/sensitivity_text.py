"""Sensitivity of a GEMM's time to assumed numbers, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hwsim.report.text.words import count, duration, facts, percent, table
from hwsim.studies.sensitivity import SPREAD, WORTH

if TYPE_CHECKING:
    from hwsim.studies.sensitivity import Influence

NEW = "new mapping"  # at an end of a number's range


def sensitivity_text(influences: Sequence[Influence], problem: str, cycles: int, seconds: float) -> str:
    """A table of the numbers that change the time, and the count of the others; cycles, seconds: with the device's own
    numbers.
    """
    lines = facts(
        [
            ("problem", problem),
            ("time", f"{duration(seconds)}, {count(cycles)} cycles"),
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
            *_end(influence.seconds, influence.seconds_low, influence.is_new_low),
            *_end(influence.seconds, influence.seconds_high, influence.is_new_high),
            influence.refused,
        )
        for influence in worth
    ]
    head = ("number", "value", "range", "", "evidence", "time, low end", "", "time, high end", "", "")
    lines += ["", *table(rows, head, right=(1, 5, 7))] if rows else []
    if any(NEW in row for row in rows):
        lines.append(
            f"  {NEW}: the one chosen for that number takes less time than the one of before, which stands elsewhere"
        )
    rest = len(influences) - len(worth)
    if rest:
        lines.append(f"{'  ' if rows else ''}{count(rest)} other numbers move the time by less than {100 * WORTH:g} %")
    if not influences:
        lines.append("no number that this time rests on is assumed, and sources agree")
    return "\n".join(lines)


def _end(seconds: float, at_end: float | None, is_new: bool) -> tuple[str, str]:
    return "refused" if at_end is None else f"{100 * (at_end / seconds - 1):+.1f} %", NEW if is_new else ""
