"""Tile selection for Algorithm 1 on a DaVinci core: which (b_m, b_k, b_n, N_fused) are legal, and a default.

Equations 8 to 11 of SGEMM-cube (arXiv 2507.23387), with the capacities of the device file. Block sizes are in elements;
traffic is in elements per term, as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError, UnsupportedError
from hwsim.host.multiples import round_up

if TYPE_CHECKING:
    from hwsim.devices.device import Device


Tiles = NDArray[np.int64]  # rows b_m, b_k, b_n
LINKS = (("GM", "L1"), ("L1", "L0A"), ("L1", "L0B"), ("GM", "UB"), ("UB", "GM"))
MEMORIES = ("L1", "L0A", "L0B", "L0C", "UB")


@dataclass(frozen=True, slots=True)
class Tiling:
    """A blocking: (b_m, b_k, b_n), the number of A blocks kept in L1, and the buffers per stage (1 or 2)."""

    b_m: int
    b_k: int
    b_n: int
    n_fused: int
    buffers: int = 2

    @property
    def tile(self) -> tuple[int, int, int]:
        """The tile (b_m, b_k, b_n), in the paper's order."""
        return self.b_m, self.b_k, self.b_n

    def promotion_interval(self, scheduled: int | None, is_joined: bool) -> int:
        """The K that the cube accumulates from zero.

        scheduled: the schedule's, None: open. is_joined: the terms are combined after every step of K, by default
        every block.
        """
        return scheduled or (self.b_k if is_joined else self.n_fused * self.b_k)


@dataclass(frozen=True, slots=True)
class Limits:
    """Capacities from a device file, in elements of the operand format or in bytes."""

    rows: int  # fractal: a block's sides are multiples of it in m and n ...
    depth: int  # ... and of this in k
    l0a: int
    l0b: int
    l1: int
    l0c_bytes: int
    ub_bytes: int
    cores: int

    @property
    def columns(self) -> int:
        """The granularity of b_n: rows of B fill whole fractal rows."""
        return max(self.rows, self.depth)

    @classmethod
    def of(cls, device: Device, element_bytes: int, at_once: tuple[int, int] = (1, 1)) -> Limits:
        """Limits of `device` for operands of `element_bytes`. L0A and L0B hold two blocks each (Eq. 10) of all pieces
        of A and of B that are there `at_once`.

        Raises UnsupportedError when the device file lacks what the dataflow needs.
        """
        memory = {name: m.capacity_bytes for name, m in device.memories.items()}
        fractal = device.fractal
        lacking = [f"memories.{name}" for name in MEMORIES if name not in memory]
        lacking += [f"fractal.{name}" for name in ("rows", "row_bytes") if name not in fractal]
        linked = {(link.source, link.target) for link in device.links.values()}
        lacking += [f"link from {source} to {target}" for source, target in LINKS if (source, target) not in linked]
        if lacking:
            raise UnsupportedError(
                f"device {device.name}: its file does not describe a core that programs can run on: "
                f"no {', '.join(lacking)}"
            )
        row_bytes = fractal["row_bytes"]
        if row_bytes < element_bytes:
            raise UnsupportedError(
                f"device {device.name}: fractal.row_bytes = {row_bytes}: a row of a fractal holds no element of "
                f"{element_bytes} bytes; give at least {element_bytes}"
            )
        return cls(
            rows=fractal["rows"],
            depth=row_bytes // element_bytes,
            l0a=memory["L0A"] // (2 * at_once[0]) // element_bytes,
            l0b=memory["L0B"] // (2 * at_once[1]) // element_bytes,
            l1=memory["L1"] // element_bytes,
            l0c_bytes=memory["L0C"],
            ub_bytes=memory["UB"],
            cores=device.cores,
        )


def n_fused(limits: Limits, b_m: int, b_k: int, b_n: int, resident: int = 1) -> int:
    """Eq. 8: the number of A blocks that fit in L1 beside two B blocks, with `resident` pieces of A."""
    return (limits.l1 - 2 * b_k * b_n) // (b_m * b_k * resident)


