"""The experiments of BF16x9's claims on definitions, bits and special values: verdicts, and planted faults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hwsim.gemm.plan import Plan
from hwsim_lab.papers import claims
from hwsim_lab.papers.bf16x9 import definitions, pieces, special_products
from hwsim_lab.papers.experiment import Experiment

PAPER = claims.read("bf16x9")
EXPERIMENTS: tuple[Experiment, ...] = (
    *definitions.EXPERIMENTS,
    *pieces.EXPERIMENTS,
    *special_products.EXPERIMENTS,
)
#: Of these kinds the claims are this file's, but for those of Sections 5 and 6.
KINDS = ("definition", "bits", "design")
PREFIXES = ("abstract-", "intro-", "sec2-", "sec4-", "sec8-", "eq1-", "eq2-", "eq4-", "eq5-", "fig1-", "fig2-", "fig3-")
ELSEWHERE = ("intro-hybrid-fastest",)  # in test_bf16x9_speed.py
#: Claim -> why no experiment measures it.
NOT_MEASURED = (("eq2-condition-number", "with the condition sweep"),)


def verdicts(name: str) -> dict[str, str]:
    chosen = next(one for one in EXPERIMENTS if one.name == name)
    found = chosen.measure("quick")
    assert set(found.measured) == set(chosen.claims)
    assert set(found.notes) <= set(chosen.claims)
    return {id: PAPER.claim(id).verdict(values) for id, values in found.measured.items()}


def test_every_claim_is_measured_once_or_has_a_reason() -> None:
    ids = [id for one in EXPERIMENTS for id in one.claims]
    assert len(ids) == len(set(ids))
    assert set(ids) <= {one.id for one in PAPER.claims}
    asked = {
        one.id
        for one in PAPER.claims
        if one.holds is not None and one.kind in KINDS and one.id.startswith(PREFIXES) and one.id not in ELSEWHERE
    }
    left_out = {id for id, _ in NOT_MEASURED}
    assert not set(ids) & left_out
    assert asked <= set(ids) | left_out


def test_verdicts_of_plans_and_special_pieces() -> None:
    found = verdicts("definitions") | verdicts("special-pieces") | verdicts("bits-of-products")
    assert found["eq5-terms"] == found["fig1-slices-and-bands"] == "holds"
    assert found["fig2-infinity-in-decomposition"] == found["fig3-spurious-nan"] == "holds"
    assert found["sec8-denormals-as-native"] == "holds"


def test_a_wrong_scale_of_the_low_part_turns_the_split(monkeypatch: pytest.MonkeyPatch) -> None:
    right = definitions.run_plan

    def wrong(name: str) -> Plan:
        plan = right(name)
        first, second, third = plan.a_pieces
        return replace(plan, a_pieces=(first, second, replace(third, scale_exponent=7)))

    monkeypatch.setattr(definitions, "run_plan", wrong)
    found = verdicts("definitions")
    assert found["eq4-split-scales"] == found["fig1-row-and-column-scales"] == "fails"
    assert found["abstract-same-range"] == "holds"


def test_a_split_by_truncation_has_no_opposing_signs() -> None:
    def opposed(plan: Plan) -> tuple[int, str]:
        parts = np.stack(pieces.pieces(pieces.of_exponent(0, 500), plan))
        opposing = 100 * float(np.mean((parts > 0).any(axis=0) & (parts < 0).any(axis=0)))
        return int(opposing), PAPER.claim("sec4-rounded-split").verdict({"opposing": opposing})

    plan = definitions.run_plan("bf16x9")
    assert opposed(plan)[1] == "holds"
    truncated = replace(plan, a_pieces=tuple(replace(one, rounding="RZ") for one in plan.a_pieces))
    assert opposed(truncated) == (0, "fails")


def test_missing_patching_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(verdicts("special-products").values()) == {"holds"}
    right = special_products.emulated

    def bare(a: Any, b: Any, **options: Any) -> Any:
        return right(a, b, **({"scheme": special_products.unpatched()} | options))

    monkeypatch.setattr(special_products, "emulated", bare)
    found = verdicts("special-products")
    assert found["sec4-patching-keeps-errors"] == found["sec8-nonnumbers-as-native"] == "fails"
    assert found["sec4-option-a-is-saturation"] == "holds"
