"""`hwsim.mufu`: NVIDIA's special functions and CUDA's functions on top, by name, of an array.

It knows names and dtypes; no table and no range reduction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.cuda_functions import cosf, erff, sinf, tanhf
from hwsim.arithmetic.cuda_math import CudaMath
from hwsim.backend.environment import in_default_environment
from hwsim.devices import load
from hwsim.devices.special_functions import lacking, narrow_forms, special_functions
from hwsim.errors import InputError, UnsupportedError, nearest
from hwsim.host.arrays import given_array
from hwsim.numerics import special_functions as unit

if TYPE_CHECKING:
    from hwsim.devices.device import Device

OfSingles = Callable[[CudaMath, Any], NDArray[np.float32]]
#: PTX's instructions without .ftz, where they differ.
SCALED: Mapping[str, OfSingles] = {
    "ex2.approx.f32": CudaMath.exp2f,
    "rcp.approx.f32": CudaMath.rcp,
    "rsqrt.approx.f32": CudaMath.rsqrtf,
    "sqrt.approx.f32": CudaMath.sqrt,
    "lg2.approx.f32": CudaMath.lg2,
}
CUDA: Mapping[str, OfSingles] = {
    "expf": CudaMath.expf,
    "exp2f": CudaMath.exp2f,
    "rsqrtf": CudaMath.rsqrtf,
    "logf": CudaMath.logf,
    "tanhf": tanhf,
    "erff": erff,
    "sinf": sinf,
    "cosf": cosf,
    "__expf": CudaMath.short_expf,
    "__logf": CudaMath.short_logf,
}
#: By nvcc's -use_fast_math.
FAST: Mapping[str, OfSingles] = {
    "expf": CudaMath.fast_expf,
    "exp2f": CudaMath.ex2,
    "logf": CudaMath.fast_logf,
    "__expf": CudaMath.fast_expf,
    "__logf": CudaMath.fast_logf,
}
#: Functions that are an instruction of the unit.
SAME: Mapping[str, str] = {"__sinf": "sin", "__cosf": "cos"}
FAST_SAME: Mapping[str, str] = {**SAME, "rsqrtf": "rsqrt", "sinf": "sin", "cosf": "cos"}
NARROW = ("ex2.approx.f16", "ex2.approx.ftz.bf16", "tanh.approx.f16", "tanh.approx.bf16")
IN_CUDA = (*CUDA, *SAME)
WITH_FAST = tuple(name for name in IN_CUDA if name in FAST or name in FAST_SAME)  # whose fast form is known
NAMES = (*unit.FUNCTIONS, *SCALED, *NARROW, *IN_CUDA)


@in_default_environment
def mufu(
    name: str,
    x: NDArray[Any],
    device: str | Path | Mapping[str, Any] | Device = "h100",
    *,
    fast_math: bool = False,
) -> NDArray[Any]:
    """A special function of NVIDIA's unit (MUFU), or a function of CUDA on top of it, to the bit.

    "ex2" (2^x), "rcp" (1/x), "rsqrt" (1/sqrt(x)), "sqrt", "lg2" (log2(x)), "tanh", "sin" and "cos" are PTX's
    `.approx.ftz.f32` (`tanh.approx.f32`, which keeps subnormals): subnormal arguments and results count as zero.
    "ex2.approx.f32" and so on are PTX's instructions without `.ftz`, which scale around the unit. "ex2.approx.f16",
    "ex2.approx.ftz.bf16", "tanh.approx.f16" and "tanh.approx.bf16" are its instructions of 16 bits. "expf", "exp2f",
    "rsqrtf", "logf", "tanhf", "erff", "sinf", "cosf", "__expf", "__logf", "__sinf" and "__cosf" are CUDA's, as nvcc
    compiles them. Every NaN of the result is 0x7FFFFFFF, or 0x7FFF.

    Args:
        name: of the function.
        x: of any shape: float32 values, or uint32 codes of them. Of instructions of 16 bits: float16 or
            ml_dtypes.bfloat16 values, or uint16 codes.
        device: a name, the path of a YAML file, a mapping of that shape, or a Device.
        fast_math: CUDA's function as nvcc's -use_fast_math compiles it.

    Returns:
        An array of the shape and dtype of x: values for values, codes for codes.

    Raises:
        InputError: another name, another dtype; fast_math of an instruction.
        UnsupportedError: a chip whose functions are not known, or that has no such instruction.

    Source: configs/special_functions/mufu.yaml (the tables, with source and evidence). All 2^32 results of each
    function were compared with an H200's (CUDA 13.0, 2026-11-28), and none differs: tests/golden/h200_mufu. Of tanhf,
    erff, sinf and cosf a sample and some blocks of 2^20 were: tests/golden/h200_pytorch. That other chips have these
    tables is an assumption. `hwsim.devices.special_functions.tables_evidence(device, ["ex2"])` says the level of an
    instruction.
    """
    chip = load(device)
    tables = special_functions(chip)
    if name not in NAMES:
        raise InputError(f"mufu: {name!r} is no function; there are {', '.join(NAMES)}{nearest(str(name), NAMES)}")
    if fast_math and name not in WITH_FAST:
        what = "has no known fast form" if name in IN_CUDA else "is an instruction"
        raise InputError(f"mufu: {name} {what}; fast_math is of {', '.join(WITH_FAST)}; leave it out")
    values = given_array("x", x)
    if name in NARROW:
        return _narrow(name, values, chip)
    if values.dtype not in (np.float32, np.uint32):
        raise InputError(
            f"mufu: x has dtype {values.dtype}; allowed: float32 (values), uint32 (codes of them); "
            "convert it, as x.astype(np.float32)"
        )
    codes = np.ascontiguousarray(values).reshape(-1).view(np.uint32)
    function = _of_codes(name, tables, chip, fast_math=fast_math)
    result = np.empty_like(codes)
    with np.errstate(all="ignore"):
        for first in range(0, len(codes), unit.PART):
            result[first : first + unit.PART] = function(codes[first : first + unit.PART])
    return result.view(values.dtype).reshape(values.shape)


def _of_codes(
    name: str, tables: unit.Tables, device: Device, *, fast_math: bool = False
) -> Callable[[unit.WordArray], unit.WordArray]:
    """The function of fp32 codes."""
    name = (FAST_SAME if fast_math else SAME).get(name, name)
    if name in unit.FUNCTIONS:
        if unit.TABLE_OF[name] not in tables:
            raise UnsupportedError(f"device {device.name}: mufu: {lacking(device, name)}")
        instruction = unit.FUNCTIONS[name]
        return lambda codes: instruction(codes, tables)
    math = CudaMath(tables)
    function = (FAST if fast_math else {**SCALED, **CUDA})[name]
    return lambda codes: _quiet(function(math, codes.view(np.float32)))


def _quiet(values: NDArray[np.float32]) -> unit.WordArray:
    """Codes, with NVIDIA's NaN for each NaN."""
    return np.where(np.isnan(values), np.uint32(unit.NAN), np.ascontiguousarray(values).view(np.uint32))


def _narrow(name: str, values: NDArray[Any], device: Device) -> NDArray[Any]:
    """An instruction of 16 bits: of all codes, of which the given ones are taken."""
    form = narrow_forms(device).get(name)
    if form is None:
        raise UnsupportedError(f"device {device.name}: mufu: {lacking(device, name)}")
    allowed = {"f16": "float16", "bf16": "bfloat16"}[form.format]
    if values.dtype.name not in (allowed, "uint16"):
        raise InputError(
            f"mufu: {name}: x has dtype {values.dtype}; allowed: {allowed} (values), uint16 (codes of them); "
            f"convert it, as x.astype({allowed})"
        )
    every = unit.narrow(form.function, form.format, special_functions(device))
    return every[np.ascontiguousarray(values).view(np.uint16)].view(values.dtype)
