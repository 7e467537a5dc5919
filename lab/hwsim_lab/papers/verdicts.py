"""The recorded verdicts (lab/docs/papers/verdicts.csv), what they were before, and README's counts of them.

It knows outcomes, the files in lab/docs/papers and README's line on papers; not how a verdict comes about.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from hwsim.host.files import write_text
from hwsim_lab.papers.reproduce import ClaimOutcome

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "papers"
RECORDED = FOLDER / "verdicts.csv"
#: Verdicts before the claims were asked at several sizes, and why each that differs does.
BEFORE, REASONS = FOLDER / "verdicts_before.csv", FOLDER / "reasons.yaml"
HEAD = ("claim", "kind", "verdict")
#: README's line: how many claims, and how many have which verdict.
LINE = re.compile(r"\d+ claims of five papers: \d+ hold, \d+ only in ranking or direction, \d+ fail")
GONE = "(counted once)"
NEW = "(not there)"
NO_REASON = "the simulator's times changed; the claim's conditions did not"


def write(outcomes: Iterable[ClaimOutcome]) -> None:
    """Record the verdicts."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(HEAD)
    rows.writerows((one.id, one.claim.kind, one.verdict) for one in outcomes)
    write_text(RECORDED, text.getvalue())


def read(path: Path = RECORDED) -> dict[str, tuple[str, str]]:
    """By a claim's id, its kind and verdict."""
    with path.open(encoding="utf-8", newline="") as file:
        return {row["claim"]: (row["kind"], row["verdict"]) for row in csv.DictReader(file)}


def reasons() -> dict[str, str]:
    """By a claim's id, why its verdict is another than before."""
    given = yaml.safe_load(REASONS.read_text(encoding="utf-8"))
    return {claim: group["reason"] for group in given["groups"] for claim in group["claims"]}


def changes(verdicts: Mapping[str, str]) -> list[tuple[str, str, str, str]]:
    """(claim, before, now, reason) of each verdict that is another than before. verdicts: now, by claim."""
    before = {claim: verdict for claim, (_, verdict) in read(BEFORE).items()}
    why = reasons()
    every = dict.fromkeys((*before, *verdicts))
    pairs = [(claim, before.get(claim, NEW), verdicts.get(claim, GONE)) for claim in every]
    return [(claim, old, new, why.get(claim, NO_REASON)) for claim, old, new in pairs if old != new]


def changes_text(outcomes: Iterable[ClaimOutcome]) -> str:
    """The changes as a Markdown table, with the counts before and now."""
    now = {one.id: one.verdict for one in outcomes}
    old = Counter(verdict for _, verdict in read(BEFORE).values())
    new = Counter(now.values())
    lines = ["| | holds | order | fails | cannot be asked | claims |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for name, counts in (("before", old), ("now", new)):
        cells = (counts[verdict] for verdict in ("holds", "order", "fails", "cannot be asked"))
        lines.append(f"| {name} | {' | '.join(map(str, cells))} | {sum(counts.values())} |")
    lines += ["", "| claim | before | now | reason |", "| --- | --- | --- | --- |"]
    lines += [f"| {' | '.join(row)} |" for row in changes(now)]
    return "\n".join(lines) + "\n"


def counts_line(verdicts: Sequence[str]) -> str:
    """README's words for so many verdicts."""
    counts = Counter(verdicts)
    return (
        f"{len(verdicts)} claims of five papers: {counts['holds']} hold, {counts['order']} only in ranking or "
        f"direction, {counts['fails']} fail"
    )


def in_readme(text: str, outcomes: Iterable[ClaimOutcome]) -> str:
    """README with the counts of these outcomes."""
    return LINE.sub(counts_line([one.verdict for one in outcomes]), text)
