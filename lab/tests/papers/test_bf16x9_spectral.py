"""The experiments of BF16x9's spectral transforms: the transform itself, verdicts, and planted faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from hwsim.gemm.plan import Plan
from hwsim.schemes import scheme_of
from hwsim.schemes.scheme import Scheme
from hwsim_lab.papers import claims
from hwsim_lab.papers.bf16x9 import spectral_transform
from hwsim_lab.papers.bf16x9.spectral_transform import EXPERIMENTS, TransformSetting
from hwsim_lab.papers.bf16x9.sphere import RoundTrips, Sphere, projected

PAPER = claims.read("bf16x9")
OWN = (
    "fig7-", "fig8-", "section6-comparable-usually-better", "section6-growth-law", "section6-slower-growth",
    "section6-velocity-conversion-cause", "intro-bf16x9-against-",
)  # fmt: skip
MIXED = "its series joins these fields with amplitudes of circuits and energies of other applications"
#: Claim -> why no experiment measures it.
NOT_MEASURED = (
    ("section6-comparable-usually-better", MIXED),
    ("intro-bf16x9-against-bf16x6-applications", MIXED),
    ("intro-bf16x9-against-fp16-applications", MIXED),
)
SMALL = Sphere(19, (0, 3, 9), 32)


@pytest.fixture
def clean() -> Iterator[None]:
    spectral_transform.errors.cache_clear()
    yield
    spectral_transform.errors.cache_clear()


def verdicts(name: str) -> dict[str, str]:
    chosen = next(one for one in EXPERIMENTS if one.name == name)
    found = chosen.measure("quick")
    assert set(found.measured) == set(chosen.claims)
    assert set(found.notes) <= set(chosen.claims)
    assert all(len({len(column) for column in one.columns.values()}) == 1 for one in found.series)
    return {id: PAPER.claim(id).verdict(values) for id, values in found.measured.items()}


def test_every_claim_is_measured_once_or_has_a_reason() -> None:
    ids = [id for one in EXPERIMENTS for id in one.claims]
    left_out = [id for id, _ in NOT_MEASURED]
    asked = {one.id for one in PAPER.claims if one.holds is not None and one.id.startswith(OWN)}
    assert sorted(ids + left_out) == sorted(asked)


def test_legendre_functions_are_orthonormal() -> None:
    for order in range(len(SMALL.orders)):
        for side in SMALL.functions[order]:
            kept = side[:, np.abs(side).max(axis=0) > 0]
            products = 2 * kept.T @ (kept * SMALL.weights[:, None])
            np.testing.assert_allclose(products, np.eye(kept.shape[1]), atol=1e-13)


def test_wind_is_that_of_a_rotation() -> None:
    """Of vorticity 2 w sin(latitude) the wind is U = w radius cos(latitude), V = 0."""
    sphere = Sphere(9, (0,), 4)
    vorticity = np.zeros((1, sphere.degrees, 1), np.complex128)
    vorticity[0, 1] = 2e-5 / np.sqrt(1.5)  # the function of n = 1 is sqrt(3/2) sin(latitude)
    u, v = sphere.wind(vorticity, 0 * vorticity)
    fields = sphere.gather(sphere.inverse(np.concatenate([u, v], axis=2), np.matmul, sphere.functions))
    np.testing.assert_allclose(fields[0] / sphere.cosines[:, None], 63.71 * sphere.cosines[:, None] * np.ones(4))
    assert np.abs(fields[1]).max() == 0


def test_transforms_give_fields_back() -> None:
    temperature, winds = SMALL.temperature(0), SMALL.winds(0)
    np.testing.assert_allclose(projected(SMALL, temperature), temperature, atol=1e-10)
    trips = RoundTrips(SMALL, temperature, winds[:1], winds[1:], spectral_transform.exact, wide=True)
    first = trips.grid
    trips.step()
    assert trips.grid.dtype == np.float32
    np.testing.assert_allclose(trips.grid, first, atol=2e-4)
    assert np.abs(trips.grid - first)[1:].max() < 5e-5


def _misscaled(scheme: Scheme, options: Any, problem: Any) -> Plan:
    plan = scheme.plan(options, problem)
    assert isinstance(plan, Plan)
    first, second, third = plan.a_pieces
    return replace(plan, a_pieces=(first, replace(second, scale_exponent=second.scale_exponent + 1), third))


@pytest.mark.usefixtures("clean")
def test_verdicts_and_a_wrong_scale_of_the_middle_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one wave number, as at the scale "quick" with three."""
    monkeypatch.setitem(spectral_transform.LOW, "quick", TransformSetting(Sphere(399, (1,), 4), 1, 20, 10))
    found = verdicts("spectral-low")
    assert found["section6-slower-growth"] == found["fig7-3xtf32-velocity-worse"] == "holds"
    assert found["fig7-temperature-same"] == "fails"
    spectral_transform.errors.cache_clear()
    scheme = scheme_of("bf16x9")
    wrong = replace(scheme, plan=partial(_misscaled, scheme))
    monkeypatch.setitem(spectral_transform.METHODS, "x9", {"scheme": wrong})
    found = verdicts("spectral-low")
    assert found["section6-slower-growth"] == found["fig7-3xtf32-velocity-worse"] == "fails"
