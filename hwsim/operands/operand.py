"""Conversion of a caller's arrays to operands: codes of a number format.

The module knows formats and arrays; it knows no plan and no device.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.backend.by_name import backend_of
from hwsim.backend.cpu import CPU
from hwsim.errors import InputError
from hwsim.formats import FORMATS, Format, array_dtype, array_of, code_dtype, codes_of, format_of
from hwsim.host.arrays import given_array, is_of_a_backend

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.operands.scales import Scales

AnyArray = NDArray[Any]
TYPED = (
    "fp64",
    "fp32",
    "fp16",
    "bf16",
    "e4m3",
    "e5m2",
    "e4m3fnuz",
    "e5m2fnuz",
    "e3m2",
    "e2m3",
    "e2m1",
    "int16",
    "int8",
    "int4",
)
NARROW_BITS = 16
_OF_DTYPE = {array_dtype(FORMATS[name]): name for name in TYPED}
MATRIX = 2  # dimensions
WIDE_INTEGERS = ("int64", "int32")  # that fp32 does not hold
ALLOWED = (
    "float16, float32, float64, integers (those that are no format of the unit's are rounded to fp32), an ml_dtypes "
    "format, or codes: unsigned integers with input_format=, or of the width of a format= of 16 bits or fewer"
)


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A matrix, or a stack of matrices, as codes of a format (hwsim.formats).

    codes: (..., rows, columns), of the format's code dtype, any strides. format: its name. is_piece: finite values that
    were rounded to a plan's only piece already; each is the same through any wider format. scales: factors of its
    elements.
    """

    codes: AnyArray
    format: str
    is_piece: bool = False
    scales: Scales | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) of the matrix."""
        rows, columns = self.codes.shape[-2:]
        return int(rows), int(columns)

    @property
    def lead(self) -> tuple[int, ...]:
        """Leading dimensions of a stack."""
        return self.codes.shape[:-2]

    @property
    def array(self) -> AnyArray:
        """The codes viewed as an array of the format's own dtype."""
        return array_of(self.codes, format_of(self.format))

    def on(self, backend: Backend) -> Operand:
        """The operand with its codes, and the values of its scales, in arrays of the backend."""
        codes = backend.from_host(self.codes)
        scales = None if self.scales is None else self.scales.on(backend)
        return self if codes is self.codes and scales is self.scales else replace(self, codes=codes, scales=scales)

    def on_host(self) -> Operand:
        """The operand with its codes in a NumPy array."""
        of_backend: Any = self.codes
        return replace(self, codes=of_backend.get()) if is_of_a_backend(of_backend) else self

    def values(self, backend: Backend = CPU) -> AnyArray:
        """The values as float16, float32 or float64: the format's own dtype, or one that holds it exactly (int64 is
        rounded). backend: converts the codes.
        """
        if self.format in ("fp16", "fp32", "fp64"):
            return self.array
        if self.format in WIDE_INTEGERS:
            return self.array.astype(np.float64)
        return backend.decode(self.codes, format_of(self.format), np.float32)

    def picked(self, index: AnyArray, axis: int) -> Operand:
        """Some rows of an operand A, or some columns of an operand B, of one matrix. axis: of K, -1 or -2."""
        scales = None if self.scales is None else self.scales.picked(index)
        return replace(self, codes=self.codes[index] if axis == -1 else self.codes[:, index], scales=scales)

    def multiplied_values(self, axis: int) -> AnyArray:
        """The values times their factors, in float64. axis: of K, -1 or -2."""
        values = self.values()
        if self.scales is None:
            return values
        with np.errstate(all="ignore"):
            factors = self.scales.spread(self.codes.shape[axis])
            return np.asarray(values.astype(np.float64) * (factors if axis == -1 else factors.T))

    def fp32(self, backend: Backend = CPU) -> Operand:
        """The values as float32, rounded where the format holds more."""
        return self.converted("fp32", backend)

    def converted(self, name: str, backend: Backend = CPU) -> Operand:
        """The operand rounded to nearest even to another format; for integer formats values saturate and NaN becomes
        0. backend: converts the codes.
        """
        if self.format == name:
            return self
        fmt, values = format_of(name), self.values(backend)
        if name in ("fp32", "fp64"):
            with np.errstate(over="ignore", invalid="ignore"):  # signalling NaNs become quiet
                return Operand(values.astype(fmt.dtype_name).view(code_dtype(fmt)), name)
        wide = values.astype(np.float32) if values.dtype == np.float16 else values
        nan = "zero" if fmt.nan == "none" else "quiet"
        overflow = "saturate" if fmt.is_integer else "ieee"
        return Operand(backend.encode(wide, fmt, "RNE", overflow, nan=nan), name)


