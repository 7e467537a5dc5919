"""The share of a timed program's time that no other tile, order or layout saves: its products and its bytes need it.

It knows times and the device's rates; it knows no advice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwsim.analysis.engine_shares import launch_cycles_of
from hwsim.devices import find
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
    seconds = (timed.cycles + launch_cycles_of(times)) / (chip.clock_mhz * 1e6)
    model, least = find(chip, times.unit), [0.0]
    if model is not None and model.timing is not None:
        least.append(timed.macs / (float(model.macs_per_cycle) * chip.cores * chip.clock_mhz * 1e6))
    once = {"read": 0.0, "write": 0.0}
    for array in program.arrays:
        bits, elements = array.element_bits or format_of(array.format).bits, array.reads or array.rows * array.cols
        if array.name in program.inputs:
            once["read"] += elements * (min(bits, format_of(operands).bits) if operands else bits) / BYTE
        elif array.name == program.output:
            once["write"] += elements * bits / BYTE
    moved = timed.traffic_bytes
    if chip.hbm is not None:
        crossed = sum(min(moved.get(f"HBM {way}", 0), size) for way, size in once.items())
        least.append(crossed / chip.hbm.bytes_per_second)
    if chip.l2 is not None:
        rates = {"read": chip.l2.bytes_per_second, "write": chip.l2.write_bytes_per_second or chip.l2.bytes_per_second}
        least.append(sum(min(moved.get(f"L2 {way}", 0), size) / rates[way] for way, size in once.items()))
    return min(max(least) / seconds, 1.0)
