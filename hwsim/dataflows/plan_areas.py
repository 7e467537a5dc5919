"""Areas of C, and the runs of K in them, that each plan of a mixture computes: from the plans that blocks need.

It knows the plans of blocks (`Mixed.a_types`, `Mixed.b_types`); it knows no tile, no kernel and no operand value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from hwsim.dataflows.rectangles import rectangles
from hwsim.errors import UnsupportedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hwsim.devices.device import Device
    from hwsim.gemm.plan import Mixed
    from hwsim.gemm.record import Gemm
    from hwsim.program.ir import Program

KRun = tuple[int, int]
MOST_RUNS = 1 << 17  # of all areas: each is written out in the program, which takes some ms per hundred


@dataclass(frozen=True, slots=True)
class PlanArea:
    """A rectangle of C from (row, col) of one matrix of the batch, and the runs of K, (start, length), that a plan
    multiplies there in order.

    adds: plans before this one have left a sum there, to which this plan's is added.
    """

    matrix: int
    row: int
    rows: int
    col: int
    cols: int
    runs: tuple[KRun, ...]
    adds: bool

    @property
    def depth(self) -> int:
        """The elements of K."""
        return sum(length for _, length in self.runs)


@runtime_checkable
class AreaDataflow(Protocol):
    """A dataflow whose programs can be limited to areas of C and of K."""

    def lower_areas(self, part: Gemm, device: Device, areas: Sequence[PlanArea]) -> Program:
        """The program of a mapped record of one plan over these areas; its result is in format fp32, and adds to what
        its array holds where an area says so. The rest of the array is left as it is.
        """

    def lower_epilogue(self, gemm: Gemm, device: Device) -> Program:
        """The program that reads the fp32 sum of a product (its first input), and the record's C and bias, and writes
        the record's result.
        """


def even_shares(
    depths: Sequence[int], sizes: tuple[int, int, int], matrices: int
) -> Iterator[tuple[list[PlanArea], int, int]]:
    """(areas, start, length) of each plan's share of K where no block is known: all of C, one share after another.

    The areas count K from `start`. Of a short K each plan has a whole step, so that they overlap.
    """
    m, n, k = sizes
    start = 0
    for number, depth in enumerate(depths):
        areas = [
            PlanArea(matrix=matrix, row=0, rows=m, col=0, cols=n, runs=((0, depth),), adds=number > 0)
            for matrix in range(matrices)
        ]
        yield areas, min(start, k - depth), depth
        start += depth


def areas_of(mixed: Mixed, sizes: tuple[int, int, int], matrices: int) -> list[list[PlanArea]]:
    """The areas of each plan that has a block, in the order of plans: blocks of A and B use the more general plan of
    the two.

    Raises UnsupportedError for more runs of K than programs are written with.
    """
    a, b = (np.array([list(map(int, line)) for line in lines], np.int8) for lines in (mixed.a_types, mixed.b_types))
    areas: dict[int, list[PlanArea]] = {number: [] for number, count in enumerate(mixed.blocks) if count}
    count = 0
    for matrix, (left, right) in enumerate(
        zip(np.split(a, matrices), np.split(b, matrices), strict=True)  # one below another
    ):
        for number, of_plan in areas.items():
            of_plan += _areas_of_plan(number, matrix, left, right, mixed.block, sizes)
            count += sum(len(area.runs) for area in of_plan if area.matrix == matrix)
            if count > MOST_RUNS:
                raise UnsupportedError(
                    f"scheme {mixed.scheme}: its blocks of {mixed.block[2]} make more than {MOST_RUNS:,} runs of K; "
                    "programs are written with at most so many; take larger blocks"
                )
    return list(areas.values())


def _areas_of_plan(
    number: int,
    matrix: int,
    left: NDArray[np.int8],
    right: NDArray[np.int8],
    block: tuple[int, int, int],
    sizes: tuple[int, int, int],
) -> list[PlanArea]:
    """The areas of plan `number` in one matrix. left, right: the plans of blocks of A and of B."""
    rows, of_row = np.unique(left, axis=0, return_inverse=True)
    columns, of_column = np.unique(right, axis=1, return_inverse=True)
    kinds: dict[tuple[bytes, bool], list[tuple[int, int]]] = {}
    for i, kind in enumerate(rows):
        pattern = np.maximum(kind[:, None], columns)  # blocks of K x kinds of columns
        is_own, adds = pattern == number, (pattern < number).any(axis=0)
        for j in np.flatnonzero(is_own.any(axis=0)).tolist():
            kinds.setdefault((is_own[:, j].tobytes(), bool(adds[j])), []).append((i, j))
    areas = []
    for (blocks, is_added), pairs in kinds.items():
        mask = np.zeros((len(left), right.shape[1]), np.bool_)
        for i, j in pairs:
            mask |= (of_row.ravel() == i)[:, None] & (of_column.ravel() == j)
        runs = _runs(np.frombuffer(blocks, np.bool_), block[2], sizes[2])
        for part in rectangles(mask):
            (row, height), (col, width) = (
                (first * size, min((first + count) * size, extent) - first * size)
                for first, count, size, extent in (
                    (part.row, part.rows, block[0], sizes[0]),
                    (part.col, part.cols, block[1], sizes[1]),
                )
            )
            areas.append(PlanArea(matrix=matrix, row=row, rows=height, col=col, cols=width, runs=runs, adds=is_added))
    return sorted(areas, key=lambda area: (area.row, area.col))


def _runs(is_own: NDArray[np.bool_], size: int, k: int) -> tuple[KRun, ...]:
    """The runs of K of marked blocks; neighbours are one run."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_own, [False]]).astype(np.int8))).tolist()
    return tuple(
        [
            (first * size, min(last * size, k) - first * size)
            for first, last in zip(edges[::2], edges[1::2], strict=True)
        ]
    )
