"""Timed runs behind BF16x9's claims on speed and energy; each is done once a process.

It knows the device and its launch model: B200's file has no launch time, so that of the H200's is taken, as seen from
one kernel to the next in a graph.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import hwsim
from hwsim.devices import changed, limited_clock, load
from hwsim.devices.device import Device
from hwsim.result import Result
from hwsim_lab.papers import rates

DEVICE = "gb200"
LAUNCH_FROM = "h200"
#: Method -> arguments of hwsim.run. native: FMAs of the FP32 lanes.
METHODS: dict[str, dict[str, Any]] = {
    "native": {"format": "fp32"},
    "x9": {"scheme": "bf16x9"},
    "x6": {"scheme": "bf16x6"},
    "hybrid": {"scheme": "bf16x9", "hybrid": True},
}
NAMES = {"native": "native FP32", "x9": "BF16x9", "x6": "BF16x6", "hybrid": "hybrid"}
#: Larger sizes are timed at this one, and the time is multiplied: so long, it is proportional to each of M, N and K.
LONGEST = 8192
LANE_BYTES = 4
LONG_MS = 1e3  # of work: longer than any power limit takes to act


@cache
def chip(cast_cycles: float | None = None) -> Device:
    """The device with a launch time. cast_cycles: of a conversion of 128 elements, instead of the file's."""
    launch_us = load(LAUNCH_FROM).launch_overhead_us
    found = changed(load(DEVICE), {"launch_overhead_us": launch_us})
    return found if cast_cycles is None else changed(found, {"vector.cycles_per_repeat.cast": cast_cycles})


def launch_seconds() -> float:
    """Seconds from one kernel to the next."""
    found = chip().launch_overhead_us
    assert found is not None
    return found * 1e-6


@cache
def _timed(method: str, m: int, n: int, k: int, options: tuple[tuple[str, Any], ...], cast: float | None) -> Result:
    given = METHODS[method] | dict(options)
    if isinstance(given.get("tile"), tuple):
        given["tile"] = dict(zip("mnk", given["tile"], strict=True))
    return hwsim.run(device=chip(cast), m=m, n=n, k=k, exact=False, input_format="fp32", launch_overhead=True, **given)


def timed(method: str, m: int, n: int, k: int, *, cast_cycles: float | None = None, **options: Any) -> Result:
    """The timed run of a method of METHODS, its launch included: A is m x k, B k x n."""
    return _timed(method, m, n, k, tuple(sorted(options.items())), cast_cycles)


def seconds(method: str, m: int, n: int, k: int, *, launches: bool = True, **options: Any) -> float:
    """Seconds of a call, splits included. launches: with the gap before each kernel."""
    result = timed(method, m, n, k, **options)
    assert result.seconds is not None
    return result.seconds if launches else result.seconds - launch_seconds() * len(result.phases)


def long_seconds(method: str, m: int, n: int, k: int, *, launches: bool = True) -> float:
    """As `seconds`, of any size: beyond LONGEST by proportion."""
    held = [min(size, LONGEST) for size in (m, n, k)]
    return seconds(method, *held, launches=launches) * (m * n * k) / (held[0] * held[1] * held[2])


def speedup(m: int, n: int, k: int, *, over: str = "native", method: str = "x9", launches: bool = True) -> float:
    """The time of `over` by that of `method`."""
    return seconds(over, m, n, k, launches=launches) / seconds(method, m, n, k, launches=launches)


def tflops(method: str, m: int, n: int, k: int, **options: Any) -> float:
    """2 M N K by the time of a call."""
    return 2 * m * n * k / seconds(method, m, n, k, **options) / 1e12


def peak_tflops(format: str) -> float:
    """The peak of the unit that computes a native product of a format, all cores."""
    return rates.peak_tflops(chip(), format)


def bound_tflops(method: str, n: int) -> float:
    """The bound for a method at the file's clock: the unit's peak by the plan's number of products."""
    result = timed(method, n, n, n)
    assert result.tflops is not None and result.peak_fraction and result.times.chip is not None
    return result.tflops / result.peak_fraction * chip().clock_mhz / result.times.chip.clock_mhz


def lanes_tflops() -> float:
    """The peak of the FP32 lanes: an FMA per lane and cycle."""
    device = chip()
    assert device.vector is not None
    return 2 * device.vector.repeat_bytes / LANE_BYTES * device.cores * device.clock_mhz * 1e6 / 1e12


def limited_share() -> tuple[float, float]:
    """The clock of long BF16 work by the device file, in MHz, and its share of the file's clock."""
    limited_mhz = limited_clock(load(DEVICE), "bf16", LONG_MS)
    return limited_mhz, limited_mhz / chip().clock_mhz
