"""Plans whose parts of K are split alone: one program of all parts, whose bits are the evaluator's."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hwsim
from hwsim.api import program as make_program
from hwsim.machines import functional, reference
from hwsim.schemes import fixedpoint

SIZES = (12, 9, 300)  # three parts of K, the last of 44
CALLS: list[dict[str, Any]] = [
    {},
    {"alpha": 0.75, "beta": -1.25, "c": 1, "bias": 1},
    {"alpha": 0.75, "beta": -1.25, "c": 1, "bias": 1, "output": "fp32"},
    {"beta": 0.0, "c": 1, "output": "bf16"},
    {"split_k": 2, "alpha": 0.3, "c": 1},
    {"stack": 2},
    {"alpha": 0.3, "c": 1, "schedule": {"epilogue": {"product_format": "fp16"}}},
]
DEVICES = ("h200", "mi300x", "ascend910a", "ascend910b3")


@pytest.fixture(autouse=True)
def _parts_of_short_sums(monkeypatch):
    """Cut sums of 300, as those of 1,024 and more are."""
    monkeypatch.setattr(fixedpoint, "LEAST_K", 256)


def operands(stack=()):
    """Numbers of many magnitudes, whose largest are in different parts of K."""
    rng = np.random.default_rng(3)
    m, n, k = SIZES
    a, b = (rng.standard_normal(shape) for shape in ((*stack, m, k), (*stack, k, n)))
    return a * 2.0 ** rng.integers(-9, 9, a.shape), b * 2.0 ** rng.integers(-9, 9, b.shape), rng


@pytest.mark.parametrize("number", range(len(CALLS)), ids=lambda i: str(list(CALLS[i])))
def test_a_program_gives_the_evaluators_bits(number):
    call = dict(CALLS[number])
    device = {4: "ascend910a", 6: "h200"}.get(number, DEVICES[number % len(DEVICES)])
    a, b, rng = operands((call.pop("stack"),) if "stack" in call else ())
    sizes = {"c": SIZES[:2], "bias": SIZES[1:2]}
    given = {name: rng.standard_normal(sizes[name]) if name in sizes else value for name, value in call.items()}
    more = {"device": device, "scheme": "fixedpoint-fp64", "bits": 15, **given}
    plain, program = hwsim.run(a, b, **more), hwsim.run(a, b, functional=True, **more)
    assert len(plain.gemm.single.k_parts) == 3
    assert plain.c.tobytes() == program.c.tobytes() and plain.cycles == program.cycles > 0


def test_a_part_that_is_left_out_is_seen():
    a, b, _ = operands()
    more = {"device": "ascend910a", "scheme": "fixedpoint-fp64", "bits": 7, "m": 12, "n": 9, "k": 300}
    _, program = make_program(input_format="fp64", **more)
    names = [kernel.name.split(".")[0] for kernel in program.kernels]
    assert list(dict.fromkeys(names)) == [f"part{number + 1}" for number in range(3)]
    fewer = replace(program, kernels=tuple(x for x in program.kernels if not x.name.startswith("part2.")))
    inputs = {name: x.view(np.uint64) for name, x in zip(program.inputs, (a, b), strict=True)}
    whole, part = (functional.run(one, hwsim.device("ascend910a"), inputs) for one in (program, fewer))
    assert not np.array_equal(whole, part)


def test_every_legal_order_gives_the_same_bits():
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((3, 300)), rng.standard_normal((300, 2))
    more = {"device": "ascend910a", "scheme": "fixedpoint-fp64", "bits": 7}
    plain = hwsim.run(a, b, **more)
    _, program = make_program(m=3, n=2, k=300, input_format="fp64", **more)
    inputs = {name: x.view(np.uint64) for name, x in zip(program.inputs, (a, b), strict=True)}
    device = hwsim.device("ascend910a")
    assert functional.run(program, device, inputs).tobytes() == plain.c.tobytes()
    assert reference.run(program, device, inputs, order=1).tobytes() == plain.c.tobytes()


@pytest.mark.parametrize("device", ["h200", "ascend910a"])
def test_slices_of_all_parts_are_chosen_by_the_longest_part(device):
    """A part has 128 elements of K: two slices of 64 at most, though K is 1,000."""
    call = {"m": 64, "n": 64, "k": 1000, "device": device, "scheme": "fixedpoint-fp64", "exact": False}
    auto = hwsim.run(**call, split_k="auto")
    tried = auto.gemm.decided("split_k").why.partition("fastest of ")[2].partition(", by")[0]
    assert tried == "1, 2"
    times = [hwsim.run(**call, split_k=int(count)).seconds for count in tried.split(", ")]
    assert auto.seconds == min(times)
