"""Roofline analysis of a run: arithmetic intensity with respect to HBM traffic, and the attainable rate.

Traffic is what the timing machine counted, not the minimum for the problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hwsim.devices import instruction
from hwsim.errors import UnsupportedError
from hwsim.machines.timing import Timing, moved_bytes, seconds

if TYPE_CHECKING:
    from hwsim.devices.device import Device


@dataclass(frozen=True, slots=True)
class Roofline:
    """A point in the roofline diagram. Work is 2 x multiply-accumulates of the matrix units without padding; rates in
    TFLOP/s.

    intensity: work per byte of HBM, infinite without traffic. peak: of the unit on all cores. attainable: the
    lower of peak and intensity x HBM's rate; `bound` says which. achieved: work / time.
    """

    intensity: float
    peak: float
    attainable: float
    achieved: float
    bound: Literal["compute", "memory"]
    hbm_bytes: int


def roofline(timing: Timing, device: Device, unit: str) -> Roofline:
    """The roofline point of a timed program whose products instruction `unit` of `device` computes.

    Raises UnsupportedError where the device has no time for the instruction, or the program took none.
    """
    model = instruction(device, unit)
    if model.timing is None or not timing.cycles:
        raise UnsupportedError(f"{device.name}: no time of {unit} to draw a roofline with")
    work = 2 * timing.macs
    moved = moved_bytes(timing.traffic_bytes, "HBM")
    per_cycle = float(model.macs_per_cycle)
    peak = 2 * per_cycle * device.cores * device.clock_mhz * 1e6 / 1e12
    intensity = work / moved if moved else float("inf")
    memory = intensity * device.hbm.bytes_per_second / 1e12 if device.hbm is not None and moved else float("inf")
    return Roofline(
        intensity,
        peak,
        min(peak, memory),
        work / seconds(timing, device) / 1e12,
        "memory" if memory < peak else "compute",
        moved,
    )
