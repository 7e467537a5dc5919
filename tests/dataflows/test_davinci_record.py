"""The DaVinci dataflows over the record of a GEMM: what they decide is in it, and the program follows from it alone."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from operands import bits

from hwsim.dataflows.davinci.coupled import COUPLED
from hwsim.dataflows.davinci.separated import SEPARATED
from hwsim.dataflows.protocol import Dataflow
from hwsim.devices import find, load
from hwsim.errors import InputError, UnsupportedError
from hwsim.evaluate import evaluator
from hwsim.evaluate.split import pieces_of
from hwsim.gemm.mapping import Tile
from hwsim.gemm.problem import Problem
from hwsim.gemm.record import Gemm
from hwsim.gemm.schedule import Epilogue, Schedule
from hwsim.machines import functional, timing
from hwsim.operands.operand import Operand
from hwsim.program.check import check
from hwsim.resolve.gemm_record import record_of
from hwsim.schemes import scheme_of

CHIPS = {flow.name: load(name) for flow, name in ((COUPLED, "ascend910a"), (SEPARATED, "ascend910b3"))}
BOTH = pytest.mark.parametrize("flow", [COUPLED, SEPARATED], ids=lambda flow: flow.name)


def unmapped(flow, sizes, scheme="sgemm-cube", schedule=None, problem=None, **options):
    own = scheme_of(scheme)
    problem = problem or Problem.of("fp32", *sizes)
    plan = own.plan(own.complete(options), problem)
    return record_of(plan, CHIPS[flow.name], problem, schedule or Schedule())


def by_program(flow, gemm, a, b):
    chip = CHIPS[flow.name]
    program = flow.lower(gemm, chip)
    check(program, chip)
    return functional.run(program, chip, dict(zip(program.inputs, (a, b), strict=True)))


def by_evaluator(flow, gemm, a, b):
    chip = CHIPS[flow.name]
    rounding = find(chip, gemm.unit).operand_rounding
    pieces = [
        pieces_of(Operand(codes, "fp32"), gemm.plan, side, chip, word_rounding=rounding)
        for codes, side in ((a, "a"), (b, "b"))
    ]
    return evaluator.evaluate(gemm.plan, gemm.schedule, chip, *pieces)


@BOTH
def test_they_are_dataflows(flow):
    assert isinstance(flow, Dataflow) and flow.name == CHIPS[flow.name].family
    best = flow.split_k(unmapped(flow, (64, 64, 64)), CHIPS[flow.name], {})
    assert best is None if flow is SEPARATED else best.slices == 1


@BOTH
@pytest.mark.parametrize("schedule", [Schedule(), Schedule(promotion_k=32), Schedule(promotion_k=1024)])
@pytest.mark.parametrize(
    ("scheme", "options"),
    [
        ("native", {"format": "fp16"}),
        ("sgemm-cube", {}),
        ("sgemm-cube", {"accumulation": "elementwise"}),
        ("egemm-tc", {"accumulation": "termwise"}),
    ],
)
def test_evaluator_and_program_are_two_readings_of_one_record(flow, scheme, options, schedule):
    m, n, k = 33, 21, 170
    a, b = (bits(shape, seed, -20, 15, True).view(np.uint32) for shape, seed in (((m, k), 1), ((k, n), 2)))
    gemm = unmapped(flow, (m, n, k), scheme, schedule, **options)
    mapped = flow.map(gemm, CHIPS[flow.name], {"tile": (16, 16, 16)})
    assert np.array_equal(by_program(flow, mapped, a, b), by_evaluator(flow, mapped, a, b))


def test_terms_with_a_length_of_their_own_beside_the_schedules():
    m, n, k = 20, 18, 150
    a, b = (bits(shape, seed, -10, 10).view(np.uint32) for shape, seed in (((m, k), 3), ((k, n), 4)))
    found = [
        SEPARATED.map(unmapped(SEPARATED, (m, n, k), "ootomo-fp16", schedule), CHIPS["davinci_separated"], {})
        for schedule in (Schedule(), Schedule(promotion_k=48))
    ]
    chip = CHIPS["davinci_separated"]
    runs = [
        {x.name: x.rows // m for x in SEPARATED.lower(gemm, chip).arrays if x.name.startswith("T")} for gemm in found
    ]
    assert runs[0]["T1"] == runs[1]["T1"] == -(-k // 16)  # one instruction each
    assert (runs[0]["T2"], runs[1]["T2"]) == (1, -(-k // 48))
    for gemm in found:
        assert np.array_equal(by_program(SEPARATED, gemm, a, b), by_evaluator(SEPARATED, gemm, a, b))
        assert SEPARATED.facts(gemm)["k_group"] == 16  # of the first term


@BOTH
def test_a_record_read_from_json_gives_the_same_program(flow):
    chip = CHIPS[flow.name]
    gemm = flow.map(unmapped(flow, (100, 90, 520)), chip, {"buffering": "single"})
    again = Gemm.from_dict(json.loads(gemm.to_json()))
    assert again == gemm and again.digest == gemm.digest
    assert repr(flow.lower(again, chip)) == repr(flow.lower(gemm, chip))
    assert flow.facts(again) == flow.facts(gemm)


@BOTH
def test_the_program_follows_the_record_not_an_estimate(flow):
    """Another mapping in the record is another program, whatever `map` would choose."""
    chip = CHIPS[flow.name]
    gemm = flow.map(unmapped(flow, (300, 200, 520)), chip, {})
    kernels = tuple(replace(one, tile=Tile(32, 48, 64), stages=1) for one in gemm.mapping.kernels)
    other = replace(gemm, mapping=replace(gemm.mapping, kernels=kernels))
    asked = flow.map(unmapped(flow, (300, 200, 520)), chip, {"tile": Tile(32, 48, 64), "buffering": "single"})
    program = flow.lower(other, chip)
    assert {b.slots for k in program.kernels if k.name.startswith("gemm") for b in k.buffers if b.memory == "L0A"} == {
        1
    }
    assert flow.facts(other)["tile"] == flow.facts(asked)["tile"] == {"m": 32, "n": 48, "k": 64}
    with pytest.raises(InputError, match="needs a mapping of dataflow"):
        flow.lower(replace(gemm, mapping=None), chip)


def test_the_coupled_flow_records_what_the_cube_accumulates_from_zero():
    chip = CHIPS["davinci"]
    free = COUPLED.map(unmapped(COUPLED, (40, 30, 600)), chip, {"tile": (16, 32, 16), "n_fused": 3})
    assert free.schedule.promotion_k == COUPLED.facts(free)["k_group"] == 96
    assert free.decided("k_group").by == "default" and free.decided("n_fused").by == "user"
    step = COUPLED.map(unmapped(COUPLED, (40, 30, 600), accumulation="elementwise"), chip, {})
    assert step.schedule.promotion_k == step.mapping.kernels[0].tile.k == 16
    whole = COUPLED.map(unmapped(COUPLED, (40, 30, 90)), chip, {"tile": (16, 32, 16), "n_fused": 3})
    assert whole.schedule.promotion_k is None and COUPLED.facts(whole)["k_group"] == 96
    asked = COUPLED.map(unmapped(COUPLED, (40, 30, 600), schedule=Schedule(promotion_k=128)), chip, {})
    assert asked.schedule.promotion_k == 128 and asked.decided("k_group").by == "user"
    scheme = COUPLED.map(unmapped(COUPLED, (40, 30, 600), k_group=128), chip, {})
    assert scheme.decided("k_group").by == "scheme"
    assert asked.mapping == scheme.mapping
    cycles = [timing.run(COUPLED.lower(one, chip), chip).cycles for one in (asked, scheme)]
    assert cycles[0] == cycles[1]


def test_every_choice_says_who_made_it():
    chip = CHIPS["davinci_separated"]
    chosen = SEPARATED.map(unmapped(SEPARATED, (512, 512, 512)), chip, {})
    assert {one.name: one.by for one in chosen.decisions} == {
        "tile": "estimate",
        "step_ka": "default",
        "step_kb": "default",
        "buffering": "default",
        "distribution": "default",
        "swizzle": "estimate",
        "unit_flag": "default",
        "k_group": "default",
    }
    given = {"tile": (64, 64, 64), "step_ka": 2, "step_kb": 2, "distribution": "block", "grid": (2, 3)}
    asked = SEPARATED.map(unmapped(SEPARATED, (512, 512, 512)), chip, given)
    assert {one.name for one in asked.decisions if one.by == "user"} == set(given)
    assert asked.decided("grid").value == "2,3"
    assert "swizzle" not in SEPARATED.facts(asked) and SEPARATED.facts(asked)["distribution"] == "block"


CARRIED_BY_NEITHER = [
    (Schedule(slice_k=32, merge_order="descending"), "merge_order"),
    (Schedule(split_k=2, merge_order="descending"), "merge_order"),
    (Schedule(split_k=2, merge_into="output"), "merge_into"),
    (Schedule(split_k=2, partial_format="fp16", merge_format="fp64"), "partial_format, merge_format"),
    (Schedule(k_permutation=(1, 0)), "k_permutation"),
    (Schedule(remainder="first", tile_k=16), "remainder"),
    (Schedule(operand_rounding="RZ"), "operand_rounding"),
    (Schedule(epilogue=Epilogue(alpha=2.0, output_rounding="RZ")), "output_rounding"),
    (Schedule(epilogue=Epilogue(output_format="fp16", output_rounding="RZ")), "output_rounding"),
]


@BOTH
@pytest.mark.parametrize(("schedule", "names"), CARRIED_BY_NEITHER)
def test_what_no_program_carries_of_a_schedule_is_named(flow, schedule, names):
    gemm = unmapped(flow, (64, 64, 64), "native", schedule, format="fp16")
    with pytest.raises(UnsupportedError, match=f"programs of family {flow.name} carry no .*{names}"):
        flow.map(gemm, CHIPS[flow.name], {})


@pytest.mark.parametrize(("schedule", "name"), [(Schedule(split_k=2), "split_k"), (Schedule(slice_k=32), "slice_k")])
def test_slices_of_k_are_for_the_coupled_flow_alone(schedule, name):
    gemm = unmapped(SEPARATED, (64, 64, 128), "native", schedule, format="fp16")
    COUPLED.map(unmapped(COUPLED, (64, 64, 128), "native", schedule, format="fp16"), CHIPS[COUPLED.name], {})
    with pytest.raises(UnsupportedError, match=f"programs of family davinci_separated carry no {name}"):
        SEPARATED.map(gemm, CHIPS[SEPARATED.name], {})


@BOTH
def test_what_no_program_carries_of_a_problem_is_named(flow):
    stack = unmapped(flow, None, "native", problem=Problem.of("fp16", 64, 64, 64, (2, 3)), format="fp16")
    with pytest.raises(UnsupportedError, match="stacks of matrices"):
        flow.map(stack, CHIPS[flow.name], {})


@BOTH
@pytest.mark.parametrize(
    ("problem", "epilogue"),
    [({}, {"alpha": 2.0}), ({"has_c": True}, {}), ({"bias": "fp32"}, {}), ({}, {"output_format": "fp16"})],
)
def test_programs_carry_an_epilogue(flow, problem, epilogue):
    schedule, sizes = Schedule(epilogue=Epilogue(**epilogue)), Problem.of("fp16", 64, 64, 64, **problem)
    gemm = unmapped(flow, None, "native", schedule, sizes, format="fp16")
    check(flow.lower(flow.map(gemm, CHIPS[flow.name], {}), CHIPS[flow.name]), CHIPS[flow.name])


@BOTH
@pytest.mark.parametrize("layouts", [("columns", "rows"), ("rows", "columns"), ("columns", "columns")])
def test_programs_carry_operands_by_columns(flow, layouts):
    a, b = bits((40, 60), 1, -4, 4).view(np.uint32), bits((60, 50), 2, -4, 4).view(np.uint32)
    found = []
    for a_layout, b_layout in (("rows", "rows"), layouts):
        problem = Problem.of("fp32", 40, 50, 60, a_layout=a_layout, b_layout=b_layout)
        gemm = unmapped(flow, None, "native", problem=problem, format="fp16")
        found.append(by_program(flow, flow.map(gemm, CHIPS[flow.name], {}), a, b))
    assert np.array_equal(*found)


@BOTH
def test_tiles_of_a_search_are_distinct_and_the_first_ones_fit(flow):
    gemm = unmapped(flow, (512, 512, 512))
    tiles = list(flow.tiles(gemm, CHIPS[flow.name]))
    assert len(set(tiles)) == len(tiles) >= 64
    assert flow.map(gemm, CHIPS[flow.name], {"tile": tiles[0]}).mapping.kernels[0].tile == tiles[0]
