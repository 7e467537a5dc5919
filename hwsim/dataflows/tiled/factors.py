"""Factors of scaled operands outside the instruction: where they lie, and the instructions that multiply by them.

It knows tiles of sums and arrays of factors; it knows no main loop, no epilogue and no accumulator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwsim.errors import UnsupportedError
from hwsim.program.ir import Affine, GlobalTile
from hwsim.program.quick import quick

if TYPE_CHECKING:
    from hwsim.dataflows.tiles import WorkTile
    from hwsim.dataflows.vector_ops import VectorOps
    from hwsim.gemm.schedule import ScaleOrder
    from hwsim.program.ir import AnyTile, LocalTile

    Scratch = Callable[[int, int], LocalTile]


@quick
@dataclass(frozen=True, slots=True)
class Factors:
    """The factors of A and B, fp32, in two arrays in global memory.

    a: (rows of A or 1, blocks of K or 1). b: (blocks of K or 1, columns of B or 1). order: of the multiplications, as
    the schedule says. extents: rows of A, and columns of B, that share one (None: all). k: elements of K that share one
    (None: all).
    """

    a: str
    b: str
    order: ScaleOrder
    extents: tuple[int | None, int | None]
    k: int | None = None

    def tiles(
        self, whole: tuple[int, int], place: WorkTile, rows: tuple[int, int], k: Affine
    ) -> tuple[GlobalTile, GlobalTile]:
        """The factors of some rows of a tile of C and of all its columns, one where one counts for all.

        whole: rows and columns of a tile that is not at an edge. rows: first row and number of rows, within the tile.
        k: first element of K that they are of.
        """
        block = Affine() if self.k is None else divided(k, self.k)
        first_row = place.row + rows[0]
        of_rows = self.count(0, whole[0], *rows)
        of_columns = self.count(1, whole[1], 0, place.n)
        left = GlobalTile(self.a, Affine() if self.extents[0] is None else first_row, block, of_rows, 1)
        right = GlobalTile(self.b, block, Affine() if self.extents[1] is None else place.col, 1, of_columns)
        return left, right

    def count(self, side: int, tile: int, start: int, count: int) -> int:
        """How many factors `count` rows of A, or columns of B, have from `start` on in a tile of so many: 1 where they
        share one.
        """
        extent = self.extents[side]
        if extent is None:
            return 1
        is_aligned = tile % extent == 0 or extent % tile == 0
        return 1 if is_aligned and start // extent == (start + count - 1) // extent else count


def divided(first: Affine, length: int) -> Affine:
    """An element of K as the number of its block of `length`. Raises UnsupportedError where blocks of K begin within
    one.
    """
    if first.constant % length or any(factor % length for _, factor in first.terms):
        raise UnsupportedError(f"blocks of K that begin within a vector of {length} elements with one scale")
    return Affine(first.constant // length, tuple([(name, factor // length) for name, factor in first.terms]))


def multiply(
    ops: VectorOps,
    order: ScaleOrder,
    pair: tuple[AnyTile, AnyTile],
    target: LocalTile,
    value: AnyTile,
    scratch: Scratch,
) -> None:
    """Emit target = value times both factors. pair: the factors of A and of B. scratch: makes a tile of a size."""
    left, right = pair
    if order == "joined":
        factor = scratch(max(left.rows, right.rows), max(left.cols, right.cols))
        ops.op("mul", factor, left, right, label="C")
        ops.op("mul", target, factor, value, label="C")
        return
    first, last = pair if order == "a" else (right, left)
    ops.op("mul", target, first, value, label="C")
    ops.op("mul", target, target, last, label="C")


def multiply_add(
    ops: VectorOps,
    order: ScaleOrder,
    pair: tuple[AnyTile, AnyTile],
    total: LocalTile,
    value: AnyTile,
    scratch: Scratch,
) -> None:
    """Emit total = total + value times both factors, the second product and the sum rounded once."""
    left, right = pair
    if order == "joined":
        factor = scratch(max(left.rows, right.rows), max(left.cols, right.cols))
        ops.op("mul", factor, left, right)
        ops.op("fma", total, value, total, multiplier=factor)
        return
    first, last = pair if order == "a" else (right, left)
    product = scratch(total.rows, total.cols)
    ops.op("mul", product, value, first)
    ops.op("fma", total, product, total, multiplier=last)
