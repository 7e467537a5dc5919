"""How good it is known that a run's bits are those of the chip: its arithmetic, and what the vendor's library does.

Pure functions of a device, a plan and what was chosen; what was observed stands in the device file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwsim.devices import numerics_evidence

if TYPE_CHECKING:
    from hwsim.devices.model import Device, Level
    from hwsim.program.plan import Plan


def of_numerics(chip: Device, plan: Plan, unit: str) -> Level:
    """The weakest level of what fixes the bits of the plan's products by the instruction `unit`."""
    scaled = any(stage.scale_exponent for term in plan.terms for stage in term.stages)
    return numerics_evidence(chip, unit, scaled=scaled)
