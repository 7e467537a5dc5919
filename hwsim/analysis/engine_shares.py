"""What each engine did with a program's time, as shares of all cores' time: the same whole as the verdict's shares.

It knows times; of words, none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwsim.analysis.time_shares import IDLE_CORES, LAUNCHES, SKEW, skew_cycles
from hwsim.devices import find
from hwsim.machines.timing import launch_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hwsim.analysis.program_times import Times

BUSY = "busy"
#: Shares below it are no cores without work, but differences of rounding.
SMALLEST = 1e-9


def engine_shares(times: Times) -> dict[str, Mapping[str, float]]:
    """{engine: {"busy", cause of a stall, ...: share}} of the engines that worked, the busiest first; all add up to 1.

    The whole is the time of all cores of the device. IDLE_CORES: the share of cores that have no part in a kernel.
    SKEW: of instructions of a systolic array, while no element enters. LAUNCHES: of launches, where a program's time
    counts them.
    """
    chip, timed = times.chip, times.timed
    if chip is None or timed is None or not times.cycles:
        return {}
    launch_cycles = launch_cycles_of(times) * times.cycles / timed.cycles
    whole = chip.cores * (times.cycles + launch_cycles)
    skews = {} if times.program is None else skew_cycles(timed, times.program, chip)
    shares: dict[str, Mapping[str, float]] = {}
    for name, engine in sorted(times.engines.items(), key=lambda item: -item[1]["busy_cycles"]):
        if not engine.busy_cycles:
            continue
        skew = skews.get(name, 0.0)
        causes = {BUSY: engine.busy_cycles - skew} | engine.stall_cycles | ({SKEW: skew} if skew else {})
        causes |= {LAUNCHES: chip.cores * launch_cycles} if launch_cycles else {}
        idle = whole - sum(causes.values())
        causes |= {IDLE_CORES: idle} if idle > SMALLEST * whole else {}
        shares[name] = {cause: cycles / whole for cause, cycles in causes.items()}
    return shares


def launch_cycles_of(times: Times) -> float:
    """Cycles of the launches of one run of a program, where the time counts them; a library's does not."""
    if times.chip is None or times.timed is None or not times.launches or times.by_library:
        return 0.0
    return launch_seconds(times.timed, times.chip) * times.chip.clock_mhz * 1e6


def rate_while_busy(times: Times) -> float | None:
    """Products per cycle of a busy matrix unit, padding included, over those at its peak rate.

    None where a program has matrix instructions of several engines or rates, or nothing was timed.
    """
    chip, timed, program = times.chip, times.timed, times.program
    if chip is None or timed is None or program is None:
        return None
    models = [model for unit in program.units if (model := find(chip, unit)) is not None and model.timing is not None]
    rates = {(model.engine, model.macs_per_cycle) for model in models}
    if len(rates) != 1 or len(models) != len(program.units):
        return None
    [(engine, peak)] = rates
    busy_cycles = timed.engines[engine].busy_cycles - skew_cycles(timed, program, chip).get(engine, 0.0)
    return timed.padded_macs / (busy_cycles * float(peak)) if busy_cycles and peak else None
