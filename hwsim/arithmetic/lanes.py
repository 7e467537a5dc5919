"""Elementwise arithmetic outside the matrix unit, on arrays of values, as used by promotion, merges and epilogues.

Each operation rounds once, to nearest even, in the working type. Infinities and NaNs follow the device: a saturating
vector unit has neither (Ascend 910A); elsewhere IEEE, and a NaN gets the code that the matrix unit gives, or the
format's default one. Operations on a whole array take one pass over memory (`Backend.combine`). The module knows a
device's rules and a backend; it knows no plan and no schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.vector import VectorUnit, gives_all_ones, widened
from hwsim.backend.arrays import in_c_order
from hwsim.formats import Format, code_dtype, format_of
from hwsim.host.threads import for_elements
from hwsim.numerics.units import DotSpec, IntegerUnit

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend, LaneStep
    from hwsim.devices.device import Device

AnyArray = NDArray[Any]
LOAD: tuple[LaneStep, ...] = (("load", 0),)
ADD: tuple[LaneStep, ...] = (("load", 0), ("load", 1), ("add",))


class AdditionSpecials(NamedTuple):
    """Special values in an addition: whether infinities and NaNs saturate, and the code of a NaN result."""

    saturate: bool
    nan_code: int


class Lanes:
    """The elementwise lanes of `device`, working on the results of a dot unit with the formats and special values of
    `spec`.

    dtype: the working type: float64 and int32 (wrapping) for units that give those, else float32. backend: computes the
    bits. nan_of: the unit whose NaN they give (None: `spec`).
    """

    def __init__(self, device: Device, spec: DotSpec, backend: Backend, nan_of: DotSpec | None = None) -> None:
        self.backend = backend
        self.all_ones = gives_all_ones(spec if nan_of is None else nan_of)
        vector = VectorUnit(device.vector, backend, self.all_ones)
        self.saturates, self._overflow, self._nan = vector.saturates, vector.overflow, vector.nan
        self.result = format_of(spec.d)
        self.dtype = np.dtype({"fp64": "float64", "int32": "int32"}.get(spec.d, "float32"))
        # Whether the unit's own infinities and NaNs are these lanes' already, so that loading changes none.
        specials = None if isinstance(spec.unit, IntegerUnit) else spec.unit.specials
        self._is_alike = (
            specials is not None
            and not self.saturates
            and getattr(spec.unit, "nan_order", None) is None
            and self.dtype.kind == "f"
            and specials.nan_code == self.nan_code(self.dtype)
        )

    def load(self, codes: AnyArray, threads: int = 1, *, from_unit: bool = False) -> AnyArray:
        """The values of codes in the unit's result format, in the working type (exact). from_unit: it gave them."""
        if codes.dtype.itemsize == self.dtype.itemsize:
            values = codes.view(self.dtype)
            return values if from_unit and self._is_alike else self._settle(values, threads)
        return self._settle(self.backend.decode(codes, self.result, np.float32), threads)

    def values(self, codes: AnyArray, fmt: Format) -> AnyArray:
        """The values of codes of a format, rounded to the working type where it is narrower (int32: it saturates)."""
        if self.dtype.kind == "i":
            values: AnyArray = self.backend.encode(self.backend.decode(codes, fmt, np.float64), format_of("int32"))
            return values.view(np.int32)
        wide = np.float64 if self.dtype.itemsize == 8 or fmt.bits > 32 or fmt.name == "int32" else np.float32
        return self._settle(self.backend.decode(codes, fmt, wide).astype(self.dtype))

    def zeros(self, shape: tuple[int, ...]) -> AnyArray:
        """An array of +0, to start a sum from."""
        return self.backend.zeros(shape, self.dtype)

    def combine(
        self, operands: Sequence[AnyArray], steps: Sequence[LaneStep], *, out: AnyArray | None = None, threads: int = 1
    ) -> AnyArray:
        """Evaluate a sequence of elementwise steps (`Backend.combine`) in a float working type, in one pass.

        out: filled and returned; may be one of the operands. The bits equal those of separate `add`, `multiply`,
        `fused` calls.
        """
        return self.backend.combine(
            operands,
            steps,
            self.dtype,
            saturate=self.saturates,
            nan_code=self.nan_code(self.dtype),
            out=out,
            threads=for_elements(threads, operands[0].size),
        )

    def add(self, left: AnyArray, right: AnyArray, *, out: AnyArray | None = None, threads: int = 1) -> AnyArray:
        """The sum left + right, both of one type; out (may be either operand) is filled and returned."""
        dtype = np.result_type(left, right)
        if dtype.kind == "i":
            total: AnyArray = np.add(left, right, out=out)
            return total
        nan_code = self.nan_code(dtype)
        count = for_elements(threads, left.size)
        return self.backend.combine(
            (left, right), ADD, dtype, saturate=self.saturates, nan_code=nan_code, out=out, threads=count
        )

    def multiply(self, factor: float, values: AnyArray, *, out: AnyArray | None = None, threads: int = 1) -> AnyArray:
        """The product factor * values; `factor` is rounded to the working type first."""
        if values.dtype.kind == "i":
            product: AnyArray = np.multiply(self.dtype.type(factor), values, out=out)
            return product
        return self.combine((values,), (("load", 0), ("scale", factor)), out=out, threads=threads)

    def fused(
        self, factor: float, values: AnyArray, addend: AnyArray, *, out: AnyArray | None = None, threads: int = 1
    ) -> AnyArray:
        """The fused multiply-add factor * values + addend, rounded once."""
        return self.combine((values, addend), (("load", 0), ("load", 1), ("fused", factor)), out=out, threads=threads)

    def rounded(self, values: AnyArray, fmt: Format) -> AnyArray:
        """The values rounded to a narrower format, in their own dtype."""
        return self._settle(self._exactly(self.store(values, fmt, "RNE"), fmt, values.dtype))

    def store(self, values: AnyArray, fmt: Format, rounding: str, threads: int = 1) -> AnyArray:
        """The codes of values in a format, rounded once; fp32 values become fp64 as they are, the lanes' NaN too."""
        dtype = code_dtype(fmt)
        if _holds(values.dtype, fmt):
            return in_c_order(values).view(dtype)
        if values.dtype == np.float32 and fmt.name == "fp64" and not self.saturates:
            return widened(self._settle(values, threads))
        if values.dtype.kind == "i":
            values = values.astype(np.float64)
        count = for_elements(threads, values.size)
        return self.backend.encode(values, fmt, rounding, self._overflow, nan=self._nan, threads=count)

    def _exactly(self, codes: AnyArray, fmt: Format, dtype: np.dtype[Any]) -> AnyArray:
        return self.backend.decode(codes, fmt, np.float64).astype(dtype)

    def nan_code(self, dtype: np.dtype[Any]) -> int:
        """The code of every NaN result in a float dtype."""
        width = dtype.itemsize * 8
        return (1 << (width - 1)) - 1 if self.all_ones else int(np.array(np.nan, dtype).view(f"u{width // 8}"))

    def _settle(self, values: AnyArray, threads: int = 1) -> AnyArray:
        """Replace IEEE's infinities and NaNs by the device's: returns `values` itself where there are none."""
        if values.dtype.kind == "i" or not self._has_special(values, threads):
            return values
        nan_code = self.nan_code(values.dtype)
        return self.backend.combine(
            (values,), LOAD, values.dtype, saturate=self.saturates, nan_code=nan_code, threads=threads
        )

    def _has_special(self, values: AnyArray, threads: int = 1) -> bool:
        """Whether an element of a float array is an infinity or a NaN."""
        matrix = values if values.ndim == 2 else values.reshape(1, -1)
        return bool(self.backend.specials(matrix, threads=for_elements(threads, values.size))[0].any())


@cache
def _holds(dtype: np.dtype[Any], fmt: Format) -> bool:
    """Whether arrays of the dtype hold the format's codes."""
    return dtype.name == fmt.dtype_name and not fmt.ignored_bits
