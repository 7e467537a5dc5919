"""Fast path of the static checker: address bounds, variable scopes and semaphore counts in one pass over the tables.

It accepts a kernel or raises UnsureError, without naming an instruction; hwsim.program.check then checks instruction by
instruction and reports the violation, if there is one. Intervals as in hwsim.program.bounds. The pass is compiled
(kernels_ext/src/engine_places.c).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hwsim._kernels.engine import check_places
from hwsim.program.flat import FlatKernel
from hwsim.program.ir import GlobalArray, Kernel
from hwsim.program.roles import OPCODES

_MMA = OPCODES.index("mma")
Balance = Mapping[str, tuple[int, int]]  # by semaphore: signalled, awaited


class UnsureError(Exception):
    """A rule may be violated, or cannot be decided on the tables."""


class Places:
    """The check of one kernel. Raises UnsureError for loops with count 0, which the tables leave out."""

    def __init__(self, kernel: Kernel, flat: FlatKernel, arrays: Sequence[GlobalArray]) -> None:
        if flat.skipped:
            raise UnsureError
        self.kernel = kernel
        extents = np.array([array.stored for array in arrays], np.int64)
        self.tables = {
            **flat.walked,
            "zero_list": flat.zero_list,
            "zero_variable": flat.zero_variable,
            "extent": extents,
        }
        self.semaphores = [semaphore.name for semaphore in kernel.semaphores]

    def group(self, number: int, period: int) -> tuple[Balance, Balance]:
        """Check the streams of a group; the total that one of its cores signals and waits for, per semaphore.

        The second result has the same totals with loops shortened as in Walker.is_orderly. Raises UnsureError.
        """
        group = self.kernel.groups[number]
        first = sum(len(earlier.streams) for earlier in self.kernel.groups[:number])
        sums = check_places(
            self.tables, first, len(group.streams), group.first, group.count, len(self.semaphores), _MMA, period
        )
        if sums is None:
            raise UnsureError
        named = list(zip(self.semaphores, sums.tolist(), strict=True))
        return {name: (of[0], of[1]) for name, of in named}, {name: (of[2], of[3]) for name, of in named}
