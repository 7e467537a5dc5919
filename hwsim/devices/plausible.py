"""Notes on a device file that is right, and whose numbers are hardly meant.

The module knows a device's numbers; it knows no program. A note names the numbers and what follows from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hwsim.devices.checks import GLOBAL
from hwsim.devices.query import without_native

if TYPE_CHECKING:
    from hwsim.devices.device import Device

GIGA = 1e9
USUAL_GIGABYTES = 600  # a second: an example of a rate
SLOW_MHZ = 10.0  # hardly the clock of a chip, and a likely slip for GHz


def slip_of(key: str, number: float, is_too_large: bool) -> str:
    """What is likely meant by a number of a device file that is out of range, in words; "" where nothing is known."""
    if is_too_large:
        is_capacity = key == "capacity_bytes"
        return " bytes (more than any chip has; a larger number is likely a slip of the unit)" if is_capacity else ""
    is_rate = key.endswith("bytes_per_second") and number > 0
    return f"; {_as_gigabytes(number)}" if is_rate else ""


def _as_gigabytes(number: float) -> str:
    return f"{number:g} GB/s is {number * GIGA:.1e}"


def notes_on(device: Device) -> list[str]:
    """Sentences on numbers that are hardly meant; empty where there are none."""
    return [*_native(device), *_clock(device), *_links(device), *_shared_rates(device)]


def _native(device: Device) -> Iterator[str]:
    if missing := without_native(device):
        yield missing


def _clock(device: Device) -> Iterator[str]:
    if device.clock_mhz < SLOW_MHZ:
        mhz = device.clock_mhz
        yield f"clock_mhz is {mhz:g} MHz; a clock of {mhz:g} GHz is clock_mhz: {1000 * mhz:g}"


def _links(device: Device) -> Iterator[str]:
    """Links from global memory that all together carry less than DRAM gives. An engine does one transfer at a time, so
    the fastest of its links counts alone.
    """
    if device.hbm is None:
        return
    links = {name: link for name, link in device.links.items() if link.source == GLOBAL}
    fastest: dict[str, float] = {}  # bytes per cycle of each engine
    for link in links.values():
        fastest[link.engine] = max(fastest.get(link.engine, 0.0), link.bytes_per_cycle)
    rate = sum(fastest.values()) * device.cores * device.clock_mhz * 1e6
    if links and rate < device.hbm.bytes_per_second:
        alone = "; an engine does one transfer at a time" if len(fastest) < len(links) else ""
        yield (
            f"the links that read global memory ({', '.join(links)}{alone}) carry {_gigabytes(rate)} over all cores, "
            f"and hbm gives {_gigabytes(device.hbm.bytes_per_second)}: its rate is never reached"
        )


def _shared_rates(device: Device) -> Iterator[str]:
    """Rates of DRAM and L2 below one byte in a cycle of the core clock: likely slips of the unit."""
    for path, shared in (("hbm", device.hbm), ("l2", device.l2)):
        if shared is not None and shared.bytes_per_second < device.clock_mhz * 1e6:
            yield (
                f"{path}.bytes_per_second is {shared.bytes_per_second:g}, less than one byte in a cycle of the whole "
                f"chip; {_as_gigabytes(USUAL_GIGABYTES)}"
            )


def _gigabytes(rate: float) -> str:
    return f"{rate / 1e9:,.4g} GB/s"
