"""What L2 holds when a timed run begins: the states that a user names, and the runs that lead to each.

It knows neither programs nor devices, and nothing of clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class L2State:
    """A state of L2. runs_before: of the same call, with the same arrays. is_clean: HBM has what they wrote."""

    name: str
    runs_before: int
    is_clean: bool
    meaning: str


STATES: Mapping[str, L2State] = {
    state.name: state
    for state in (
        L2State("series", 1, False, "as the same call, run just before, has left it"),
        L2State("warm", 1, True, "as the same call, run before, has left it, all of its results written to HBM"),
        L2State("cold", 0, True, "empty"),
    )
}
SERIES, WARM, COLD = STATES
DEFAULT = SERIES  # what a loop of benchmark measures
