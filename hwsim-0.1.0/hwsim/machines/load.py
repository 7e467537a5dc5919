"""The core clock of a chip under the load of a program, and the program's times at that clock.

The module knows device files (sustained clocks, power limits) and the timing machine; it knows no plan.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from hwsim.devices import at_clock, find, limited_clock, sustained_clock
from hwsim.machines import timing

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.machines.timing import Timing
    from hwsim.program.ir import Program

SERIES = 20  # runs back to back when the time of a GEMM is measured


def under_load(program: Program, chip: Device, unit: str, *, warm: int = 1) -> tuple[Device, Timing]:
    """The chip at the clock that it sustains while it runs `program`, and the times at that clock.

    With the engine of `unit` busy all the time on all cores, it is the file's sustained clock for the operands' format;
    without work, the device's nominal clock. In between it falls linearly with the share of time that the engine is
    busy, launch gaps (launch_overhead_us) included. Where the file gives sustained clocks, the run is one of a series,
    as in benchmarks of GEMMs: L2 holds what the previous run has left (warm=0: nothing, for a run that stands for a
    part of a larger one), and the power limit has acted if SERIES runs last long enough. Otherwise it is a single run
    with L2 empty.
    """
    instruction = find(chip, unit)
    if instruction is None or (not chip.sustained_clock_mhz and chip.power_limit is None):
        return chip, timing.run(program, chip)
    full_mhz = sustained_clock(chip, instruction.a)
    at_full = at_clock(chip, full_mhz)
    cycles, busy_cycles = timing.busy(program, at_full, instruction.engine)
    gaps_us = (chip.launch_overhead_us or 0.0) * len(program.kernels)
    busy = min(1.0, busy_cycles / ((cycles + gaps_us * full_mhz) * chip.cores))
    mhz = _between(chip.clock_mhz, full_mhz, busy)
    limited_mhz = limited_clock(chip, instruction.a, SERIES * cycles / (mhz * 1e3))
    mhz = _between(chip.clock_mhz, limited_mhz, busy)
    loaded = at_clock(chip, mhz)
    return loaded, timing.run(program, loaded, warm=warm)


def in_series(program: Program, chip: Device, unit: str, *, other: Collection[str] = ()) -> tuple[Device, Timing]:
    """As `under_load`, for one run of a series on any chip: also where the file gives no sustained clocks, L2 holds
    what the run before has left. other: names of arrays of which the run before had others, as layers in turn do.
    """
    loaded, timed = under_load(program, chip, unit)
    if not other and loaded is not chip:
        return loaded, timed
    return loaded, timing.run(program, loaded, warm=1, other=other)


def _between(idle_mhz: float, full_mhz: float, busy: float) -> float:
    return round(idle_mhz - (idle_mhz - full_mhz) * busy, 1)
