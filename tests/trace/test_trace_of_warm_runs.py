"""Traces and what-if analyses are of the run whose cycles a result has, also where L2 is warm before it."""

import math

import pytest

import hwsim


@pytest.mark.parametrize("l2", ["series", "warm", "cold"])
@pytest.mark.parametrize("device", ["h200", "a100", "mi300x", "ascend910a"])
def test_the_last_instruction_ends_with_the_run(device: str, l2: str) -> None:
    result = hwsim.run(m=512, n=512, k=512, device=device, format="fp16", exact=False, l2=l2)
    assert result.trace is not None and result.what_if is not None and result.cycles is not None
    assert math.ceil(result.trace.rows["end"].max()) <= result.cycles
    assert result.what_if[-1].cycles == result.cycles and result.what_if[-1].saved == 0


@pytest.mark.parametrize("device", ["h200", "mi300x"])
def test_a_series_is_shorter_than_a_cold_run(device: str) -> None:
    """Else the test above would say nothing."""
    series, cold = (
        hwsim.run(m=512, n=512, k=512, device=device, format="fp16", exact=False, l2=l2) for l2 in ("series", "cold")
    )
    assert series.cycles is not None and cold.cycles is not None and series.cycles < cold.cycles
