"""Block distribution of C over cores: a grid of equal blocks of whole tiles, one per core, as in Huawei's samples."""

from __future__ import annotations

from dataclasses import dataclass

from hwsim.dataflows.records import MERGE, REGIONS, SLICES
from hwsim.errors import InputError
from hwsim.gemm import refusals
from hwsim.gemm.record import Gemm


@dataclass(frozen=True, slots=True)
class BlockGrid:
    """A partition of C into blocks of block_m x block_n, one per core: core ci * rows + ri computes block (ri, ci)."""

    rows: int
    cols: int
    block_m: int
    block_n: int

    @classmethod
    def of(cls, m: int, n: int, tile: tuple[int, int], cores: int, asked: tuple[int, int] | None = None) -> BlockGrid:
        """The grid of at most `cores` blocks whose largest block has the fewest tiles; ties go to the squarest block.

        asked: (rows, columns) of blocks instead. Raises InputError where those are more than there are cores.
        """
        best: tuple[tuple[int, int, int], BlockGrid] | None = None
        tiles = -(-m // tile[0]), -(-n // tile[1])
        if asked is not None:
            rows, cols = asked
            if rows < 1 or cols < 1 or rows * cols > cores:
                raise InputError(f"grid = {asked}: {rows * cols} blocks; the device has {cores} cores")
            return cls(rows, cols, -(-tiles[0] // rows) * tile[0], -(-tiles[1] // cols) * tile[1])
        for rows in range(1, min(cores, tiles[0]) + 1):
            cols = min(cores // rows, tiles[1])
            block = -(-tiles[0] // rows), -(-tiles[1] // cols)
            grid = cls(rows, cols, block[0] * tile[0], block[1] * tile[1])
            rank = (block[0] * block[1], rows * tile[0] + cols * tile[1], rows)
            if best is None or rank < best[0]:
                best = rank, grid
        assert best is not None
        return best[1]

    def groups(self, m: int, n: int) -> list[tuple[int, int, int, int]]:
        """Groups of consecutive cores with blocks of one size: (first core, cores, rows, columns of C per core)."""
        groups: list[tuple[int, int, int, int]] = []
        for core in range(self.rows * self.cols):
            ci, ri = divmod(core, self.rows)
            size = min(self.block_m, m - ri * self.block_m), min(self.block_n, n - ci * self.block_n)
            if min(size) <= 0:
                continue
            last = groups[-1] if groups else None
            if last is not None and last[2:] == size and last[0] + last[1] == core:
                groups[-1] = (last[0], last[1] + 1, *size)
            else:
                groups.append((core, 1, *size))
        return groups


def refuses(gemm: Gemm) -> str:
    """What of a record is not distributed over cores: slices of K and their merge, regions of C, stacks."""
    names = (*SLICES, *MERGE, *REGIONS)
    return refusals.joined(refusals.of_schedule(gemm.schedule, names), refusals.stacks(gemm.problem))
