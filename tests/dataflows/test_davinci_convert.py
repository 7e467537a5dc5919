"""`convert_a`: the coupled DaVinci GEMM kernel that splits A itself, as Algorithm 1 of SGEMM-cube has it."""

from __future__ import annotations

import numpy as np
import pytest
from lowered import lower
from operands import bits

import hwsim
from hwsim.backend.cpu import CPU
from hwsim.devices import load
from hwsim.errors import InputError
from hwsim.gemm.problem import Problem
from hwsim.machines import functional, reference
from hwsim.program.check import check
from hwsim.schemes import scheme_of

CHIP = load("ascend910a")
SMALL = {"device": "ascend910a", "scheme": "sgemm-cube", "tile": (16, 16, 16), "n_fused": 2}


def same(x, y):
    return np.array_equal(np.asarray(x).view(np.uint32), np.asarray(y).view(np.uint32))


def gemm_of(parts):
    return next(one for one in parts.kernels if one.name == "gemm")


@pytest.mark.parametrize("accumulation", ["termwise", "elementwise"])
@pytest.mark.parametrize("k", [1, 3, 67])
def test_bits_are_those_of_a_split_beforehand(accumulation, k):
    a, b = bits((35, k), k, specials=True), bits((k, 21), k + 1, specials=True)
    a.flat[:3] = -0.0, np.inf, np.nan
    options = SMALL | {"accumulation": accumulation}
    before = hwsim.run(a, b, functional=True, **options)
    inside = hwsim.run(a, b, functional=True, convert_a="kernel", **options)
    assert same(before.c, inside.c)
    assert same(before.c, hwsim.run(a, b, convert_a="kernel", **options).c)
    assert [phase["name"] for phase in inside.phases if phase["name"].startswith("split")] == ["split_b"]


@pytest.mark.parametrize("order", range(2))
@pytest.mark.parametrize("accumulation", ["termwise", "elementwise"])
def test_every_legal_order_gives_the_same_bits(order, accumulation):
    """With chunks of A's blocks: the tallest block needs several. The reference machine picks engines at random."""
    m, n, k = (178, 2, 20) if accumulation == "termwise" else (50, 3, 40)
    a, b = bits((m, k), 13), bits((k, n), 14)
    scheme = scheme_of("sgemm-cube")
    plan = scheme.plan(scheme.complete({"accumulation": accumulation}), Problem.of("fp32", m, n, k))
    tile = {"m": 48, "k": 32, "n": 80} if accumulation == "elementwise" else {"m": 176, "k": 64, "n": 176}
    options = {"tile": tile, "convert_a": "kernel", "buffering": "single" if order % 2 else "double"}
    parts = lower(plan, CHIP, m, n, k, options)
    check(parts, CHIP)
    inputs = {"A.in": a.view(np.uint32), "B.in": b.view(np.uint32)}
    assert np.array_equal(
        functional.run(parts, CHIP, inputs), reference.run(parts, CHIP, inputs, order=order, dots=CPU.gemm)
    )


def test_time_of_traffic_and_vector_unit():
    """The matrix kernel takes longer, by its conversion; the kernel that split A is gone."""
    options = {"device": "ascend910a", "scheme": "sgemm-cube", "tile": (96, 64, 96), "exact": False}
    sizes = {"m": 1536, "n": 768, "k": 768}
    before, inside = (hwsim.run(**sizes, **options, convert_a=how) for how in ("before", "kernel"))
    cycles = [{phase["name"]: phase["seconds"] for phase in found.phases} for found in (before, inside)]
    assert cycles[1]["gemm"] > cycles[0]["gemm"]
    assert set(cycles[0]) - set(cycles[1]) == {"split_a"}


def test_before_is_the_default():
    sizes = {"m": 100, "n": 90, "k": 80, "exact": False}
    one, two = hwsim.run(**sizes, **SMALL), hwsim.run(**sizes, **SMALL, convert_a="before")
    assert one.cycles == two.cycles and one.gemm.digest == two.gemm.digest
    other = hwsim.run(**sizes, **SMALL, convert_a="kernel")
    assert other.gemm.digest != one.gemm.digest and other.options["convert_a"] == "kernel"
    again = hwsim.run(gemm=other.gemm, exact=False)
    assert again.cycles == other.cycles


def test_refusals():
    half = np.ones((16, 16), np.float16)
    with pytest.raises(InputError, match="convert_a = kernel: A needs no conversion"):
        hwsim.run(half, half, device="ascend910a", scheme="native", convert_a="kernel")
    with pytest.raises(InputError, match="convert_a = kernel: A is not split by rounding"):
        hwsim.run(m=64, n=64, k=64, device="ascend910a", scheme="ape-int16", convert_a="kernel", exact=False)
    with pytest.raises(InputError, match="convert_a"):
        hwsim.run(m=64, n=64, k=64, **SMALL, convert_a="after", exact=False)
    with pytest.raises(InputError, match="convert_a"):
        hwsim.run(m=64, n=64, k=64, device="ascend910b3", scheme="sgemm-cube", convert_a="kernel", exact=False)
