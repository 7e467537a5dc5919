"""Programs are kept between calls, and only for the same question."""

from dataclasses import replace

import numpy as np
import pytest

import hwsim
from hwsim.devices import load
from hwsim.devices.variants import changed
from hwsim.errors import InputError
from hwsim.lowering import davinci, davinci_separated
from hwsim.lowering.kept import Kept
from hwsim.program.ir import Program
from hwsim.program.plan import Problem, Scaled, Sum, TermValue, sums
from hwsim.schemes import scheme_of


@pytest.fixture
def lowered(monkeypatch):
    """How often the dataflows of Ascends were asked for a program, from an empty store on."""
    calls = []
    monkeypatch.setattr("hwsim.lowering.kept.KEPT", Kept())
    for module in (davinci, davinci_separated):

        def counted(*given, own=module.lower):
            calls.append(given)
            return own(*given)

        monkeypatch.setattr(module, "lower", counted)
    return calls


def plan_of(name, **options):
    own = scheme_of(name)
    return own.plan(own.complete(options), Problem("fp32", 16, 16, 16))


SIZES = {"m": 48, "n": 64, "k": 80}


def test_the_same_question_is_lowered_once(lowered):
    first = hwsim.api.program(**SIZES, device="ascend910a", scheme="sgemm-cube")[1]
    first.facts["tile"]["m"] = 0  # a caller's own
    again = hwsim.api.program(**SIZES, device="ascend910a", scheme="sgemm-cube")[1]
    assert len(lowered) == 1 and again.kernels is first.kernels
    assert again.facts["tile"]["m"] > 0
    a, b = np.ones((48, 80), np.float32), np.ones((80, 64), np.float32)
    for _ in range(2):
        assert (hwsim.matmul(a, b, device="ascend910a", scheme="sgemm-cube") == 80).all()
    assert len(lowered) == 1


def test_other_questions_are_not_served_with_it(lowered):
    chip = load("ascend910b3")
    smaller = changed(chip, {"memories.L0C.capacity_bytes": 16384})  # the same name and hash
    asked = [
        {"device": chip},
        {"device": chip, "tile": (32, 32, 16)},
        {"device": chip, "swizzle": 1},
        {"device": chip, "buffering": "single"},
        {"device": chip, "scaling_exponent": 11},
        {"device": smaller},
        {"device": load("ascend910b1")},
    ]
    made = [hwsim.api.program(**SIZES, scheme="sgemm-cube", **one)[1] for one in asked]
    assert len(lowered) == len(asked)
    for one, program in zip(asked, made, strict=True):
        assert hwsim.api.program(**SIZES, scheme="sgemm-cube", **one)[1].kernels is program.kernels
    assert made[1].facts["tile"] == {"m": 32, "n": 32, "k": 16} != made[0].facts["tile"]
    assert made[3].facts["buffering"] == "single"
    hwsim.api.program(m=48, n=80, k=64, device=chip, scheme="sgemm-cube")
    assert len(lowered) == len(asked) + 1
    with pytest.raises(InputError, match="swizzle = True"):
        hwsim.api.program(**SIZES, scheme="sgemm-cube", device=chip, swizzle=True)


def test_another_dataflow_is_asked_again(lowered, monkeypatch):
    hwsim.api.program(**SIZES, device="ascend910a", scheme="sgemm-cube")
    own = davinci.lower
    monkeypatch.setattr(davinci, "lower", lambda *given: own(*given))
    hwsim.api.program(**SIZES, device="ascend910a", scheme="sgemm-cube")
    assert len(lowered) == 2


def test_few_are_kept_those_asked_for_last():
    chip, kept, made, plan = load("ascend910a"), Kept(2), [], plan_of("native", format="fp32")

    def ask(m):
        def make():
            made.append(m)
            return Program((), (), (), "C")

        kept.get(davinci.lower, chip, plan, (m, 1, 1), {}, make)

    for m in (1, 2, 1, 3, 1, 2, 3):
        ask(m)
    assert made == [1, 2, 3, 2, 3] and len(kept.found) == 2


def test_a_sum_of_hundreds_of_products_is_a_question_too():
    """44 slices: 990 products, one sum within the other. Wider plans have bits alone, and say so."""
    result = hwsim.run(m=16, n=16, k=16, device="a100", scheme="ozaki-fp16", slices=44, exact=False)
    assert result.cycles > 0
    assert hwsim.run(m=16, n=16, k=16, device="a100", scheme="quantensor", pieces=30).cycles > 0


def test_plans_that_differ_in_their_sum_alone_are_two_questions():
    chip, kept, made = load("ascend910a"), Kept(), []
    first = plan_of("ozaki-int8", slices=3)
    values = [
        first.combine,
        sums(*(Scaled(TermValue(t), -7) for t in range(6))),
        sums(*(Scaled(TermValue(t), -8) for t in range(6))),
        sums(*(Scaled(TermValue(t), -7) for t in (1, 0, 2, 3, 4, 5))),
        Sum(TermValue(0), Sum(TermValue(1), TermValue(2))),
        Sum(Sum(TermValue(0), TermValue(1)), TermValue(2)),
    ]
    for value in values * 2:
        plan = replace(first, combine=value)
        kept.get(
            len, chip, plan, (16, 16, 16), {}, lambda: made.append(1) or Program("gemm", chip.name, (), (), (), {})
        )
    assert len(made) == len(values)
