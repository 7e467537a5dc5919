"""Questions to a device's library: which one it is, what it was seen to do on the chip, and how well that is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwsim.datafiles.provenance import Level
from hwsim.devices.patterns import ARITHMETIC
from hwsim.devices.query import find
from hwsim.errors import ConfigError, nearest
from hwsim.libraries.loader import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hwsim.devices.device import Device
    from hwsim.libraries.model import Library, ObservationModel


def library_of(device: Device) -> Library | None:
    """Return the library that the device file names, or None. Raises UnsupportedError where there is none such."""
    return None if device.library is None else load(device.library.name)


def observed(device: Device) -> ObservationModel | None:
    """Return what the library was seen to do on the chip, or None where the device file names no observations.

    Raises ConfigError where the library has none of that name, or they name instructions that the chip does not have or
    that have other bits than its native ones.
    """
    if device.library is None or device.library.observations is None:
        return None
    key = (device.library.name, device.library.observations)
    if key not in device._observed:
        library, (_, wanted) = load(key[0]), key
        at, known = f"device {device.name}: library.observations", sorted(library.observations)
        if wanted not in known:
            allowed = f"{', '.join(known) or 'none'}{nearest(wanted, known)}"
            raise ConfigError([f"{at}: '{wanted}' is not in {library.name}; allowed: {allowed}"])
        seen = library.observations[wanted]
        if problems := [f"{at}: {wanted} of {library.name}: {text}" for text in _unfit(device, seen)]:
            raise ConfigError(problems)
        device._observed[key] = seen
    found: ObservationModel = device._observed[key]
    return found


def observed_level(device: Device, part: str) -> Level:
    """Return the weakest evidence of a part ("in_order.fp16") of what was seen on the chip.

    That is the library's, and the device's own where its file says how far the observations hold for it.
    """
    library = library_of(device)
    if library is None or device.library is None or device.library.observations is None:
        return Level.ASSUMPTION
    levels = [library.level(f"observations.{device.library.observations}.{part}")]
    levels += [about.evidence for path, about in device.evidence.items() if path == "library.observations"]
    return max(levels, key=list(Level).index)


def _unfit(device: Device, seen: ObservationModel) -> Iterator[str]:
    """Observations of formats that the device has no native instruction for, or by instructions of other bits."""
    native = sorted(device.native)
    for key, names in (("in_order", seen.in_order), ("split_k_instructions", seen.split_k_instructions)):
        for fmt in names:
            if fmt not in native:
                yield f"{key}.{fmt}: '{fmt}' is not one of native; allowed: {', '.join(native)}{nearest(fmt, native)}"
    for fmt, name in seen.split_k_instructions.items():
        own, entry = find(device, device.native.get(fmt, "")), find(device, name)
        if entry is None:
            yield f"split_k_instructions.{fmt}: '{name}' is not one of instructions"
        elif own is not None:
            differing = [key for key in (*ARITHMETIC, "a", "b") if getattr(entry, key) != getattr(own, key)]
            if differing:
                yield f"split_k_instructions.{fmt}: '{name}' differs from native.{fmt} in {', '.join(differing)}"
