"""Ape's claims: what measures them, a few verdicts, and faults that turn them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hwsim_lab.papers import claims
from hwsim_lab.papers.ape import EXPERIMENTS, chips, representation, single_products
from hwsim_lab.papers.splits import SchemeSplit

PAPER = claims.read("ape")


def verdicts(found: Any) -> dict[str, str]:
    return {id: PAPER.claim(id).verdict(values) for id, values in found.measured.items()}


def test_experiments_measure_what_their_claims_ask_for() -> None:
    ids = [id for one in EXPERIMENTS for id in one.claims]
    assert len(ids) >= 46 and {claim.id for claim in PAPER.claims} >= set(ids)
    assert not [id for id in ids if PAPER.claim(id).cannot]


def test_verdicts_of_the_splits() -> None:
    found = verdicts(representation.fp32_f("quick"))
    assert found["sec4-1-lo-scaled"] == found["fig5-field-layout"] == found["fig5-rounding-bit-sign"] == "holds"
    assert found["fig5-lo-exponent"] == "fails"
    assert set(verdicts(representation.fp32_t("quick")).values()) == {"holds"}


def test_verdicts_of_single_products_and_integers() -> None:
    found = verdicts(single_products.measure("quick"))
    assert found["listing2-three-products"] == "holds" and found["fig6-lo-lo-no-effect"] == "fails"
    assert verdicts(chips.measure("quick"))["sec4-4-int16-exact"] == "holds"


class Unscaled(SchemeSplit):
    """FP32-F whose low part is not scaled: the fault of the earlier emulation."""

    @property
    def pieces(self) -> Any:
        return tuple(replace(piece, scale_exponent=0) for piece in self.plan.a_pieces)

    @property
    def plan(self) -> Any:
        plan = super().plan
        return replace(plan, a_pieces=tuple(replace(piece, scale_exponent=0) for piece in plan.a_pieces))


def test_a_low_part_that_is_not_scaled_turns_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(representation, "F", Unscaled("ape-fp32-f", representation.DEVICE))
    found = verdicts(representation.fp32_f("quick"))
    assert found["sec4-1-lo-scaled"] == "fails"
    tables = verdicts(representation.tables("quick"))
    assert tables["table1-fp32f-range"] == "fails" and tables["sec4-1-range-enlarged"] == "fails"


def test_a_product_too_many_turns_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_products, "products", lambda plan: [(0, 0), (0, 1), (1, 0), (1, 1)])
    assert verdicts(single_products.measure("quick"))["listing2-three-products"] == "fails"


def test_the_released_split_of_int16_turns_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its high byte wraps: INT16 products are not exact."""
    exact = chips.matmul

    def released(a: Any, b: Any, **options: Any) -> Any:
        changed = {"low_byte": "signed"} if options.get("scheme") == "ape-int16" else {}
        return exact(a, b, **options | changed)

    monkeypatch.setattr(chips, "matmul", released)
    found = verdicts(chips.measure("quick"))
    assert found["sec4-4-int16-exact"] == "fails" and found["sec4-4-int16-split"] == "order"
