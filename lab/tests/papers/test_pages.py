"""lab/docs/papers: a page for each paper, in step with its claims, as lab/docs/generate.py --papers writes it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from hwsim_lab.papers import assumptions, claims, reproduce
from hwsim_lab.papers import verdicts as recorded_verdicts
from hwsim_lab.papers.assumptions import VARIED_KINDS
from hwsim_lab.papers.claims import PAPERS
from hwsim_lab.papers.reproduce_text import VERDICTS

DOCS = Path(__file__).parents[2] / "docs"
MOST_BYTES = 3_000_000
BEHIND = "the page is behind: run python lab/docs/generate.py --papers"


def text(paper: str) -> str:
    return (DOCS / "papers" / f"{paper}.md").read_text(encoding="utf-8")


def section(page: str, head: str) -> str:
    found = re.search(rf"^## {re.escape(head)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def verdicts(paper: str) -> dict[str, str]:
    """By claim, the verdict that the page has."""
    rows = re.findall(r"^\| \*\*([a-z ]+)\*\* \| ([a-z0-9-]+) \|", section(text(paper), "Claims"), re.MULTILINE)
    by_claim = {claim: verdict for verdict, claim in rows}
    assert len(rows) == len(by_claim)
    return by_claim


def counts(page: str, row: str) -> list[int]:
    found = re.search(rf"^\| {re.escape(row)} \|((?: \d+ \|)+)$", page, re.MULTILINE)
    assert found is not None, BEHIND
    return [int(cell) for cell in found[1].split("|")[:-1]]


@pytest.mark.parametrize("paper", PAPERS)
def test_a_page_has_every_claim_and_its_counts(paper: str) -> None:
    own, known = verdicts(paper), claims.read(paper).claims
    assert list(own) == [claim.id for claim in known], BEHIND
    assert {id for id, verdict in own.items() if verdict == "cannot be asked"} == {
        claim.id for claim in known if claim.cannot
    }, BEHIND
    assert "not measured" not in own.values()
    number = Counter(own.values())
    expected = [*(number[verdict] for verdict in VERDICTS if verdict != "not measured"), len(known)]
    assert counts(text(paper), paper) == expected
    assert counts((DOCS / "papers.md").read_text(encoding="utf-8"), paper) == expected, BEHIND


def test_the_summary_adds_up() -> None:
    page = (DOCS / "papers.md").read_text(encoding="utf-8")
    every = [counts(page, paper) for paper in PAPERS]
    assert counts(page, "all") == [sum(column) for column in zip(*every, strict=True)]


def test_the_recorded_verdicts_are_those_of_the_pages_and_of_the_claims() -> None:
    recorded = recorded_verdicts.read()
    assert {id: verdict for id, (_, verdict) in recorded.items()} == {
        f"{paper}/{id}": verdict for paper in PAPERS for id, verdict in verdicts(paper).items()
    }, BEHIND
    assert {id: kind for id, (kind, _) in recorded.items()} == {
        f"{paper}/{claim.id}": claim.kind for paper in PAPERS for claim in claims.read(paper).claims
    }, BEHIND


def test_readme_has_the_counts_of_the_recorded_verdicts() -> None:
    text = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    expected = recorded_verdicts.counts_line([verdict for _, verdict in recorded_verdicts.read().values()])
    assert recorded_verdicts.LINE.findall(text) == [expected], BEHIND
    outcomes = [SimpleNamespace(verdict="holds"), SimpleNamespace(verdict="fails")]
    assert "2 claims of five papers: 1 hold, 0 only in ranking or direction, 1 fail" in recorded_verdicts.in_readme(
        text, outcomes
    )


def test_the_page_has_every_changed_verdict_with_a_reason_that_is_of_a_change() -> None:
    page = section((DOCS / "papers.md").read_text(encoding="utf-8"), "What changed")
    changes = recorded_verdicts.changes({id: verdict for id, (_, verdict) in recorded_verdicts.read().items()})
    rows = re.findall(r"^\| ([a-z0-9-]+/[a-z0-9-]+) \| (.*?) \| (.*?) \| (.*) \|$", page, re.MULTILINE)
    assert rows == changes, BEHIND
    known = {f"{paper}/{claim.id}" for paper in PAPERS for claim in claims.read(paper).claims}
    gone = {id for id in recorded_verdicts.read(recorded_verdicts.BEFORE) if id not in known}
    assert gone <= set(recorded_verdicts.reasons()) <= known | gone


def test_every_other_reading_stands_on_the_page() -> None:
    page = section((DOCS / "papers.md").read_text(encoding="utf-8"), "Two readings")
    for paper in PAPERS:
        for claim in claims.read(paper).claims:
            for name in list(claim.readings)[1:]:
                assert re.search(rf"^\| {paper}/{claim.id} \|.*\| {name} \| \w+ \|$", page, re.MULTILINE), claim.id


@pytest.mark.parametrize("paper", PAPERS)
def test_every_deviation_has_its_reason_and_what_moves_it(paper: str) -> None:
    """No claim that fails or holds in order only stands on a page without a reason and a varied assumption."""
    page, own, known = text(paper), verdicts(paper), claims.read(paper)
    apart = [id for id, verdict in own.items() if verdict in ("order", "fails")]
    assert re.findall(r"^\* `([a-z0-9-]+)` \(", section(page, "Deviations"), re.MULTILINE) == apart
    rows = re.findall(
        r"^\| ([a-z0-9-]+) \| \w+ \| (.*?) \|", section(page, "What assumptions do to the claims"), re.MULTILINE
    )
    rows = [row for row in rows if row[0] != "claim"]
    assert set(apart) <= {id for id, _ in rows}
    for id, assumption in rows:
        is_by_kind = known.claim(id).kind not in VARIED_KINDS
        assert not is_by_kind or assumption == "none"


@pytest.mark.parametrize("paper", PAPERS)
def test_every_claim_on_times_has_an_assumption_or_a_reason_as_data(paper: str) -> None:
    """So that a whole run of generate.py --papers leaves none unvaried. Accuracy: other operands are drawn for all."""
    file, kinds = assumptions.read(paper), {claim.id: claim.kind for claim in claims.read(paper).claims}
    of = {id: one.name for one in reproduce.experiments(paper) for id in one.claims}
    for id in of:
        if kinds[id] in ("time", "energy") and id not in file.unmoved:
            assert any(one.experiment == of[id] and one.moves(id) for one in file.assumptions), id


def test_figures_are_there_and_small() -> None:
    linked = {name for paper in PAPERS for name in re.findall(r"!\[[^\]]*\]\((plots/[^)]+)\)", text(paper))}
    files = {path.relative_to(DOCS / "papers").as_posix() for path in (DOCS / "papers" / "plots").iterdir()}
    assert linked == files and len(linked) >= 50
    assert sum(path.stat().st_size for path in (DOCS / "papers").rglob("*") if path.is_file()) < MOST_BYTES
