"""Traces and what-if analyses are of the run whose cycles a result has, also where L2 is warm before it."""

import math

import pytest

import hwsim


@pytest.mark.parametrize("device", ["h200", "a100", "mi300x", "ascend910a"])
def test_the_last_instruction_ends_with_the_run(device: str) -> None:
    result = hwsim.run(m=512, n=512, k=512, device=device, format="fp16", exact=False)
    assert result.trace is not None and result.what_if is not None and result.cycles is not None
    assert math.ceil(result.trace.rows["end"].max()) <= result.cycles
    assert result.what_if[-1].cycles == result.cycles and result.what_if[-1].saved == 0


def test_a_run_under_load_is_warm() -> None:
    """Else the test above would say nothing."""
    result = hwsim.run(m=512, n=512, k=512, device="h200", format="fp16", exact=False)
    assert result.times.warm == 1
