"""The experiments of BF16x9's claims on errors over condition numbers and exponents: verdicts, and planted faults."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from hwsim.analysis import inputs
from hwsim.gemm.plan import Plan
from hwsim.schemes import scheme_of
from hwsim.schemes.scheme import Scheme
from hwsim_lab.papers import claims
from hwsim_lab.papers.bf16x9 import condition_sweep, exponent_maps
from hwsim_lab.papers.experiment import Experiment

PAPER = claims.read("bf16x9")
EXPERIMENTS: tuple[Experiment, ...] = (*condition_sweep.EXPERIMENTS, *exponent_maps.EXPERIMENTS)
#: The claims on errors over condition numbers and exponents.
PREFIXES = (
    *("eq2-", "sec3-", "fig4-", "sec5-exponent-range-matters", "eq6-", "eq7-", "fig5-", "fig6-", "sec8-accuracy-kept"),
)
#: Claim -> why no experiment measures it.
NOT_MEASURED: tuple[tuple[str, str], ...] = ()


def verdicts(name: str) -> dict[str, str]:
    chosen = next(one for one in EXPERIMENTS if one.name == name)
    found = chosen.measure("quick")
    assert set(found.measured) == set(chosen.claims)
    assert set(found.notes) <= set(chosen.claims)
    return {id: PAPER.claim(id).verdict(values) for id, values in found.measured.items()}


def test_every_claim_is_measured_once_or_has_a_reason() -> None:
    ids = [id for one in EXPERIMENTS for id in one.claims]
    assert len(ids) == len(set(ids))
    asked = {one.id for one in PAPER.claims if one.holds is not None and one.id.startswith(PREFIXES)}
    left_out = {id for id, _ in NOT_MEASURED}
    assert not set(ids) & left_out
    assert set(ids) | left_out == asked


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer pairs and sizes; the verdicts looked at do not depend on them."""
    monkeypatch.setattr(condition_sweep, "PAIRS", {"quick": 1})
    monkeypatch.setattr(condition_sweep, "GENERATED", 1)
    monkeypatch.setattr(condition_sweep, "NORMAL_SIZES", (256,))
    monkeypatch.setattr(exponent_maps, "EDGE", {"quick": 6})
    monkeypatch.setattr(exponent_maps, "RESULTS_EDGE", 8)
    monkeypatch.setattr(exponent_maps, "WIDE", (-40, 0))


def broken(change: Any) -> Scheme:
    """BF16x9 whose plan is changed."""
    scheme = scheme_of("bf16x9")

    def plan(scheme: Scheme, options: Any, problem: Any) -> Plan:
        found = scheme.plan(options, problem)
        assert isinstance(found, Plan)
        changed = change(found)
        assert isinstance(changed, Plan)
        return changed

    return replace(scheme, plan=partial(plan, scheme))


def wrong_low_part(plan: Plan) -> Plan:
    """The lowest piece is scaled by a power of two too little."""
    first, second, third = plan.a_pieces
    return replace(plan, a_pieces=(first, second, replace(third, scale_exponent=third.scale_exponent - 1)))


def without_second_piece(plan: Plan) -> Plan:
    """Products of the second piece of A are left out."""
    terms = tuple(
        replace(
            term,
            stages=tuple(
                replace(stage, products=kept) for stage in term.stages if (kept := _without(stage.products, 1))
            ),
        )
        for term in plan.terms
    )
    return replace(plan, terms=terms)


def _without(products: tuple[tuple[int, int], ...], piece: int) -> tuple[tuple[int, int], ...]:
    return tuple(pair for pair in products if pair[0] != piece)


def test_dot_conditions() -> None:
    found = inputs.dot_conditions(np.array([[3.0, 4.0], [0.0, 1.0]]), np.array([[5.0], [0.0]]))
    assert found[0, 0] == pytest.approx(5 / 3)
    assert found[1, 0] == np.inf


def test_median_of_binned_errors_is_near_the_median() -> None:
    errors = np.random.default_rng(0).uniform(0, 1e-7, (3, 50, 50))
    found = condition_sweep.RelativeErrors()
    for one in errors:
        found.add(one[None])
    assert found.median == pytest.approx(np.median(errors), rel=2e-3)
    assert found.mean == pytest.approx(errors.mean())
    assert found.mean_greatest == pytest.approx(errors.max(axis=(1, 2)).mean())


def test_verdicts_of_the_condition_sweep(few: None) -> None:
    found = verdicts("condition-sweep") | verdicts("condition-generator")
    assert found["fig4-average-better"] == found["fig4-share-better"] == "holds"
    assert found["fig4-error-rises-with-condition"] == found["fig4-generator"] == "holds"
    assert found["sec3-generator-average-condition"] == "fails"


def test_a_wrong_scale_of_the_low_part_turns_the_errors(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(condition_sweep.METHODS, "x9", {"scheme": broken(wrong_low_part)})
    found = verdicts("condition-sweep")
    assert found["fig4-average-better"] == found["fig4-share-better"] == found["sec8-accuracy-kept"] == "fails"
    assert found["fig4-error-rises-with-condition"] == "holds"


def test_verdicts_of_the_maps_and_a_fault_in_them(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdicts("exponent-maps") | verdicts("signal-to-noise")
    assert found["fig6-normal-normal"] == found["fig5-region-of-interest"] == found["eq7-snr"] == "holds"
    assert found["fig6-denormal-denormal"] == "fails"
    monkeypatch.setitem(condition_sweep.METHODS, "x9", {"scheme": broken(without_second_piece)})
    found = verdicts("exponent-maps")
    assert found["fig6-normal-normal"] == found["fig6-roi-lower-error"] == "fails"
    assert found["fig5-region-of-interest"] == "holds"


def test_regions_are_by_what_is_denormal() -> None:
    regions = {(a, b): exponent_maps.cell(a, b, 2).region for a in (-130, 0) for b in (-130, 0)}
    assert regions[-130, -130] == "denormal x denormal"
    assert regions[-130, 0] == "denormal x normal"
    assert regions[0, -130] == "normal x denormal"
    assert regions[0, 0] == "normal x normal"
