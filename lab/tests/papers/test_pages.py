"""lab/docs/papers: a page for each paper, in step with its claims, as lab/docs/generate.py --papers writes it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from hwsim_lab.papers import assumptions, claims, reproduce
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
    expected = [*(number[verdict] for verdict in VERDICTS), len(known)]
    assert counts(text(paper), paper) == expected
    assert counts((DOCS / "papers.md").read_text(encoding="utf-8"), paper) == expected, BEHIND


def test_the_summary_adds_up() -> None:
    page = (DOCS / "papers.md").read_text(encoding="utf-8")
    every = [counts(page, paper) for paper in PAPERS]
    assert counts(page, "all") == [sum(column) for column in zip(*every, strict=True)]
    assert f"{counts(page, 'all')[-1]} claims" in (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("paper", PAPERS)
def test_every_deviation_has_its_reason_and_what_moves_it(paper: str) -> None:
    """No claim that fails or holds in order only stands on a page without a reason and a varied assumption."""
    page, own, known = text(paper), verdicts(paper), claims.read(paper)
    apart = [id for id, verdict in own.items() if verdict in ("order", "fails")]
    assert re.findall(r"^\* `([a-z0-9-]+)` \(", section(page, "Deviations"), re.MULTILINE) == apart
    rows = re.findall(
        r"^\| ([a-z0-9-]+) \| \w+ \| (.*?) \|", section(page, "What assumptions do to the deviations"), re.MULTILINE
    )
    rows = [row for row in rows if row[0] != "claim"]
    assert set(apart) <= {id for id, _ in rows}
    for id, assumption in rows:
        is_by_kind = known.claim(id).kind not in VARIED_KINDS
        assert not is_by_kind or assumption == "none"


@pytest.mark.parametrize("paper", PAPERS)
def test_every_deviation_has_an_assumption_or_a_reason_as_data(paper: str) -> None:
    """So that a whole run of generate.py --papers leaves none unvaried. Accuracy: other operands are drawn for all."""
    file, kinds = assumptions.read(paper), {claim.id: claim.kind for claim in claims.read(paper).claims}
    of = {id: one.name for one in reproduce.experiments(paper) for id in one.claims}
    for id, verdict in verdicts(paper).items():
        kind = kinds[id]
        is_open = verdict in ("order", "fails") or (verdict == "holds" and kind == "energy")
        if is_open and kind in ("time", "energy") and id not in file.unmoved:
            assert any(one.experiment == of[id] and one.moves(id) for one in file.assumptions), id


def test_figures_are_there_and_small() -> None:
    linked = {name for paper in PAPERS for name in re.findall(r"!\[[^\]]*\]\((plots/[^)]+)\)", text(paper))}
    files = {path.relative_to(DOCS / "papers").as_posix() for path in (DOCS / "papers" / "plots").iterdir()}
    assert linked == files and len(linked) >= 50
    assert sum(path.stat().st_size for path in (DOCS / "papers").rglob("*") if path.is_file()) < MOST_BYTES
