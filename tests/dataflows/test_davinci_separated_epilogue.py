"""C, bias, alpha, beta and output formats on the separated DaVinci core: a program's bits are the evaluator's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lowered import lower
from operands import bits

import hwsim
from hwsim.backend.cpu import CPU
from hwsim.devices import load
from hwsim.formats import array_dtype, format_of
from hwsim.gemm.problem import Problem
from hwsim.machines import functional, reference
from hwsim.numerics.reference import gemm as exact_gemm
from hwsim.schemes import scheme_of

CHIP = load("ascend910b3")
SCHEMES = (
    ("native", {"format": "fp16"}),  # one term, all of K
    ("native", {"format": "fp16", "k_group": 32}),  # runs of K
    ("native", {"format": "fp32"}),
    ("sgemm-cube", {}),  # several terms
    ("sgemm-cube", {"k_group": 40}),  # runs of K of several terms
    ("bf16x9", {}),
    ("bf16x6", {}),
    ("bf16x3", {"accumulation": "termwise", "k_group": 32}),
    ("bf16x9", {"accumulation": "bands"}),  # terms that join after each run of K
    ("bf16x3", {"accumulation": "bands", "promotion_interval": 2}),
)
OPTIONS: dict[str, dict[str, Any]] = {
    "native": {"format": "fp16"},
    "sgemm-cube": {},
    "bf16x6": {"accumulation": "termwise"},
}
EPILOGUES: tuple[dict[str, Any], ...] = (
    {"c": True},
    {"c": True, "beta": 0.375},
    {"c": True, "alpha": 0.75, "beta": -1.25},
    {"c": True, "alpha": 0.75, "beta": 0.0},
    {"alpha": -3.0},
    {"bias": True},
    {"c": True, "bias": True, "alpha": 1.5, "beta": 2.0},
    {"output": "bf16"},
    {"c": True, "bias": True, "alpha": 1.5, "beta": 2.0, "output": "fp16"},
    {"bias": True, "output": "e4m3"},
)


def operands(shape: tuple[int, int, int], epilogue: dict[str, Any], specials: bool) -> dict[str, Any]:
    """The arrays and options of a call."""
    m, n, k = shape
    a, b = bits((m, k), 3, -9, 6, specials), bits((k, n), 4, -9, 6, specials)
    given = dict(epilogue)
    output = array_dtype(format_of(given.get("output", "fp32")))
    c = bits((m, n), 5, -9, 6, specials).astype(output) if given.pop("c", False) else None
    if given.pop("bias", False):
        given["bias"] = bits((n,), 6, -9, 6, False)
    return {"a": a, "b": b, "c": c, **given}


@pytest.mark.covering(("scheme", "options"), "epilogue")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("epilogue", EPILOGUES, ids=str)
@pytest.mark.parametrize(("scheme", "options"), SCHEMES, ids=str)
def test_a_program_gives_the_evaluators_bits(scheme: str, options: dict[str, Any], epilogue: dict[str, Any]) -> None:
    for shape in ((33, 21, 67), (1, 70, 40), (19, 1, 16))[: 1 if epilogue != EPILOGUES[-2] else 3]:
        given = operands(shape, epilogue, specials=not scheme.startswith("bf16")) | options
        places = [(0, 0), (shape[0] - 1, shape[1] - 1)]
        program = hwsim.run(device="ascend910b3", scheme=scheme, functional=True, values=places, **given)
        direct = hwsim.run(device="ascend910b3", scheme=scheme, **given)
        assert program.result_sha256 == direct.result_sha256
        assert program.cycles == direct.cycles > 0


@pytest.mark.parametrize("order", range(3))
@pytest.mark.parametrize("scheme", OPTIONS)
def test_every_legal_order_gives_the_same_bits(scheme: str, order: int) -> None:
    m, n, k = 17, 22, 35
    own = scheme_of(scheme)
    plan = own.plan(own.complete(OPTIONS[scheme]), Problem.of("fp32", m, n, k))
    program = lower(plan, CHIP, m, n, k, {"c": True, "bias": True, "alpha": 0.75, "beta": -1.25, "output": "bf16"})
    rng = np.random.default_rng(1)
    a, b = bits((m, k), 13).view(np.uint32), bits((k, n), 14).view(np.uint32)
    c, bias = rng.integers(0x3000, 0x4200, (m, n)).astype(np.uint16), bits((1, n), 15).view(np.uint32)
    inputs = dict(zip(program.inputs, (a, b, c, bias), strict=True))
    dots = CPU.gemm if order else exact_gemm  # one order by Python's integers, which are slow
    expected = reference.run(program, CHIP, inputs, order=order, dots=dots)
    assert np.array_equal(functional.run(program, CHIP, inputs), expected)


def test_c_is_not_read_where_beta_is_zero() -> None:
    a, b = np.ones((2, 32, 32), np.float32)
    c = np.full((32, 32), np.nan, np.float32)
    more = {"device": "ascend910b3", "format": "fp16", "alpha": 2.0}
    result = hwsim.run(a, b, c, beta=0.0, functional=True, **more)
    assert (np.asarray(result.c) == 64).all()
    assert result.cycles == hwsim.run(a, b, **more).cycles


def test_c_is_added_with_one_rounding() -> None:
    """(1 + 2^-12)^2 - (1 + 2^-11) = 2^-24: the product alone would round to 1 + 2^-11."""
    a, b = np.zeros((2, 16, 16), np.float32)
    a[:, 0], b[0] = 1 + 2.0**-12, 1
    c = np.full((16, 16), -1 - 2.0**-11, np.float32)
    result = hwsim.run(a, b, c, device="ascend910b3", format="fp32", alpha=1 + 2.0**-12, beta=1.0, functional=True)
    assert (np.asarray(result.c) == 2.0**-24).all()
    assert result.executed["fma"] and "scale" not in result.executed


def test_the_bias_is_loaded_to_the_vector_cores() -> None:
    a, b = np.ones((40, 32), np.float32), np.ones((32, 24), np.float32)
    plain = hwsim.run(a, b, device="ascend910b3", format="fp16", alpha=2.0)
    biased = hwsim.run(a, b, device="ascend910b3", format="fp16", alpha=2.0, bias=np.ones(24, np.float32))
    tiles = 20  # two rows each
    assert biased.traffic_bytes["GM_UB"] - plain.traffic_bytes["GM_UB"] == tiles * 24 * 4
