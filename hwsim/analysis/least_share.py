"""The share of a timed program's time that no other tile, order or layout saves: its products and its bytes need it.

It knows times and the device's rates; it knows no advice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwsim.analysis.engine_shares import launch_cycles_of
from hwsim.devices.least_time import L2Bytes, least_time_of
from hwsim.formats import format_of

if TYPE_CHECKING:
    from hwsim.analysis.program_times import Times

BYTE = 8  # bits


def least_share(times: Times, operands: str = "") -> float:
    """The larger of two times, as a share of the program's with its launches; 0 where nothing was timed.

    One is of the products without padding at the unit's peak, at the clock of the run. The other is of the bytes at the
    rate of DRAM, or of L2: what crossed it, and of more than each operand and C once only these. operands: the format
    that A and B are in after a change; "": as they are.
    """
    chip, timed, program = times.chip, times.timed, times.program
    if chip is None or timed is None or program is None or not timed.cycles:
        return 0.0
    once = {"read": 0.0, "write": 0.0}
    for array in program.arrays:
        bits, elements = array.element_bits or format_of(array.format).bits, array.reads or array.rows * array.cols
        if array.name in program.inputs:
            once["read"] += elements * (min(bits, format_of(operands).bits) if operands else bits) / BYTE
        elif array.name == program.output:
            once["write"] += elements * bits / BYTE
    l2, hbm = (
        {way: min(timed.traffic_bytes.get(f"{memory} {way}", 0), size) for way, size in once.items()}
        for memory in ("L2", "HBM")
    )
    least = least_time_of(chip, times.unit, timed.macs, L2Bytes(l2["read"], l2["write"]), sum(hbm.values()))
    whole_us = (timed.cycles + launch_cycles_of(times)) / chip.clock_mhz
    return min(least.us / whole_us, 1.0)
