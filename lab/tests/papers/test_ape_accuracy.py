"""Ape's claims on accuracy and on the hybrid: what measures them, a few verdicts, and faults that turn them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from hwsim.devices import changed, load
from hwsim.gemm.plan import Piece, Plan, chain
from hwsim.schemes import scheme_of
from hwsim_lab.papers import claims
from hwsim_lab.papers.ape import EXPERIMENTS, circuits, gemm_errors, hybrid_times, masks, tensor_core, wider_numbers
from hwsim_lab.papers.splits import SchemeSplit

PAPER = claims.read("ape")
ITEMS = (
    *("Fig. 1", "Section 2.3", "Fig. 4", "Section 4.1", "Section 5.1", "Section 5.2", "Section 5.3", "Listing 5"),
    *("Fig. 8", "Section 6", "Fig. 11", "Fig. 13", "Fig. 15", "Section 7.5", "Fig. 16", "Section 8", "Section 9"),
)
#: Claims of ITEMS that no experiment measures, each with the reason.
NOT_MEASURED: tuple[tuple[str, str], ...] = ()


def verdicts(found: Any) -> dict[str, str]:
    return {id: PAPER.claim(id).verdict(values) for id, values in found.measured.items()}


def test_every_claim_of_the_items_is_measured_once() -> None:
    ids = [id for one in EXPERIMENTS for id in one.claims]
    assert len(ids) == len(set(ids)) and {claim.id for claim in PAPER.claims} >= set(ids)
    asked = {claim.id for claim in PAPER.claims if claim.item in ITEMS and not claim.cannot}
    assert asked - {id for id, _ in NOT_MEASURED} <= set(ids)


def test_verdicts_of_the_tensor_core() -> None:
    found = verdicts(tensor_core.measure("quick"))
    assert found["fig1-tensor-core-mma"] == found["sec4-1-no-over-underflow"] == "holds"
    assert found["sec5-1-round-to-zero"] == "fails"
    assert found["sec5-1-no-overflow-if-fp32-does-not"] == "fails"


def test_verdicts_of_wider_numbers() -> None:
    found = verdicts(wider_numbers.double_words("quick")) | verdicts(wider_numbers.fp64("quick"))
    assert set(found.values()) == {"holds"}


def test_an_fp32_accumulator_gives_no_fp64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wider_numbers, "wide_unit", lambda: "a100")
    assert verdicts(wider_numbers.fp64("quick")) == {"sec8-fp64-accumulator": "fails"}


def test_a_wider_range_of_fp32_f_turns_verdicts_of_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The elements outside its range then fit FP32-F, and no block needs FP32-B."""
    assert verdicts(masks.measure("quick"))["fig4-example-counts"] == "holds"
    monkeypatch.setattr(masks, "OUTSIDE", 1.0)
    monkeypatch.setattr(masks.with_wide_blocks, "__defaults__", (1.0,))
    found = verdicts(masks.measure("quick"))
    assert found["fig4-example-counts"] == found["sec5-2-both-operands-fp32f"] == "fails"
    assert found["sec5-3-mask-count-exchanged"] == "fails"


def without_mixed_products(name: str) -> Any:
    """The scheme with its first product alone: an FP16 or BF16 GEMM."""
    own = scheme_of(name)

    def plan(options: Any, problem: Any) -> Plan:
        made = own.plan(options, problem)
        assert isinstance(made, Plan)
        return replace(made, terms=tuple(chain((0, 0)) for _ in made.terms), a_pieces=made.a_pieces)

    return replace(own, plan=plan)


def test_dropped_products_turn_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdicts(gemm_errors.levels("quick"))["sec9-ape-without-losing-accuracy"] == "order"
    dropped = {"scheme": without_mixed_products("ape-fp32-t")}
    monkeypatch.setitem(gemm_errors.TYPES, "FP32-T", dropped)
    assert verdicts(gemm_errors.levels("quick"))["sec9-ape-without-losing-accuracy"] == "fails"


def test_masks_that_cost_much_turn_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hybrid_times, "EDGES", (2048, 4096))
    assert verdicts(hybrid_times.figure16("quick"))["fig16-time-saved"] == "holds"
    exact = hybrid_times.hybrid

    def slow(edge: int, wide: int, l2_bytes: int | None = None) -> dict[str, float]:
        found = exact(edge, wide, l2_bytes)
        return found | {"overhead": 20 * found["overhead"]}

    monkeypatch.setattr(hybrid_times, "hybrid", slow)
    found = verdicts(hybrid_times.figure16("quick"))
    assert (
        found["fig16-overhead-negligible"] == found["fig16-fp32b-part-larger"] == found["fig16-time-saved"] == "fails"
    )


@pytest.mark.slow
def test_a_slow_unit_for_fp16_turns_verdicts_of_fig_8(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a quarter of the rate FP32-F needs more time than FP32-B."""
    chip, name = load("a100"), "mma.m16n8k16.f32.f16.f16.f32"
    rate = float(chip.matrix_instructions[name].macs_per_cycle) / 4
    slow = changed(chip, {f"instructions.{name}.timing.macs_per_cycle": rate})
    monkeypatch.setattr(hybrid_times, "HYBRID_EDGES", (1536, 1792, 2048, 2304, 2560, 2816))
    assert verdicts(hybrid_times.figure8("quick"))["fig8-fp32f-fastest"] == "holds"
    monkeypatch.setattr(hybrid_times, "DEVICE", slow)
    for cached in (hybrid_times.hybrid, hybrid_times.pure):
        monkeypatch.setattr(hybrid_times, cached.__name__, cache(cached.__wrapped__))
    found = verdicts(hybrid_times.figure8("quick"))
    assert found["fig8-fp32f-fastest"] == found["fig8-best-type-changes"] == found["fig8-hybrid-falls"] == "fails"


def test_circuits_are_unitary_and_fusing_changes_nothing() -> None:
    for make in circuits.CIRCUITS.values():
        plain = circuits.final_state(make(6), 6, circuits.np.matmul)
        joined = circuits.final_state(list(circuits.fused(make(6), 3)), 6, circuits.np.matmul)
        assert abs(abs(plain.conj() @ joined) - 1) < 1e-12


def test_fp16_parts_of_fp64_are_those_of_a_scheme() -> None:
    """The split of section 8's stand-in is FP32-F's, as far as that goes."""
    x = gemm_errors.uniform(256, 0)[0].ravel()
    for own, other in zip(wider_numbers.fp16_parts(x), SchemeSplit("ape-fp32-f", "a100").parts(x), strict=False):
        assert (own.astype(float) == other).all()
    assert SchemeSplit("ape-fp32-f", "a100").pieces[1] == Piece("fp16", scale_exponent=wider_numbers.SHIFT)
