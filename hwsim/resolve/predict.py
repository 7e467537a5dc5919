"""What a plan is predicted to cost on a device: its program's cycles by the timing machine, at the clock under load.

Studies choose by these numbers. It knows plans, devices, lowerings and the timing machine; it does not choose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hwsim.dataflows import dataflow
from hwsim.dataflows.mixed import program_mixed
from hwsim.devices import at_clock, find, limited_clock, sustained_clock
from hwsim.errors import UnsupportedError
from hwsim.gemm.plan import Mixed, Plan
from hwsim.machines import timing

if TYPE_CHECKING:
    from hwsim.devices.model import Device
    from hwsim.machines.timing import Timing
    from hwsim.program.ir import Program

SERIES = 20  # runs back to back when the time of a GEMM is measured


@dataclass(frozen=True, slots=True)
class Cost:
    """Core clock cycles, and seconds without launches. hbm_bytes: read and written. facts: the program's."""

    cycles: int
    seconds: float
    hbm_bytes: int
    facts: Mapping[str, object]


def program_of(plan: Plan | Mixed, chip: Device, sizes: tuple[int, int, int], options: Mapping[str, Any]) -> Program:
    """The program of a plan for (m, n, k). Raises UnsupportedError and InputError as the family's dataflow does."""
    flow = dataflow(chip)
    if isinstance(plan, Mixed):
        return program_mixed(flow, plan, chip, *sizes, options)
    made: Program = flow.lower(plan, chip, *sizes, options)
    return made


def cost(
    plan: Plan | Mixed,
    chip: Device,
    sizes: tuple[int, int, int],
    options: Mapping[str, Any] | None = None,
    *,
    warm: int = 1,
) -> Cost:
    """The cost of C[m, n] = A[m, k] B[k, n] by `plan`; sizes: m, n, k; options: of the dataflow; warm: of `under_load`.

    Raises UnsupportedError where the device has no dataflow or no times for the plan.
    """
    program = program_of(plan, chip, sizes, options or {})
    reason = timing.missing(chip, program)
    if reason is not None:
        raise UnsupportedError(reason)
    loaded, timed = under_load(program, chip, str(program.facts.get("unit", "")), warm=warm)
    moved = sum(timed.traffic_bytes.get(f"HBM {way}", 0) for way in ("read", "write"))
    return Cost(timed.cycles, timing.seconds(timed, loaded), moved, dict(program.facts))


def under_load(program: Program, chip: Device, unit: str, *, warm: int = 1) -> tuple[Device, Timing]:
    """The chip at the clock that it keeps while it runs `program`, and the times at that clock.

    With the engine of `unit` busy on all cores all the time it is the file's sustained clock for the operands' format,
    without work the device's; between them it falls in proportion to the share of the time that the engine is busy, the
    time between one kernel and the next (launch_overhead_us) counted. Where the file says how the clock falls, the run
    is one of a series, as GEMMs are measured: L2 holds what the run before has left (warm=0: nothing, as where the run
    stands for a part of a larger one), and the power limit has acted
    if SERIES runs last long enough. Else it is a single one, L2 empty.
    """
    instruction = find(chip, unit)
    if instruction is None or (not chip.sustained_clock_mhz and chip.power_limit is None):
        return chip, timing.run(program, chip)
    full_mhz = sustained_clock(chip, instruction.a)
    at_full = at_clock(chip, full_mhz)
    timed = timing.run(program, at_full)
    gaps_us = (chip.launch_overhead_us or 0.0) * sum(kernel.cores > 0 for kernel in timed.kernels)
    time_cycles = timed.cycles + gaps_us * full_mhz
    busy = min(1.0, timed.engines[instruction.engine].busy_cycles / (time_cycles * chip.cores))
    mhz = _between(chip.clock_mhz, full_mhz, busy)
    limited_mhz = limited_clock(chip, instruction.a, SERIES * timed.cycles / (mhz * 1e3))
    mhz = _between(chip.clock_mhz, limited_mhz, busy)
    loaded = at_clock(chip, mhz)
    return loaded, timing.run(program, loaded, warm=warm)


def _between(idle_mhz: float, full_mhz: float, busy: float) -> float:
    return round(idle_mhz - (idle_mhz - full_mhz) * busy, 1)
