"""Stochastic rounding as cvt.rs does it: 8 random bits for each element. It knows formats and arrays; no scale.

Source: PTX ISA 8.7, cvt.rs.satfinite.e2m1x4.f32; Transformer Engine d0067d0d (its Philox bits), as software twin.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.backend.cpu import CPU
from hwsim.errors import InputError
from hwsim.formats import Format

AnyArray = NDArray[Any]
RANDOM_BITS = 8


def encode_stochastic(values: AnyArray, fmt: Format, random_bytes: AnyArray) -> AnyArray:
    """Codes of fp32 values, saturated: abs(x) + u * step goes down to the grid, with u = byte / 256.

    step: from abs(x)'s lower neighbour in the format to the next one. random_bytes: uint8, of the shape of values. NaN
    gives the largest number where the format has no NaN. Raises InputError for bytes of another shape or dtype.
    """
    if random_bytes.dtype != np.uint8 or random_bytes.shape != values.shape:
        raise InputError(
            f"random_bytes: {random_bytes.dtype} of shape {random_bytes.shape}; allowed: uint8 of shape {values.shape}"
        )
    wide = np.where(np.isfinite(values), values, F0).astype(np.float64)
    exponent = np.maximum(np.frexp(np.abs(wide))[1] - 1, fmt.min_exponent)
    place = exponent - fmt.fraction_bits
    on_grid = np.ldexp(np.abs(wide), -place)  # in steps: exact
    moved = np.ldexp(np.floor(on_grid + random_bytes / np.float64(1 << RANDOM_BITS)), place)
    rounded = np.where(np.isfinite(values), np.copysign(moved, values), values)
    return encode_saturated(rounded, fmt)


F0 = np.float32(0)


def encode_saturated(values: AnyArray, fmt: Format) -> AnyArray:
    """Codes of values, to nearest even, saturated. NaN gives the largest number where the format has no NaN, as
    cvt.rn.satfinite does.
    """
    if fmt.nan != "none":
        return CPU.encode(values, fmt, "RNE", "saturate")
    is_nan = np.isnan(values)
    codes = CPU.encode(np.where(is_nan, F0, values), fmt, "RNE", "saturate")
    return np.where(is_nan, np.uint8(fmt.largest_code()), codes)
