"""Which rows and columns of a whole product the operands of a call are.

It knows options and an order of summation; it knows no arrays but those of places.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError
from hwsim.gemm.schedule import Schedule
from hwsim.operands.operand import selected_indices
from hwsim.request.options import CallOptions

IndexPair = tuple[NDArray[Any], NDArray[Any]]


def places_of(options: CallOptions, sizes: tuple[int, int, int], schedule: Schedule) -> IndexPair | None:
    """The rows and columns of the whole product that A's rows and B's columns are; None: all of it.

    Raises InputError where shape, at and the matrices do not fit together, or the schedule is of another product.
    """
    shape, at = options.region.shape, options.region.at
    if at is not None and shape is None:
        raise InputError("at is for shape: (m, n) of the whole product; give both or neither")
    if at is None and shape is not None and tuple(shape) != sizes[:2]:
        raise InputError(f"shape = {shape}, but the matrices give {sizes[:2]}; say at=(rows, columns), or leave it out")
    whole = sizes[:2] if shape is None else (int(shape[0]), int(shape[1]))
    if schedule.regions and schedule.shape not in (None, whole):
        raise InputError(
            f"the schedule's regions are of a product of {schedule.shape}, this one is of {whole}; for a part of it "
            "give shape=(m, n) and at=(rows, columns)"
        )
    if at is None:
        return None
    if not options.machine.exact:
        raise InputError("at is for bits, and exact is false; for cycles give m, n and k of the whole product")
    places = []
    for name, index, size, extent in zip(("rows", "columns"), at, whole, sizes, strict=False):
        of_side = np.arange(size)[selected_indices(f"at: {name}", index, size)]
        if len(of_side) != extent:
            raise InputError(f"at: {len(of_side)} {name}, but the matrices have {extent}")
        places.append(of_side)
    return places[0], places[1]
