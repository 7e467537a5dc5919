"""The experiments of the TF32/TF64 paper: which claims they measure, some verdicts, and that faults turn them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import hwsim
from hwsim.devices import load
from hwsim.devices.query import instruction
from hwsim.devices.variants import changed
from hwsim.gemm.plan import Plan
from hwsim.schemes import scheme_of
from hwsim.schemes.scheme import Scheme
from hwsim_lab.papers import claims, published_units
from hwsim_lab.papers.experiment import Experiment
from hwsim_lab.papers.tf32_tf64 import EXPERIMENTS, double, single, speed
from hwsim_lab.papers.tf32_tf64.definitions import TF64

PAPER = claims.read("tf32-tf64")
CACHED = (single.result, single.errors, single.what_if, double.result, double.errors)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small sizes, and no results of a planted fault left behind."""
    monkeypatch.setattr(single, "SIZES", {"quick": (64, 128)})
    monkeypatch.setattr(single, "WHAT_IF_SIZE", 64)
    monkeypatch.setattr(single, "SEEDS", 1)
    monkeypatch.setattr(single, "SCALED_SIZE", 256)
    monkeypatch.setattr(double, "SEEDS", 1)
    monkeypatch.setattr(double, "SIZES", (16, 64))
    monkeypatch.setattr(double, "POINTS", [(n, span) for span in single.RANGES for n in (16, 64)])
    monkeypatch.setattr(speed, "SIZES", (1024, 2048))
    monkeypatch.setattr(speed, "SPLIT_SIZES", (1024,))
    monkeypatch.setattr(speed, "PROJECTED_SIZES", (768, 1024, 1280, 1536, 1792, 2048))
    yield
    for one in CACHED:
        one.cache_clear()


def experiment(name: str) -> Experiment:
    return next(one for one in EXPERIMENTS if one.name == name)


def verdicts(name: str) -> dict[str, str]:
    found = experiment(name).measure("quick")
    assert set(found.measured) == set(experiment(name).claims)
    return {id: PAPER.claim(id).verdict(values) for id, values in found.measured.items()}


def test_every_claim_is_measured_once() -> None:
    ids = [id for one in EXPERIMENTS for id in one.claims]
    assert len(ids) == len(set(ids))
    assert len({one.name for one in EXPERIMENTS}) == len(EXPERIMENTS)
    assert set(ids) == {claim.id for claim in PAPER.claims if claim.holds is not None}


def test_table_1_and_definitions() -> None:
    found = verdicts("chips") | verdicts("definitions") | verdicts("instructions")
    assert found["table1-a100"] == found["sec2-2-split-tf32"] == found["fig2-accumulation"] == "holds"
    assert found["sec3-1-error-formulas"] == found["sec2-1-not-ieee"] == "holds"
    assert found["table1-h100-low"] == "fails"  # by a factor above 2: the paper has peaks for sparse products


def test_units_and_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdicts("units") | verdicts("energy")
    assert set(found.values()) == {"holds"}
    cores = published_units.read().tensor_cores
    wrong = cores["v100"].model_copy(update={"per_sm": 4})  # half as many, twice as large
    monkeypatch.setitem(cores, "v100", wrong)
    found = verdicts("units")
    assert found == {"sec2-1-unit-4x4": "fails", "sec2-1-units-grow": "holds"}


def test_three_products_are_no_sgemm_on_a_truncating_unit() -> None:
    found = verdicts("single")
    assert found["fig4-3x-close-to-sgemm"] == found["sec5-accurate-simple"] == "fails"
    assert found["fig4-fourth-product"] == "holds"


def test_exact_sums_of_four_products_make_three_products_an_sgemm() -> None:
    for span in single.RANGES:
        assert single.what_if(single.AS_IT_IS, span) > 1.5
        assert single.what_if(single.EXACT, span) < 1


def test_an_exact_unit_turns_the_verdict_on_three_products(monkeypatch: pytest.MonkeyPatch) -> None:
    device = single.what_ifs()["IEEE multiply-adds"][0]
    monkeypatch.setattr(single, "A100", device)
    assert verdicts("single")["fig4-3x-close-to-sgemm"] == "holds"


def test_scales_and_times() -> None:
    assert verdicts("scales")["sec1-no-extra-operations"] == "fails"
    found = verdicts("speed")
    assert found["sec2-2-three-faster-than-four"] == "holds"
    assert found["sec3-2-split-cost"] == found["sec3-2-no-extra-memory"] == "fails"


def planted(name: str, fault: Callable[[Plan], Plan]) -> Scheme:
    """A scheme with a fault in its plan."""
    own = scheme_of(name)

    def faulty(options: Any, problem: Any) -> Plan:
        made = own.plan(options, problem)
        assert isinstance(made, Plan)
        return fault(made)

    return replace(own, name=f"{name}-planted", plan=faulty)


def without_the_last_product(plan: Plan) -> Plan:
    return replace(plan, terms=plan.terms[:-1], combine=plan.combine.left)  # type: ignore[union-attr]


def scaled_low_word(plan: Plan) -> Plan:
    pieces = (plan.a_pieces[0], replace(plan.a_pieces[1], scale_exponent=1))  # and nobody divides by 2
    return replace(plan, a_pieces=pieces)


@pytest.mark.parametrize("fault", [without_the_last_product, scaled_low_word])
def test_a_fault_in_tf64x3_turns_its_accuracy(monkeypatch: pytest.MonkeyPatch, fault: Callable[[Plan], Plan]) -> None:
    before = verdicts("double")
    assert before["fig5-fourth-insignificant"] == "holds"
    for one in CACHED:
        one.cache_clear()
    methods = double.METHODS | {"3xTF64": {"device": TF64, "scheme": planted("tf64x3", fault)}}
    monkeypatch.setattr(double, "METHODS", methods)
    after = verdicts("double")
    assert after["fig5-fourth-insignificant"] == after["fig5-reduction"] == "fails"


def test_a_dropped_product_of_tf32x3_turns_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdicts("instructions")["sec2-2-dropped-product"] == "holds"
    scheme = planted("tf32x3", without_the_last_product)
    matmul = hwsim.matmul

    def faulty(*given: Any, **options: Any) -> Any:
        return matmul(*given, **options | ({"scheme": scheme} if options.get("scheme") == "tf32x3" else {}))

    monkeypatch.setattr(hwsim, "matmul", faulty)
    found = verdicts("instructions")
    assert found["sec2-2-dropped-product"] == found["fig2-accumulation"] == "fails"


@pytest.mark.slow
def test_a_halved_rate_turns_a_verdict_on_times(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdicts("projection")["sec2-4-performance-assumed"] == "order"
    chip = speed.tf64_device()
    rate = f"instructions.{chip.native['fp32']}.timing.macs_per_cycle"
    half = float(instruction(chip, chip.native["fp32"]).macs_per_cycle) / 2
    monkeypatch.setattr(speed, "tf64_device", partial(changed, chip, {rate: half}))
    assert verdicts("projection")["sec2-4-performance-assumed"] == "fails"
    assert load(TF64).name == "tf64"
