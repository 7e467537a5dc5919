"""Residues of integers modulo a small number, of arrays of integers or of floats that are truncated to integers.

It knows numbers; it knows no plan, no instruction and no format.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

AnyArray = NDArray[Any]


def residues(values: AnyArray, modulus: int) -> AnyArray:
    """The residues r of truncated values, as int64, with -modulus / 2 < r <= modulus / 2; 0 of infinities and NaNs.

    Exact whatever the magnitude of a value. modulus: 2 to 2^16.
    """
    if values.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            rest = np.fmod(np.trunc(values), values.dtype.type(modulus))
        whole = np.where(np.isfinite(rest), rest, 0).astype(np.int64)
    else:
        whole = np.fmod(values.astype(np.int64), np.int64(modulus))
    half = modulus // 2
    whole = np.where(whole > half, whole - modulus, whole)
    least: AnyArray = np.where(2 * whole <= -modulus, whole + modulus, whole)
    return least
