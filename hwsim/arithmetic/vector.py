"""Elementwise instructions of programs on arrays of codes, with a device's rules for infinities, NaNs and overflow.

Lanes of fp32 and fp64: add, sub, mul, scale, ldexp, fma, add_row round to nearest even. Those of a softmax are in
hwsim.arithmetic.softmax_lanes. Those of integers wrap
(hwsim.arithmetic.integer_lanes). A saturating unit (Ascend 910A) reads
an infinity as the largest finite value and a NaN as zero, and gives neither (hwsim.numerics.units.Specials). Elsewhere
a NaN gets one code: all ones but for the sign on NVIDIA (PTX, for single and half precision), else the format's default
one. fp64 lanes give the default NaN everywhere, and conversions from fp64 do too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic import integer_lanes
from hwsim.arithmetic.integer_lanes import differing_axes, integers
from hwsim.arithmetic.residue_places import places_of_largest, places_of_squares
from hwsim.arithmetic.residues import residues
from hwsim.arithmetic.rounded_once import multiply_add, raised_whole
from hwsim.arithmetic.rounded_up import added_up, product_added_up
from hwsim.arithmetic.softmax_lanes import OPCODES, SoftmaxLanes
from hwsim.backend.arrays import in_c_order
from hwsim.formats import Format, format_of
from hwsim.numerics.units import IntegerUnit
from hwsim.program.ir import Instr

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend, LaneStep
    from hwsim.devices.model import VectorModel
    from hwsim.numerics.special_functions import Tables
    from hwsim.numerics.units import DotSpec

Codes = NDArray[Any]
AnyArray = NDArray[Any]  # of float32 or float64
BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "add_row": np.add}
LOAD: LaneStep = ("load", 0)
SATURATING: dict[str, tuple[LaneStep, ...]] = {
    "add": (LOAD, ("load", 1), ("add",)),
    "sub": (LOAD, ("load", 1), ("subtract",)),
    "mul": (LOAD, ("load", 1), ("times",)),
    "add_row": (LOAD, ("load", 1), ("add",)),
}


FORMATS_OF_LANES = {"f": "fp32", "d": "fp64"}  # by the char of a dtype: its name takes as long as an instruction


def dtype_of(fmt: Format) -> np.dtype[Any]:
    """The float dtype in which the lanes read a format."""
    return np.dtype(np.float64 if fmt.name == "fp64" else np.float32)


def gives_all_ones(spec: DotSpec) -> bool:
    """Whether NaN results of a matrix unit, and of the lanes beside it, have all bits but the sign set."""
    code = None if isinstance(spec.unit, IntegerUnit) else spec.unit.specials.nan_code
    return code is not None and code == (1 << (format_of(spec.d).bits - 1)) - 1


def saturates(model: VectorModel | None) -> bool:
    """Whether elementwise lanes give the largest finite value in place of infinities (None: IEEE's do not)."""
    return model is not None and model.specials.overflow == "saturate"


class VectorUnit:
    """Executes elementwise instructions; `model` None: a unit with IEEE special values. backend: computes the bits.
    all_ones: as `gives_all_ones`. tables: gives those of the special functions of programs that have some.
    """

    def __init__(
        self,
        model: VectorModel | None,
        backend: Backend,
        all_ones: bool = False,
        tables: Callable[[], Tables] | None = None,
    ) -> None:
        self.backend = backend
        self.softmax = SoftmaxLanes(tables or dict)
        self.all_ones = all_ones
        self.saturates = saturates(model)
        self.overflow = "saturate" if self.saturates else "ieee"
        is_zero = model is not None and model.specials.operands == "saturate"
        #: Of conversions from fp32, in the words of `encode`.
        self.nan: Literal["zero", "all-ones", "quiet"] = "zero" if is_zero else "all-ones" if all_ones else "quiet"

    def execute(
        self,
        instr: Instr,
        target: tuple[Codes, Format],
        sources: list[tuple[Codes, Format]],
        reduced: tuple[int, ...] | None = None,
    ) -> None:
        """Execute `instr` and write its result to the codes of `target`.

        reduced: the axes along which a reduction goes, () where its tiles have one element along them (None: those in
        which source and target differ in size).
        """
        codes, fmt = target
        if instr.opcode == "copy":
            codes[...] = sources[0][0]
            return
        if instr.opcode == "fill":
            codes[...] = self._code(instr.scalar, fmt) if instr.scalar or np.signbit(instr.scalar) else 0
            return
        if instr.opcode == "remainder":
            source = self._values(*sources[0], dtype_of(sources[0][1])) if not sources[0][1].is_integer else None
            numbers = integers(*sources[0]) if source is None else self.settled(source)
            codes[...] = residues(numbers, instr.scale_exponent).astype(fmt.dtype_name).view(codes.dtype)
            return
        if integer_lanes.is_of_integers(target, sources):
            integer_lanes.execute(instr, target, sources, reduced)
            return
        dtype = np.dtype(np.float64 if "fp64" in (fmt.name, *(source.name for _, source in sources)) else np.float32)
        if instr.opcode == "cast":
            source_format = sources[0][1]
            if source_format.is_integer:  # rounded once: fp64 holds what is not for fp32
                value = integers(*sources[0]).astype(np.float32 if fmt.name == "fp32" else np.float64)
                codes[...] = self._store(value, fmt, instr.rounding, instr.overflow)
                return
            is_exact = source_format.name != "fp64"  # in fp32, from which fp64 is made as it is
            value = self._values(*sources[0], np.dtype(np.float32) if is_exact else dtype)
            codes[...] = self._store(self.settled(value), fmt, instr.rounding, instr.overflow)
            return
        if instr.opcode == "ldexp":
            exponents = integers(*sources[1]) * int(instr.scalar) - instr.scale_exponent
            source_format = sources[0][1]
            if source_format.is_integer and source_format.bits > format_of(FORMATS_OF_LANES[dtype.char]).precision:
                raised = self._ieee_or_largest(raised_whole(integers(*sources[0]), exponents, dtype))
            else:
                raised = self._raised(self._values(*sources[0], dtype), exponents)
            codes[...] = self._store(raised, fmt, "RNE")
            return
        if instr.opcode in OPCODES:
            operands = [integers(*x) if x[1].is_integer else self._values(*x, dtype) for x in sources]
            codes[...] = self._store(self._one_nan(self.softmax.execute(instr, operands, reduced)), fmt, "RNE")
            return
        values = [self._values(*source, dtype) for source in sources]
        if instr.opcode == "exponent":
            codes[...] = np.frexp(values[0])[1].astype(np.int32).view(codes.dtype)
            return
        if instr.opcode == "places":
            rule = places_of_largest if instr.scale_exponent else places_of_squares
            codes[...] = rule(values[0], instr.scalar).astype(np.int32).view(codes.dtype)
            return
        if instr.opcode == "reduce_max":
            finite = np.where(np.isfinite(values[0]), np.abs(values[0]), dtype.type(0))
            axes = differing_axes(*values) if reduced is None else reduced
            largest = finite.max(axis=axes, keepdims=True)
            codes[...] = self._store(np.maximum(values[1], largest), fmt, "RNE")
            return
        if instr.opcode == "add" and instr.scale_exponent:
            values[0] = np.multiply(values[0], dtype.type(2.0**-instr.scale_exponent))
        if instr.opcode == "scale" and instr.scale_exponent:
            result = self._raised(values[0], -instr.scale_exponent)
        elif instr.has("multiplier"):
            left, right, multiplier = values
            function = product_added_up if instr.rounding == "RU" else multiply_add
            result = function(left, np.broadcast_to(multiplier, left.shape), right)
            result = self.settled(self._one_nan(result))
        elif instr.opcode == "add" and instr.rounding == "RU":
            result = self.settled(self._one_nan(added_up(*values)))
        elif instr.opcode == "fma":
            values[1] = in_c_order(np.broadcast_to(values[1], values[0].shape))
            steps: tuple[LaneStep, ...] = (LOAD, ("load", 1), ("fused", float(instr.scalar)))
            nan_code = int(np.asarray(self._nan_of(dtype)).view(f"u{dtype.itemsize}"))
            result = self.backend.combine(values, steps, dtype, saturate=self.saturates, nan_code=nan_code)
        elif self.saturates:
            steps = SATURATING.get(instr.opcode) or (LOAD, ("scale", float(instr.scalar)))
            result = self.backend.combine(values, steps, dtype, saturate=True)
        elif instr.opcode == "scale":
            result = self._one_nan(np.multiply(values[0], dtype.type(instr.scalar)))
        else:
            result = self._one_nan(BINARY[instr.opcode](*values))
        codes[...] = self._store(result, fmt, "RNE")

    def _raised(self, values: AnyArray, exponents: Codes | int) -> AnyArray:
        """The values times powers of two, each rounded once."""
        return self._ieee_or_largest(np.ldexp(values, exponents))

    def _ieee_or_largest(self, values: AnyArray) -> AnyArray:
        """Values as results of the unit: infinities are its largest numbers where it saturates, NaNs have one code."""
        if self.saturates:
            return self.backend.combine((values,), (LOAD,), values.dtype, saturate=True)
        return self._one_nan(values)

    def _code(self, scalar: float, fmt: Format) -> Codes | int:
        """The code of a number, as an array (1,) or an integer."""
        if fmt.is_integer:
            return integer_lanes.code_of(scalar, fmt)
        value = self.backend.empty((1,), np.float64)
        value[...] = scalar
        return self._store(value, fmt, "RNE")

    def _nan_of(self, dtype: np.dtype[Any]) -> Any:
        """The NaN that results have, in a float dtype: all ones of half and single precision alone, as PTX says."""
        if not self.all_ones or dtype == np.float64:
            return dtype.type(np.nan)
        return np.array((1 << (8 * dtype.itemsize - 1)) - 1, f"u{dtype.itemsize}").view(dtype)

    def _one_nan(self, values: AnyArray) -> AnyArray:
        """Replace every NaN by the device's; the host's would have its own sign and payload."""
        missing = np.isnan(values)
        return np.where(missing, self._nan_of(values.dtype), values) if missing.any() else values

    def settled(self, values: AnyArray) -> AnyArray:
        """Values with infinities and NaNs as the unit reads them: `values` itself where it keeps all."""
        matrix = values if values.ndim == 2 else values.reshape(1, -1)
        if self.saturates and self.backend.specials(matrix)[0].any():
            return self.backend.combine((values,), (LOAD,), values.dtype, saturate=True)
        return values

    def _store(self, values: AnyArray, fmt: Format, rounding: str, overflow: str | None = None) -> Codes:
        if fmt.name == FORMATS_OF_LANES.get(values.dtype.char):
            return in_c_order(values).view(f"u{values.dtype.itemsize}")
        if fmt.name == "fp64":
            return widened(values)
        nan = "quiet" if self.nan == "all-ones" and values.dtype == np.float64 else self.nan
        return self.backend.encode(values, fmt, rounding, overflow or self.overflow, nan=nan)

    def _values(self, codes: Codes, fmt: Format, dtype: np.dtype[Any]) -> AnyArray:
        """The values in a dtype; a NaN of fp16 keeps its sign and payload and is quiet, as an operand's NaN does."""
        if fmt.name == "fp16":
            with np.errstate(invalid="ignore"):  # signalling NaNs
                return codes.view(np.float16).astype(dtype)
        if fmt.is_integer:
            return integers(codes, fmt).astype(dtype)
        is_own = fmt.name == FORMATS_OF_LANES[dtype.char]
        return codes.view(dtype) if is_own else self.backend.decode(codes, fmt, dtype)


def widened(values: NDArray[np.floating[Any]]) -> NDArray[np.uint64]:
    """The codes of fp32 values in fp64; a NaN keeps its sign and payload and is quiet."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return values.astype(np.float64).view(np.uint64)
