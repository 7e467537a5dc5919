"""What the arrays of any backend do, without NumPy's own arrays in mind. The module knows arrays alone."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray


def in_c_order(x: NDArray[Any]) -> NDArray[Any]:
    """The array itself where it lies in C order, else a copy that does. (`numpy.ascontiguousarray` takes NumPy's arrays
    alone.)
    """
    return x.astype(x.dtype, order="C", copy=False)
