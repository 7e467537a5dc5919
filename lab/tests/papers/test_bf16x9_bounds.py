"""The experiments of BF16x9's claims on accuracy: verdicts, and planted faults."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from hwsim_lab.papers import claims
from hwsim_lab.papers.bf16x9 import EXPERIMENTS as EVERY
from hwsim_lab.papers.bf16x9 import accuracy_bounds, accuracy_range, accuracy_runs, accuracy_schemes
from hwsim_lab.papers.experiment import Experiment

PAPER = claims.read("bf16x9")
EXPERIMENTS: tuple[Experiment, ...] = (
    *accuracy_bounds.EXPERIMENTS,
    *accuracy_schemes.EXPERIMENTS,
    *accuracy_range.EXPERIMENTS,
)
#: Of claims on accuracy, those with these beginnings are this file's.
PREFIXES = ("abstract-", "intro-", "sec2-", "eq1-", "eq2-", "eq3-", "eq4-", "fig1-")
APPLICATIONS = "-applications"  # claims on them are measured with them
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
    everywhere = [id for one in EVERY for id in one.claims]
    assert len(everywhere) == len(set(everywhere))
    assert set(ids) <= {one.id for one in PAPER.claims} & set(everywhere)
    left_out = {id for id, _ in NOT_MEASURED}
    assert not set(ids) & left_out
    asked = {
        one.id
        for one in PAPER.claims
        if one.holds is not None
        and one.kind == "accuracy"
        and one.id.startswith(PREFIXES)
        and not one.id.endswith(APPLICATIONS)
    }
    assert asked <= set(everywhere) | left_out


def test_verdicts_at_the_ends_of_the_range() -> None:
    assert set(verdicts("scaled-pieces").values()) == {"holds"}
    assert set(verdicts("denormal-operands").values()) == {"holds"}
    assert set(verdicts("fixed-point").values()) == {"holds"}
    assert verdicts("absorbed-errors") == {"sec2-beta-absorbs": "holds"}


def test_pieces_without_scales_lose_denormals(monkeypatch: pytest.MonkeyPatch) -> None:
    plain: dict[str, Any] = {"scheme": accuracy_runs.unscaled("bf16x9")}
    monkeypatch.setitem(accuracy_runs.METHODS, accuracy_runs.X9, plain)
    assert verdicts("denormal-operands") == {"abstract-denormals": "fails"}
    found = verdicts("scaled-pieces")
    assert found["eq4-scaling-improves-accuracy"] == "fails"


def test_dropped_products_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdicts("order-of-bands") == {"fig1-band-order-reduces-error": "holds"}
    monkeypatch.setitem(accuracy_runs.METHODS, accuracy_runs.X9, {"scheme": "bf16x3"})
    assert verdicts("order-of-bands") == {"fig1-band-order-reduces-error": "fails"}


def test_native_fp32_of_fewer_bits_exceeds_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    operands = accuracy_runs.normal(8, 8, 16, 0)
    assert accuracy_bounds.share_of_bound(*operands) < 1
    right = accuracy_bounds.product
    monkeypatch.setattr(accuracy_bounds, "product", partial(_cut, right))
    assert accuracy_bounds.share_of_bound(*operands) > 1


def _cut(right: Any, method: str, a: Any, b: Any) -> Any:
    return (right(method, a, b).view("u4") & 0xFFFF0000).view("f4")
