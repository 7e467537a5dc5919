"""Inputs as a program's instructions read them: rounded by the device's data, or refused where that says two things."""

from types import SimpleNamespace

import numpy as np
import pytest

import hwsim
from hwsim.backend.cpu import CPU
from hwsim.errors import UnsupportedError
from hwsim.machines.words import as_read

HF32 = "mmad.m16n16k8.f32.hf32.hf32"
WORDS = np.array([1 + 2.0**-11, 1 + 2.0**-12, 1 + 3 * 2.0**-12, -1 - 2.0**-11 - 2.0**-20], np.float32).view(np.uint32)


def program(*units):
    """What is read of a program: its instructions, and inputs x and other."""
    arrays = (SimpleNamespace(name="x", format="hf32"), SimpleNamespace(name="other", format="fp16"))
    return SimpleNamespace(units=set(units), arrays=arrays)


def device(rounding):
    """A 910B3 with a second instruction for hf32, of another rounding."""
    own = hwsim.device("ascend910b3")
    first = next(one for name, one in own.matrix_instructions.items() if name == HF32)
    second = first.model_copy(update={"operand_rounding": rounding})
    return own.model_copy(update={"matrix_instructions": {**own.matrix_instructions, "second": second}})


def test_words_are_rounded_as_the_instruction_says() -> None:
    """11 fraction bits, ties to even, worked out by hand; arrays of other formats stay as they are."""
    inputs = {"x": WORDS, "other": np.arange(4, dtype=np.uint16)}
    found = as_read(program(HF32), hwsim.device("ascend910b3"), inputs, CPU)
    expected = np.array([1 + 2.0**-11, 1.0, 1 + 2.0**-10, -1 - 2.0**-11], np.float32).view(np.uint32)
    assert np.array_equal(found["x"], expected) and found["other"] is inputs["other"]


@pytest.mark.parametrize("rounding", ["RZ", None])
def test_two_ways_of_rounding_one_format_are_refused(rounding) -> None:
    chip = device(rounding)
    with pytest.raises(UnsupportedError, match="instructions for hf32 have"):
        as_read(program(HF32, "second"), chip, {"x": WORDS}, CPU)
    same = device("RNE")
    alone = as_read(program(HF32), same, {"x": WORDS}, CPU)["x"]
    assert np.array_equal(as_read(program(HF32, "second"), same, {"x": WORDS}, CPU)["x"], alone)
