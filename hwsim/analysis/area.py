"""The area of a chip by the areas that its device file gives. The module knows devices; it knows no GEMM."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwsim.devices import weakest
from hwsim.errors import UnsupportedError

if TYPE_CHECKING:
    from hwsim.devices.device import Device

KIB = 1024


@dataclass(frozen=True, slots=True)
class Area:
    """Square millimetres of a chip, and how good the weakest number is.

    core_mm2_by: of one core by part ("core", "MATRIX", "SRAM"). uncore_mm2_by: of parts outside cores.
    """

    cores: int
    core_mm2_by: Mapping[str, float]
    uncore_mm2_by: Mapping[str, float]
    evidence: str

    @property
    def mm2_by(self) -> dict[str, float]:
        """By part, all cores together. A part outside cores adds to a part of the cores with the same name."""
        parts = {name: self.cores * mm2 for name, mm2 in self.core_mm2_by.items()}
        return parts | {name: parts.get(name, 0.0) + mm2 for name, mm2 in self.uncore_mm2_by.items()}

    @property
    def mm2(self) -> float:
        """The sum."""
        return self.cores * sum(self.core_mm2_by.values()) + sum(self.uncore_mm2_by.values())


def area_of(device: Device) -> Area:
    """The area of a device whose file has `area`. Raises UnsupportedError without it.

    An engine has as many multipliers in a core as the fastest of its instructions does multiply-accumulates per cycle.
    """
    model = device.area
    if model is None:
        raise UnsupportedError(
            f"device {device.name} has no area in its file: write area: (documentation: page Energy)"
        )
    parts = {"core": model.core_mm2}
    for engine, mm2 in model.mac_mm2.items():
        parts[engine] = mm2 * max(_rates(device, engine).values())
    for memory, mm2 in model.memory_mm2_per_kib.items():
        parts[memory] = mm2 * device.memories[memory].capacity_bytes / KIB
    return Area(device.cores, parts, dict(model.uncore_mm2), str(weakest(device, "area")))


def area_notes(device: Device, instructions: Collection[str]) -> list[str]:
    """A note for each engine with an area that has some of these instructions, but a faster one decides its area.

    instructions: names in the device file, as of those that a study changes.
    """
    notes = []
    for engine in {} if device.area is None else device.area.mac_mm2:
        rates = _rates(device, engine)
        slower = [name for name in rates if name in instructions]
        fastest = max(rates, key=lambda name: rates[name])
        if slower and max(rates[name] for name in slower) < rates[fastest]:
            notes.append(
                f"the area of {engine} is of {rates[fastest]:,g} multipliers a core, as its fastest instruction "
                f"{fastest} needs, not of the {max(rates[name] for name in slower):,g} of {', '.join(slower)}"
            )
    return notes


def _rates(device: Device, engine: str) -> dict[str, float]:
    """Multiply-accumulates per cycle of one core by instruction of an engine. Raises UnsupportedError without any."""
    rates = {
        name: float(model.macs_per_cycle)
        for name, model in device.matrix_instructions.items()
        if model.engine == engine and model.timing is not None
    }
    if not rates:
        raise UnsupportedError(f"device {device.name}: area.mac_mm2.{engine}: no instruction of this engine has a rate")
    return rates
