"""Cycles with other numbers of the device file."""

from __future__ import annotations

import pytest

import hwsim
from hwsim.errors import InputError

SIZES = {"m": 256, "n": 256, "k": 256}


@pytest.mark.parametrize("device", ["h200", "ascend910a"])
def test_factor_one_changes_nothing(device: str) -> None:
    result = hwsim.run(device=device, exact=False, **SIZES)
    found = result.with_numbers({"hbm.bytes_per_second": "1x"})
    assert found is not None and found.cycles == (result.cycles, result.cycles)


def test_a_slower_part_takes_longer_and_a_value_is_as_its_factor() -> None:
    result = hwsim.run(device="ascend910a", exact=False, l2="cold", **SIZES)
    slow = result.with_numbers({"hbm.bytes_per_second": "0.1x"})
    assert slow is not None and slow.cycles[1] > slow.cycles[0]
    same = result.with_numbers({"hbm.bytes_per_second": slow.numbers["hbm.bytes_per_second"][1]})
    assert same == slow


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hbm.bytes_per_secnd": "2x"}, "did you mean 'hbm.bytes_per_second'"),
        ({"hbm.bytes_per_second": "fast"}, "allowed: a factor"),
        ({"hbm.bytes_per_second": "infx"}, "allowed: a factor"),
        ({"hbm.bytes_per_second": "-1x"}, "greater than or equal to 1000"),
    ],
)
def test_bad_changes_say_why(changes: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        hwsim.run(device="h200", exact=False, **SIZES).with_numbers(changes)
