"""The mapping of a run: the best by estimate are timed, bits stay, and a search is done once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from operands import bits

import hwsim
from hwsim.dataflows.registry import dataflow
from hwsim.devices import load
from hwsim.errors import ProgramError
from hwsim.gemm.problem import Problem
from hwsim.gemm.record import Decision
from hwsim.resolve import mapping_choice, mapping_search
from hwsim.resolve.choice.cost import plan_input, plan_record
from hwsim.resolve.gemm_record import record_of
from hwsim.resolve.mapping_choice import mapped
from hwsim.resolve.mapping_search import LEAST_GAIN
from hwsim.resolve.planning import plan_for
from hwsim.resolve.program_cache import ProgramCache
from hwsim.resolve.record_cost import cost_of
from hwsim.schemes import scheme_of
from hwsim.studies.tune import tune

pytestmark = pytest.mark.searches

PRODUCTS = [
    ("t4", "ape-fp32-f", (64, 512, 256)),
    ("h200", "le-gemm", (64, 1000, 128)),
    ("h200", "ootomo-tf32", (128, 1024, 384)),
    ("h800", "markidis", (24, 128, 1792)),  # a narrow tile of the library's, by another instruction
    ("v100", "markidis", (16, 64, 1700)),
    ("mi250", "quantensor", (640, 316, 128)),
    ("ascend910a", "markidis", (208, 160, 304)),
    ("ascend910b3", "bf16x6", (112, 176, 292)),
]
#: tune takes seconds of them; of their families there are others, but of mi250's.
LONG = {("h200", "ootomo-tf32"), ("h800", "markidis"), ("v100", "markidis"), ("mi250", "quantensor")}
LONG |= {("ascend910a", "markidis")}


def plan_of(device, scheme, sizes):
    return plan_for(device, scheme_of(scheme), Problem.of("fp32", *sizes), None, {}, None).plan


def first_of(device, scheme, sizes):
    plan = plan_of(device, scheme, sizes)
    return mapped(record_of(plan, device, Problem.of(plan_input(plan), *sizes)), device, {})


@pytest.mark.parametrize(
    ("device", "scheme", "sizes"),
    [pytest.param(*one, marks=pytest.mark.slow if one[:2] in LONG else ()) for one in PRODUCTS],
)
def test_the_choice_is_near_the_best_that_tune_finds_and_no_slower_than_the_first(device, scheme, sizes):
    chip, (m, n, k) = load(device), sizes
    best = tune(chip, plan_of(chip, scheme, sizes), sizes, same_bits=True).best
    run = hwsim.run(m=m, n=n, k=k, device=device, scheme=scheme, exact=False)
    first = first_of(chip, scheme, sizes)
    assert run.cycles <= 1.1 * best.cycles
    assert run.cycles <= cost_of(first, chip).cycles
    assert run.gemm.schedule == first.schedule


@pytest.mark.parametrize(("device", "scheme", "sizes"), PRODUCTS[:5])
def test_no_bit_depends_on_the_search(device, scheme, sizes, monkeypatch):
    m, n, k = sizes
    a, b = bits((m, k), 1), bits((k, n), 2)
    chosen = hwsim.run(a, b, device=device, scheme=scheme, functional=True)
    monkeypatch.setattr(mapping_search, "_fastest", lambda flow, first, *_: first)
    monkeypatch.setattr(mapping_search, "_CACHE", type(mapping_search._CACHE)(8))
    first = first_of(load(device), scheme, sizes)
    other = hwsim.run(
        a, b, device=device, scheme=scheme, functional=True, threads=1, tile=first.mapping.kernels[0].tile.to_dict()
    )
    assert np.array_equal(chosen.c.view(np.uint32), other.c.view(np.uint32))


def test_decisions_say_what_the_search_chose():
    run = hwsim.run(m=128, n=1024, k=384, device="h200", scheme="ootomo-tf32", exact=False)
    decisions = {decision.name: decision for decision in run.gemm.decisions}
    assert decisions["tile"].by == decisions["instruction"].by == "estimate"
    assert "the fewest cycles" in decisions["tile"].why
    assert decisions["instruction"].value.startswith("mma.")


def test_nothing_that_the_user_asks_for_is_changed():
    tile = {"m": 64, "n": 64, "k": 32}
    given = {"device": "h200", "scheme": "le-gemm", "exact": False}
    run = hwsim.run(m=64, n=1000, k=128, tile=tile, **given)
    assert run.options["tile"] == tile and run.gemm.decided("tile").by == "user"
    few = hwsim.run(m=64, n=1000, k=128, stages=2, **given)
    assert few.options["stages"] == 2 and few.gemm.decided("stages").by == "user"
    with_unit = hwsim.run(
        m=128,
        n=1024,
        k=384,
        device="h200",
        scheme="ootomo-tf32",
        exact=False,
        instruction="wgmma.m64nNk8.f32.tf32.tf32",
    )
    assert with_unit.options["unit"].startswith("wgmma")


def test_a_plain_product_has_a_tile_of_its_library():
    run = hwsim.run(m=993, n=240, k=160, device="h200", format="tf32", exact=False)
    chip = load("h200")
    plan = plan_for(chip, scheme_of("native"), Problem.of("fp32", 993, 240, 160), "tf32", {}, None).plan
    flow = hwsim.dataflows.registry.dataflow(chip)
    tiles = [tile.to_dict() for tile in flow.tiles(record_of(plan, chip, Problem.of("fp32", 993, 240, 160)), chip)]
    assert run.options["tile"] in tiles


ORDERS = [  # whose first order of tiles is not the fastest of them
    ("v100", "native", "fp32", (120, 1150, 2048)),
    ("h200", "native", "fp16", (1100, 600, 2048)),
]


@pytest.mark.parametrize(("device", "scheme", "form", "sizes"), ORDERS)
def test_the_best_tiles_are_tried_in_other_orders(device, scheme, form, sizes):
    chip, flow = load(device), dataflow(load(device))
    plan = plan_for(chip, scheme_of(scheme), Problem.of("fp32", *sizes), form, {}, None).plan
    run = plan_record(plan, chip, sizes, {})
    others = list(flow.orders(run, chip, {}))
    widths = [gemm.mapping.kernels[0].swizzle for gemm in (run, *others)]
    assert len(set(widths)) == len(widths) > 2
    assert cost_of(run, chip).cycles <= min(cost_of(gemm, chip).cycles for gemm in others) / LEAST_GAIN
    tile = run.mapping.kernels[0].tile.to_dict()
    usual = mapped(record_of(plan, chip, Problem.of(plan_input(plan), *sizes)), chip, {"tile": tile})
    assert cost_of(run, chip).cycles < cost_of(usual, chip).cycles
    assert run.decided("swizzle").value == str(widths[0]) and run.decided("swizzle").by == "estimate"


@pytest.mark.parametrize("asked", [{"swizzle": 8}, {"tile": {"m": 64, "n": 64, "k": 8}}])
def test_an_order_or_a_tile_that_was_asked_for_is_tried_in_no_other_order(asked):
    chip, gemm = load("v100"), first_of(load("v100"), "markidis", (512, 1150, 256))
    assert list(dataflow(chip).orders(gemm, chip, {})) and not list(dataflow(chip).orders(gemm, chip, asked))


LATENT = [  # whose cores wait for loads, with as many stages as the family's file has
    ("a40", "native", "fp32", (24, 80, 4000)),
    ("l4", "native", "fp32", (16, 200, 120)),
    ("rtx4090", "native", "e5m2", (16, 80, 4000)),
    ("a10", "native", "int8", (64, 64, 2000)),
    ("mi250", "native", "bf16", (821, 3400, 96)),
]


@pytest.mark.parametrize(("device", "scheme", "form", "sizes"), LATENT)
def test_the_best_tiles_are_tried_with_more_stages(device, scheme, form, sizes):
    chip, flow = load(device), dataflow(load(device))
    plan = plan_for(chip, scheme_of(scheme), Problem.of("fp32", *sizes), form, {}, None).plan
    run = plan_record(plan, chip, sizes, {})
    kernel = run.mapping.kernels[0]
    assert flow.family.stages < kernel.stages
    assert run.decided("stages").value == str(kernel.stages) and run.decided("stages").by == "estimate"
    usual = plan_record(plan, chip, sizes, {"tile": kernel.tile.to_dict(), "swizzle": kernel.swizzle})
    assert usual.mapping.kernels[0].stages <= flow.family.stages
    assert cost_of(run, chip).cycles <= cost_of(usual, chip).cycles * LEAST_GAIN
    assert run.schedule == usual.schedule


@pytest.mark.parametrize("asked", [{"stages": 3}, {"tile": {"m": 32, "n": 32, "k": 8}}])
def test_stages_or_a_tile_that_were_asked_for_stay(asked):
    chip, gemm = load("a40"), first_of(load("a40"), "native", (24, 80, 4000))
    assert list(dataflow(chip).deeper(gemm, chip, {})) and not list(dataflow(chip).deeper(gemm, chip, asked))


@pytest.mark.parametrize(("blocks", "stages"), [(4, []), (5, [5]), (9, [9])])
def test_no_stage_is_tried_that_no_block_of_k_fills(blocks, stages):
    chip = load("a40")
    depth = first_of(chip, "native", (24, 80, 4000)).mapping.kernels[0].tile.k
    gemm = first_of(chip, "native", (24, 80, depth * blocks))
    deeper = dataflow(chip).deeper(gemm, chip, {})
    assert [kernel.stages for other in deeper for kernel in other.mapping.kernels] == stages


def test_a_search_is_done_once(monkeypatch):
    counted = []
    monkeypatch.setattr(mapping_search, "_CACHE", type(mapping_search._CACHE)(8))
    monkeypatch.setattr(mapping_search, "cost_of", lambda gemm, device: counted.append(gemm) or cost_of(gemm, device))
    chip, sizes = load("t4"), (64, 520, 256)
    plan = plan_of(chip, "ape-fp32-f", sizes)
    first = plan_record(plan, chip, sizes, {})
    times = len(counted)
    assert times > 3
    assert plan_record(plan, chip, sizes, {}) == first and len(counted) == times


@pytest.mark.parametrize(("device", "scheme"), [("a100", "tf32x3"), ("gb200", "bf16x9"), ("mi300x", "ootomo-fp16")])
def test_cycles_of_long_programs_are_extrapolated(device, scheme, monkeypatch):
    chip = load(device)
    gemm = first_of(chip, scheme, (512, 512, 8192))
    monkeypatch.setattr(mapping_search, "SHORT_INSTRUCTIONS", 1000)
    search = mapping_search._Predictor(gemm, chip)
    assert len(search.lengths) == 2 and search.lengths[1] <= 4096
    assert search.cycles(gemm) == pytest.approx(cost_of(gemm, chip).cycles, rel=0.05)


def test_a_search_leaves_the_rules_to_the_program_that_it_chooses(monkeypatch):
    """Candidates are timed alone. What runs is checked: once, and what breaks a rule is refused."""
    checked, timed = [], []
    monkeypatch.setattr(mapping_choice, "_PROGRAMS", ProgramCache(64, 1 << 20))
    monkeypatch.setattr(mapping_search, "_CACHE", type(mapping_search._CACHE)(8))
    monkeypatch.setattr(mapping_search, "cost_of", lambda *given: timed.append(given) or cost_of(*given))
    monkeypatch.setattr(mapping_choice, "check", lambda program, device: checked.append(program))
    sizes = {"m": 208, "n": 160, "k": 305}
    hwsim.run(device="ascend910a", scheme="markidis", exact=False, **sizes)
    assert len(timed) > 1 and len(checked) == 1

    def refused(program, device):
        raise ProgramError("a rule")

    monkeypatch.setattr(mapping_choice, "check", refused)
    with pytest.raises(ProgramError, match="a rule"):
        hwsim.run(device="ascend910a", scheme="markidis", exact=False, **(sizes | {"k": 306}))


def test_an_equal_choice_is_explained_by_the_winner_and_made_by_who_asked():
    """Cuts of stream-K follow the winner's tile; stages that only the search set are not the user's."""
    first = first_of(load("h200"), "ootomo-tf32", (64, 64, 64))
    cut, default = (
        Decision("decomposition", "stream-k", "user", why="1 of 2"),
        Decision("stages", "6", "default", why="fit"),
    )
    found = mapping_search._with_decisions(
        replace(first, decisions=(cut, default)),
        replace(first, decisions=(replace(cut, why="3 of 4"), Decision("stages", "6", "user"))),
    )
    assert found.decisions == (replace(cut, why="3 of 4"), default)
