"""The parts of a product whose blocks use different plans: what each does to C."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import hwsim
from hwsim.devices import load
from hwsim.gemm.problem import Problem
from hwsim.gemm.schedule import Epilogue, Schedule
from hwsim.resolve.gemm_record import record_of
from hwsim.resolve.mixed_parts import with_parts
from hwsim.schemes import scheme_of


@pytest.mark.parametrize("has_c", [False, True])
def test_the_first_part_reads_c_and_the_last_scales_and_converts(has_c: bool) -> None:
    chip, own = load("a100"), scheme_of("ape")
    problem = Problem.of("fp32", 256, 256, 1024, has_c=has_c, bias="fp32")
    plan = replace(own.plan(own.complete({}), problem), blocks=(8, 8, 0))  # type: ignore[type-var]
    epilogue = Epilogue(alpha=2.0, beta=3.0 if has_c else 0.0, output_format="fp16")
    parts = with_parts(record_of(plan, chip, problem, Schedule(epilogue=epilogue)), chip).parts
    first, last = [part for part in parts if part.problem.k not in (-(-1024 // size) for size in plan.block)][-2:]
    assert first.problem.k + last.problem.k == 1024
    assert (first.epilogue.alpha, first.epilogue.beta, first.epilogue.output_format) == (1.0, epilogue.beta, "fp32")
    assert (last.epilogue.alpha, last.epilogue.beta, last.epilogue.output_format) == (2.0, 1.0, "fp16")
    assert (first.problem.has_c, last.problem.has_c) == (has_c, True)
    assert (first.problem.bias, last.problem.bias) == (None, "fp32")


@pytest.mark.parametrize("k", [1, 32, 40])
@pytest.mark.parametrize("device", ["h200", "mi250"])
def test_a_k_with_fewer_steps_than_plans(device: str, k: int) -> None:
    """Each plan's kernels take a whole step then."""
    a, b = np.ones((600, k), np.float32), np.ones((k, 8), np.float32)
    a[:300] *= np.float32(1e-30)
    result = hwsim.run(a, b, device=device, scheme="ape")
    assert sum(count > 0 for count in result.gemm.plan.blocks) == 2  # type: ignore[union-attr]
    assert result.cycles is not None and result.cycles > hwsim.run(a[300:], b, device=device, scheme="ape").cycles
    assert np.array_equal(result.c, hwsim.run(np.stack([a, a]), b, device=device, scheme="ape").c[1])  # type: ignore[index]
