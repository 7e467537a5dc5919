"""The least time in which a chip can do some work: products over its peak rate, bytes over the rates of its memories.

It knows rates of device files and amounts of work; no program, no library, and nothing that was measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwsim.devices.query import find

if TYPE_CHECKING:
    from hwsim.devices.device import Device


@dataclass(frozen=True, slots=True)
class LeastTime:
    """Microseconds that each part of a chip needs at least. products_us: of the matrix unit on all cores at the clock
    of the device file. l2_us: of every byte once. hbm_us: of the bytes that L2 cannot have kept.
    hbm_bytes_per_second: by which hbm_us is, 0 where there is no HBM.
    """

    products_us: float
    l2_us: float
    hbm_us: float
    hbm_bytes_per_second: float = 0.0

    @property
    def us(self) -> float:
        """Microseconds that the work takes at least."""
        return max(self.products_us, self.l2_us, self.hbm_us)


@dataclass(frozen=True, slots=True)
class L2Bytes:
    """Bytes that cross L2, each way at its own rate."""

    read: float
    written: float = 0.0


def least_time(chip: Device, unit: str | None, macs: int, moved_bytes: float, *, is_series: bool) -> LeastTime:
    """The least time of `macs` products by instruction `unit` and of operands and results of `moved_bytes`, all at the
    rate of L2's reads.

    is_series: the same work was done just before, so that L2 may hold a part of it. A unit without timing data, an L2
    or an HBM that the device file lacks take no time.
    """
    capacity = chip.l2.capacity_bytes if is_series and chip.l2 is not None else 0
    return least_time_of(chip, unit, macs, L2Bytes(moved_bytes), fetched_bytes(moved_bytes, capacity))


def least_time_of(chip: Device, unit: str | None, macs: int, l2_bytes: L2Bytes, hbm_bytes: float) -> LeastTime:
    """The least time of `macs` products by instruction `unit`, of bytes that cross L2, and of bytes of HBM; as
    `least_time` where the device file lacks something.
    """
    instruction = None if unit is None else find(chip, unit)
    products_us = l2_us = 0.0
    if instruction is not None and instruction.timing is not None:
        products_us = macs / (float(instruction.macs_per_cycle) * chip.cores * chip.clock_mhz)
    if chip.l2 is not None:
        write_rate = chip.l2.write_bytes_per_second or chip.l2.bytes_per_second
        l2_us = l2_bytes.read / chip.l2.bytes_per_second * 1e6 + l2_bytes.written / write_rate * 1e6
    if chip.hbm is None:
        return LeastTime(products_us, l2_us, 0.0)
    rate = float(chip.hbm.bytes_per_second)
    return LeastTime(products_us, l2_us, hbm_bytes / rate * 1e6, rate)


def fetched_bytes(moved_bytes: float, capacity_bytes: int) -> float:
    """Bytes that come from HBM although a run before left its own in an L2 of this capacity.

    Of work that is twice as large, or larger, L2 holds nothing when it is needed again: all of it has been replaced.
    In between, each byte that does not fit replaces another one before its turn.
    """
    return max(0.0, min(moved_bytes, 2 * (moved_bytes - capacity_bytes)))
