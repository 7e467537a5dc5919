"""Elementwise arithmetic beside the matrix unit, on arrays of values: what promotion, merges and epilogues use.

Each operation rounds once, to nearest even, in the working type. Infinities and NaNs follow the device: a saturating
vector unit has neither (Ascend 910A); elsewhere IEEE, and a NaN gets the code that the matrix unit gives, or the
format's default one. It knows no plan and no schedule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim._kernels import gemm
from hwsim._kernels.convert import decode, encode
from hwsim.formats import Format, code_dtype, format_of
from hwsim.machine.vector import VectorUnit
from hwsim.numerics.units import DotSpec, FmaChainUnit, IntegerUnit

if TYPE_CHECKING:
    from hwsim.devices.model import Device

Array = NDArray[Any]


class Lanes:
    """The elementwise lanes of `device` that take the results of a unit with the formats and specials of `spec`.

    dtype: the working type: float64 and int32 (wrapping) for units that give those, else float32.
    """

    def __init__(self, device: Device, spec: DotSpec) -> None:
        vector = VectorUnit(device.vector)
        self.saturates, self._overflow, self._nan = vector.saturates, vector.overflow, vector.nan
        self.result = format_of(spec.d)
        self.dtype = np.dtype({"fp64": "float64", "int32": "int32"}.get(spec.d, "float32"))
        code = None if isinstance(spec.unit, IntegerUnit) else spec.unit.specials.nan_code
        # PTX: single and half precision instructions give one NaN, all ones but for the sign.
        self.all_ones = code is not None and code == (1 << (self.result.bits - 1)) - 1

    def load(self, codes: Array) -> Array:
        """Values of the unit's results, in the working type (exact)."""
        if codes.dtype.itemsize == self.dtype.itemsize:
            return self._settle(codes.view(self.dtype))
        return self._settle(decode(codes, self.result, np.float32))

    def values(self, codes: Array, fmt: Format) -> Array:
        """Values of codes of any float format, rounded to the working type if they do not fit it."""
        if fmt.is_integer and self.dtype.kind == "i":
            return decode(codes, fmt, np.float64).astype(np.int32)
        wide = np.float64 if self.dtype.itemsize == 8 or fmt.bits > 32 or fmt.name == "int32" else np.float32
        return self._settle(decode(codes, fmt, wide).astype(self.dtype))

    def zeros(self, shape: tuple[int, ...]) -> Array:
        """Sums that start at +0."""
        return np.zeros(shape, self.dtype)

    def add(self, left: Array, right: Array) -> Array:
        """left + right."""
        return self._settle(left + right)

    def multiply(self, factor: float, values: Array) -> Array:
        """factor * values, `factor` rounded to the working type first."""
        return self._settle(self.dtype.type(factor) * values)

    def fused(self, factor: float, values: Array, addend: Array) -> Array:
        """factor * values + addend, rounded once."""
        fmt = format_of("fp64" if self.dtype.itemsize == 8 else "fp32")
        spec = DotSpec(FmaChainUnit(), fmt.name, fmt.name, fmt.name, fmt.name)
        codes = code_dtype(fmt)
        column = np.ascontiguousarray(values).reshape(-1, 1).view(codes)
        start = np.ascontiguousarray(addend).reshape(-1, 1).view(codes)
        done = gemm(spec, column, np.full((1, 1), factor, self.dtype).view(codes), start)
        return self._settle(done.view(self.dtype).reshape(values.shape))

    def rounded(self, values: Array, fmt: Format) -> Array:
        """values rounded to a format that holds fewer, in the type they had."""
        return self._settle(self._exactly(self.store(values, fmt, "RNE"), fmt, values.dtype))

    def store(self, values: Array, fmt: Format, rounding: str, threads: int = 1) -> Array:
        """Codes of values in a format, rounded once."""
        dtype = code_dtype(fmt)
        if values.dtype.name == fmt.dtype_name and not fmt.ignored_bits:
            return np.ascontiguousarray(values).view(dtype)
        if values.dtype.kind == "i":
            values = values.astype(np.float64)
        codes = encode(values, fmt, rounding, self._overflow, nan=self._nan, threads=threads)
        if self.all_ones and fmt.nan == "ieee" and fmt.signed:
            is_nan = np.isnan(values)
            if is_nan.any():
                codes[is_nan] = ((1 << (fmt.bits - 1)) - 1) >> fmt.ignored_bits << fmt.ignored_bits
        return codes

    @staticmethod
    def _exactly(codes: Array, fmt: Format, dtype: np.dtype[Any]) -> Array:
        return decode(codes, fmt, np.float64).astype(dtype)

    def _settle(self, values: Array) -> Array:
        """The device's infinities and NaNs in place of NumPy's."""
        if values.dtype.kind == "i":
            return values
        finite = np.isfinite(values)
        if finite.all():
            return values
        if self.saturates:
            top = np.finfo(values.dtype).max
            return np.where(np.isnan(values), values.dtype.type(0), np.clip(values, -top, top))
        is_nan = np.isnan(values)
        if is_nan.any():
            width = values.dtype.itemsize * 8
            quiet = (
                (1 << (width - 1)) - 1 if self.all_ones else int(np.array(np.nan, values.dtype).view(f"u{width // 8}"))
            )
            values = values.copy()
            values.view(f"u{width // 8}")[is_nan] = quiet
        return values
