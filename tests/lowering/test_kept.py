"""Programs are kept between calls, and only for the same question."""

import numpy as np
import pytest

import hwsim
from hwsim.dataflows.cache import Kept
from hwsim.dataflows.davinci import coupled as davinci
from hwsim.dataflows.davinci import separated as davinci_separated
from hwsim.devices import load
from hwsim.devices.variants import changed
from hwsim.errors import InputError
from hwsim.program.ir import Program


@pytest.fixture
def lowered(monkeypatch):
    """How often the dataflows of Ascends were asked for a program, from an empty store on."""
    calls = []
    monkeypatch.setattr("hwsim.dataflows.cache.KEPT", Kept())
    for module in (davinci, davinci_separated):

        def counted(*given, own=module.lower):
            calls.append(given)
            return own(*given)

        monkeypatch.setattr(module, "lower", counted)
    return calls


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
    chip, kept, made = load("ascend910a"), Kept(2), []

    def ask(m):
        def make():
            made.append(m)
            return Program((), (), (), "C")

        kept.get(davinci.lower, chip, None, (m, 1, 1), {}, make)

    for m in (1, 2, 1, 3, 1, 2, 3):
        ask(m)
    assert made == [1, 2, 3, 2, 3] and len(kept.found) == 2
