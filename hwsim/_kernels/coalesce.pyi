from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

class Coalescer:
    """One kernel of a program; `run(group, core)` gives the array work of one core, in order.

    flat: hwsim.program.flat.FlatKernel. written: per global array, 1 if the kernel writes it. Per instruction: steps,
    the K of the matrix instruction (1 for others), at whose multiples alone chains are joined; chains, a number that is
    equal for instructions which may stand in one chain; along_rows, bit t set where K runs along the rows of operand t.
    layouts: per tile, a number that is equal for tiles of one format and one width of a slot's rows.

    jobs: columns kind (0 elementwise or copy, 1 chain), instruction, destination (kind, object, slot, row, col), first
    segment, segments, starts from zero, power of two that divides the accumulator. segments: for each operand (kind,
    object, slot, row, col, length along K). Raises ValueError for an instruction that reads more than 7 tiles.
    """

    def __init__(
        self,
        flat: object,
        n_engines: int,
        written: Sequence[int],
        steps: Sequence[int],
        chains: Sequence[int],
        along_rows: Sequence[int],
        layouts: Sequence[int],
    ) -> None: ...
    def run(self, group: int, core: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
