"""Claims of the papers: the conditions that they are written in, their files, and the verdicts."""

from __future__ import annotations

import pytest

from hwsim.errors import InputError
from hwsim_lab.papers import claims, conditions
from hwsim_lab.papers.claims import PAPERS, Claim
from hwsim_lab.papers.reproduce import experiments, is_of_item, item_key

KNOWN = tuple(name for name in PAPERS if claims.is_written(name))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("near(x, paper.p, 0.1)", True),
        ("near(x, 12, 0.1)", False),
        ("factor(x, 5, 2)", True),
        ("factor(x, 4.9, 2)", False),
        ("all(s > 0) and rising(s)", True),
        ("falling(s) or any(s == 2)", True),
        ("share(s >= 2) >= 0.6", True),
        ("not (s[0] > s[2])", True),
        ("1 < s[1] < 3 and max(s, x) == 10", True),
        ("median(s) == 2 and abs(-x) == 10 and count(s < 3) == 2", True),
        ("near(geomean(s), 6 ** (1 / 3), 1e-9) and mean(s) == 2", True),
        ("first(s) + last(s) == 4 and min(s) == 1 and log2(x / 10 * 8) == 3", True),
    ],
)
def test_conditions(text: str, expected: bool) -> None:
    assert conditions.holds(text, {"x": 10.0, "s": [1.0, 2.0, 3.0]}, {"p": 9.5}) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y > 1", "no measured quantity 'y'; there are x, s"),
        ("paper.q > 1", "no number of the paper 'q'"),
        ("__import__('os')", "no function '__import__'"),
        ("x.real > 1", "is not allowed; allowed: numbers"),
        ("[i for i in s]", "is not allowed"),
        ("s > 1", "its value is array"),
        ("s > 1 and x > 1", "is a series; say all"),
        ("x +", "invalid syntax"),
        ("x", "needed: true or false"),
        ("meen(s) > 1", "did you mean 'mean'"),
    ],
)
def test_conditions_that_cannot_be_evaluated(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        conditions.holds(text, {"x": 10.0, "s": [1.0, 2.0, 3.0]}, {"p": 9.5})


def test_nan_holds_nothing() -> None:
    nan = float("nan")
    for text in ("near(x, 1, 9)", "factor(x, 1, 9)", "x > 1", "x < 1", "all(s > 0)", "rising(s)"):
        assert not conditions.holds(text, {"x": nan, "s": [1.0, nan]}, {})


CLAIM = {
    "id": "some-rate", "item": "Fig. 10 (a)", "where": "section 4", "stated": "it is fast", "kind": "time",
    "setting": "a chip", "paper": {"rate": 60.0}, "measured": {"rate": "TFLOP/s", "other": "TFLOP/s"},
    "holds": "near(rate, paper.rate, 0.1) and rate > other", "order": "rate > other", "limits": "10 %",
}  # fmt: skip


@pytest.mark.parametrize(
    ("rate", "other", "verdict"), [(63.0, 50.0, "holds"), (80.0, 50.0, "order"), (60.0, 61.0, "fails")]
)
def test_verdicts(rate: float, other: float, verdict: str) -> None:
    assert Claim.model_validate(CLAIM).verdict({"rate": rate, "other": other}) == verdict


def test_a_quantity_that_is_missing_is_named() -> None:
    with pytest.raises(InputError, match="some-rate: not measured: other"):
        Claim.model_validate(CLAIM).verdict({"rate": 1.0})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"holds": None, "order": None}, "needs either `holds` or `cannot`"),
        ({"cannot": "silicon"}, "needs either `holds` or `cannot`"),
        ({"holds": "rate > paper.speed and other > 1"}, "reads paper.speed"),
        ({"holds": "rate > unknown"}, "reads unknown"),
        ({"holds": "rate > 1", "order": None}, "no condition reads other"),
        ({"limits": ""}, "has to say why"),
        ({"id": "Some Rate"}, "pattern"),
        ({"colour": "red"}, "Extra inputs"),
    ],
)
def test_a_claim_that_is_not_whole(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Claim.model_validate(CLAIM | change)


def test_items() -> None:
    assert [item_key(x) for x in ("Fig. 10 (a)", "Figure 3", "Table 2", "Section 5.3", "Eq. 9", "Equation 9")] == [
        "fig10a", "fig3", "table2", "section5.3", "eq9", "eq9",
    ]  # fmt: skip
    claim = Claim.model_validate(CLAIM)
    assert all(is_of_item(claim, item) for item in ("fig10", "Fig. 10", "fig10a", "some-rate"))
    assert not any(is_of_item(claim, item) for item in ("fig1", "fig100", "table10"))


@pytest.mark.parametrize("paper", KNOWN)
def test_the_file_of_a_paper(paper: str) -> None:
    """It reads; no condition is true of quantities that are zero, nor of NaN: none holds whatever is measured."""
    found = claims.read(paper)
    assert found.paper == paper and len(found.claims) >= 25
    for claim in found.claims:
        if claim.holds is None:
            assert claim.cannot and not claim.measured
    assert {claim.kind for claim in found.claims} >= {"time", "accuracy"}


@pytest.mark.parametrize("paper", KNOWN)
def test_an_experiment_measures_claims_that_there_are_and_each_once(paper: str) -> None:
    ids = [claim.id for claim in claims.read(paper).claims]
    own = [one for experiment in experiments(paper) for one in experiment.claims]
    assert sorted(own) == sorted(set(own)) and set(own) <= set(ids)


def test_papers_whose_claims_are_written() -> None:
    assert set(KNOWN) >= {"sgemm-cube", "le-gemm", "ape", "tf32-tf64"} and set(KNOWN) <= set(PAPERS)
