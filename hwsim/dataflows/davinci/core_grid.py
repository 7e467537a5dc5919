"""Deals blocks of C over a grid of coupled cores: block rows over its rows, block columns over its columns.

Slices of K are dealt to layers of the grid. All three are dealt cyclically. The module knows sizes and numbers of
cores; no memory, no plan and no instruction. Of a record it reads what it would have to distribute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hwsim.dataflows.records import REGIONS
from hwsim.errors import InputError
from hwsim.gemm import refusals
from hwsim.gemm.record import Gemm
from hwsim.program.builder import CoreShare, StreamBuilder, distribute
from hwsim.program.ir import CORE, ZERO, Affine, variable


@dataclass(frozen=True, slots=True)
class KSlice:
    """A slice of K: its number, its first element and its length."""

    number: int
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class GridShare:
    """Consecutive cores with equal work: their blocks of M and of N, and their slices of K."""

    first: int
    count: int
    rows: CoreShare
    cols: CoreShare
    slices: tuple[KSlice, ...]


@dataclass(frozen=True, slots=True)
class CoreGrid:
    """A grid of rows x cols cores, `layers` times: core (layer * cols + col) * rows + row."""

    rows: int
    cols: int
    layers: int = 1

    @classmethod
    def algorithm_1(cls, cores: int) -> CoreGrid:
        """The grid of SGEMM-cube's Algorithm 1: block rows of A over all cores."""
        return cls(cores, 1)

    @classmethod
    def of_request(cls, grid: tuple[int, int], slices: int, cores: int) -> CoreGrid:
        """The grid that a user asks for, with as many layers as there are cores for. slices: of K.

        Raises InputError where the grid has more cores than the device.
        """
        rows, cols = grid
        if rows < 1 or cols < 1 or rows * cols > cores:
            raise InputError(
                f"grid = {rows},{cols}: {rows * cols} cores; allowed: rows and columns of at least 1 whose product is "
                f"at most the device's {cores} cores"
            )
        return cls(rows, cols, min(slices, cores // (rows * cols)))

    def place(self, stream: StreamBuilder) -> tuple[Affine, Affine]:
        """The row and the column of a core in the grid."""
        core = variable(CORE)
        if self.layers > 1:
            _, core = stream.derive("layer", core, self.rows * self.cols)
        if self.cols == 1:
            return core, ZERO
        if self.rows == 1:
            return ZERO, core
        col, row = stream.derive("place", core, self.rows)
        return row, col

    def shares(self, m: int, n: int, block: tuple[int, int], lengths: Sequence[int]) -> Iterator[GridShare]:
        """The cores' shares of C[m, n]. block: its (m, n). lengths: of the slices of K, in order."""
        starts = [sum(lengths[:i]) for i in range(len(lengths))]
        slices = [KSlice(i, *span) for i, span in enumerate(zip(starts, lengths, strict=True))]
        all_rows, all_cols = distribute(m, block[0], self.rows), distribute(n, block[1], self.cols)
        for layer in range(self.layers):
            taken = tuple(slices[layer :: self.layers])
            for cols in all_cols:
                for first, count, rows in self._runs(cols, all_rows):
                    yield GridShare(layer * self.rows * self.cols + first, count, rows, cols, taken)

    def _runs(self, cols: CoreShare, all_rows: Sequence[CoreShare]) -> Iterator[tuple[int, int, CoreShare]]:
        """Runs of consecutive cores of these columns whose rows have equal shares: first core, cores, rows."""
        if len(all_rows) == 1 and all_rows[0].count == self.rows:
            yield cols.first * self.rows, cols.count * self.rows, all_rows[0]
            return
        for col in range(cols.first, cols.first + cols.count):
            for rows in all_rows:
                yield col * self.rows + rows.first, rows.count, rows


def refuses(gemm: Gemm) -> str:
    """What of a record is not distributed over cores: regions of C, stacks."""
    return refusals.joined(refusals.of_schedule(gemm.schedule, REGIONS), refusals.stacks(gemm.problem))
