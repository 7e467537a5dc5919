"""What views of a program show (GlobalArray.of): codes of another array, gathered when a kernel begins.

It knows arrays of a program and windows of images; it knows no instruction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from hwsim.operands.windows import gathered
from hwsim.program.ir import GlobalTile

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.program.ir import Kernel, Program

Codes = NDArray[Any]


def fill_views(program: Program, kernel: Kernel, arrays: dict[str, Codes], backend: Backend) -> None:
    """Put the codes of the views that a kernel reads into global memory, as what they show is now."""
    views = {array.name: array for array in program.arrays if array.windows is not None}
    if not views:
        return
    for name in _arrays_read(kernel) & set(views):
        view = views[name]
        assert view.windows is not None
        arrays[name] = backend.from_host(gathered(backend.to_host(arrays[view.of]), view.windows))


def _arrays_read(kernel: Kernel) -> set[str]:
    return {tile.array for instr in kernel.instrs() for tile in instr.reads if isinstance(tile, GlobalTile)}
