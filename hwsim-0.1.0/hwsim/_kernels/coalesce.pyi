from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

class Coalescer:
    """One kernel of a program; `run(group, core)` gives the array work of one core, in order.

    flat: hwsim.program.flat.FlatKernel. written: per global array, 1 if the kernel writes it. steps: per
    instruction, the K of the matrix instruction (1 for others): chains are joined at its multiples only.
    """

    def __init__(self, flat: object, n_engines: int, written: Sequence[int], steps: Sequence[int]) -> None: ...
    def run(self, group: int, core: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
