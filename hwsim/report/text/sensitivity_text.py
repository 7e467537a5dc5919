"""Sensitivity of a GEMM's time to assumed numbers, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hwsim.report.text.words import count, duration, facts, percent, table
from hwsim.studies.sensitivity import SPREAD, WORTH

if TYPE_CHECKING:
    from hwsim.studies.sensitivity import Influence

NEW = "new mapping"  # at an end of a number's range
BETTER = "alone"  # which the mapping gains without the number


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
            *_end(influence.changes[0], influence.seconds, influence.seconds_before_low, influence.is_new_low),
            *_end(influence.changes[1], influence.seconds, influence.seconds_before_high, influence.is_new_high),
            influence.refused,
        )
        for influence in worth
    ]
    head = ("number", "value", "range", "", "evidence", "time, low end", "", "time, high end", "", "")
    lines += ["", *table(rows, head, right=(1, 5, 7))] if rows else []
    cells = [cell for row in rows for cell in row]
    if any(cell.startswith(NEW) for cell in cells):
        lines.append(
            f"  {NEW}: the one chosen for that number takes less time than the one of before, which stands elsewhere"
        )
    if any(BETTER in cell for cell in cells):
        lines.append(
            f"  {BETTER}: what the new mapping gains without the number's change; the row's change comes on top of it"
        )
    rest = len(influences) - len(worth)
    if rest:
        lines.append(f"{'  ' if rows else ''}{count(rest)} other numbers move the time by less than {100 * WORTH:g} %")
    if not influences:
        lines.append("no number that this time rests on is assumed, and sources agree")
    return "\n".join(lines)


def _end(change: float | None, seconds: float, before: float | None, is_new: bool) -> tuple[str, str]:
    """The change at an end, and what of its mapping. before: seconds of the device as it is in the better mapping."""
    if change is None:
        return "refused", ""
    if before is None or not is_new or before >= seconds:
        return f"{100 * change:+.1f} %", NEW if is_new else ""
    return f"{100 * change:+.1f} %", f"{NEW}, {100 * (before / seconds - 1):+.1f} % {BETTER}"
