from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

class Coalescer:
    """Executes the cores of one kernel of a program symbolically, one after another.

    flat: hwsim.program.flat.FlatKernel. n_engines: of the device. logged: per global array, whether the kernel both
    writes and reads it. forms: per instruction, a number that is equal for instructions that compute the same of their
    operands. Per tile: layouts, a number that is equal for tiles of one format and one width of a slot's rows; widths,
    elements of such a row; code_bytes, host bytes of a code; axes, 1 where all regions of the result take the same rows
    of this operand, 2 for columns, 3 for both.

    Raises ValueError for an instruction that reads more than 7 tiles.
    """

    def __init__(
        self,
        flat: object,
        n_engines: int,
        *,
        logged: Sequence[bool],
        forms: Sequence[int],
        layouts: Sequence[int],
        widths: Sequence[int],
        code_bytes: Sequence[int],
        axes: Sequence[int],
    ) -> None: ...
    def run(self, group: int, core: int) -> None:
        """Execute a core of a group. Raises RuntimeError when nothing can go on (the program deadlocks)."""

    def tables(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(values, layers, stores), whose columns coalesce.pyx names. After the last core."""
