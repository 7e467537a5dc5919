"""Notes on a device file that is right, and whose numbers are hardly meant.

The module knows a device's numbers; it knows no program. A note names the numbers and what follows from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hwsim.devices.checks import GLOBAL

if TYPE_CHECKING:
    from hwsim.devices.device import Device

SLOW_MHZ = 10.0  # hardly the clock of a chip, and a likely slip for GHz


def notes_on(device: Device) -> list[str]:
    """Sentences on numbers that are hardly meant; empty where there are none."""
    return [*_clock(device), *_links(device)]


def _clock(device: Device) -> Iterator[str]:
    if device.clock_mhz < SLOW_MHZ:
        mhz = device.clock_mhz
        yield f"clock_mhz is {mhz:g} MHz; a clock of {mhz:g} GHz is clock_mhz: {1000 * mhz:g}"


def _links(device: Device) -> Iterator[str]:
    """Links from global memory that all together carry less than DRAM gives."""
    if device.hbm is None:
        return
    links = {name: link for name, link in device.links.items() if link.source == GLOBAL}
    rate = sum(link.bytes_per_cycle for link in links.values()) * device.cores * device.clock_mhz * 1e6
    if links and rate < device.hbm.bytes_per_second:
        yield (
            f"the links that read global memory ({', '.join(links)}) carry {_gigabytes(rate)} over all cores, and hbm "
            f"gives {_gigabytes(device.hbm.bytes_per_second)}: its rate is never reached"
        )


def _gigabytes(rate: float) -> str:
    return f"{rate / 1e9:,.4g} GB/s"
