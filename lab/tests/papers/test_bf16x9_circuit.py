"""The experiments on BF16x9's quantum circuit: the contraction is the circuit's, verdicts, and planted faults."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from hwsim_lab.papers import claims
from hwsim_lab.papers.bf16x9 import circuit_contraction as contraction
from hwsim_lab.papers.bf16x9 import paths
from hwsim_lab.papers.bf16x9.circuit import places, random_circuit, state_vector

PAPER = claims.read("bf16x9")
PREFIXES = ("fig9-", "section6-amplitude", "section6-tf32", "section6-path", "section6-cost", "section6-k16")
#: Claim -> why no experiment measures it.
NOT_MEASURED: tuple[tuple[str, str], ...] = ()
QUBITS, FEW = 16, 12


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A smaller patch and fewer paths than at quick scale; no run is kept beyond a test."""
    monkeypatch.setattr(contraction, "QUBITS", {"quick": QUBITS})
    monkeypatch.setattr(contraction, "RANGE_QUBITS", {"quick": FEW})
    monkeypatch.setattr(contraction, "SMALLER", FEW)
    monkeypatch.setattr(contraction, "SEEDS", {"quick": 1})
    monkeypatch.setattr(contraction, "COUNTED", {"quick": 8})
    yield
    for one in (contraction.stored_run, contraction.errors):
        one.cache_clear()


def verdicts(name: str) -> dict[str, str]:
    chosen = next(one for one in contraction.EXPERIMENTS if one.name == name)
    found = chosen.measure("quick")
    assert set(found.measured) == set(found.notes) == set(chosen.claims)
    return {id: PAPER.claim(id).verdict(values) for id, values in found.measured.items()}


def test_every_claim_is_measured_once_or_has_a_reason() -> None:
    ids = [id for one in contraction.EXPERIMENTS for id in one.claims]
    assert len(ids) == len(set(ids))
    asked = {one.id for one in PAPER.claims if one.holds is not None and one.id.startswith(PREFIXES)}
    left_out = {id for id, _ in NOT_MEASURED}
    assert not set(ids) & left_out
    assert asked == set(ids) | left_out


def test_contraction_along_either_path_gives_amplitudes_of_the_state() -> None:
    assert len(places(contraction.WHOLE)) == contraction.WHOLE
    bits = np.random.default_rng([0, FEW]).integers(0, 2, FEW)
    state = state_vector(random_circuit(FEW, contraction.LAYERS, 0))
    assert np.linalg.norm(state) == pytest.approx(1, rel=1e-13)
    own = state[tuple(bits[: FEW - contraction.OPEN])].ravel()
    net = contraction.patch_network(FEW, 0)
    ways = [contraction.path_of(FEW, number) for number in (0, 1)]
    assert ways[0].pairs != ways[1].pairs
    for path in ways:
        found = contraction.contracted(net, path, np.matmul, complex)
        assert np.abs(found - own).max() < 1e-15
    products = contraction.four_products, contraction.one_sum
    for one in (contraction.run(FEW, 0, 0, contraction.NATIVE, way).amplitudes for way in products):
        assert 0 < np.abs(one - own).max() < 1e-6


def test_slices_bound_the_largest_tensor_and_cost_more() -> None:
    path = contraction.path_of(QUBITS, 0)
    less = paths.sliced(path, path.width - 3)
    assert less.width <= path.width - 3
    assert path.multiply_adds < less.multiply_adds <= path.multiply_adds << less.sliced.bit_count()
    assert less.multiply_adds == sum(one.multiply_adds for one in less.costs()) << less.sliced.bit_count()


def test_verdicts() -> None:
    found = verdicts("amplitude-range") | verdicts("contraction-costs")
    assert found["section6-amplitude-range"] == found["section6-k16-dominates"] == "holds"
    found = verdicts("contracted-amplitudes")
    assert found["section6-tf32-noticeable"] == found["fig9-slightly-smaller"] == "holds"


def test_dropped_products_turn_the_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(contraction.METHODS, contraction.EMULATED, {"scheme": "bf16x3"})
    monkeypatch.setitem(contraction.METHODS, contraction.TF32, {"scheme": "tf32x3"})
    found = verdicts("contracted-amplitudes")
    assert found["section6-tf32-noticeable"] == found["fig9-slightly-smaller"] == "fails"
    assert found["fig9-emulated-against-native"] == "fails"
