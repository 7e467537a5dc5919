"""2:4 sparsity: of how many elements along K how many are stored, and the bits that they take with their positions.

The module knows formats by name, and which elements are zero; it knows no values, no unit and no device. Source: PTX
ISA, sparse matrix storage.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError
from hwsim.formats import WORD_BITS, format_of

METADATA_BITS = 4  # of a group: two indices of 2 bits


def group_of(format: str) -> tuple[int, int]:
    """(stored, elements) of a group along K: (2, 4), and (1, 2) for elements in 32-bit words."""
    return (1, 2) if format_of(format).bits == WORD_BITS else (2, 4)


def stored_bits(format: str) -> int:
    """Bits that an element of a sparse operand takes on average, of those that are not stored too, with metadata."""
    stored, elements = group_of(format)
    return (stored * format_of(format).bits + METADATA_BITS) // elements


def require_groups(used: NDArray[np.bool_], format: str, remedy: str) -> None:
    """Raise InputError where a group of A's elements along K has more that are not zero than an instruction stores.

    used: (..., groups, elements of a group), true where an element is not zero. remedy: what to do then.
    """
    stored, elements = group_of(format)
    count: NDArray[Any] = used.sum(axis=-1)
    if (count > stored).any():
        *lead, group = (int(i) for i in np.argwhere(count > stored)[0])
        where = ", ".join((*map(str, lead), f"{group * elements}:{(group + 1) * elements}"))
        raise InputError(
            f"A[{where}] has {int(count[(*lead, group)])} elements that are not zero; sparsity 2:4 allows {stored} "
            f"of {elements} {format} along K; {remedy}"
        )
