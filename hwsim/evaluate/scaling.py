"""Scale factors outside the matrix unit: of finished sums, and of sums of runs of K, in the orders that kernels have.

The module knows factors, orders and a device's lanes; it knows no plan, no kernel and no library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.backend.arrays import in_c_order
from hwsim.errors import UnsupportedError
from hwsim.gemm.problem import SCALES

if TYPE_CHECKING:
    from hwsim.arithmetic.lanes import Lanes
    from hwsim.backend.operations import LaneStep
    from hwsim.gemm.schedule import ScaleOrder
    from hwsim.operands.scales import Scales

AnyArray = NDArray[Any]
IN_TURN: tuple[LaneStep, ...] = (("load", 0), ("load", 1), ("times",), ("load", 2), ("times",))
ADDED: tuple[LaneStep, ...] = (("load", 0), ("load", 1), ("times",), ("load", 2), ("load", 3), ("fma",))


class Scaling:
    """The factors of A and B, applied to sums in fp32 in one order. lanes: do the arithmetic."""

    def __init__(self, a: Scales, b: Scales, order: ScaleOrder, lanes: Lanes) -> None:
        self.a, self.b, self.order, self.lanes = a, b, order, lanes
        self.kind = SCALES[a.rows, a.k][0]
        if self.is_outside and lanes.dtype != np.float32:
            raise UnsupportedError(f"scales of {lanes.dtype} sums; allowed: of fp32 sums")

    @property
    def is_inside(self) -> bool:
        """Whether factors multiply products, inside the instruction."""
        return self.kind == "vector"

    @property
    def is_of_runs(self) -> bool:
        """Whether factors multiply sums of runs of K."""
        return self.kind == "block"

    @property
    def is_outside(self) -> bool:
        """Whether something is multiplied outside the instruction."""
        return not self.is_inside or self.a.factor is not None or self.b.factor is not None

    @property
    def k(self) -> int:
        """The length of K of a block."""
        assert self.a.k is not None
        return self.a.k

    @property
    def codes(self) -> tuple[AnyArray, AnyArray]:
        """The factors as a dot unit reads them: A's (rows, blocks), B's (blocks, columns)."""
        return self.a.values, self.b.values.T

    def finished(self, total: AnyArray) -> AnyArray:
        """A finished sum times the factors of rows and columns, or of the whole operands; in its place where it can."""
        if self.kind in ("tensor", "row"):
            return self._times(self.a.values, self.b.values.T, total)
        if self.a.factor is None and self.b.factor is None:
            return total
        factors = (np.float32(1) if side.factor is None else side.factor for side in (self.a, self.b))
        left, right = (self.lanes.backend.from_host(np.full((1, 1), factor)) for factor in factors)
        return self._times(left, right, total)

    def _times(self, left: AnyArray, right: AnyArray, total: AnyArray) -> AnyArray:
        in_order = {"joined": (left, right, total), "a": (left, total, right), "b": (right, total, left)}
        shape = total.shape
        operands = [x if x is total else np.broadcast_to(x, shape) for x in in_order[self.order]]
        can_hold = total.flags.writeable and total.flags.c_contiguous
        return self.lanes.combine(operands, IN_TURN, out=total if can_hold else None)

    def added(self, total: AnyArray, part: AnyArray, start: int, threads: int = 1) -> AnyArray:
        """total + part times its factors, a fused multiply-add, in the place of `total`. part: the sum of the run of K
        that begins at start.
        """
        block = start // self.k
        left, right = self.a.values[:, block, None], in_c_order(self.b.values[:, block])[None]
        first, second = {"joined": (left, right), "a": (part, left), "b": (part, right)}[self.order]
        third = {"joined": part, "a": right, "b": left}[self.order]
        return self.lanes.combine((first, second, third, total), ADDED, out=total, threads=threads)
