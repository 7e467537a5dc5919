"""Sums in integers and fp64, bytes and slices on the separated DaVinci core: a program's bits are the evaluator's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lowered import lower

import hwsim
from hwsim.devices import load
from hwsim.formats import code_dtype, format_of
from hwsim.gemm.problem import Problem
from hwsim.machines import functional, reference
from hwsim.program.ir import Instr
from hwsim.schemes import scheme_of

CHIP = load("ascend910b3")
INTEGERS = ("int8", "ape-int16")
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("int8", {"alpha": 3.0, "beta": -2.0, "c": "int32"}),
    ("int8", {"bias": "int64", "k_group": 32}),
    ("int8", {"output": "fp32", "alpha": 0.75, "bias": "fp32"}),
    ("int8", {"output": "fp16"}),
    ("int8", {"output": "fp64", "alpha": 0.7}),
    ("int8", {"output": "int8", "c": "int8", "beta": 3.0}),
    ("int8", {"output": "int64"}),
    ("ape-int16", {}),
    ("ape-int16", {"low_byte": "signed"}),
    ("ape-int16", {"accumulate": "int32"}),
    ("ape-int16", {"output": "int32"}),
    ("ape-int16", {"output": "fp32"}),
    ("ape-int16", {"schedule": {"promotion_k": 32}}),
    ("ape-int16", {"alpha": -5.0, "beta": 2.0, "c": "int64", "bias": "int64"}),
    ("quantensor", {}),
    ("quantensor", {"pieces": 20, "all_products": False}),  # powers of two beyond fp32's, and 210 terms
    ("quantensor", {"residual": True, "schedule": {"promotion_k": 32}}),
    ("quantensor", {"alpha": 0.75, "beta": 0.3, "c": "fp32", "output": "fp32"}),
    ("ozaki-fp16", {}),
    ("ozaki-fp16", {"slices": 3, "output": "bf16"}),
    ("ozaki-fp16", {"alpha": 0.75, "beta": 0.3, "c": "fp64", "bias": "fp64"}),
    ("ozaki-int8", {"truncate": False, "slices": 3}),
    ("ozaki-int8", {"output": "fp32", "wide": True}),
)


def array(fmt: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if fmt.startswith("int"):
        return rng.integers(-(1 << (int(fmt[3:]) - 2)), 1 << (int(fmt[3:]) - 2), shape).astype(fmt)
    scales = 2.0 ** rng.integers(-20, 20, shape)
    return (rng.standard_normal(shape) * scales).astype({"fp32": np.float32, "fp64": np.float64}[fmt])


def call(scheme: str, options: dict[str, Any], shape: tuple[int, int, int]) -> dict[str, Any]:
    """The arrays and options of a call. wide: operands in fp64, of which one is subnormal."""
    m, n, k = shape
    given = dict(options)
    fmt = {"int8": "int8", "ape-int16": "int16"}.get(scheme, "fp64" if given.pop("wide", False) else "fp32")
    a, b = array(fmt, (m, k), 1), array(fmt, (k, n), 2)
    if fmt == "fp64":
        a[0, 0] = 2.0**-1060
    given |= {"format": "int8"} if scheme == "int8" else {"scheme": scheme}
    c = given.pop("c", None)
    if "bias" in given:
        given["bias"] = array(given["bias"], (n,), 4)
    return {"a": a, "b": b, "c": None if c is None else array(c, (m, n), 3), **given}


@pytest.mark.covering(("scheme", "options"), "shape")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape", [(17, 9, 67), (1, 20, 3), (12, 1, 16)], ids=str)
@pytest.mark.parametrize(("scheme", "options"), CASES, ids=str)
def test_a_program_gives_the_evaluators_bits(scheme: str, options: dict[str, Any], shape: tuple[int, int, int]) -> None:
    given = call(scheme, options, shape)
    places = [(0, 0), (shape[0] - 1, shape[1] - 1)]
    program = hwsim.run(device="ascend910b3", functional=True, values=places, **given)
    direct = hwsim.run(device="ascend910b3", **given)
    assert program.result_sha256 == direct.result_sha256
    assert program.cycles == direct.cycles > 0


@pytest.mark.parametrize("order", range(2))
@pytest.mark.parametrize("scheme", ["ape-int16", "quantensor", "ozaki-fp16", "ozaki-int8"])
def test_every_legal_order_gives_the_same_bits(scheme: str, order: int) -> None:
    m, n, k = 7, 9, 35
    own, fmt = scheme_of(scheme), "int16" if scheme == "ape-int16" else "fp32"
    options = {"low_byte": "biased"} if scheme == "ape-int16" else {"slices": 3} if "ozaki" in scheme else {}
    plan = own.plan(own.complete(options), Problem.of(fmt, m, n, k))
    program = lower(plan, CHIP, m, n, k, {"c": True, "beta": 1.0, "alpha": 3.0})
    output = next(array.format for array in program.arrays if array.name == program.output)
    given = (array(fmt, (m, k), 1), array(fmt, (k, n), 2), array(output, (m, n), 3))
    codes = [x.view(code_dtype(format_of(name))) for x, name in zip(given, (fmt, fmt, output), strict=True)]
    inputs = dict(zip(program.inputs, codes, strict=True))
    assert np.array_equal(functional.run(program, CHIP, inputs), reference.run(program, CHIP, inputs, order=order))


def test_the_vector_cores_read_their_own_memory_alone() -> None:
    plan = scheme_of("ape-int16").plan(
        scheme_of("ape-int16").complete({"low_byte": "biased"}), Problem.of("int16", 40, 30, 50)
    )
    program = lower(plan, CHIP, 40, 30, 50, {"bias": True})
    names = [kernel.name for kernel in program.kernels]
    assert names[:4] == ["sum_a", "split_a", "sum_b", "split_b"] and names[-1] == "combine"
    arrays = {array.name for array in program.arrays}
    of_vector: list[Instr] = [x for kernel in program.kernels for x in kernel.instrs() if x.engine == "V"]
    assert of_vector
    assert not any(getattr(tile, "array", None) in arrays for x in of_vector for tile in (*x.writes, *x.reads))


def test_fp64_sums_take_as_long_as_their_instructions() -> None:
    """28 products of 7 slices: 27 additions of fp64 of each element, and a power of two of each product.

    An instruction on a tile of some 3,000 elements takes about as long to begin as to go over them.
    """
    result = hwsim.run(m=1024, n=512, k=128, device="ascend910b3", scheme="ozaki-fp16", exact=False)
    additions, powers = 27 * CHIP.vector.software["add.fp64"], 28 * CHIP.vector.software["scale.fp64"]
    least = (additions + powers) * 1024 * 512 * 4 / (CHIP.vector.repeat_bytes * CHIP.cores)
    joins = sum(phase["cycles"] for phase in result.phases if phase["name"].startswith("combine"))
    assert 1.5 * least < joins < 3 * least