def problems(limits: Limits, b_m: int, b_k: int, b_n: int, accumulators: int = 1) -> list[str]:
    """The reasons why a tile is not legal (Eq. 10, and L0C); empty when it is."""
    reasons = []
    for name, value, unit in (("b_m", b_m, limits.rows), ("b_k", b_k, limits.depth), ("b_n", b_n, limits.columns)):
        if value <= 0 or value % unit:
            reasons.append(f"{name} = {value} is not a positive multiple of {unit}")
    if b_m * b_k > limits.l0a:
        reasons.append(f"an A block of {b_m} x {b_k} has {b_m * b_k} elements; a slot of L0A holds {limits.l0a}")
    if b_k * b_n > limits.l0b:
        reasons.append(f"a B block of {b_k} x {b_n} has {b_k * b_n} elements; a slot of L0B holds {limits.l0b}")
    if 6 * b_m * b_n > limits.ub_bytes:
        reasons.append(
            f"a C block of {b_m} x {b_n} needs 6 bytes an element in UB, {6 * b_m * b_n} of {limits.ub_bytes}"
        )
    if 4 * b_m * b_n * accumulators > limits.l0c_bytes:
        reasons.append(
            f"{accumulators} C blocks of {b_m} x {b_n} need {4 * b_m * b_n * accumulators} bytes of L0C, "
            f"{limits.l0c_bytes} there"
        )
    if not reasons and n_fused(limits, b_m, b_k, b_n) < 1:
        reasons.append(f"L1 holds no A block of {b_m} x {b_k} beside two B blocks of {b_k} x {b_n}")
    return reasons


def check(limits: Limits, tile: tuple[int, int, int], accumulators: int = 1) -> None:
    """Raise InputError when `tile` is not legal, with the reason and what is allowed."""
    reasons = problems(limits, *tile, accumulators)
    if reasons:
        deep = f" (b_k, b_n: {limits.depth})" if limits.depth > limits.rows else ""
        raise InputError(
            f"tile {','.join(map(str, tile))} (b_m,b_k,b_n): {'; '.join(reasons)}. Allowed (Eq. 10): multiples of "
            f"{limits.rows}{deep}, b_m*b_k <= {limits.l0a}, b_k*b_n <= {limits.l0b}, 6*b_m*b_n <= {limits.ub_bytes}"
        )


