"""Estimated cycles of a blocking on a grid of coupled cores, for choosing what is open of tile, grid and slices of K.

It knows sizes, capacities and the rates of links and memories; it knows no plan and no program. The timing machine
gives the cycles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hwsim.dataflows.davinci.core_grid import CoreGrid
from hwsim.dataflows.davinci.coupled_tiling import Limits, Tiles
from hwsim.dataflows.davinci.panels import LEAST_BYTES
from hwsim.host.multiples import round_up

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.devices.model.memories import LinkModel
    from hwsim.gemm.layouts import StorageOrder

C_BYTES = 4  # of an element of C


@dataclass(frozen=True, slots=True)
class Candidates:
    """Tiles (rows b_m, b_k, b_n) and, of each, the blocks of A that stay in L1 and the buffers per stage."""

    tiles: Tiles
    fused: Tiles
    buffers: int


@dataclass(frozen=True, slots=True)
class _Grids:
    """Several grids: the sides and layers of each, as columns."""

    rows: Tiles
    cols: Tiles
    layers: Tiles

    @classmethod
    def of(cls, grids: Sequence[CoreGrid]) -> _Grids:
        """These grids, in their order."""
        sides = np.array([(grid.rows, grid.cols, grid.layers) for grid in grids], np.int64)
        return cls(sides[:, :1], sides[:, 1:2], sides[:, 2:])


def grids(cores: int, slices: int = 1) -> list[CoreGrid]:
    """The grids to choose from: each number of columns with as many rows as there are cores for. slices: of K."""
    layers = min(slices, cores)
    each = cores // layers
    return [CoreGrid(each // cols, cols, layers) for cols in range(1, each + 1)]


class CoupledEstimate:
    """Estimates of one GEMM. unit: the matrix instruction. sizes: m, n, k. slices: of K, of equal length. orders: in
    which A and B are stored. packed: whether A, and whether B, is copied into panels as wide as a block.
    """

    def __init__(
        self,
        device: Device,
        unit: str,
        limits: Limits,
        sizes: tuple[int, int, int],
        slices: int = 1,
        orders: tuple[StorageOrder, StorageOrder] = ("rows", "rows"),
        packed: tuple[bool, bool] = (False, False),
    ) -> None:
        self.limits, self.slices, self.orders, self.packed, self.cores = limits, slices, orders, packed, device.cores
        self.m, self.n = sizes[:2]
        self.k = -(-sizes[2] // slices)
        self.link = {(x.source, x.target): x for x in device.links.values()}
        self.element = device.fractal["row_bytes"] // limits.depth
        timing = device.matrix_instructions[unit].timing
        self.interval = 1.0 if timing is None else float(device.matrix_instructions[unit].interval_cycles())
        self.overhead = 0.0 if timing is None else float(timing.overhead_cycles)
        self.latency = 0.0 if timing is None else float(timing.accumulate_latency_cycles)
        self.clock_hz = device.clock_mhz * 1e6
        self.l2_rate, self.hbm_rate, self.l2_bytes = math.inf, math.inf, 0
        if device.l2 is not None and device.l2.bytes_per_second:
            self.l2_rate, self.l2_bytes = device.l2.bytes_per_second / self.clock_hz, device.l2.capacity_bytes or 0
        if device.hbm is not None and device.hbm.bytes_per_second:
            self.hbm_rate = device.hbm.bytes_per_second / self.clock_hz

    def best(self, candidates: Candidates, among: Sequence[CoreGrid]) -> tuple[int, CoreGrid, float]:
        """The candidate's number and the grid with the least estimated cycles, and these.

        Where L2 or HBM bounds several, those count by the cycles of a core; then ties go to the first grid.
        """
        cycles, of_core = self._of_grids(candidates, among)
        least = cycles.min()
        number, at = np.unravel_index(np.where(cycles == least, of_core, math.inf).argmin(), cycles.shape)
        return int(at), among[int(number)], float(least)

    def ranked(self, candidates: Candidates, among: Sequence[CoreGrid]) -> Iterator[tuple[float, int, CoreGrid]]:
        """Of each candidate the estimated cycles, its number and its best grid, as `best`; the fewest first."""
        cycles, of_core = self._of_grids(candidates, among)
        least = cycles.min(axis=0)
        numbers = np.where(cycles == least, of_core, math.inf).argmin(axis=0)
        for at in np.argsort(least, kind="stable").tolist():
            yield float(least[at]), at, among[int(numbers[at])]

    def _of_grids(
        self, candidates: Candidates, among: Sequence[CoreGrid]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Estimated cycles of each grid (rows) and candidate (columns): in all, and of the busiest core."""
        of_core, shared = self.cycles(candidates, _Grids.of(among))
        return np.maximum(of_core, shared), of_core

    def cycles(self, candidates: Candidates, grid: _Grids) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Estimated cycles of each candidate on each grid, for one term: of the busiest core, and of L2 and HBM."""
        limits, buffers = self.limits, candidates.buffers
        b_m, b_k, b_n = candidates.tiles.T
        rows, cols, steps = -(-self.m // b_m), -(-self.n // b_n), -(-self.k // b_k)
        groups = -(-steps // candidates.fused)
        high, wide, deep = (
            np.minimum(side, round_up(extent, unit))
            for side, extent, unit in (
                (b_m, self.m, limits.rows),
                (b_n, self.n, limits.rows),
                (b_k, self.k, limits.depth),
            )
        )
        waves, columns = -(-rows // grid.rows), -(-cols // grid.cols)
        turns = -(-self.slices // grid.layers)
        busy = np.minimum(rows, grid.rows) * np.minimum(cols, grid.cols) * grid.layers
        to_l1 = self.link["GM", "L1"]
        whole_k, least_k = self.k * self.slices, np.minimum(deep, self.k)
        least_m, least_n = np.minimum(high, self.m), np.minimum(wide, self.n)
        of_a, of_b = (least_m, least_k, whole_k), (least_k, least_n, self.n)
        if self.orders[0] == "columns":
            of_a = least_k, least_m, self.m
        if self.orders[1] == "columns":
            of_b = least_n, least_k, whole_k
        if self.packed[0]:
            of_a = least_k, least_m, least_m
        if self.packed[1]:
            of_b = least_k, least_n, least_n
        drawn_a, drawn_b = (self._requested(to_l1, *lines, self.element) for lines in (of_a, of_b))
        load_a, load_b = (drawn / to_l1.bytes_per_cycle + to_l1.overhead_cycles for drawn in (drawn_a, drawn_b))
        move_a = self._move(self.link["L1", "L0A"], high * deep)
        move_b = self._move(self.link["L1", "L0B"], deep * wide)
        fractals = (high // limits.rows) * -(-wide // limits.rows)
        cube = -(-deep // limits.depth) * np.maximum(fractals * self.interval, self.latency) + self.overhead
        step = np.maximum(np.maximum(cube, move_a + move_b), load_b)
        arrival_b = np.maximum(load_b, drawn_b / self._share_of_b(np.minimum(cols, grid.cols) * grid.layers, waves))
        step = np.maximum(step, (arrival_b + to_l1.startup_cycles + move_b) / buffers)
        if buffers == 1:
            step = np.maximum(step, move_a + move_b + cube)
        first = np.maximum(step, load_a + load_b)
        written = self._requested(
            self.link["UB", "GM"], np.minimum(b_m, self.m), np.minimum(b_n, self.n), self.n, C_BYTES
        )
        tile_c = self._through_ub(written, busy)
        of_core = turns * waves * (groups * columns * tile_c + steps * (first + (columns - 1) * step))
        edges = to_l1.startup_cycles + load_b + move_b + cube
        k_blocks = steps * self.slices
        shared = self._shared(
            (rows, cols),
            (rows * k_blocks * drawn_a, cols * k_blocks * drawn_b, rows * cols * groups * 2 * written),
            grid,
        )
        waits = turns * waves * groups * columns * self._c_startups()  # of MTE2 for a block of C, all cores alike
        return of_core + edges, shared + waits + edges

    def _shared(
        self, blocks: tuple[Tiles, Tiles], drawn: tuple[Tiles, Tiles, Tiles], grid: _Grids
    ) -> NDArray[np.float64]:
        """Cycles of L2 and HBM for all cores and all of K. A block that cores read at the same time is fetched once.

        blocks: of C, along M and N. drawn: bytes of whole requests of A, B and C, once each.
        """
        (rows, cols), (a, b, c) = blocks, drawn
        waves = np.where(b > self.l2_bytes, -(-rows // grid.rows), 1)
        from_l2 = np.minimum(cols, grid.cols) * a + rows * b + c
        from_hbm = waves * self._fetched(b, 1) + self._fetched(a, 0) + c
        cycles: NDArray[np.float64] = np.maximum(from_l2 / self.l2_rate, from_hbm / self.hbm_rate)
        return cycles

    def _share_of_b(self, readers: Tiles, waves: Tiles) -> Tiles | float:
        """Bytes of B a cycle from HBM for each of `readers` different blocks; no bound where L2 holds B."""
        if self.packed[1]:
            return math.inf
        held = (waves > 1) & (self.n * self.k * self.slices * self.element <= self.l2_bytes)
        return np.where(held, math.inf, self.hbm_rate / readers)

    def _fetched(self, size: Tiles, side: int) -> Tiles:
        """Bytes of A (0) or B (1) that come from HBM: what was just packed lies in L2 where it has room."""
        return np.where(size <= self.l2_bytes, 0, size) if self.packed[side] else size

    def pack_cycles(self, pieces: tuple[int, int]) -> float:
        """Cycles of the kernels that pack A and B. pieces: of each."""
        return sum(
            self._pack_cycles(extent * self.k * self.slices * self.element * count)
            for extent, count, is_packed in zip((self.m, self.n), pieces, self.packed, strict=True)
            if is_packed
        )

    def _pack_cycles(self, size: int) -> float:
        read, write = self.link["GM", "UB"], self.link["UB", "GM"]
        both = size / min(self.hbm_rate, self.cores * read.bytes_per_cycle), size / (self.cores * write.bytes_per_cycle)
        return max(both) + min(*both, LEAST_BYTES / write.bytes_per_cycle) + self._c_startups()

    def _requested(self, link: LinkModel, lines: Tiles, length: Tiles, whole: Tiles | int, element: int) -> Tiles:
        """Bytes of the whole requests for `lines` rows of `length` elements, of an array with rows of `whole`."""
        line, unit = length * element, link.request_bytes
        return np.where(length < whole, lines * round_up(line, unit), round_up(lines * line, unit))

    def _move(self, link: LinkModel, elements: Tiles) -> NDArray[np.float64]:
        """Cycles of MTE1 for a block."""
        cycles: NDArray[np.float64] = elements * self.element / link.bytes_per_cycle + link.overhead_cycles
        return cycles

    def _through_ub(self, size: Tiles, busy: Tiles) -> NDArray[np.float64]:
        """Cycles of the read, the addition and the write of a block of C of `size` bytes."""
        read, write, out = self.link["GM", "UB"], self.link["UB", "GM"], self.link["L0C", "UB"]
        share = self.hbm_rate / busy
        moved = size / np.minimum(read.bytes_per_cycle, share) + size / np.minimum(write.bytes_per_cycle, share)
        cycles: NDArray[np.float64] = moved + size / out.bytes_per_cycle + self._c_startups()
        return cycles

    def _c_startups(self) -> float:
        """Cycles until a block of C has arrived in UB, and until it is stored, without its bytes."""
        return float(self.link["GM", "UB"].startup_cycles + self.link["UB", "GM"].startup_cycles)


def slice_sum_cycles(device: Device, elements: int, slices: int, terms: int) -> float:
    """Cycles of the pass that adds the slices of K of `terms` terms of `elements` elements each, by HBM alone."""
    if slices == 1 or device.hbm is None:
        return 0.0
    moved = C_BYTES * elements * (slices * terms + 1)
    return moved / (device.hbm.bytes_per_second / (device.clock_mhz * 1e6)) if device.hbm.bytes_per_second else 0.0
