"""The experiments on SGEMM-cube: every claim is measured once, and faults turn verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import hwsim.schemes
from hwsim.devices import changed, load
from hwsim.gemm.plan import Piece, Plan
from hwsim.schemes import Scheme
from hwsim_lab.papers import claims, published_units
from hwsim_lab.papers.experiment import Experiment
from hwsim_lab.papers.sgemm_cube import EXPERIMENTS, accuracy, blocking, moves, speed, splitting

PAPER = claims.read("sgemm-cube")


def experiment(name: str) -> Experiment:
    return next(one for one in EXPERIMENTS if one.name == name)


def verdicts(name: str) -> dict[str, str]:
    found = experiment(name).measure("quick")
    assert set(found.measured) == set(experiment(name).claims)
    assert set(found.notes) <= set(found.measured)
    for series in found.series:
        assert len({len(column) for column in series.columns.values()}) == 1
    return {id: PAPER.claim(id).verdict(values) for id, values in found.measured.items()}


def test_every_claim_is_measured_once() -> None:
    measured = Counter(id for one in EXPERIMENTS for id in one.claims)
    assert {id for id, times in measured.items() if times > 1} == set()
    assert set(measured) == {claim.id for claim in PAPER.claims if claim.cannot is None}
    assert len({one.name for one in EXPERIMENTS}) == len(EXPERIMENTS)


def test_quick_verdicts() -> None:
    found = verdicts("losses") | verdicts("structure") | verdicts("blocks") | verdicts("pipeline")
    assert found["table2-markidis-loss"] == "holds"
    assert found["table2-feng-loss"] == "fails"
    assert found["eq7-three-products"] == "holds"
    assert found["alg1-conversion"] == "holds"
    assert found["eq11-bm-96"] == "holds"
    assert found["fig6-single"] == "fails"


@pytest.mark.parametrize("scheme", ["markidis", "ootomo-fp16", "ape-fp32-f", "sgemm-cube"])
def test_a_quick_count_of_lost_bits_is_that_of_all_numbers(scheme: str) -> None:
    assert splitting.loss("quick", scheme) == splitting.loss("full", scheme)


def test_counted_moves_are_those_of_the_timing_machine() -> None:
    device, parts = blocking.one_term(5632, 2816, 5632, n_fused=blocking.FUSED)
    counted = moves.moves(blocking.kernel(parts))
    timed = next(one for one in blocking.timing.run(parts, device).kernels if one.name == "gemm")
    assert 2 * (counted.staged["A", "L1"] + counted.staged["B", "L1"]) == timed.traffic_bytes["GM_L1"]
    assert 4 * counted.written["C"] == timed.traffic_bytes["UB_GM"]


def test_sgemm_is_openblas_where_numpy_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """No last bit is asserted: OpenBLAS picks its kernel, and its order of summation, by the host."""
    found = accuracy.error(accuracy.baselines(), (24, 24, 300), 0, True, 8)
    assert accuracy.SGEMM in found and accuracy.CHAIN in found
    assert all(1e-8 < one < 1e-5 for one in found.values())
    monkeypatch.setattr(accuracy, "IS_OPENBLAS", False)
    assert list(accuracy.baselines()) == [accuracy.CHAIN]


def test_peaks_of_other_chips_and_a_wrong_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(verdicts("other-chips").values()) == {"holds"}
    lanes = published_units.read().lanes
    wrong = lanes["h100"].model_copy(update={"fmas_per_cycle": {"fp32": 128, "fp64": 128}})  # that of the Tensor Cores
    monkeypatch.setitem(lanes, "h100", wrong)
    found = verdicts("other-chips")
    assert found["table1-h100"] == found["sec2-h100-fp8-fp64"] == "fails" and found["table1-a100"] == "holds"


def test_four_products_cannot_be_three_times_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "SQUARES", (1024, 2048))
    assert verdicts("turing") == {"table2-feng-speedup": "order"}
    found = experiment("turing").measure("quick").measured["table2-feng-speedup"]["speedup"]
    assert max(found) < 2


Fault = Callable[[Plan], Plan]


def rounded_toward_zero(plan: Plan) -> Plan:
    pieces: tuple[Piece, ...] = tuple(replace(piece, rounding="RZ") for piece in plan.a_pieces)
    return replace(plan, a_pieces=pieces, b_pieces=pieces)


def without_a_product(plan: Plan) -> Plan:
    return replace(plan, terms=plan.terms[:2], combine=replace(plan.combine, right=blocking_term(plan)))  # type: ignore[type-var]


def blocking_term(plan: Plan) -> Any:
    return plan.combine.right.value.left  # type: ignore[union-attr]


def scaled_twice(plan: Plan) -> Plan:
    high, low = plan.a_pieces
    pieces = (high, replace(low, scale_exponent=2 * low.scale_exponent))
    return replace(plan, a_pieces=pieces, b_pieces=pieces)


def plant(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    """SGEMM-cube with a fault in its plan, wherever it is looked up."""

    def faulty(own: Scheme, options: Any, problem: Any) -> Plan:
        made = own.plan(options, problem)
        assert isinstance(made, Plan)
        return fault(made)

    schemes = tuple(
        replace(one, plan=partial(faulty, one)) if one.name == "sgemm-cube" else one for one in hwsim.schemes.OWN
    )
    monkeypatch.setattr(hwsim.schemes, "OWN", schemes)
    splitting.preserved_bits.cache_clear()


@pytest.mark.parametrize(
    ("fault", "name", "id"),
    [
        (rounded_toward_zero, "losses", "table2-this-loss"),
        (rounded_toward_zero, "single-numbers", "sec3-1-1-22-bits"),
        (without_a_product, "structure", "eq7-three-products"),
    ],
)
def test_a_fault_in_the_scheme_turns_a_verdict(
    monkeypatch: pytest.MonkeyPatch, fault: Fault, name: str, id: str
) -> None:
    assert verdicts(name)[id] == "holds"
    plant(monkeypatch, fault)
    assert verdicts(name)[id] == "fails"
    splitting.preserved_bits.cache_clear()


def test_a_wrong_scale_of_the_low_part_turns_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def verdict() -> str:
        least = [splitting.least_scaling(exponent, 22.0) for exponent in (-2, -6, -10, -14)]
        return PAPER.claim("eq6-lower-bound").verdict({"least_sb": least})

    assert verdict() == "holds"
    plant(monkeypatch, scaled_twice)
    assert verdict() == "fails"
    splitting.preserved_bits.cache_clear()


def test_a_quarter_of_the_rate_turns_a_verdict_on_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "SQUARES", (1024, 2048))
    assert verdicts("table2-speed")["table2-ootomo-fp32-peak"] == "holds"
    chip = load("a100")
    rate = f"instructions.{chip.native['fp16']}.timing.macs_per_cycle"
    slow, run = changed(chip, {rate: 256}), speed.run  # at a half, the additions outside it are still the limit

    def slowed(**options: Any) -> Any:
        return run(**options | ({"device": slow} if options["device"] == "a100" else {}))

    monkeypatch.setattr(speed, "run", slowed)
    assert verdicts("table2-speed")["table2-ootomo-fp32-peak"] == "order"
