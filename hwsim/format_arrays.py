"""Arrays in any number format: decode codes, encode values, round values to a format, describe a format.

Modes that the CPU backend has go through it; RA, RO and SR are an exact path in NumPy. The module
knows formats and arrays; it knows no plan and no device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hwsim.backend.cpu import CPU
from hwsim.backend.environment import in_default_environment
from hwsim.errors import InputError, nearest
from hwsim.formats import ROUNDINGS, Format, array_dtype, code_dtype, codes_of, format_of
from hwsim.host.arrays import given_array

AnyArray = NDArray[Any]

#: Roundings that NumPy does here: away from zero, to odd, stochastic.
EXTRA_ROUNDINGS = ("RA", "RO", "SR")
ALL_ROUNDINGS = (*ROUNDINGS, *EXTRA_ROUNDINGS)
EXACT_IN_FP64 = 2**53


def decode(codes: Any, format: str, *, out: AnyArray | None = None, dtype: DTypeLike | None = None) -> AnyArray:
    """Exact values of codes, same shape.

    Args:
        codes: unsigned integers as wide as the format (uint8 for 4 and 6 bits), or an array of its own dtype; any shape
            and strides.
        format: a name (`hwsim formats`).
        out: an array of that shape and dtype, filled and returned.
        dtype: float32 or float64 (default: float32 where it holds every value, else float64; int64 stays int64).

    Raises:
        InputError: another dtype, or one that does not hold every value.
    """
    fmt = format_of(format)
    array = np.asarray(codes_of(_native(codes), fmt))  # of 0-d codes, a scalar
    if fmt.name == "int64":
        wanted = np.dtype(np.int64 if dtype is None else dtype)
        if wanted != np.int64:
            raise InputError(f"dtype {wanted}: no float dtype holds every int64; allowed: int64")
        return _into(out, array.view(np.int64).copy(), "out")
    default = np.float64 if fmt.name in ("fp64", "int32") else np.float32
    wanted = np.dtype(default if dtype is None else dtype)
    return _into(out, CPU.decode(array, fmt, wanted), "out")


@in_default_environment  # roundings that only this module has are NumPy's arithmetic
def encode(
    values: Any,
    format: str,
    *,
    rounding: str = "RNE",
    overflow: str = "ieee",
    nan: str = "quiet",
    seed: int | None = None,
    out: AnyArray | None = None,
) -> AnyArray:
    """Codes of values, each rounded once: an array of `hwsim.formats.code_dtype`, same shape.

    Rounding SR: of the neighbours lo < abs(x) < hi in the format, hi where u < (abs(x) - lo) / (hi - lo), u one uniform
    multiple of 2^-53 per element in C order, from NumPy's PCG64 of that seed. So the mean is abs(x) to 2^-53 of
    hi - lo.

    Args:
        values: float16, float32, float64, an ml_dtypes float, or integers that float64 holds exactly; any shape and
            strides.
        format: a name (`hwsim formats`).
        rounding: RNE, RNA (to nearest; ties to even, away from zero), RZ, RU, RD, RA (away from zero), RO (to odd: an
            inexact value goes to the neighbour with an odd last bit), SR (stochastic, needs `seed`).
        overflow: "ieee", "infinity", "saturate", as of hwsim.formats.round_to; for RA, RO and SR, "ieee" is as for RNE.
        nan: "quiet", or "zero" (the only one that formats without NaN take, where there is a NaN).
        seed: of stochastic rounding.
        out: an array of that shape and dtype, any strides, filled and returned.

    Raises:
        InputError: values, names or arrays that are not allowed.
    """
    fmt = format_of(format)
    x = _floats(values)
    if rounding not in ALL_ROUNDINGS:
        allowed = ", ".join(ALL_ROUNDINGS)
        raise InputError(f"rounding {rounding!r}; allowed: {allowed}{nearest(rounding, ALL_ROUNDINGS)}")
    if (rounding == "SR") != (seed is not None):
        raise InputError(f"rounding {rounding!r}, seed {seed}: SR needs a seed, the others take none")
    if rounding in EXTRA_ROUNDINGS:
        x, rounding = _on_grid(x, fmt, rounding, seed), "RNE"
    return _into(out, CPU.encode(x, fmt, rounding, overflow, nan=nan), "out")


def round(
    values: Any,
    format: str,
    *,
    rounding: str = "RNE",
    overflow: str = "ieee",
    nan: str = "quiet",
    seed: int | None = None,
    out: AnyArray | None = None,
    dtype: DTypeLike | None = None,
) -> AnyArray:
    """Values rounded to the format, as values: `decode` of `encode`, with the options, dtypes and errors of both."""
    codes = encode(values, format, rounding=rounding, overflow=overflow, nan=nan, seed=seed)
    return decode(codes, format, out=out, dtype=dtype)


def describe(format: str) -> dict[str, Any]:
    """Fields and limits of a format by name; limits are exact Python floats or integers. Raises InputError."""
    fmt = format_of(format)
    largest = decode(np.asarray(fmt.largest_code(), code_dtype(fmt)), format).item()
    return {
        "name": fmt.name,
        "bits": fmt.bits,
        "exponent_bits": fmt.exponent_bits,
        "fraction_bits": fmt.fraction_bits,
        "unused_bits": 0 if fmt.is_integer else fmt.bits - fmt.signed - fmt.magnitude_bits,  # of a code; not read
        "bias": fmt.bias,
        "signed": fmt.signed,
        "infinity": fmt.has_infinity,
        "nan": fmt.nan,
        "subnormals": fmt.subnormals and not fmt.is_integer,
        "largest": largest,
        "least_positive": 1 if fmt.is_integer else 2.0 ** (fmt.min_exponent - fmt.fraction_bits),
        "code_dtype": str(code_dtype(fmt)),
        "dtype": str(array_dtype(fmt)),
    }


def _native(array: Any) -> AnyArray:
    x = given_array("the array", array)
    return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))


def _floats(array: Any) -> AnyArray:
    """The values as float32 or float64, exactly."""
    x = _native(array)
    if x.dtype in (np.float32, np.float64):
        return x
    if x.dtype.kind in "iu":
        wide = x.astype(np.float64)
        magnitudes = np.abs(wide)
        if x.dtype.itemsize == 8 and magnitudes.size and magnitudes.max() > EXACT_IN_FP64:
            raise InputError(f"values: {x.dtype} beyond 2^53; allowed: integers that float64 holds exactly")
        return wide
    if x.dtype == np.float16 or x.dtype.name.startswith(("bfloat", "float8", "float6", "float4", "int4", "uint4")):
        return x.astype(np.float32)
    raise InputError(f"values has dtype {x.dtype}; allowed: float16, float32, float64, an ml_dtypes float, or integers")


def _on_grid(array: AnyArray, fmt: Format, rounding: str, seed: int | None) -> AnyArray:
    """Each finite value moved to a neighbour in the format, in float64; every step is exact."""
    x = array.astype(np.float64)
    if fmt.name == "fp64":
        return x
    is_finite = np.isfinite(x)
    magnitude = np.where(is_finite, np.abs(x), 0.0)
    least = 0 if fmt.is_integer else fmt.min_exponent
    exponent = np.zeros_like(x, np.int64) if fmt.is_integer else np.maximum(np.frexp(magnitude)[1] - 1, least)
    place = exponent - (0 if fmt.is_integer else fmt.fraction_bits)
    scaled = np.ldexp(magnitude, -place)
    low = np.floor(scaled)
    rest = scaled - low
    if rounding == "RA":
        is_up = rest > 0
    elif rounding == "RO":
        is_up = (rest > 0) & (np.fmod(low, 2) == 0)
    else:
        is_up = np.random.default_rng(seed).random(x.shape) < rest
    whole = low + is_up
    if not fmt.subnormals:
        whole = np.where(magnitude > 0, np.maximum(whole, 1), whole)
    moved = np.copysign(np.ldexp(whole, place), x)
    is_left = ~is_finite if fmt.signed or fmt.is_integer else ~is_finite | (x < 0)
    return np.asarray(np.where(is_left, x, moved))


def _into(out: AnyArray | None, result: AnyArray, name: str) -> AnyArray:
    if out is None:
        return result
    if not isinstance(out, np.ndarray) or out.shape != result.shape or out.dtype != result.dtype:
        got = f"{out.dtype} {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise InputError(f"{name} is {got}; allowed: an array of {result.dtype}, shape {result.shape}")
    if not out.flags.writeable:
        raise InputError(f"{name} is read-only; give an array that can be written")
    out[...] = result
    return out
