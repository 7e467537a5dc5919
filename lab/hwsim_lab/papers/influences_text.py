"""What assumptions do to claims, as Markdown: claims whose verdict turns, and every assumption. It knows outcomes
alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hwsim_lab.papers.influences import is_asked
from hwsim_lab.papers.reproduce import ClaimInfluence, ClaimOutcome, InfluenceEnd

NOT_VARIED = "not varied here: `--sensitivity` does it"
STILL = 5e-4  # relative changes below it count as none


def table(outcomes: Sequence[ClaimOutcome]) -> str:
    """A row for each assumption behind each claim that does not hold, or holds and turns; empty where none was asked
    for.
    """
    rows = [row for one in outcomes if one.verdict != "holds" or one.turns for row in _rows(one)]
    if not any(one.influences or one.unmoved for one in outcomes):
        return ""
    head = "| claim | verdict | assumption | value | at | moves what was measured by | verdict there |\n"
    return head + "| --- | --- | --- | --- | --- | --- | --- |\n" + "".join(rows)


def hanging(outcomes: Sequence[ClaimOutcome]) -> str:
    """A row for each claim whose verdict turns with an assumption, and with which; empty where none does."""
    head = "| claim | verdict | turns with | to |\n| --- | --- | --- | --- |\n"
    rows = [
        f"| {one.id} | {one.verdict} | {'; '.join(names)} | {', '.join(sorted(verdicts))} |\n"
        for one in outcomes
        if one.turns
        for names, verdicts in [_turned(one)]
    ]
    return head + "".join(rows) if rows else ""


def _turned(one: ClaimOutcome) -> tuple[list[str], set[str]]:
    """Names of the assumptions at an end of which the verdict is another, and those verdicts."""
    turned = {
        about.name: {end.verdict for end in about.others if end.verdict not in (one.verdict, None)}
        for about in one.influences
    }
    return [name for name, to in turned.items() if to], {str(to) for ends in turned.values() for to in ends}


def _rows(one: ClaimOutcome) -> list[str]:
    if is_asked(one) and not one.influences and not one.unmoved:
        return [_row(one, NOT_VARIED, "", "", "", "")]
    if one.unmoved:
        return [_row(one, "none", one.unmoved, "", "", "")]
    return [
        _row(one, _name(about) if index == 0 else "", _value(about.value) if index == 0 else "", *_end(end, one))
        for about in one.influences
        for index, end in enumerate(about.others)
    ]


def _row(one: ClaimOutcome, *cells: str) -> str:
    return "| " + " | ".join((one.claim.id, one.verdict, *(" ".join(cell.split()) for cell in cells))) + " |\n"


def _name(about: ClaimInfluence) -> str:
    return f"{about.name} ({about.why or about.said})".replace("|", "\\|")


def _end(end: InfluenceEnd, one: ClaimOutcome) -> tuple[str, str, str]:
    if end.verdict is None:
        return _value(end.value), f"refused: {end.refused}".replace("|", "\\|"), ""
    verdict = f"**{end.verdict}**" if end.verdict != one.verdict else end.verdict
    return _value(end.value), moves_text(end.moves), verdict


def moves_text(moves: Mapping[str, list[float]]) -> str:
    """Relative changes of quantities, those that do not change left out."""
    parts = [f"{name} {_change(*both)}" for name, both in moves.items() if max(map(abs, both)) >= STILL]
    return "; ".join(parts) if parts else "nothing"


def _change(least: float, most: float) -> str:
    low, high = (f"{100 * x:+.1f} %" for x in (least, most))
    return low if low == high else f"{low} to {high}"


def _value(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
