"""Random operands of a call: one seed, shape and input format give the same ones for every scheme."""

from __future__ import annotations

import numpy as np
import pytest

import hwsim
from hwsim.analysis.inputs import drawn
from hwsim.cli.command import main
from hwsim.compute.call import sort_by_owner
from hwsim.errors import InputError
from hwsim.request.operands import operands_of
from hwsim.schemes import scheme_of

SCHEMES = ("native", "ozaki-int8", "fixedpoint-fp64", "ape-int16")


def drawn_bits(scheme: str, input_format: str) -> tuple[bytes, bytes]:
    named = scheme_of(scheme)
    values = {"m": 8, "n": 8, "k": 16, "seed": 3, "input_format": input_format}
    pair = operands_of(None, None, sort_by_owner(values, named), named).pair
    assert pair is not None
    return pair[0].values().tobytes(), pair[1].values().tobytes()


@pytest.mark.parametrize("input_format", ["fp64", "fp32", "fp16"])
def test_every_scheme_draws_the_same_operands(input_format: str) -> None:
    assert len({drawn_bits(scheme, input_format) for scheme in SCHEMES}) == 1


def test_operands_have_the_distribution_that_was_asked_for() -> None:
    for distribution, least, most in (("uniform", -1.0, 1.0), ("positive", 0.0, 1.0)):
        for form in ("fp32", "fp64"):
            a, b = drawn(64, 64, 64, 5, form, distribution)
            values = np.concatenate([a, b]).astype(np.float64)
            assert least <= values.min() < least + 0.01 and most - 0.01 < values.max() <= most
            assert (values != values.astype(np.float32)).any() == (form == "fp64")  # with all its bits


def test_a_distribution_beside_arrays_is_refused() -> None:
    x = np.ones((4, 4), np.float32)
    with pytest.raises(InputError, match=r"operand_distribution = 'positive' is of random operands.*leave it out"):
        hwsim.run(x, x, device="h200", operand_distribution="positive")


def test_a_result_says_of_which_distribution_its_operands_were() -> None:
    sizes = {"device": "h200", "m": 8, "n": 8, "k": 8}
    assert hwsim.run(**sizes, operand_distribution="positive").options["operand_distribution"] == "positive"
    assert "operand_distribution" not in hwsim.run(**sizes).options


def test_int16_has_one_distribution_and_reports_say_it(capsys: pytest.CaptureFixture[str]) -> None:
    call = {"m": 8, "n": 8, "k": 16, "device": "ascend910a", "scheme": "ape-int16"}
    assert main(["run", *(f"--{name}={value}" for name, value in call.items())]) == 0
    assert "uniform over all values of int16" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(InputError, match="random operands of int16 are uniform over all values; leave it out"):
        hwsim.run(**call, operand_distribution="positive")
