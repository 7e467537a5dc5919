"""Sensitivity of a program's cycles to the assumed numbers of a device, each varied over its range, one at a time.

The program stays as it was written: only the hardware's times vary, not the choice of tiles. Numbers that follow from
the rows and columns of a systolic array do not vary. The module knows the
device's provenance and the timing machine; it does not know what the program computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hwsim.datafiles.provenance import Level
from hwsim.devices import changed
from hwsim.devices.query import entry, follow_from_array
from hwsim.errors import UnsupportedError
from hwsim.machines import timing
from hwsim.machines.load import under_load
from hwsim.resolve.mapping_choice import facts_of

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.program.ir import Program

SPREAD = 0.25  # of an assumption without a span: this much less and more
ASSUMED = (Level.ASSUMPTION, Level.UNKNOWN)
# What times are made of.
PARTS = ("clock_mhz", "sustained_clock_mhz", "core_start_us", "vector", "l2", "hbm", "links", "engines")
ASIDE = ("vector.specials", "vector.repeat_bytes", "l2.line_bytes")  # that are no times, rates or capacities


@dataclass(frozen=True, slots=True)
class Influence:
    """One number of a device, and the cycles at both ends of its range.

    path: dotted, as in the device file. from_span: the range is what sources give, else the value less and more
    SPREAD. refused: why the device does not take an end (its cycles are then None).
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
    refused: str = ""

    @property
    def moved(self) -> float:
        """The largest change, as a share of the cycles."""
        extremes = [end for end in (self.cycles_low, self.cycles_high) if end is not None]
        return max((abs(end - self.cycles) / self.cycles for end in extremes), default=0.0) if self.cycles else 0.0


def sensitivity(
    program: Program, device: Device, *, progress: Callable[[float], None] | None = None
) -> list[Influence]:
    """The influence of every number behind the program's time that is assumed, or on which sources disagree.

    The most influential first. Raises UnsupportedError where the device has no times for the program.
    """
    reason = timing.missing(device, program)
    if reason is not None:
        raise UnsupportedError(reason)
    unit = "" if program.gemm is None else str(facts_of(program.gemm, device)["unit"])
    now = under_load(program, device, unit)[1].cycles
    ranges = list(_ranges(program, device))
    influences = []
    for index, (path, value, low, high, from_span) in enumerate(ranges):
        cycles: list[int | None] = []
        refused = ""
        for end in (low, high):
            try:
                cycles.append(under_load(program, changed(device, {path: end}), unit)[1].cycles)
            except ValueError as error:
                cycles.append(None)
                refused = str(error).splitlines()[0]
        level = str(device.evidence[path].evidence)
        influences.append(
            Influence(
                path=path,
                value=value,
                low=low,
                high=high,
                from_span=from_span,
                evidence=level,
                cycles=now,
                cycles_low=cycles[0],
                cycles_high=cycles[1],
                refused=refused,
            )
        )
        if progress is not None:
            progress((index + 1) / len(ranges))
    return sorted(influences, key=lambda influence: (-influence.moved, influence.path))


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


def _ranges(program: Program, device: Device) -> Iterator[tuple[str, float, float, float, bool]]:
    """The numbers to vary: (path, value, low, high, whether the range is from sources)."""
    timed = [f"instructions.{entry(device, unit)}.timing" for unit in sorted(program.units)]
    aside = (*ASIDE, *follow_from_array(device))
    for path in device.evidence:
        if not _is_within(path, [*PARTS, *timed]) or _is_within(path, aside):
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
