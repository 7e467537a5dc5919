"""The campaigns of times: their cases pass, and each of their bounds sees a time below it."""

from dataclasses import replace
from pathlib import Path

import pytest

import hwsim

TOOLS = Path(__file__).parents[2] / "tools" / "fuzz"
SIZES = {"m": 64, "n": 4096, "k": 4096}


@pytest.fixture
def times(monkeypatch):
    """The module of the campaign."""
    monkeypatch.syspath_prepend(str(TOOLS))
    import times

    return times


def result(**options):
    return hwsim.run(device="h200", format="fp16", exact=False, **SIZES, **options)


def at(found, seconds):
    """The result with another time."""
    return replace(found, times=replace(found.times, seconds=seconds))


def test_the_first_cases_hold(times):
    words = [times.case(number) for number in range(30)]
    assert {"series", "cold", "warm"} <= set(words)


@pytest.mark.parametrize(
    ("l2", "seconds", "said"),
    [
        ("series", 1e-9, "products over peak"),
        ("series", 3e-6, "bytes over L2"),
        ("cold", 6e-6, "bytes over HBM"),
    ],
)
def test_a_time_below_a_bound_is_seen(times, l2, seconds, said):
    found = result(l2=l2)
    chip = hwsim.device("h200")
    times.check_bounds(chip, found, SIZES, "fp16")
    with pytest.raises(AssertionError, match=said):
        times.check_bounds(chip, at(found, seconds), SIZES, "fp16")


def test_a_time_that_its_parts_do_not_add_up_to_is_seen(times):
    found = result()
    with pytest.raises(AssertionError, match="parts"):
        times.check_bounds(hwsim.device("h200"), at(found, 2 * found.seconds), SIZES, "fp16")


def test_another_state_than_was_asked_for_is_seen(times):
    found = result(l2="cold", clock_mhz=1500.0)
    chip = hwsim.device("h200")
    times.check_state(chip, found, {"l2": "cold", "clock_mhz": 1500.0})
    for asked in ({"clock_mhz": 1500.0}, {"l2": "cold", "clock_mhz": 1400.0}):
        with pytest.raises(AssertionError, match=r"l2|clock"):
            times.check_state(chip, found, asked)


def test_growth_is_another_campaign(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    import growth

    assert {growth.case(number) for number in range(8)} <= {"no shorter", "other kernels", "without a time"}
