"""Sizes rounded up to whole multiples, as alignments and padding ask for. It knows numbers alone."""

from __future__ import annotations

from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

Sizes = NDArray[np.int64]


@overload
def round_up(size: int, multiple: int) -> int: ...
@overload
def round_up(size: float, multiple: int) -> float: ...
@overload
def round_up(size: Sizes, multiple: Sizes | int) -> Sizes: ...
def round_up(size: Any, multiple: Any) -> Any:
    """The least multiple of `multiple` that is at least `size`; of an array, of each element."""
    return -(-size // multiple) * multiple
