"""Energy and area of a run on a device whose file gives them, as text. It knows no energies of other chips."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwsim.analysis.area import Area, area_notes, area_of
from hwsim.analysis.energy import energy
from hwsim.devices.query import entry
from hwsim.errors import UnsupportedError
from hwsim.report.text.words import percent, plural

if TYPE_CHECKING:
    from hwsim.result import Result

UNITS = (("J", 1.0), ("mJ", 1e3), ("uJ", 1e6))
SMALL_SHARE = 0.005  # parts below it are left out


def joules_text(joules: float) -> str:
    """An energy in the largest unit of which there is at least one, or in the smallest."""
    unit, scale = next((pair for pair in UNITS if joules * pair[1] >= 1), UNITS[-1])
    return f"{joules * scale:,.4g} {unit}"


def area_text(mm2: float) -> str:
    """An area."""
    return f"{mm2:,.4g} mm2"


def _area_parts(area: Area) -> str:
    """The parts of one core, times the cores, and the parts outside cores: 16 x (core 0.5 mm2 + ...) + phy 20 mm2."""
    core, uncore = (
        [f"{name} {area_text(mm2)}" for name, mm2 in parts.items() if mm2]
        for parts in (area.core_mm2_by, area.uncore_mm2_by)
    )
    cores = [f"{plural(area.cores, 'core')} x ({' + '.join(core)})"] if core else []
    return " + ".join([*cores, *uncore]) or "no part has an area"


def cost_facts(result: Result) -> list[tuple[str, str]]:
    """(name, text) of the energy and the area that follow from the device's own file; empty where it gives none."""
    chip = result.times.chip
    if chip is None or result.seconds is None:
        return []
    pairs = []
    if chip.energy is not None:
        try:
            spent = energy(result.times, result.gemm)
        except UnsupportedError as error:
            pairs.append(("energy", f"none: {error}"))
        else:
            parts = sorted(spent.joules_by.items(), key=lambda part: -part[1])
            shares = [
                f"{name} {percent(joules / spent.joules)}"
                for name, joules in parts
                if joules > SMALL_SHARE * spent.joules
            ]
            text = f"{joules_text(spent.joules)}, {spent.watts:,.3g} W on average ({spent.evidence})"
            pairs.append(("energy", f"{text}: {', '.join(shares)}" if shares else text))
    if chip.area is not None:
        try:
            area = area_of(chip)
        except UnsupportedError as error:
            return [*pairs, ("area", f"none: {error}")]
        pairs.append(("area", f"{area_text(area.mm2)} ({area.evidence}): {_area_parts(area)}"))
        used = entry(chip, result.times.unit) or ""
        pairs += [("", note) for note in area_notes(chip, [used])]
    return pairs
