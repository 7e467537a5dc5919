"""Claims of the papers: the conditions that they are written in, their files, and the verdicts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hwsim.errors import InputError
from hwsim_lab.papers import claims, conditions
from hwsim_lab.papers.ape import hybrid_times, kernel_choice, speedups
from hwsim_lab.papers.ape import rates as ape_rates
from hwsim_lab.papers.bf16x9 import applications_speed, definitions, power, scaling
from hwsim_lab.papers.bf16x9 import speed as bf_speed
from hwsim_lab.papers.claims import PAPERS, Claim
from hwsim_lab.papers.le_gemm import baselines, design, modes
from hwsim_lab.papers.le_gemm import speed as le_speed
from hwsim_lab.papers.reproduce import experiments, is_of_item, item_key
from hwsim_lab.papers.sgemm_cube import blocking
from hwsim_lab.papers.sgemm_cube import speed as sgemm_speed
from hwsim_lab.papers.tf32_tf64 import speed as tf_speed

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


@pytest.mark.parametrize(
    ("kind", "rate", "verdict"), [("time", 119.0, "order"), ("time", 121.0, "fails"), ("accuracy", 121.0, "order")]
)
def test_order_has_a_factor(kind: str, rate: float, verdict: str) -> None:
    claim = Claim.model_validate(CLAIM | {"kind": kind})
    assert claim.verdict({"rate": rate, "other": 1.0}) == verdict
    assert claim.verdict({"rate": 60 / (rate / 60), "other": 1.0}) == verdict


@pytest.mark.parametrize(
    ("text", "measured", "within"),
    [
        ("abs(x - paper.p) <= 5", {"x": 37.0}, True),
        ("abs(x - paper.p) <= 5", {"x": 41.0}, False),
        ("all(x <= paper.p)", {"x": [1.0, 39.0]}, True),
        ("all(x <= paper.p)", {"x": [1.0, 41.0]}, False),
        ("share(x > paper.p) > 0.5", {"x": [11.0, 12.0, 1.0]}, True),
        ("share(x > paper.p) > 0.5", {"x": [11.0, 9.0, 1.0]}, False),
        ("near(x, paper.p, 0.1) and rising(y)", {"x": 12.0, "y": [3.0, 1.0]}, True),
        ("x == paper.zero", {"x": 3.0}, True),
        ("x == paper.p", {"x": 0.0}, False),
        ("paper.p <= x <= 2 * paper.p", {"x": 81.0}, False),
        ("factor(x, paper.p, 3.2)", {"x": 50.0}, True),
        ("x > 5", {"x": 1.0}, True),
    ],
)
def test_the_factor_is_of_numbers_of_the_paper(text: str, measured: dict[str, Any], within: bool) -> None:
    assert conditions.within(text, measured, {"p": 20.0, "zero": 0.0}, 2.0) is within


SIZES = [1, 2, 3, 4, 5, 6]


def test_a_claim_of_several_sizes_has_the_worst_verdict() -> None:
    claim = Claim.model_validate(CLAIM | {"sizes": SIZES})
    rates, other = [60.0, 61.0, 62.0, 59.0, 58.0, 57.0], [1.0] * 6
    assert claim.verdict({"rate": rates, "other": other}) == "holds"
    assert claim.verdict({"rate": [*rates[:5], 80.0], "other": other}) == "order"
    assert claim.verdicts({"rate": [*rates[:5], 500.0], "other": other}) == ("holds",) * 5 + ("fails",)
    with pytest.raises(InputError, match="rate needs an element for each of 6 sizes"):
        claim.verdict({"rate": rates[:5], "other": other})


#: Sides of the paper's best block, and of its group of blocks along k: sizes that are multiples would favour it.
ANSWER = (176, 44)


def test_sizes_of_fig_10_and_11_are_no_multiples_of_the_papers_best_block() -> None:
    for claim in claims.read("sgemm-cube").claims:
        if claim.id.startswith(("fig10", "fig11", "sec3-3-1-reuse", "eq11-bm-96-moved")):
            assert all(size % side for size in claim.sizes for side in ANSWER), claim.id
    assert all(size % side for size in (*sgemm_speed.EDGES, *sgemm_speed.GROWING) for side in ANSWER)


@pytest.mark.parametrize(
    ("paper", "id", "sizes"),
    [
        ("sgemm-cube", "fig10-double-peak", sgemm_speed.EDGES),
        ("sgemm-cube", "fig11b-60", sgemm_speed.BROAD),
        ("sgemm-cube", "eq11-bm-96-moved", blocking.MOVED_EDGES),
        ("sgemm-cube", "sec3-3-1-reuse", blocking.REUSE_EDGES),
        ("le-gemm", "fig8-large-n", baselines.LARGE),
        ("le-gemm", "fig9-wmma-drop-shape", baselines.DROP),
        ("le-gemm", "fig14-mi210-region", baselines.ROOFLINE),
        ("le-gemm", "table2-tile-a800", design.CHOOSING),
        ("le-gemm", "eq10-fewer-products-time", design.DROPPED),
        ("le-gemm", "fig6-pipeline-overlap", le_speed.MODEL_SIZES),
        ("bf16x9", "intro-gains-destroyed", scaling.SIZES),
        ("bf16x9", "sec4-option-b-energy", definitions.SHORT),
        ("ape", "fig8-hybrid-falls", hybrid_times.HYBRID_EDGES),
        ("ape", "sec5-3-fallback-fp32-poor", speedups.FALLBACK_EDGES),
        ("tf32-tf64", "sec1-power-efficiency", tf_speed.PROJECTED_SIZES),
    ],
)
def test_experiments_run_the_sizes_that_claims_name(paper: str, id: str, sizes: tuple[int, ...]) -> None:
    assert claims.read(paper).claim(id).sizes == sizes


#: Series of sizes that conditions read as a whole, where the paper gives none.
SERIES: dict[str, tuple[int, ...]] = {
    "table2-ootomo": sgemm_speed.SQUARES, "fig11": sgemm_speed.GROWING, "table6": le_speed.SIZES["quick"],
    "fig8": baselines.MEANS["quick"], "fig8-small-n": baselines.SMALL, "fig8-trend": baselines.TREND,
    "fig9-small-n": baselines.TO_2048, "fig15-ffn": le_speed.LENGTHS, "fig15-llm": le_speed.WIDTHS,
    "fig18": modes.TIME_SIZES, "abstract-faster": definitions.SIZES, "bf16x9-fig11": bf_speed.EDGES,
    "intensity": bf_speed.TREND, "fig12": power.SIZES, "section4-patching": scaling.PATCHED,
    "asymptote": applications_speed.SYNTHETIC, "ape-table2": ape_rates.EDGES, "fig16": hybrid_times.EDGES,
    "section6": kernel_choice.SPLIT_EDGES, "section7-5": kernel_choice.EDGES, "3xtf32": tf_speed.SIZES,
    "split-cost": tf_speed.SPLIT_SIZES,
}  # fmt: skip


@pytest.mark.parametrize("name", SERIES)
def test_series_of_times_have_six_sizes(name: str) -> None:
    assert len(set(SERIES[name])) >= claims.LEAST_SIZES


@pytest.mark.parametrize("paper", KNOWN)
def test_no_claim_is_counted_twice(paper: str) -> None:
    """Two claims of one item that are asked the same, of the same number, are one."""
    seen: dict[tuple[object, ...], str] = {}
    for claim in claims.read(paper).claims:
        if claim.holds is None:
            continue
        asked = (claim.item, claim.kind, claim.holds, json.dumps(dict(claim.paper), sort_keys=True), claim.stated)
        assert asked not in seen, (claim.id, seen[asked])
        seen[asked] = claim.id


TWICE = (
    "intro-nine-terms-net-speedup", "sec2-x6-saving-below-third", "sec4-throughput-ninth", "sec4-patching-cost",
    "section4-infinity-option-b-cost", "intro-first",
)  # fmt: skip


def test_sentences_that_two_readers_wrote_down_stand_once() -> None:
    assert not {claim.id for claim in claims.read("bf16x9").claims} & set(TWICE)


#: Words of claims that compare what data sheets say: no run of a program stands behind them.
PEAKS = ("theoretical peaks", "peak rates", "peaks at boost clock", "a projection from peak rates")


@pytest.mark.parametrize("paper", KNOWN)
def test_ratios_of_data_sheets_are_no_times(paper: str) -> None:
    for claim in claims.read(paper).claims:
        if claim.kind == "time":
            assert not any(words in " ".join(claim.setting.split()).lower() for words in PEAKS), claim.id


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
        ({"sizes": [1, 2, 3, 4, 5, 5]}, "5 sizes; needed: 6 at least"),
        ({"readings": {"kernel": "alone"}}, "one reading; needed: two or more"),
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
