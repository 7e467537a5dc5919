"""NumberChanges of a device twice as good, and what a timed program would save by them.

It knows the device's numbers and the timing machine; it does not know which of them matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hwsim.analysis.time_shares import PartUse
from hwsim.devices import changed, instruction
from hwsim.devices.query import entry
from hwsim.machines import timing
from hwsim.machines.l2_state import COLD

if TYPE_CHECKING:
    from hwsim.analysis.program_times import Times
    from hwsim.devices.device import Device

NumberChanges = Mapping[str, float]  # by path in the device file, in the file's units
L2_CAPACITY = "l2.capacity_bytes"


def saved(times: Times, numbers: NumberChanges) -> float:
    """The share of the cycles that the program takes less with these numbers, from another timing run.

    With another capacity of L2 it is at most what a run that finds L2 empty saves. A series of the same call would else
    find operands of the call before, as no other sequence of calls does.
    """
    assert times.program is not None and times.chip is not None and times.timed is not None
    cycles = timing.run_in(times.program, changed(times.chip, numbers), times.l2).cycles
    share = 1 - cycles / times.timed.cycles
    return share if L2_CAPACITY not in numbers or share <= 0 else min(share, _saved_from_cold(times, numbers))


def _saved_from_cold(times: Times, numbers: NumberChanges) -> float:
    """What numbers save of a run that finds L2 empty: nothing that a larger L2 holds since the run before."""
    assert times.program is not None and times.chip is not None
    before, after = (
        timing.run_in(times.program, chip, COLD).cycles for chip in (times.chip, changed(times.chip, numbers))
    )
    return 1 - after / before


def saved_by(times: Times, *parts: PartUse) -> float:
    """The share of the cycles that the program takes less if these parts were all twice as fast (an engine that does
    not multiply: if its instructions took no time).
    """
    assert times.program is not None and times.chip is not None and times.timed is not None
    numbers: dict[str, float] = {}
    engines: set[str] = set()
    for part in parts:
        if part.kind == "matrix":
            for unit in sorted(times.program.units):
                numbers |= matrix_rate(times.chip, unit)
        elif part.kind == "DRAM":
            numbers |= dram_rate(times.chip)
        elif part.kind == "L2":
            numbers |= l2_rate(times.chip)
        elif part.kind == "link":
            numbers |= link_rate(times.chip, part.name)
        else:
            engines.add(part.name)
    chip = changed(times.chip, numbers) if numbers else times.chip
    free = (lambda instr, link: instr.engine in engines) if engines else None
    return 1 - timing.run_in(times.program, chip, times.l2, free=free).cycles / times.timed.cycles


def dram_rate(chip: Device) -> NumberChanges:
    """Twice the rate of DRAM."""
    assert chip.hbm is not None
    return {"hbm.bytes_per_second": 2 * chip.hbm.bytes_per_second}


def l2_rate(chip: Device) -> NumberChanges:
    """Twice the rates of L2."""
    assert chip.l2 is not None
    numbers = {"l2.bytes_per_second": 2 * chip.l2.bytes_per_second}
    if chip.l2.write_bytes_per_second:
        numbers["l2.write_bytes_per_second"] = 2 * chip.l2.write_bytes_per_second
    return numbers


def link_rate(chip: Device, name: str) -> NumberChanges:
    """Twice the rate of a link."""
    return {f"links.{name}.bytes_per_cycle": 2 * chip.links[name].bytes_per_cycle}


def matrix_rate(chip: Device, unit: str) -> NumberChanges:
    """Twice the rate of a matrix instruction; empty where the device has no time for it."""
    path, rate = f"instructions.{entry(chip, unit)}.timing", instruction(chip, unit).timing
    if rate is None:
        return {}
    if rate.issue_interval_cycles:
        return {f"{path}.issue_interval_cycles": rate.issue_interval_cycles / 2}
    numbers = {f"{path}.macs_per_cycle": 2 * (rate.macs_per_cycle or 0.0)}
    for name in ("tile_macs_per_cycle", "mn_major_macs_per_cycle"):
        numbers |= {f"{path}.{name}.{tile}": 2 * value for tile, value in getattr(rate, name).items()}
    return numbers
