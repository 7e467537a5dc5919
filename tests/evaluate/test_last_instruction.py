"""The last instruction of a K that is no multiple of its own: filled up with zeros, which take part, on every way."""

from __future__ import annotations

import numpy as np
import pytest
from lowered import evaluator_of, lower

import hwsim
from hwsim.devices import load
from hwsim.formats import format_of
from hwsim.gemm.problem import Problem
from hwsim.gemm.schedule import Schedule
from hwsim.machines import reference
from hwsim.operands.operand import operand
from hwsim.schemes import scheme_of

# One of each model of a matrix unit and of each family's dataflow; where results can underflow, they do.
CASES = (
    ("mi210", "bf16"),
    ("mi210", "fp16"),
    ("mi210", "fp64"),
    ("mi300x", "bf16"),
    ("v100", "fp16"),
    ("a100", "fp64"),
    ("a100", "bf16"),
    ("h200", "fp64"),
    ("h200", "tf32"),
    ("b200", "bf16"),
    ("ascend910a", "fp16"),
    ("ascend910b1", "bf16"),
)


def tiny(fmt, shape, seed):
    """Numbers of both signs, and zeros, whose products lie about the smallest normal result, every second row's about
    the smallest subnormal one (fp16's products are no smaller than 2^-48)."""
    rng = np.random.default_rng(seed)
    wide = format_of("fp64" if fmt == "fp64" else "fp32")
    exponents = wide.min_exponent // 2 + rng.integers(-2, 3, shape)
    exponents[::2] -= wide.fraction_bits // 2
    values = rng.choice([-1.0, 1.0], shape) * np.ldexp(1 + rng.integers(0, 4, shape) / 4, exponents)
    values[rng.random(shape) < 0.2] = -0.0
    if fmt == "fp16":
        values = np.ldexp(values, -14 - wide.min_exponent // 2)
    return values.astype(wide.dtype_name)


@pytest.mark.parametrize("k", [1, 17, 21, 35])
@pytest.mark.parametrize(("device", "fmt"), CASES)
def test_zeros_fill_the_last_instruction_of_programs_and_of_direct_evaluation(device, fmt, k):
    a, b = tiny(fmt, (19, k), k), tiny(fmt, (k, 23), k + 1)
    a[::3, :-1] = 0  # rows in which the last product stands alone
    given = {"device": device, "format": fmt, "timing": False}
    directly = hwsim.run(a, b, functional=False, **given).codes
    assert np.array_equal(hwsim.run(a, b, functional=True, **given).codes, directly)


def test_the_sign_of_zero_that_the_last_steps_drop():
    """CDNA2 flushes 2^-126 - 1.5 * 2^-126 to -0 in the first of an instruction's steps; zeros of the next make +0."""
    a, b = np.zeros((1, 17), np.float32), np.zeros((17, 1), np.float32)
    a[0, 0], a[0, 16], b[0], b[16] = 2.0**-63, -1.5 * 2.0**-63, 2.0**-63, 2.0**-63
    for functional in (False, True):
        result = hwsim.run(a, b, device="mi210", format="bf16", functional=functional)
        assert result.codes.ravel().tolist() == [0]


@pytest.mark.parametrize(("device", "fmt"), [("mi210", "bf16"), ("a100", "fp64"), ("mi300x", "bf16")])
def test_the_readable_machine_fills_it_too(device, fmt):
    chip, sizes = load(device), (5, 6, 17)
    plan = scheme_of("native").plan(scheme_of("native").complete({"format": fmt}), Problem.of(fmt, *sizes))
    program = lower(plan, chip, *sizes, {})
    a, b = (operand(x, y).converted(fmt) for x, y in (("A", tiny(fmt, (5, 17), 3)), ("B", tiny(fmt, (17, 6), 4))))
    got = reference.run(program, chip, dict(zip(program.inputs, (a.codes, b.codes), strict=True)))
    ready = evaluator_of(plan, chip, sizes, Schedule())
    assert np.array_equal(got, ready.evaluate(*ready.pieces(a, b)))
