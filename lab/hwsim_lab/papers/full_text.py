"""What ran at the papers' sizes, when and where, and what it changes, as Markdown. It knows outcomes and origins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hwsim_lab.papers.experiment import Experiment
from hwsim_lab.papers.origin import Origin
from hwsim_lab.papers.reproduce import ClaimOutcome
from hwsim_lab.papers.reproduce_text import numbers_text, summary

Ran = Mapping[str, Sequence[tuple[Experiment, Origin | None]]]


def table(ran: Ran) -> str:
    """Per paper, how many experiments ran at full scale and when, which did not, and the hosts."""
    lines = ["| paper | experiments that ran | days | not run |", "| --- | ---: | --- | --- |"]
    for paper, own in ran.items():
        days = sorted({origin.day for _, origin in own if origin is not None})
        missing = [f"`{one.name}`" for one, origin in own if origin is None]
        span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}" if days else ""
        lines.append(f"| {paper} | {len(own) - len(missing)} of {len(own)} | {span} | {', '.join(missing)} |")
    hosts = sorted({origin.host for own in ran.values() for _, origin in own if origin is not None})
    return "\n".join(lines) + "\n\n" + "".join(f"* {host}\n" for host in hosts)


def changes(quick: Iterable[ClaimOutcome], full: Sequence[ClaimOutcome]) -> str:
    """Verdicts at full scale, and the claims whose verdict is another than at quick scale."""
    before = {one.id: one for one in quick}
    apart = [one for one in full if one.id in before and one.verdict != before[one.id].verdict]
    lines = ["| claim | quick | full | hwsim, quick | hwsim, full |", "| --- | --- | --- | --- | --- |"]
    for one in apart:
        other = before[one.id]
        cells = (one.id, other.verdict, one.verdict, numbers_text(other.measured), numbers_text(one.measured))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    said = f"{len(full)} claims measured at full scale; {len(apart)} have another verdict than at quick scale.\n"
    return f"{summary(full)}\n{said}" + ("\n" + "\n".join(lines) + "\n" if apart else "")