def operand(name: str, array_like: Any, *, input_format: str | None = None, format: str | None = None) -> Operand:
    """Convert what a caller passed for operand `name` ("A", "B") to an Operand: a matrix or a stack, typed or as codes.

    input_format: the elements' format; the array is of its dtype, or unsigned and as wide: codes. Without it, an
    unsigned array as wide as the codes of `format` (of 16 bits or fewer) holds codes of that; typed arrays are taken
    as what they are; other integers are rounded to fp32. Raises InputError for anything else.
    """
    if isinstance(array_like, str):
        raise InputError(f"{name} is the text {array_like!r}; allowed: a matrix; a name goes to device= or scheme=")
    x: AnyArray = given_array(name, array_like)
    if not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))
    if x.ndim < MATRIX:
        raise InputError(f"{name} has shape {x.shape}; allowed: a matrix (two dimensions), or a stack of them (more)")
    if input_format is not None:
        return Operand(_codes(name, x, format_of(input_format)), input_format)
    if x.dtype.kind == "u" and format is not None:
        fmt = format_of(format)
        if fmt.bits <= NARROW_BITS and x.dtype == code_dtype(fmt):
            return Operand(_codes(name, x, fmt), format)
    number_format = _OF_DTYPE.get(x.dtype)
    if number_format is not None:
        return Operand(_codes(name, x, FORMATS[number_format]), number_format)
    if x.dtype.kind in "iu":
        return Operand(x.astype(np.float32).view(np.uint32), "fp32")
    if x.dtype.kind == "V":
        raise InputError(
            f"{name} has dtype {x.dtype}: numpy.save does not keep the name of an ml_dtypes format; give the codes, "
            f"x.view(np.uint{8 * x.dtype.itemsize}), with input_format=, or the array with its dtype again"
        )
    raise InputError(f"{name} has dtype {x.dtype}; allowed: {ALLOWED}")


def _codes(name: str, x: AnyArray, fmt: Format) -> AnyArray:
    try:
        return codes_of(x, fmt)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def formats_in_memory(input_format: str) -> tuple[str, str]:
    """The formats of A and B that an input_format names: one for both, or two with a comma, A's first.

    Raises InputError for anything else.
    """
    names = [name.strip() for name in input_format.split(",")]
    if len(names) > len("AB"):
        raise InputError(
            f"input_format = {input_format!r}; allowed: one format, or A's and B's with a comma, as e4m3,e5m2"
        )
    for name in names:
        format_of(name)
    return names[0], names[-1]


def operand_pair(
    a: Any, b: Any, *, input_format: str | None = None, format: str | None = None, format_b: str | None = None
) -> tuple[Operand, Operand]:
    """A and B of a call as `operand` converts each. input_format: of both, or A's and B's with a comma.

    format, format_b: of A's and of B's operands in the unit; format_b None: as A's. Raises InputError as `operand`, and
    for codes of B of which one input_format and format_b say different things.
    """
    right = format_b or format
    if input_format is None:
        return operand("A", a, format=format), operand("B", b, format=right)
    in_memory = formats_in_memory(input_format)
    left = operand("A", a, input_format=in_memory[0])
    of_b = operand("B", b, input_format=in_memory[1])
    is_open = "," not in input_format and format_b not in (None, format, input_format)
    if is_open and given_array("B", b).dtype.kind == "u" and code_dtype(format_of(str(format_b))) == of_b.codes.dtype:
        raise InputError(
            f"B holds codes: input_format = {input_format!r} reads them as {input_format}, format_b = {format_b!r} "
            f"does not; give input_format = '{input_format},{format_b}' for codes of {format_b}, or "
            f"'{input_format},{input_format}' for codes of {input_format} that are rounded to {format_b}"
        )
    return left, of_b


def common_format(a: str, b: str) -> str:
    """The format that two operands are kept in: their own if equal, fp64 if either is fp64, otherwise fp32."""
    if a == b:
        return a
    return "fp64" if "fp64" in (a, b) else "fp32"


def to_common_format(a: Operand, b: Operand) -> tuple[Operand, Operand]:
    """Two operands in their common format."""
    common = common_format(a.format, b.format)
    left, right = (side.converted(common, backend_of(side.codes)) for side in (a, b))
    return left, right


def selected_indices(name: str, index: Any, size: int) -> slice | AnyArray:
    """The row or column indices that a caller selected by a slice, by indices (negative ones count from the end), or by
    a mask.

    Raises InputError for anything else, and for an index out of range.
    """
    if isinstance(index, slice):
        return index
    indices = given_array(name, index)
    if indices.ndim == 1 and indices.dtype == np.bool_ and indices.size == size:
        return np.nonzero(indices)[0]
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        if indices.size == 0 and indices.ndim == 1:
            return indices.astype(np.intp)
        raise InputError(
            f"{name}: got {indices.dtype} of shape {indices.shape}; allowed: a slice, a list of indices, or "
            f"{size} booleans"
        )
    if indices.size and (int(indices.min()) < -size or int(indices.max()) >= size):
        raise InputError(f"{name}: index {indices.max() if indices.max() >= size else indices.min()}; there are {size}")
    return indices.astype(np.intp)
