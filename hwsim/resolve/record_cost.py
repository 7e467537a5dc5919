"""Predicted cost of a mapped record on a device: its program's cycles by the timing machine, at the clock under load.

Selections use these numbers. The module knows records, dataflows and the timing machine; it selects nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hwsim.errors import UnsupportedError
from hwsim.machines import timing
from hwsim.machines.l2_state import DEFAULT
from hwsim.machines.load import under_load
from hwsim.program.executed import executed
from hwsim.resolve.mapping_choice import facts_of, program_of

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.record import Gemm


@dataclass(frozen=True, slots=True)
class PlanCost:
    """Predicted cost: core clock cycles, and their seconds. hbm_bytes: read and written. facts: the
    mapping's, by name. timed_instructions: that the timing machine stepped through, of one core of each kernel.
    """

    cycles: int
    seconds: float
    hbm_bytes: int
    facts: Mapping[str, Any]
    timed_instructions: int = 0


def cost_of(gemm: Gemm, chip: Device, *, l2: str = DEFAULT, launch_overhead: bool = False) -> PlanCost:
    """The cost of a mapped record. l2: as in `under_load`. launch_overhead: as of `timing.seconds`.

    Raises UnsupportedError where the device has no times for it.
    """
    program = program_of(gemm, chip, is_checked=False)
    reason = timing.missing(chip, program)
    if reason is not None:
        raise UnsupportedError(reason)
    facts = facts_of(gemm, chip)
    loaded, timed = under_load(program, chip, str(facts.get("unit", "")), l2=l2)
    return PlanCost(
        timed.cycles,
        timing.seconds(timed, loaded, launch_overhead=launch_overhead),
        timing.moved_bytes(timed.traffic_bytes, "HBM"),
        facts,
        executed(program).longest,
    )
