"""Sensitivity of a GEMM's time to the assumed numbers of a device, each varied over its range, one at a time.

A number that moves the time of the same program, or that mappings follow from, gives the device the faster of two
mappings: the one chosen for it, and the one of before. The device as it is has the faster of the same two beside it, so
that a change is the number's and not the mapping's. Numbers that follow from the rows and columns of a systolic
array do not vary. The module knows the device's provenance and the timing machine; it does not know what the program
computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from hwsim.analysis.changed_numbers import are_mapped_alike
from hwsim.datafiles.provenance import Level
from hwsim.devices import changed
from hwsim.devices.device import Device
from hwsim.devices.numbers import Reach, reach_of, with_numbers
from hwsim.devices.query import entry, follow_from_array
from hwsim.errors import HwsimError, UnsupportedError
from hwsim.machines import timing
from hwsim.machines.load import under_load
from hwsim.program.ir import Program
from hwsim.resolve.mapping_choice import facts_of
from hwsim.resolve.mapping_of_base import on_device

SPREAD = 0.25  # of an assumption without a span: this much less and more
ASSUMED = (Level.ASSUMPTION, Level.UNKNOWN)
# What times are made of.
PARTS = ("clock_mhz", "sustained_clock_mhz", "core_start_us", "vector", "l2", "hbm", "links", "engines")
OF_MAPPINGS = ("cores", "memories")  # what mappings follow from
WORTH = 0.0005  # of the time: numbers that move it less with the same program have no mapping chosen for them
ASIDE = ("vector.specials", "vector.repeat_bytes", "l2.line_bytes")  # that are no times, rates or capacities


#: The program of the call on another device, in the mapping that the device has.
ProgramOn = Callable[[Device], Program]


@dataclass(frozen=True, slots=True)
class Influence:
    """One number of a device, and the time at both ends of its range.

    path: dotted, as in the device file. from_span: the range is what sources give, else the value less and more
    SPREAD. cycles: of each device's core clock; seconds: at its clock under the load. is_new_low, is_new_high: whether
    the device has another mapping there. seconds_before_low, seconds_before_high: of the device as it is, in the faster
    of the two mappings that stand for that end; None: `seconds`. refused: why the device does not take an end (its
    times are then None).
    """

    path: str
    value: float
    low: float
    high: float
    from_span: bool
    evidence: str
    cycles: int
    cycles_low: int | None
    cycles_high: int | None
    seconds: float
    seconds_low: float | None
    seconds_high: float | None
    is_new_low: bool = False
    is_new_high: bool = False
    seconds_before_low: float | None = None
    seconds_before_high: float | None = None
    refused: str = ""

    @property
    def changes(self) -> tuple[float | None, float | None]:
        """The change of the time at the low and the high end, as a share of the time in the faster of the same two
        mappings without it; None where the device does not take the end.
        """
        low = _share(self.seconds_before_low or self.seconds, self.seconds_low)
        return low, _share(self.seconds_before_high or self.seconds, self.seconds_high)

    @property
    def moved(self) -> float:
        """The largest change, as a share of the time."""
        return max((abs(change) for change in self.changes if change is not None), default=0.0)


def _share(before: float, after: float | None) -> float | None:
    """The change from a time to another one, as a share of it."""
    if after is None:
        return None
    return (after - before) / before if before else 0.0


@dataclass(frozen=True, slots=True)
class _End:
    """The times at one end; None and the reason where the device does not take it."""

    cycles: int | None = None
    seconds: float | None = None
    is_new: bool = False
    refused: str = ""
    before: float | None = None  # seconds of the device as it is, in the faster of the mappings that stand for this end


def sensitivity(
    program: Program,
    device: Device,
    *,
    program_on: ProgramOn | None = None,
    progress: Callable[[float], None] | None = None,
) -> list[Influence]:
    """The influence of every number behind the program's time that is assumed, or on which sources disagree.

    program_on: gives the program for a device with another number, in the faster of two mappings. Without it the same
    program is timed everywhere, and cores and capacities do not vary. The most influential first. Raises
    UnsupportedError where the device has no times for the program.
    """
    reason = timing.missing(device, program)
    if reason is not None:
        raise UnsupportedError(reason)
    now = _timed(program, device)
    assert now.cycles is not None and now.seconds is not None
    ranges = list(_ranges(program, device, has_mappings=program_on is not None))
    influences = []
    for index, (path, value, low, high, from_span) in enumerate(ranges):
        of_range = [_same_program(program, device, path, end) for end in (low, high)]
        moves = any(end.seconds is not None and abs(end.seconds / now.seconds - 1) >= WORTH for end in of_range)
        if program_on is not None and (moves or reach_of(path) == Reach.MAPPING):
            of_range = [_faster(program, device, path, end, program_on, now.seconds) for end in (low, high)]
        influences.append(
            Influence(
                path=path,
                value=value,
                low=low,
                high=high,
                from_span=from_span,
                evidence=str(device.evidence[path].evidence),
                cycles=now.cycles,
                cycles_low=of_range[0].cycles,
                cycles_high=of_range[1].cycles,
                seconds=now.seconds,
                seconds_low=of_range[0].seconds,
                seconds_high=of_range[1].seconds,
                is_new_low=of_range[0].is_new,
                is_new_high=of_range[1].is_new,
                seconds_before_low=of_range[0].before,
                seconds_before_high=of_range[1].before,
                refused=of_range[1].refused or of_range[0].refused,
            )
        )
        if progress is not None:
            progress((index + 1) / len(ranges))
    return sorted(influences, key=lambda influence: (-influence.moved, influence.path))


def _timed(program: Program, device: Device) -> _End:
    unit = "" if program.gemm is None else str(facts_of(program.gemm, device)["unit"])
    loaded, timed = under_load(program, device, unit)
    return _End(timed.cycles, timing.seconds(timed, loaded))


def _same_program(program: Program, device: Device, path: str, end: float) -> _End:
    """The times of the program as it is on the device with that number."""
    try:
        return _timed(program, changed(device, {path: end}))
    except ValueError as error:
        return _End(refused=str(error).splitlines()[0])


def _faster(program: Program, device: Device, path: str, end: float, program_on: ProgramOn, now: float) -> _End:
    """The times of the call on the device with that number. now: seconds of the program on the device as it is."""
    try:
        other = with_numbers(device, {path: end})
        of_other = program_on(other)
        times = _timed(of_other, other)
    except (HwsimError, ValueError) as error:
        return _End(refused=str(error).splitlines()[0])
    if are_mapped_alike(program.gemm, of_other.gemm):
        return times
    assert of_other.gemm is not None
    back = on_device(of_other.gemm, device, other)
    in_new = None if back is None else _timed(back[1], device).seconds
    return replace(times, is_new=True, before=now if in_new is None else min(now, in_new))


def range_of(device: Device, path: str) -> tuple[float, float, float, bool] | None:
    """The value at a dotted path, the ends of its range, and whether sources give them; None for no assumed number.

    A number on which sources disagree has the range that they span; one that is assumed, SPREAD less and more.
    """
    about = device.evidence.get(path)
    if about is None or (about.span is None and about.evidence not in ASSUMED):
        return None
    value = _value(device.model_dump(by_alias=True), path)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value:
        return None
    low, high = about.span or (value * (1 - SPREAD), value * (1 + SPREAD))
    if isinstance(value, int):
        low, high = round(low), round(high)
    return (value, low, high, about.span is not None) if low < value or high > value else None


def _ranges(program: Program, device: Device, *, has_mappings: bool) -> Iterator[tuple[str, float, float, float, bool]]:
    """The numbers to vary: (path, value, low, high, whether the range is from sources)."""
    timed = [f"instructions.{entry(device, unit)}.timing" for unit in sorted(program.units)]
    aside = (*ASIDE, *follow_from_array(device))
    parts = [*PARTS, *timed, *(OF_MAPPINGS if has_mappings else ())]
    for path in device.evidence:
        if not _is_within(path, parts) or _is_within(path, aside):
            continue
        span = range_of(device, path)
        if span is not None:
            yield path, *span


def _is_within(path: str, parts: list[str] | tuple[str, ...]) -> bool:
    return any(path == part or path.startswith(f"{part}.") for part in parts)


def _value(tree: Any, path: str) -> Any:
    """The value at a dotted path; keys may contain dots. None where there is none."""
    if not isinstance(tree, dict):
        return None
    if path in tree:
        return tree[path]
    inner = [key for key in tree if path.startswith(f"{key}.")]
    key = max(inner, key=len, default=None)
    return None if key is None else _value(tree[key], path[len(key) + 1 :])