@lru_cache(maxsize=32)
def legal(limits: Limits, accumulators: int = 1) -> tuple[tuple[int, int, int], ...]:
    """All legal (b_m, b_k, b_n), in order."""
    step, deep, elements = limits.rows, limits.depth, limits.l0c_bytes // (4 * accumulators)
    return tuple(
        (b_m, b_k, b_n)
        for b_m in range(step, min(limits.l0a // deep, elements // limits.columns) + 1, step)
        for b_k in range(deep, limits.l0a // b_m + 1, deep)
        for b_n in range(limits.columns, min(limits.l0b // b_k, elements // b_m) + 1, limits.columns)
        if not problems(limits, b_m, b_k, b_n, accumulators)
    )


@dataclass(frozen=True, slots=True)
class Traffic:
    """Eq. 9: elements moved between global memory and L1 for one term, with B fetched once for all cores."""

    a_read: float
    b_read: float
    c_read_write: float


def traffic(limits: Limits, tiling: Tiling, m: int, n: int, k: int) -> Traffic:
    """Eq. 9, with f from Eq. 8."""
    f = tiling.n_fused * tiling.b_m * tiling.b_k / limits.l1
    return Traffic(m * k, m * k * n / (limits.cores * tiling.b_m), 2 * m * k * n * tiling.b_m / (f * limits.l1))


def b_m_least_traffic(limits: Limits, f: float) -> float:
    """Eq. 11: the b_m with the least traffic."""
    return math.sqrt(f * limits.l1 / (2 * limits.cores))


def estimate_cycles(
    device: Device, unit: str, limits: Limits, tile: tuple[int, int, int], m: int, n: int, k: int
) -> float:
    """Estimated cycles of one term: the slowest of cube, MTE1 and MTE2, plus the transfer of C through UB.

    Only for choosing a default among legal tiles; the timing machine gives the cycles.
    """
    return float(estimator(device, unit, limits, (m, n, k))(np.array([tile], np.int64))[0])


def estimator(
    device: Device, unit: str, limits: Limits, sizes: tuple[int, int, int]
) -> Callable[[Tiles], NDArray[np.float64]]:
    """A function of several tiles that gives `estimate_cycles` of each for one GEMM; sizes: m, n, k."""
    m, n, k = sizes
    most_m, most_k, most_n = (
        round_up(extent, unit) for extent, unit in zip((m, k, n), (limits.rows, limits.depth, limits.rows), strict=True)
    )
    link = {(x.source, x.target): x for x in device.links.values()}
    mma = device.matrix_instructions[unit]
    interval = None if mma.timing is None else float(mma.interval_cycles())
    mma_overhead = 0 if mma.timing is None else mma.timing.overhead_cycles
    element = device.fractal["row_bytes"] // limits.depth
    to_l0a, to_l0b, to_l1 = link["L1", "L0A"], link["L1", "L0B"], link["GM", "L1"]
    rates = to_l0a.bytes_per_cycle, to_l0b.bytes_per_cycle, to_l1.bytes_per_cycle
    mte1_startup = to_l0a.startup_cycles + to_l0b.startup_cycles
    c_startups = link["UB", "GM"].startup_cycles, link["GM", "UB"].startup_cycles
    share = device.hbm.bytes_per_second / (device.clock_mhz * 1e6) / device.cores if device.hbm else math.inf

    def estimate(tiles: Tiles) -> NDArray[np.float64]:
        b_m, b_k, b_n = (np.minimum(side, most) for side, most in zip(tiles.T, (most_m, most_k, most_n), strict=True))
        cube = ((b_m // limits.rows) * (b_k // limits.depth) * (b_n // limits.rows)).astype(np.float64)
        if interval is not None:
            cube = cube * interval + mma_overhead
        mte1 = element * b_k * (b_m / rates[0] + b_n / rates[1])
        mte1 += mte1_startup
        mte2 = element * b_k * b_n / rates[2]
        c_block = 4 * b_m * b_n * 2 / share + c_startups[0] + c_startups[1]
        rows = -(-m // b_m)
        waves = -(-rows // limits.cores)
        steps, columns = -(-k // b_k), -(-n // b_n)
        groups = -(-steps // np.maximum(1, (limits.l1 - 2 * b_k * b_n) // (b_m * b_k)))
        cycles: NDArray[np.float64] = (
            waves * columns * (steps * np.maximum(np.maximum(cube, mte1), mte2) + groups * c_block)
        )
        return cycles

    return estimate


def choose(
    device: Device, unit: str, limits: Limits, sizes: tuple[int, int, int], tiles: Tiles
) -> tuple[int, int, int] | None:
    """The tile with the least estimated cycles of those given; ties go to the first in order.

    unit: the matrix instruction. sizes: m, n, k. None where there is none.
    """
    if not len(tiles):
        return None
    b_m, b_k, b_n = tiles[int(estimator(device, unit, limits, sizes)(tiles).argmin())].tolist()
    return b_m, b_k, b_n


def best_of_each_side(
    device: Device, unit: str, limits: Limits, sizes: tuple[int, int, int]
) -> list[tuple[int, int, int]]:
    """Legal tiles, one for each (b_m, b_n) with the b_k of the least estimated cycles, the fastest first."""
    best: dict[tuple[int, int], tuple[float, int]] = {}
    tiles = legal(limits)
    cycles = estimator(device, unit, limits, sizes)(np.array(tiles, np.int64).reshape(-1, 3)).tolist()
    for (b_m, b_k, b_n), time in zip(tiles, cycles, strict=True):
        candidate = time, b_k
        best[b_m, b_n] = min(best.get((b_m, b_n), candidate), candidate)
    return [(b_m, best[b_m, b_n][1], b_n) for b_m, b_n in sorted(best, key=lambda pair: best[pair])]
