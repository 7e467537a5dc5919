"""From a caller's arrays to codes, and from an operand to the pieces of a plan.

It knows formats, plans' pieces and a device's conversions; it knows no instruction and no schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim._kernels.convert import decode, encode, split
from hwsim.errors import InputError
from hwsim.formats import FORMATS, Format, array_dtype, array_of, code_dtype, codes_of, format_of
from hwsim.machine.vector import VectorUnit

if TYPE_CHECKING:
    from hwsim.devices.model import Device
    from hwsim.program.plan import Piece

Array = NDArray[Any]
TYPED = ("fp64", "fp32", "fp16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "e3m2", "e2m3", "e2m1", "int8", "int4")
NARROW_BITS = 16
ALLOWED = (
    "float16, float32, float64, integers (those that are no format of the unit's are rounded to fp32), an ml_dtypes "
    "format, or codes: unsigned integers with input_format=, or of the width of a format= of 16 bits or fewer"
)


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A matrix as codes of a format (hwsim.formats), any strides."""

    codes: Array
    format: str

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        rows, columns = self.codes.shape
        return int(rows), int(columns)

    @property
    def array(self) -> Array:
        """The typed array (a view)."""
        return array_of(self.codes, format_of(self.format))

    def values(self) -> Array:
        """Values as float16, float32 or float64, whichever is the format's own or holds it (float32 otherwise)."""
        if self.format in ("fp16", "fp32", "fp64"):
            return self.array
        fmt = format_of(self.format)
        return decode(self.codes, fmt, np.float64 if fmt.name == "int32" else np.float32)

    def fp32(self) -> Operand:
        """The same, rounded to fp32 where it holds more."""
        if self.format == "fp32":
            return self
        with np.errstate(over="ignore"):
            return Operand(self.values().astype(np.float32).view(np.uint32), "fp32")


def operand(name: str, given: Any, *, input_format: str | None = None, format: str | None = None) -> Operand:
    """The operand `name` ("A", "B") from what a caller gave: a matrix, typed or of codes.

    input_format: the elements' format; the array is of its dtype, or unsigned and as wide: codes. Without it, an
    unsigned array as wide as the codes of `format` (of 16 bits or fewer) holds codes of that; typed arrays are taken
    as what they are; other integers are rounded to fp32. Raises InputError for anything else.
    """
    x: Array = np.asarray(given)
    if not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))
    if x.ndim != 2:
        raise InputError(f"{name} has shape {x.shape}; allowed: a matrix (two dimensions)")
    if input_format is not None:
        return Operand(_codes(name, x, format_of(input_format)), input_format)
    if x.dtype.kind == "u" and format is not None:
        fmt = format_of(format)
        if fmt.bits <= NARROW_BITS and x.dtype == code_dtype(fmt):
            return Operand(_codes(name, x, fmt), format)
    for known in TYPED:
        if x.dtype == array_dtype(FORMATS[known]):
            return Operand(codes_of(x, FORMATS[known]), known)
    if x.dtype.kind in "iu":
        return Operand(x.astype(np.float32).view(np.uint32), "fp32")
    raise InputError(f"{name} has dtype {x.dtype}; allowed: {ALLOWED}")


def _codes(name: str, x: Array, fmt: Format) -> Array:
    try:
        return codes_of(x, fmt)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def alike(a: Operand, b: Operand) -> tuple[Operand, Operand]:
    """Two operands of one format: theirs, or fp32."""
    return (a, b) if a.format == b.format else (a.fp32(), b.fp32())


def pieces_of(
    given: Operand,
    pieces: Sequence[Piece],
    device: Device,
    *,
    rounding: str | None = None,
    word_rounding: str | None = None,
    threads: int = 1,
) -> list[Array]:
    """Codes of the plan's pieces of an operand, by the device's conversions (saturating where its file says so).

    rounding: instead of the piece's, for a split of one piece. word_rounding: of 32-bit words that are the piece
    already, where the instruction rounds them itself (None: it ignores their low bits).
    Raises InputError for a rounding of several pieces.
    """
    vector = VectorUnit(device.vector)
    only = pieces[0]
    fmt = format_of(only.format)
    if rounding is not None and len(pieces) > 1:
        raise InputError(f"schedule: operand_rounding is for plans with one piece; this one has {len(pieces)}")
    if len(pieces) == 1 and not only.scale_exponent:
        if given.format == only.format:
            if word_rounding is None:
                return [given.codes]
            return [encode(given.codes.view(np.float32), fmt, word_rounding, threads=threads)]
        if only.format == "fp64":
            return [given.values().astype(np.float64).view(np.uint64)]
        values = given.fp32().array
        return [encode(values, fmt, rounding or only.rounding, vector.overflow, nan=vector.nan, threads=threads)]
    steps = [(format_of(piece.format), piece.rounding, piece.scale_exponent) for piece in pieces]
    return list(split(given.fp32().array, steps, overflow=vector.overflow, nan=vector.nan, threads=threads))


def chosen(name: str, index: Any, size: int) -> slice | Array:
    """Rows or columns that a caller asks for: a slice, indices (negative ones count from the end), or a mask.

    Raises InputError for anything else, and for an index out of range.
    """
    if isinstance(index, slice):
        return index
    found = np.asarray(index)
    if found.ndim == 1 and found.dtype == np.bool_ and found.size == size:
        return np.nonzero(found)[0]
    if found.ndim != 1 or found.dtype.kind not in "iu":
        if found.size == 0 and found.ndim == 1:
            return found.astype(np.intp)
        raise InputError(
            f"{name}: got {found.dtype} of shape {found.shape}; allowed: a slice, a list of indices, or {size} booleans"
        )
    if found.size and (int(found.min()) < -size or int(found.max()) >= size):
        raise InputError(f"{name}: index {found.max() if found.max() >= size else found.min()}; there are {size}")
    return found.astype(np.intp)
