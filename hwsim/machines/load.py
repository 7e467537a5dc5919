"""The core clock of a chip under the load of a program, and the program's times at that clock.

The module knows device files (sustained clocks, power limits), states of L2 and the timing machine; it knows no plan.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from hwsim.devices import at_clock, find, limited_clock, sustained_clock
from hwsim.devices.power import at_rate
from hwsim.machines import timing
from hwsim.machines.l2_state import DEFAULT
from hwsim.program.identity_cache import IdentityCache

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.devices.model import InstructionModel
    from hwsim.machines.timing import Timing
    from hwsim.program.ir import Program

SERIES = 20  # runs back to back when the time of a GEMM is measured
PROGRAMS = 32  # whose times are kept


def under_load(program: Program, chip: Device, unit: str, *, l2: str = DEFAULT) -> tuple[Device, Timing]:
    """The chip at the clock that it sustains while it runs `program`, and the times at that clock.

    With the engine of `unit` busy all the time on all cores, it is the file's sustained clock for the operands' format,
    and a higher one under an instruction that is slower than the format's native one; without work, the device's
    nominal clock. In between it falls linearly with the share of time that the engine is
    busy, launch gaps (launch_overhead_us) included. The power limit has acted if SERIES runs last long enough. A chip
    at a clock that was asked for, and one whose file has no clocks under load, keeps its clock.

    l2: the state of L2 before the run, by its name in hwsim.machines.l2_state; the clock does not depend on it. What
    was timed lately is not timed again.
    """
    of = (program.kernels, program.arrays, program.inputs, chip)
    times = _TIMES.get(*of)
    if times is None:
        times = {}
        _TIMES.put(times, 1, *of)
    if (unit, l2) not in times:
        loaded = _loaded(program, chip, unit)
        times[unit, l2] = loaded, timing.run_in(program, loaded, l2)
    return times[unit, l2]


def with_other_arrays(program: Program, chip: Device, unit: str, other: Collection[str]) -> tuple[Device, Timing]:
    """As `under_load`, where the run before had other arrays of the names `other`, as layers in turn have weights."""
    loaded = _loaded(program, chip, unit)
    return loaded, timing.run(program, loaded, warm=1, other=other)


def _loaded(program: Program, chip: Device, unit: str) -> Device:
    """The chip at its clock under this load; the same object where the clock is not known to fall."""
    instruction = find(chip, unit)
    if instruction is None or (not chip.sustained_clock_mhz and chip.power_limit is None):
        return chip
    share = _share_of_rate(chip, instruction)

    def under(mhz: float) -> float:
        return mhz if share == 1 else at_rate(mhz, share, chip.measured.clock_mhz, chip.clock_mhz)

    full_mhz = under(sustained_clock(chip, instruction.a))
    at_full = at_clock(chip, full_mhz)
    cycles, busy_cycles = timing.busy(program, at_full, instruction.engine)
    gaps_us = (chip.launch_overhead_us or 0.0) * len(program.kernels)
    busy = min(1.0, busy_cycles / ((cycles + gaps_us * full_mhz) * chip.cores))
    mhz = _between(chip.clock_mhz, full_mhz, busy)
    limited_mhz = under(limited_clock(chip, instruction.a, SERIES * cycles / (mhz * 1e3)))
    return at_clock(chip, _between(chip.clock_mhz, limited_mhz, busy))


def _share_of_rate(chip: Device, instruction: InstructionModel) -> float:
    """Multiply-accumulates of an instruction a cycle, without the zeros that a sparse one skips, over its
    format's native instruction's, at most 1. The clocks under load of a device file are of the native ones.
    """
    native = find(chip, chip.native.get(instruction.a, ""))
    if native is None or native.timing is None or instruction.timing is None:
        return 1.0
    rate = instruction.macs_per_cycle / (1 if instruction.sparsity is None else 2)
    return min(float(rate / native.macs_per_cycle), 1.0)


def _between(idle_mhz: float, full_mhz: float, busy: float) -> float:
    return round(idle_mhz - (idle_mhz - full_mhz) * busy, 1)


_TIMES: IdentityCache[dict[tuple[str, str], tuple[Device, Timing]]] = IdentityCache(PROGRAMS, PROGRAMS)
