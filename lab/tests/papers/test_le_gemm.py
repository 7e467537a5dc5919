"""The experiments of LE-GEMM's claims: which claims they measure, what they find, and that a planted fault is found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import hwsim.schemes.le_gemm as scheme_module
from hwsim.schemes import scheme_of
from hwsim_lab.papers import claims
from hwsim_lab.papers.experiment import Experiment
from hwsim_lab.papers.le_gemm import EXPERIMENTS, accuracy, baselines, runs, splits

PAPER = claims.read("le-gemm")
#: Claim -> why no experiment measures it.
NOT_MEASURED: tuple[tuple[str, str], ...] = ()


def experiment(name: str) -> Experiment:
    return next(one for one in EXPERIMENTS if one.name == name)


def verdicts(name: str) -> dict[str, str]:
    found = experiment(name).measure("quick")
    assert set(found.measured) == set(experiment(name).claims)
    return {id: PAPER.claim(id).verdict(values) for id, values in found.measured.items()}


def test_every_claim_is_measured_once_or_has_a_reason() -> None:
    ids = [id for one in EXPERIMENTS for id in one.claims]
    assert len(ids) == len(set(ids))
    assert len({one.name for one in EXPERIMENTS}) == len(EXPERIMENTS)
    left_out = {id for id, _ in NOT_MEASURED}
    assert set(ids) | left_out == {claim.id for claim in PAPER.claims if claim.holds is not None}
    assert not set(ids) & left_out


def test_splits() -> None:
    found = verdicts("splits")
    assert found["fig4-bit-cut"] == found["eq6-residual"] == found["eq2-markidis-residual"] == "holds"
    assert found["section4-1-split-error"] == "fails"  # Ootomo's split keeps more


def test_model_and_devices() -> None:
    found = verdicts("model") | verdicts("devices")
    assert found["eq13-bytes"] == found["eq14-flops"] == found["eq12-tlp"] == found["section1-mi210-8x"] == "holds"
    assert found["section4-2-registers"] == "fails" and found["table4-caches"] == "order"


def test_one_instruction_after_another_is_algorithm_1() -> None:
    assert sum(splits.algorithm1_differences(device, contracted=True) for device in runs.DEVICES) == 0
    assert verdicts("instructions")["fig1-mixed-precision"] == "holds"


def _planted(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """LE-GEMM with another plan, where the experiments look it up."""
    plan = scheme_module.plan

    def changed(options: Any, problem: Any) -> Any:
        return replace(plan(options, problem), **{key: value(plan(options, problem)) for key, value in changes.items()})

    scheme = replace(scheme_of("le-gemm"), name="le-gemm-planted", plan=changed)
    monkeypatch.setitem(runs.SCHEMES, "le", {"scheme": scheme})
    splits.plan_of.cache_clear()
    accuracy.signed.cache_clear()


@pytest.fixture
def clean() -> Any:
    yield
    for cached in (splits.plan_of, accuracy.signed):
        cached.cache_clear()


def test_a_high_half_to_nearest_turns_bit_cut(monkeypatch: pytest.MonkeyPatch, clean: None) -> None:
    _planted(monkeypatch, a_pieces=lambda plan: (replace(plan.a_pieces[0], rounding="RNE"), plan.a_pieces[1]))
    found = verdicts("splits")
    assert found["fig4-bit-cut"] == found["fig4-no-round-up"] == "fails"


def test_a_dropped_product_turns_counts_and_histograms(monkeypatch: pytest.MonkeyPatch, clean: None) -> None:
    monkeypatch.setattr(accuracy, "HISTOGRAM", 256)
    before = verdicts("products") | verdicts("histograms")
    _planted(monkeypatch, terms=lambda plan: (plan.terms[0], accuracy.chain((0, 1))))
    after = verdicts("products") | verdicts("histograms")
    for id in ("algorithm1-products", "section6-redundant", "fig13-ooto-similar", "fig13-mark"):
        assert (before[id], after[id]) == ("holds", "fails"), id


def test_a_halved_matrix_rate_turns_the_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    unit_of = runs.unit_of

    def halved(result: Any) -> Any:
        one = unit_of(result)
        on_matrix = one.engine == "MFMA"
        return one.model_copy(update={"timing": _half(one.timing)}) if on_matrix else one

    assert verdicts("devices")["section1-mi210-8x"] == "holds"
    monkeypatch.setattr(runs, "unit_of", halved)
    assert verdicts("devices")["section1-mi210-8x"] == "fails"


def _half(timing: Any) -> Any:
    return timing.model_copy(update={"macs_per_cycle": timing.macs_per_cycle / 2})


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The baselines' claims at smaller sizes, so that they take no time."""
    sizes = {
        "MEANS": {"quick": (1024, 2048)}, "LARGE": (512, 640, 768, 1024, 1280, 1536),
        "ROOFLINE": (512, 640, 768, 1024, 1280, 1536), "BEFORE_DROP": 1024,
        "DROP": (1280, 1536, 1792, 2048, 2304, 2560), "SMALL": (512, 768, 1024, 1536),
        "TREND": (512, 1024, 1536, 2048), "TO_2048": (512, 1024),
    }  # fmt: skip
    for name, value in sizes.items():
        monkeypatch.setattr(baselines, name, value)


@pytest.mark.slow
def test_baselines_that_load_fragments_straight_from_global_memory(small: None) -> None:
    found = verdicts("baselines") | verdicts("baselines-roofline") | verdicts("fragments")
    assert found["fig8-trend"] == found["fig9-mark-ooto-alike"] == "holds"
    assert found["fig8-mean-speedup"] == found["fig8-small-n"] == found["table6-mi210-mark"] == "order"
    assert found["fig8-large-n"] == found["table6-mi210-rocwmma"] == "fails"
    assert found["fig9-wmma-drop"] == found["table6-a800-wmma"] == "fails"
    assert found["table2-fragments"] == "holds"


@pytest.mark.slow
def test_baselines_with_a_pipeline_turn_the_speed(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: plain products staged in shared memory are ahead of three products of LE-GEMM. As they are:
    test_baselines_that_load_fragments_straight_from_global_memory.
    """
    monkeypatch.setattr(baselines, "SAMPLES", {"staging": "shared", "warp": (32, 32), "tile": (128, 128, 32)})
    baselines._sampled.cache_clear()
    after = verdicts("baselines")
    baselines._sampled.cache_clear()
    assert after["fig8-trend"] == after["fig8-mean-speedup"] == "fails"
