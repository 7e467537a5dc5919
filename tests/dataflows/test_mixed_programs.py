"""Programs of products whose blocks use different plans: their bits are the evaluator's, in every legal order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hwsim
from hwsim.backend.cpu import CPU
from hwsim.dataflows.plan_areas import PlanArea, areas_of
from hwsim.dataflows.tiled.loads import KBlock
from hwsim.devices import load
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.plan import Mixed
from hwsim.machines import functional, reference
from hwsim.program.ir import Affine
from hwsim.resolve.mapping_choice import program_of

DEVICES = ("a100", "h200", "b200", "mi210", "mi300x", "ascend910b3")


def operands(m: int, n: int, k: int, seed: int = 1) -> tuple[Any, Any]:
    """A and B with a few elements that only one or two of the plans hold."""
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    for side in (a, b):
        for exponent in (20, -20, -36):
            side[rng.integers(side.shape[0]), rng.integers(side.shape[1])] *= np.float32(10.0**exponent)
    return a, b


def both(a: Any, b: Any, c: Any = None, **options: Any) -> tuple[Any, Any]:
    """The run by the evaluator and the one by the program, which must agree in bits and cycles."""
    plain = hwsim.run(a, b, c, scheme="ape", **options)
    program = hwsim.run(a, b, c, scheme="ape", functional=True, **options)
    assert plain.result_sha256 == program.result_sha256
    assert plain.cycles is not None and plain.cycles == program.cycles
    return plain, program


@pytest.mark.covering("device", ("sizes", "block"))
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("sizes", "block"), [((130, 90, 150), 64), ((48, 64, 96), 16), ((37, 29, 83), 20)])
def test_a_program_of_several_plans_gives_the_evaluators_bits(
    device: str, sizes: tuple[int, int, int], block: int
) -> None:
    """Also where blocks end within a stage, or within an instruction."""
    plain, _ = both(*operands(*sizes), device=device, block=block)
    assert sum(count > 0 for count in plain.gemm.plan.blocks) >= 2


@pytest.mark.parametrize("device", ["h200", "mi300x"])
def test_epilogues_and_stacks_of_several_plans(device: str) -> None:
    a, b = operands(80, 70, 96)
    c = np.random.default_rng(3).standard_normal((80, 70)).astype(np.float32)
    own: dict[str, Any] = {"device": device, "block": 32}
    both(a, b, c, alpha=0.75, beta=-1.25, **own)
    both(a, b, bias=c[0], output="bf16", **own)
    both(a, b, c, alpha=0.5, bias=c[0], output="fp16", **own)
    twice = np.stack([a, a * np.float32(1e-5)])
    both(twice, b, **own)
    both(twice, np.stack([b, b[::-1]]), bias=c[0], a_layout="columns", **own)


def test_epilogues_of_several_plans_on_separated_cores() -> None:
    a, b = operands(80, 70, 96)
    c = np.random.default_rng(3).standard_normal((80, 70)).astype(np.float32)
    own: dict[str, Any] = {"device": "ascend910b3", "block": 32}
    both(a, b, c, alpha=0.75, beta=-1.25, **own)
    both(a, b, c, alpha=0.5, bias=c[0], output="fp16", interleave="k", **own)
    both(a, b, a_layout="columns", buffering="single", distribution="block", **own)
    a, b = (np.ones(shape, np.float32) for shape in ((40, 64), (64, 33)))
    a[3, 5] = 1e20
    plain, _ = both(a, b, bias=c[0, :33], device="ascend910b3", block=16)
    assert [count > 0 for count in plain.gemm.plan.blocks] == [True, True, False]  # the last plan is not for fp32 units


def test_each_matrix_of_a_stack_has_its_own_plans_on_separated_cores() -> None:
    """One program of all matrices, one after another; the first has no block of the second plan."""
    a, b = operands(80, 70, 96)
    c = np.random.default_rng(3).standard_normal((2, 80, 70)).astype(np.float32)
    own: dict[str, Any] = {"device": "ascend910b3", "block": 32}
    plain, _ = both(np.stack([np.ones_like(a), a]), np.stack([np.ones_like(b), b]), **own)
    assert {phase.name.split(".")[0] for phase in plain.phases} == {"matrix1", "matrix2"}
    both(np.stack([a, a * np.float32(1e-5)]), b, c, alpha=0.75, beta=-1.25, bias=c[0, 0], **own)


def test_an_interleaved_plan_and_kernels_without_staging() -> None:
    a, b = operands(70, 60, 100)
    both(a, b, device="h200", block=32, interleave="k")
    both(a, b, device="a100", block=20, staging="none", strategy="hybrid")


@pytest.mark.parametrize("device", ["a100", "mi300x", "ascend910b3"])
@pytest.mark.parametrize("block", [16, 20])
def test_random_legal_orders_give_the_same_bits(device: str, block: int) -> None:
    a, b = operands(20, 18, 42)
    result, chip = hwsim.run(a, b, device=device, scheme="ape", block=block), load(device)
    program = program_of(result.gemm, chip)
    inputs = {"A": a.view(np.uint32), "B": b.view(np.uint32)}
    wanted = np.asarray(result.c).view(np.uint32)
    assert np.array_equal(functional.run(program, chip, inputs), wanted)
    for order in range(3):
        assert np.array_equal(reference.run(program, chip, inputs, order=order, dots=CPU.gemm), wanted)


def test_the_steps_of_an_element_end_in_the_result() -> None:
    a, b = operands(48, 64, 96)
    result = hwsim.run(a, b, device="h200", scheme="ape", block=16, values=[(0, 0), (47, 63)])
    for place, steps in result.values.items():
        assert float(steps[-1].after) == result.c[place]
        assert {step.opcode for step in steps} >= {"mma", "add"}


def test_a_program_is_for_operands_with_the_same_blocks() -> None:
    a, b = operands(48, 64, 96)
    record = hwsim.run(a, b, device="h200", scheme="ape", block=16).gemm.to_dict()
    assert hwsim.run(a * np.float32(0.5), b, gemm=record, functional=True).cycles
    for other in (np.ones_like(a), a[::-1].copy()):
        with pytest.raises(InputError, match="blocks of A or B need other plans than the record"):
            hwsim.run(other, b, gemm=record, functional=True)


def test_without_operands_each_plan_has_a_share_of_k() -> None:
    result = hwsim.run(m=256, n=256, k=512, device="a100", scheme="ape", wide_percent=50, exact=False)
    assert "spread evenly" in result.options["timing_model"]
    a, b = operands(48, 64, 96)
    assert "timing_model" not in hwsim.run(a, b, device="a100", scheme="ape", block=16).options


def mixed(a: tuple[str, ...], b: tuple[str, ...], blocks: tuple[int, ...], block: int = 16) -> Mixed:
    plan = hwsim.run(m=16, n=16, k=16, device="a100", scheme="ape", exact=False).gemm.plan
    assert isinstance(plan, Mixed)
    return Mixed(plan.scheme, plan.plans, plan.ranges, (block,) * 3, blocks=blocks, a_types=a, b_types=b)


def test_areas_cover_each_plans_blocks_once() -> None:
    """Of a 40 x 20 x 50 product; the last blocks are shorter."""
    areas = areas_of(mixed(("0000", "0100", "0000"), ("00", "00", "20", "00"), (18, 3, 3)), (40, 20, 50), 1)
    assert areas[0] == [
        PlanArea(0, 0, 16, 0, 16, ((0, 32), (48, 2)), adds=False),
        PlanArea(0, 0, 16, 16, 4, ((0, 50),), adds=False),
        PlanArea(0, 16, 16, 0, 16, ((0, 16), (48, 2)), adds=False),
        PlanArea(0, 16, 16, 16, 4, ((0, 16), (32, 18)), adds=False),
        PlanArea(0, 32, 8, 0, 16, ((0, 32), (48, 2)), adds=False),
        PlanArea(0, 32, 8, 16, 4, ((0, 50),), adds=False),
    ]
    assert areas[1] == [PlanArea(0, 16, 16, 0, 20, ((16, 16),), adds=True)]
    assert areas[2] == [PlanArea(0, 0, 40, 0, 16, ((32, 16),), adds=True)]


def test_more_runs_than_a_program_is_written_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hwsim.dataflows.plan_areas.MOST_RUNS", 3)
    with pytest.raises(UnsupportedError, match=r"more than 3 runs of K.*take larger blocks"):
        areas_of(mixed(("01", "10"), ("0", "0"), (2, 2, 0)), (32, 16, 32), 1)


def test_a_block_of_k_is_cut_at_its_runs() -> None:
    block = KBlock(((Affine(8), 4), (Affine(20), 6)), 10)
    assert block.part(2, 4) == KBlock(((Affine(10), 2), (Affine(20), 2)), 4)
    assert block.part(4, 6) == KBlock(((Affine(20), 6),), 6)
