"""Modified copies of a device: another clock, or other values for a study.

Changed devices are validated like loaded ones. Sources and hash stay those of the file; results record the change
themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from fractions import Fraction
from threading import Lock
from typing import Any

import numpy as np
from pydantic_core import to_json

from hwsim.devices.device import Device
from hwsim.devices.power import DEFAULT, by_reference
from hwsim.devices.ranges import LEAST_MHZ, MOST_MHZ
from hwsim.errors import InputError

CLOCKS = 64  # of one device, kept at most

_lock = Lock()


def checked_clock(mhz: object) -> float:
    """A user's core clock in MHz, validated. Raises InputError for an invalid one."""
    is_number = isinstance(mhz, int | float | np.integer | np.floating) and not isinstance(mhz, bool)
    if not is_number or not LEAST_MHZ <= mhz <= MOST_MHZ:  # type: ignore[operator]
        raise InputError(
            f"clock_mhz = {mhz!r}; allowed: a number of MHz of at least {LEAST_MHZ:g} and at most {MOST_MHZ:,}"
        )
    return float(mhz)  # type: ignore[arg-type]


def at_clock(device: Device, mhz: float) -> Device:
    """The device with its core clock fixed at `mhz`, whatever it multiplies. L2 and HBM rates are unchanged.

    Returns the same object for the same clock, for the last CLOCKS clocks. Raises InputError for an invalid clock (see
    `checked_clock`).
    """
    mhz = checked_clock(mhz)
    with _lock:
        cache = device._clocked
        clocked = cache.pop(mhz, None)
        if clocked is None:  # these values are valid beside all others of a device: no field is checked against them
            clocked = device.model_copy(update={"clock_mhz": mhz, "sustained_clock_mhz": {}, "power_limit": None})
            clocked._asked_mhz = mhz
            for name in ("_resolved", "_fitted", "_variants", "_specs", "_levels"):  # the clock has no part in them
                clocked.__dict__[name] = getattr(device, name)
        cache[mhz] = clocked
        while len(cache) > CLOCKS:
            del cache[next(iter(cache))]
    return clocked


def sustained_clock(device: Device, format: str) -> float:
    """The clock, MHz, under continuous matrix multiplication with operands of `format`: the device file's for it, or
    for all formats; else what hwsim.devices.power makes of its clock for a 16-bit format.
    """
    return _clock_of(device, format) or device.clock_mhz


def limited_clock(device: Device, format: str, busy_ms: float) -> float:
    """The sustained clock for work of `busy_ms`: the power limit applies only if the work lasts long enough."""
    mhz = sustained_clock(device, format)
    for stage in () if device.power_limit is None else device.power_limit.stages:
        clock_mhz = stage.clock_mhz.get(format)
        if clock_mhz is None and format not in device.sustained_clock_mhz:  # a format that the file knows keeps its own
            clock_mhz = by_reference(stage.clock_mhz, format, device.measured.clock_mhz, device.clock_mhz)
        if busy_ms >= stage.after_ms and clock_mhz is not None:
            mhz = min(mhz, clock_mhz)
    return mhz


def _clock_of(device: Device, format: str) -> float | None:
    """The clock of a format among the sustained ones, or by the others'; None where they do not say it."""
    clocks = device.sustained_clock_mhz
    given_mhz = clocks.get(format, clocks.get(DEFAULT))
    by_others = by_reference(clocks, format, device.measured.clock_mhz, device.clock_mhz)
    return by_others if given_mhz is None else given_mhz


def changed(device: Device, changes: Mapping[str, Any]) -> Device:
    """A copy of `device` with other values at dotted paths ("links.GM_L1.bytes_per_cycle"; keys may contain dots).

    Raises InputError for a path that the device does not have, ValueError (pydantic) for an invalid value.
    """
    tree = device.model_dump(by_alias=True)
    for path, value in changes.items():
        block, rest = tree, path
        while rest not in block:
            inner = (key for key, part in block.items() if rest.startswith(f"{key}.") and isinstance(part, dict))
            key = max(inner, key=len, default="")
            if not key:
                raise InputError(f"{device.name} has no '{path}'")
            block, rest = block[key], rest[len(key) + 1 :]
        block[rest] = float(value) if isinstance(value, Fraction) else value  # JSON has no fractions
    changed_device = Device.model_validate_json(to_json(tree))  # strict: of JSON, lists serve for tuples
    changed_device._evidence.update(device.evidence)
    changed_device._citations.update(device.citations)
    changed_device._sha256 = hashlib.sha256(changed_device.canonical().encode()).hexdigest()
    changed_device._asked_mhz, changed_device._asked_watts = device.asked_mhz, device.asked_watts
    changed_device._origin = device._origin
    return changed_device
