"""The experiments of BF16x9's claims on speed, power and energy: what they find, and that a planted fault is found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hwsim.analysis.energy import LEVELS, energies_of, energy
from hwsim.devices import changed, load
from hwsim_lab.papers import claims
from hwsim_lab.papers.bf16x9 import applications_speed, power, runs, scaling, speed
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment

PAPER = claims.read("bf16x9")
EXPERIMENTS: tuple[Experiment, ...] = (
    *speed.EXPERIMENTS,
    *scaling.EXPERIMENTS,
    *power.EXPERIMENTS,
    *applications_speed.EXPERIMENTS,
)
#: The claims on speed, power and energy; the others are of the applications' accuracy.
OWN = (
    "abstract-application-speed", "intro-nine-term-net", "intro-hybrid", "intro-gains", "section2-bf16x6-time",
    "section4-", "section7-", "section8-", "fig11-", "fig12-", "fig13-", "fig14-",
)  # fmt: skip
#: Claim -> why no experiment measures it.
NOT_MEASURED: tuple[tuple[str, str], ...] = ()


def experiment(name: str) -> Experiment:
    return next(one for one in EXPERIMENTS if one.name == name)


def verdicts(name: str) -> dict[str, str]:
    found = experiment(name).measure("quick")
    assert set(found.measured) == set(experiment(name).claims)
    return {id: PAPER.claim(id).verdict(values) for id, values in found.measured.items()}


def verdict(id: str, measured: dict[str, Quantity]) -> str:
    return PAPER.claim(id).verdict(measured)


def forget() -> None:
    for cached in (runs.chip, runs._timed, applications_speed.transform_speedup):
        cached.cache_clear()


@pytest.fixture
def clean() -> Iterator[None]:
    forget()
    yield
    forget()


def plant(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]) -> None:
    """Another device under the name of the claims'."""
    planted = changed(load(runs.DEVICE), changes)
    monkeypatch.setattr(runs, "load", lambda name: planted if name == runs.DEVICE else load(name))
    forget()


def test_every_claim_is_measured_once_or_has_a_reason() -> None:
    ids = [id for one in EXPERIMENTS for id in one.claims]
    assert len(ids) == len(set(ids))
    assert len({one.name for one in EXPERIMENTS}) == len(EXPERIMENTS)
    left_out = {id for id, _ in NOT_MEASURED}
    asked = {one.id for one in PAPER.claims if one.holds is not None and one.id.startswith(OWN)}
    assert set(ids) | left_out == asked
    assert not set(ids) & left_out


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the sizes that take seconds; the verdicts looked at do not depend on them."""
    monkeypatch.setattr(speed, "POWER_SIZES", (2048, 4096))
    monkeypatch.setattr(speed, "SIX_SIZES", (768, 1024, 1280, 1536, 1792, 2048))


@pytest.mark.slow
def test_verdicts_of_gains_peaks_and_special_values(small: None) -> None:
    found = verdicts("gains") | verdicts("peaks") | verdicts("special-values")
    assert found["intro-nine-term-net-speedup"] == found["section2-bf16x6-time"] == "holds"
    assert found["section7-peak-ratio"] == "order"
    assert found["section4-patching-overhead"] == "holds"


def test_a_halved_matrix_rate_turns_the_gain(monkeypatch: pytest.MonkeyPatch, clean: None) -> None:
    def twice() -> str:
        return verdict("fig12-twice-time", {"speedup": [runs.speedup(n, n, n) for n in (2048, 4096)]})

    assert twice() == "holds"
    device = load(runs.DEVICE)
    units = [name for name in device.matrix_instructions if name.startswith("tcgen05") and ".bf16.bf16" in name]
    assert units
    slower = {
        f"instructions.{name}.timing.macs_per_cycle": timing.macs_per_cycle / 2
        for name in units
        if (timing := device.matrix_instructions[name].timing) is not None
    }
    plant(monkeypatch, slower)
    assert twice() == "fails"


@pytest.mark.slow
def test_a_dropped_product_turns_the_count(monkeypatch: pytest.MonkeyPatch, small: None, clean: None) -> None:
    """With all products it holds: test_verdicts_of_gains_peaks_and_special_values."""
    monkeypatch.setitem(runs.METHODS, "x9", {"scheme": "bf16x6"})
    assert verdicts("gains")["intro-nine-term-net-speedup"] != "holds"


def test_energy_of_a_lane_that_costs_nothing_turns_the_gain() -> None:
    results = {name: runs.timed(name, 2048, 2048, 2048) for name in ("native", "x9")}
    table = energies_of(runs.DEVICE)
    free = table.lane_fma_pj.model_copy(update={"low": 0.0, "typical": 0.0})
    cheap = table.model_copy(update={"lane_fma_pj": free})
    gains = []
    for one in (table, cheap):
        found = {name: energy(x.times, x.gemm, energies=one) for name, x in results.items()}
        gains.append(found["x9"].gflops_per_watt / found["native"].gflops_per_watt)
    assert verdict("fig12-efficiency-gain", {"gain": [gains[0]]}) != "fails"
    assert verdict("fig12-efficiency-gain", {"gain": [gains[1]]}) == "fails"


def test_energy_adds_up_and_rises_with_the_level() -> None:
    result = runs.timed("x9", 1024, 1024, 1024)
    found = [energy(result.times, result.gemm, level) for level in LEVELS]
    assert [one.joules for one in found] == sorted(one.joules for one in found)
    table = energies_of(runs.DEVICE)
    products = 9 * 1024**3 * table.mac_pj["bf16"].typical * 1e-12
    assert found[1].joules_by["matrix"] == pytest.approx(products)
    assert result.seconds is not None
    assert found[1].joules_by["static"] == pytest.approx(table.static_watts.typical * result.seconds)
    assert found[1].watts < table.board_watts.value
    assert {one.evidence for one in found} == {"assumption"}
