"""Ape's Fig. 9, Fig. 12 and section 7.4: what measures them, a few verdicts, and faults that turn them."""

from __future__ import annotations

from typing import Any

import pytest

import hwsim
from hwsim.devices import changed, load
from hwsim_lab.papers import claims
from hwsim_lab.papers.ape import EXPERIMENTS, applications, convolution

PAPER = claims.read("ape")
ITEMS = ("Fig. 9", "Fig. 12", "Section 7.4")
NOT_MEASURED: tuple[str, ...] = ()
TWO_LAYERS = (convolution.LAYERS[3], convolution.LAYERS[7])


def verdicts(found: Any) -> dict[str, str]:
    return {id: PAPER.claim(id).verdict(values) for id, values in found.measured.items()}


def test_every_claim_of_the_items_is_measured_once() -> None:
    wanted = {claim.id for claim in PAPER.claims if claim.item in ITEMS and not claim.cannot} - set(NOT_MEASURED)
    own = [id for one in (*convolution.EXPERIMENTS, *applications.EXPERIMENTS) for id in one.claims]
    assert set(own) == wanted and len(own) == len(set(own))
    everything = [id for one in EXPERIMENTS for id in one.claims]
    assert all(everything.count(id) == 1 for id in own)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """One layer that loses to its splits and one that gains; GEMMs of 1024 and 2048 alone."""
    monkeypatch.setattr(convolution, "LAYERS", TWO_LAYERS)
    for module in (convolution, applications):
        monkeypatch.setattr(module, "EDGES", (1024, 2048))
    return monkeypatch


def test_verdicts_of_convolutions(small: pytest.MonkeyPatch) -> None:
    found = verdicts(convolution.times("quick"))
    assert (found["fig12-some-cases-faster"], found["fig12-maximum"]) == ("holds", "order")


def test_a_split_of_all_windows_turns_a_verdict(small: pytest.MonkeyPatch) -> None:
    """The GEMM of im2col's matrix, which is in no memory: its split costs nine times as much."""
    time = convolution.run

    def explicit(*, conv: Any, **options: Any) -> hwsim.Result:
        m, n, k = convolution.conv_of(conv).gemm
        return time(m=m, n=n, k=k, **options)

    before = convolution.times("quick").measured["fig12-maximum"]["speedup"]
    small.setattr(convolution, "run", explicit)
    after = convolution.times("quick").measured["fig12-maximum"]["speedup"]
    assert isinstance(before, list) and isinstance(after, list) and 1.2 * after[1] < before[1]


def test_slow_tensor_cores_turn_verdicts(small: pytest.MonkeyPatch) -> None:
    """FP32-F on a sixth of the SMs."""
    time = convolution.run

    def slow(*, device: Any, **options: Any) -> hwsim.Result:
        chip, scheme = load(device), options.get("scheme")
        if scheme == "ape-fp32-f":
            chip = changed(chip, {"cores": chip.cores // 6})
        return time(device=chip, **options)

    small.setattr(convolution, "run", slow)
    found = verdicts(convolution.times("quick"))
    assert found["fig12-some-cases-faster"] == found["fig12-maximum"] == "fails"


def test_one_draw_of_the_errors() -> None:
    found = convolution.errors_of(1)
    assert 1 / 1.5 < found["fp32f"] / found["gemm"] < 1.5 and 5 * found["fp32f"] < found["fp16"]


def test_a_dropped_product_turns_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """FP32-F that is Hi Hi alone."""
    monkeypatch.setattr(convolution, "SEEDS", {"quick": 1})
    monkeypatch.setattr(convolution, "ONE_KERNEL", {"scheme": "native", "format": "fp16"})
    assert verdicts(convolution.correctness("quick")) == {"sec7-4-convolution-correct": "fails"}


def test_verdicts_of_applications(small: pytest.MonkeyPatch) -> None:
    small.setattr(applications, "BATCHES", {"quick": (8,)})
    small.setattr(applications, "QUBITS", 22)
    found = verdicts(applications.measure("quick"))
    assert found["fig9-pca-least"] == "holds"
    assert found["fig9-bert"] == found["fig9-qs"] == "order"


def test_a_scheme_that_gains_nothing_turns_verdicts(small: pytest.MonkeyPatch) -> None:
    small.setattr(applications, "BATCHES", {"quick": (8,)})
    small.setattr(applications, "QUBITS", 22)
    for name in ("FP32_F", "CALLS"):
        small.setattr(applications, name, applications.FP32)
    assert set(verdicts(applications.measure("quick")).values()) == {"fails"}
