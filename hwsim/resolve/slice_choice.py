"""Chooses the number of slices of K: the numbers with the least estimated time are timed as programs, beside K in one
piece.

The module knows records, dataflows' estimates and predicted times; it knows no tile. Slices change the bits, so it
chooses only where a request asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hwsim.dataflows import parts_of_k
from hwsim.dataflows.options import AUTO, SPLIT_K
from hwsim.errors import UnsupportedError
from hwsim.gemm.plan import Mixed
from hwsim.gemm.record import Decision, Gemm
from hwsim.resolve.mapping_choice import estimated_slices, slices_that_run
from hwsim.resolve.mapping_search import searched
from hwsim.resolve.record_cost import cost_of

if TYPE_CHECKING:
    from hwsim.devices.device import Device

MOST_TIMED = 3  # numbers of slices that run, beside one piece: their estimates are the least


@dataclass(frozen=True, slots=True)
class SliceChoice:
    """The number of slices with the least simulated time, and that time over the time with K in one piece (0 to 1).

    timed: all numbers that were timed. Both are numbers of slices that run.
    """

    slices: int
    share: float
    timed: tuple[int, ...]


def fastest_slices(gemm: Gemm, device: Device, options: Mapping[str, Any]) -> SliceChoice | None:
    """The number of slices with the least time of a run without launches; 1 where slices gain nothing.

    gemm: without a mapping, K in one piece. options: of the mapping; the number of slices among them is not read. None
    where the dataflow has no split-K, or no program of K in one piece can be timed. Raises as `searched`.
    """
    estimate = estimated_slices(gemm, device, options)
    if estimate is None:
        return None
    seconds: dict[int, float] = {}
    running = slices_that_run(gemm, estimate.counts or (estimate.slices,))
    for wanted in (1, *[count for count in running if count > 1][:MOST_TIMED]):
        try:
            cut = searched(gemm, device, {**options, SPLIT_K.name: wanted})
            seconds[cut.schedule.split_k] = cost_of(cut, device).seconds
        except UnsupportedError:
            if wanted == 1:
                return None
    best = min(seconds, key=lambda count: (seconds[count], count))
    share = seconds[best] / seconds[1] if seconds[1] else 1.0
    return SliceChoice(best, share, tuple(sorted(seconds)))


def with_best_mapping(gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Gemm:
    """The record with its mapping, as `searched`; `split_k` "auto" is the number with the least simulated time.

    Where no program can be timed, it is the number with the least estimated time. Raises as `searched`.
    """
    if options.get(SPLIT_K.name) != AUTO or isinstance(gemm.plan, Mixed) or _is_cut(gemm):
        return searched(gemm, device, options)
    if parts_of_k.is_in_parts(gemm):
        return parts_of_k.with_mapping_of(gemm, with_best_mapping(parts_of_k.longest(gemm), device, options))
    choice = fastest_slices(gemm, device, options)
    if choice is None:
        return searched(gemm, device, options)
    cut = searched(gemm, device, {**options, SPLIT_K.name: choice.slices})
    return replace(cut, decisions=tuple([_by_time(decision, choice) for decision in cut.decisions]))


def _is_cut(gemm: Gemm) -> bool:
    """Whether the order of summation says already how K is cut."""
    return gemm.schedule.split_k != 1 or gemm.schedule.slice_k is not None


def _by_time(decision: Decision, choice: SliceChoice) -> Decision:
    if decision.name != SPLIT_K.name:
        return decision
    tried = f"the fastest of {', '.join(map(str, choice.timed))}, by simulated time"
    share = f": {choice.share:.0%} of the time of K in one piece" if choice.slices > 1 else ""
    return replace(decision, by="estimate", evidence="assumption", why=f"{tried}{share}")
