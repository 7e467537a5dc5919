"""Running statistics of errors: none of nothing, and of two records together those of all errors."""

import math

import pytest

from hwsim.analysis.running_error import RunningError


def of(*errors):
    found = RunningError()
    for error in errors:
        found.add(error)
    return found


def test_nothing_has_no_error():
    assert RunningError().mean is RunningError().largest is None
    assert (of(0.0).mean, of(0.0).largest) == (0.0, 0.0)


def test_mean_and_largest_also_of_two_together():
    both = of(3.0, 1.0)
    both.merge(of(2.0))
    both.merge(RunningError())
    assert both.count == 3 and both.largest == 3.0 and both.mean == pytest.approx(math.sqrt(14 / 3), rel=1e-15)


def test_the_mean_of_equal_errors_is_that_error():
    third = of(*[0.1] * 3)
    assert third.mean <= third.largest == 0.1
