"""The device model: the validated schema of a device file.

It holds the hardware's numbers and where each comes from; it knows no scheme and no program. Numbers are plain values
here; their provenance is kept separately, by path (`DeviceModel.evidence`). Dot units are the records of
hwsim.numerics.units.

Keys contain their units. Rates of L2 and HBM are bytes per second and do not scale with the core clock; rates inside a
core are bytes per core clock cycle.
"""

from __future__ import annotations

from hwsim.devices.model.chip import DeviceModel, LibraryModel, PowerModel
from hwsim.devices.model.costs import AreaModel, EnergyModel
from hwsim.devices.model.engines import EngineModel, FlagsModel, LaneSpecialsModel, VectorModel
from hwsim.devices.model.instruction import InstructionModel, MmaTiming
from hwsim.devices.model.memories import LinkModel, MemoryModel, SharedModel

__all__ = [
    "AreaModel",
    "DeviceModel",
    "EnergyModel",
    "EngineModel",
    "FlagsModel",
    "InstructionModel",
    "LaneSpecialsModel",
    "LibraryModel",
    "LinkModel",
    "MemoryModel",
    "MmaTiming",
    "PowerModel",
    "SharedModel",
    "VectorModel",
]
