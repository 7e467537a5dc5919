"""The area of a chip by the areas that its device file gives. The module knows devices; it knows no GEMM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwsim.devices import weakest
from hwsim.errors import UnsupportedError

if TYPE_CHECKING:
    from hwsim.devices.device import Device

KIB = 1024


@dataclass(frozen=True, slots=True)
class Area:
    """Square millimetres by part, all cores together ("core", "MATRIX", "SRAM", parts outside cores), and how good the
    weakest number is.
    """

    mm2_by: Mapping[str, float]
    evidence: str

    @property
    def mm2(self) -> float:
        """The sum."""
        return sum(self.mm2_by.values())


def area_of(device: Device) -> Area:
    """The area of a device whose file has `area`. Raises UnsupportedError without it.

    An engine has as many multipliers in a core as the fastest of its instructions does multiply-accumulates per cycle.
    """
    model = device.area
    if model is None:
        raise UnsupportedError(f"device {device.name} has no area in its file: write area: (docs/energy.md)")
    parts = {"core": model.core_mm2 * device.cores}
    for engine, mm2 in model.mac_mm2.items():
        parts[engine] = mm2 * _multipliers(device, engine) * device.cores
    for memory, mm2 in model.memory_mm2_per_kib.items():
        parts[memory] = mm2 * device.memories[memory].capacity_bytes / KIB * device.cores
    return Area({**parts, **model.uncore_mm2}, str(weakest(device, "area")))


def _multipliers(device: Device, engine: str) -> float:
    """The most multiply-accumulates per cycle of an engine of one core."""
    rates = [
        float(model.macs_per_cycle)
        for model in device.matrix_instructions.values()
        if model.engine == engine and model.timing is not None
    ]
    if not rates:
        raise UnsupportedError(f"device {device.name}: area.mac_mm2.{engine}: no instruction of this engine has a rate")
    return max(rates)
