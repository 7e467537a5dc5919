"""Queries on a device's GEMM library: which library it is, what was observed of it on the chip, and the evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwsim.datafiles.provenance import Level
from hwsim.devices.patterns import ARITHMETIC
from hwsim.devices.query import find
from hwsim.errors import ConfigError, nearest
from hwsim.libraries.model.loader import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hwsim.devices.device import Device
    from hwsim.libraries.model.kernels import Library, ObservationModel


def library_of(device: Device) -> Library | None:
    """The library that the device file names, or None. Raises UnsupportedError for an unknown name."""
    return None if device.library is None else load(device.library.name)


def observed(device: Device) -> ObservationModel | None:
    """The observations of the library on the chip, or None where the device file refers to none.

    Raises ConfigError where the library has none of that name, or where they name instructions that the chip does not
    have or whose bits differ from the native ones.
    """
    if device.library is None or device.library.observations is None:
        return None
    key = (device.library.name, device.library.observations)
    if key not in device._observed:
        library, (_, wanted) = load(key[0]), key
        at, entry_names = f"device {device.name}: library.observations", sorted(library.observations)
        if wanted not in entry_names:
            allowed = f"{', '.join(entry_names) or 'none'}{nearest(wanted, entry_names)}"
            raise ConfigError([f"{at}: '{wanted}' is not in {library.name}; allowed: {allowed}"])
        seen = library.observations[wanted]
        if problems := [f"{at}: {wanted} of {library.name}: {text}" for text in _unfit(device, seen)]:
            raise ConfigError(problems)
        device._observed[key] = seen
    observations: ObservationModel = device._observed[key]
    return observations


def observed_level(device: Device, part: str) -> Level:
    """The weakest evidence level of a part ("in_order.fp16") of the observations on the chip.

    It includes the device file's own level, where that says how far the observations hold for this chip.
    """
    library = library_of(device)
    if library is None or device.library is None or device.library.observations is None:
        return Level.ASSUMPTION
    levels = [library.level(f"observations.{device.library.observations}.{part}")]
    levels += [about.evidence for path, about in device.evidence.items() if path == "library.observations"]
    return max(levels, key=list(Level).index)


def _unfit(device: Device, seen: ObservationModel) -> Iterator[str]:
    """Observations for formats without a native instruction on the device, or by instructions with other bits."""
    native = sorted(device.native)
    for key, names in (("in_order", seen.in_order), ("split_k_instructions", seen.split_k_instructions)):
        for fmt in names:
            if fmt not in native:
                yield f"{key}.{fmt}: '{fmt}' is not one of native; allowed: {', '.join(native)}{nearest(fmt, native)}"
    for fmt, name in seen.split_k_instructions.items():
        of_native, entry = find(device, device.native.get(fmt, "")), find(device, name)
        if entry is None:
            yield f"split_k_instructions.{fmt}: '{name}' is not one of instructions"
        elif of_native is not None:
            differing = [key for key in (*ARITHMETIC, "a", "b") if getattr(entry, key) != getattr(of_native, key)]
            if differing:
                yield f"split_k_instructions.{fmt}: '{name}' differs from native.{fmt} in {', '.join(differing)}"
