"""Where the operands of an instruction may lie, beside the memories that a family's kernels fill.

It knows instructions, memories and shipped devices; it writes no program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwsim.devices import instruction, load
from hwsim.devices.registry import shipped
from hwsim.errors import UnsupportedError

if TYPE_CHECKING:
    from hwsim.dataflows.tiled.family import Family
    from hwsim.devices.device import Device


def check_places(unit: str, device: Device, family: Family) -> None:
    """Raise UnsupportedError for an instruction with operands from a memory that no kernel of the family fills."""
    model, filled = instruction(device, unit), (family.shared, family.registers)
    for operand, name in enumerate("AB"):
        places = model.places(operand)
        if places and not set(places) & set(filled):
            others = [other for other in shipped() if set(places) & set(load(other).memories)]
            near = f"; these have one, and a device file may extend them: {', '.join(others)}" if others else ""
            raise UnsupportedError(
                f"{unit} takes {name} from {' or '.join(places)}; kernels of family {family.name} fill {filled[0]} and "
                f"{filled[1]} alone, and have no level between {filled[0]} and the matrix unit{near}"
            )
