"""Devices beside each other: arithmetic and peak of each format, clocks, memories, rates; what differs, or all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hwsim.devices import dot_spec, instruction, numerics_evidence
from hwsim.formats import format_of
from hwsim.report.text.words import data, table

if TYPE_CHECKING:
    from hwsim.devices.device import Device

OPERATIONS = 2  # of a multiply-add
ABSENT = "-"
PARTS = ("terms", "fraction_bits", "rounding", "flush_operands", "flush_results")  # of a dot unit


def compare_devices(devices: Sequence[Device]) -> list[tuple[str, tuple[str, ...]]]:
    """(what, a text for each device), grouped: chip, formats, memories, rates. ABSENT where a device has none."""
    facts_of_devices = [_facts(device) for device in devices]
    names = list(dict.fromkeys(name for facts in facts_of_devices for name in facts))
    order = {group: index for index, group in enumerate(dict.fromkeys(name.partition(":")[0] for name in names))}
    names.sort(key=lambda name: order[name.partition(":")[0]])
    return [(name, tuple(facts.get(name, ABSENT) for facts in facts_of_devices)) for name in names]


def compare_text(devices: Sequence[Device], *, everything: bool = False) -> str:
    """A table of what differs, or with `everything` of all."""
    rows = compare_devices(devices)
    shown = [(name, *values) for name, values in rows if everything or len(set(values)) > 1]
    lines = table(shown, ("", *(device.name for device in devices)), indent="")
    if not everything:
        lines.append(f"{len(rows) - len(shown)} of {len(rows)} rows are equal; --all shows them")
    return "\n".join(lines)


def _facts(device: Device) -> dict[str, str]:
    facts = {
        "chip: title": device.title,
        "chip: family": device.family,
        "chip: cores": f"{device.cores:,}",
        "chip: clock": f"{device.clock_mhz:,g} MHz",
        "chip: default format": device.default_format,
    }
    for name, native in sorted(device.native.items()):
        facts |= {f"{name}: {what}": value for what, value in _of_format(device, native).items()}
    for name, memory in device.memories.items():
        facts[f"memory: {name} of a core"] = data(memory.capacity_bytes)
    for label, rate in (("L2", device.l2), ("HBM", device.hbm)):
        if rate is not None:
            facts[f"memory: {label}"] = f"{data(rate.capacity_bytes)}, {rate.bytes_per_second / 1e12:,.3g} TB/s"
    for name, link in device.links.items():
        facts[f"link: {name}"] = f"{float(link.bytes_per_cycle):,g} B/cycle of a core"
    return facts


def _of_format(device: Device, native: str) -> dict[str, str]:
    """The native instruction of a format: its unit's arithmetic, its peak, how well both are known."""
    spec = dot_spec(device, native)
    unit: Any = spec.unit
    parts = {part: getattr(unit, part, None) for part in PARTS}
    shown = ", ".join(f"{part} {value}" for part, value in parts.items() if value not in (None, False))
    facts = {
        "instruction": native,
        "adds": ", ".join([str(unit.model), *([shown] if shown else [])]),
        "result": f"{spec.a} x {spec.b} + {spec.c} -> {spec.d}",
        "evidence of its bits": str(numerics_evidence(device, native)),
    }
    peak = peak_tflops(device, native)
    if peak is not None:
        facts["peak"] = f"{peak:,.4g} TFLOP/s"
    return facts


def peak_tflops(device: Device, name: str) -> float | None:
    """Peak of the instruction `name` on all cores at the device's clock, TFLOP/s; None without a rate."""
    model = instruction(device, name)
    if model.timing is None:
        return None
    return OPERATIONS * float(model.macs_per_cycle) * device.cores * device.clock_mhz * 1e6 / 1e12


def chip_row(device: Device) -> tuple[str, ...]:
    """A device in one line: title, family, cores, and its fastest floating-point format with the peak."""
    peaks = {name: peak_tflops(device, native) for name, native in device.native.items()}
    float_peaks = {name: peak for name, peak in peaks.items() if peak is not None and not format_of(name).is_integer}
    best = max(float_peaks, key=lambda name: float_peaks[name], default=None)
    return (
        device.title,
        device.family,
        f"{device.cores:,}",
        ABSENT if best is None else f"{float_peaks[best]:,.4g} TFLOP/s in {best}",
        ", ".join(device.native),
    )
