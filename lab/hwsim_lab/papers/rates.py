"""Rates of simulated GEMMs and peaks of simulated matrix units, in TFLOP/s: for claims about speed.

It knows hwsim's timing runs and device files; no paper.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from hwsim.api import run
from hwsim.devices import load
from hwsim.devices.device import Device
from hwsim.devices.query import find
from hwsim.errors import InputError


def tflops(device: str, m: int, n: int, k: int, **options: Any) -> float:
    """2 m n k / seconds of the whole run: splits, products, joining. options: as in hwsim.run."""
    return _tflops(device, m, n, k, tuple(sorted(options.items())))


@cache
def _tflops(device: str, m: int, n: int, k: int, options: tuple[tuple[str, Any], ...]) -> float:
    found = run(m=m, n=n, k=k, device=device, exact=False, **dict(options)).tflops
    if found is None:
        raise InputError(f"{device}: no rate for {m} x {n} x {k}, {dict(options)}")
    return found


def best_tflops(device: str, edges: Iterable[int], **options: Any) -> float:
    """The largest rate over square GEMMs."""
    return max(tflops(device, n, n, n, **options) for n in edges)


def peak_tflops(device: str | Device, format: str, **options: Any) -> float:
    """The rate of the unit that computes a native GEMM of the format, all cores, at the file's clock."""
    chip = load(device) if isinstance(device, str) else device
    result = run(m=1024, n=1024, k=1024, device=chip, exact=False, format=format, **options)
    if result.tflops is None or not result.peak_fraction or result.times.chip is None:
        raise InputError(f"{chip.name} has no peak for {format}")
    return result.tflops / result.peak_fraction * chip.clock_mhz / result.times.chip.clock_mhz


def takes(device: str, format: str) -> bool:
    """Whether a matrix unit of the device takes operands of a format."""
    chip = load(device)
    return any(format in (one.a, one.b) for one in chip.matrix_instructions.values()) or find(chip, format) is not None
