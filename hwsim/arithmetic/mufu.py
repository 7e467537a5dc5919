"""`hwsim.mufu`: NVIDIA's special functions and CUDA's functions on top, by name, of an array.

It knows names and dtypes; no table and no range reduction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.cuda_math import CudaMath
from hwsim.backend.environment import in_default_environment
from hwsim.devices import load
from hwsim.devices.special_functions import special_functions
from hwsim.errors import InputError, UnsupportedError, nearest
from hwsim.host.arrays import given_array
from hwsim.numerics import special_functions as unit

if TYPE_CHECKING:
    from hwsim.devices.device import Device

CHUNK = 1 << 18  # elements at once, whose intermediates stay in caches
CUDA: Mapping[str, Callable[[CudaMath, Any], NDArray[np.float32]]] = {
    "expf": CudaMath.expf,
    "exp2f": CudaMath.exp2f,
    "logf": CudaMath.logf,
    "__logf": CudaMath.fast_logf,
}
NAMES = (*unit.FUNCTIONS, *CUDA)
WITHOUT_TABLE = ("sin", "cos", "tanh", "sqrt")


@in_default_environment
def mufu(name: str, x: NDArray[Any], device: str | Path | Mapping[str, Any] | Device = "h100") -> NDArray[Any]:
    """A special function of NVIDIA's unit (MUFU), or a function of CUDA on top of it, to the bit.

    PTX's `ex2`, `rcp`, `rsqrt` and `lg2` are `.approx.ftz.f32`: subnormal arguments and results count as zero. CUDA's
    `expf`, `exp2f` and `logf` are what nvcc compiles by default; `__logf` is `lg2` times the logarithm of 2. Every NaN
    is 0x7FFFFFFF.

    Args:
        name: "ex2" (2^x), "rcp" (1/x), "rsqrt" (1/sqrt(x)), "lg2" (log2(x)); "expf", "exp2f", "logf", "__logf".
        x: of any shape: float32 values, or uint32 codes of them.
        device: a name, the path of a YAML file, a mapping of that shape, or a Device.

    Returns:
        An array of the shape and dtype of x: values for values, codes for codes.

    Raises:
        InputError: another name, another dtype.
        UnsupportedError: a function of the unit whose table is not known; a chip whose functions are not known.

    Source: configs/special_functions/mufu.yaml (the tables, with source and evidence), found on a G80. Results of an
    H100 confirm `ex2` and `rcp`; that it has the other two tables, and that other chips have any, is an assumption.
    `hwsim.devices.special_functions.tables_evidence(device, names)` says the level. CUDA's functions: libdevice of
    CUDA 12.8.
    """
    tables = special_functions(load(device))
    if name not in NAMES:
        raise _unknown(name)
    values = given_array("x", x)
    if values.dtype not in (np.float32, np.uint32):
        raise InputError(
            f"mufu: x has dtype {values.dtype}; allowed: float32 (values), uint32 (codes of them); "
            "convert it, as x.astype(np.float32)"
        )
    math = CudaMath(tables)
    codes = np.ascontiguousarray(values).reshape(-1).view(np.uint32)
    result = np.empty_like(codes)
    with np.errstate(all="ignore"):
        for first in range(0, len(codes), CHUNK):
            part = codes[first : first + CHUNK]
            if name in CUDA:
                result[first : first + CHUNK] = _quiet(CUDA[name](math, part.view(np.float32)))
            else:
                result[first : first + CHUNK] = unit.FUNCTIONS[name](part, tables)
    return result.view(values.dtype).reshape(values.shape)


def _quiet(values: NDArray[np.float32]) -> unit.WordArray:
    """Codes, with NVIDIA's NaN for each NaN."""
    return np.where(np.isnan(values), np.uint32(unit.NAN), np.ascontiguousarray(values).view(np.uint32))


def _unknown(name: str) -> InputError | UnsupportedError:
    there = f"there are {', '.join(NAMES)}"
    if name in WITHOUT_TABLE:
        return UnsupportedError(f"mufu: the unit's {name} is not known to the bit; {there}")
    return InputError(f"mufu: {name!r} is no function; {there}{nearest(str(name), NAMES)}")
