"""What is added to a product, C and the bias, as arrays of the product's sizes. It knows shapes; no option, no unit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError
from hwsim.host.arrays import given_array

AnyArray = NDArray[Any]
NARROW = ("bfloat16", "float8_e4m3fn", "float8_e5m2")  # ml_dtypes' floats, which NumPy does not call so


def checked_c(values: Any, shape: tuple[int, ...]) -> AnyArray:
    """C as an array of `shape`, (*lead, m, n). Raises InputError for another shape."""
    c: AnyArray = given_array("C", values)
    if c.shape != shape:
        raise InputError(f"C has shape {c.shape}; allowed: {shape}")
    return c


def checked_bias(values: Any, n: int) -> AnyArray:
    """A bias as an array of (n,) real numbers, ml_dtypes' as fp32. Raises InputError for others."""
    bias: AnyArray = given_array("bias", values)
    if bias.dtype.name in NARROW:
        bias = bias.astype(np.float32)
    if bias.shape != (n,) or bias.dtype.kind not in "iuf":
        raise InputError(f"bias has shape {bias.shape} of {bias.dtype}; allowed: ({n},) real numbers, one per column")
    return bias
