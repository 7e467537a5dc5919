"""Scale factors of an operand as arrays, beside its elements. It knows shapes and formats; no rule and no device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.backend.cpu import CPU
from hwsim.errors import InputError
from hwsim.formats import array_dtype, codes_of, format_of
from hwsim.host.arrays import given_array
from hwsim.operands.quantization import Quantized

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend

AnyArray = NDArray[Any]
TALL = LONG = 128  # rows and elements of K of a block with an fp32 scale
MX, NV = 32, 16  # elements of K with a scale of ue8m0, of ue4m3
NV_ELEMENT = "e2m1"  # whose scales may be ue4m3
_NV_BLOCKS = {"ue4m3": NV, "ue8m0": MX}


@dataclass(frozen=True, slots=True, eq=False)
class Scales:
    """Factors of an operand's elements.

    values: (rows or 1, blocks of K or 1), fp32 or codes of `format`, one row for each row of A or column of B. rows, k:
    elements that share a factor, as of hwsim.gemm.problem.OperandScale (None: all). factor: of the whole operand, fp32.
    """

    values: AnyArray
    format: str
    rows: int | None
    k: int | None
    factor: np.float32 | None = None

    def picked(self, index: Any) -> Scales:
        """Those of some rows of A, or some columns of B."""
        return self if self.rows is None else replace(self, values=self.values[index])

    def on(self, backend: Backend) -> Scales:
        """The scales with their values in an array of the backend."""
        values = backend.from_host(self.values)
        return self if values is self.values else replace(self, values=values)

    def spread(self, k: int) -> AnyArray:
        """The factor of each element, (rows or 1, k or 1), in float64, with that of the whole operand."""
        values = self.values
        if self.format != "fp32":
            values = CPU.decode(values, format_of(self.format), np.float32)
        wide = values.astype(np.float64) * (1.0 if self.factor is None else float(self.factor))
        return wide if self.k is None else np.repeat(wide, self.k, 1)[:, :k]


def scales_of(
    name: str, scales: Any, sizes: tuple[int, int], element: str, scale_format: str | None = None, factor: Any = None
) -> Scales:
    """The scales of an operand from an array that a caller gave.

    scales: fp32 (rows or ceil(rows / 128) or 1, ceil(K / 128) or 1); or codes (uint8), or typed ue8m0 (rows, ceil(K /
    32)), or ue4m3 (rows, ceil(K / 16)). A single number is one for all. sizes: rows of A or columns of B, and K.
    element: format of the elements. scale_format: of codes (None: as many blocks say). Raises InputError for other
    shapes or types.
    """
    array = given_array(name, scales)
    array = array.reshape(1, 1) if array.ndim == 0 or array.size == 1 else array
    rows, k = sizes
    factor = None if factor is None else np.float32(factor)
    if array.ndim != 2:
        raise InputError(f"{name} has shape {array.shape}; allowed: {_shapes(rows, k)}")
    narrow = scale_format if scale_format != "fp32" else None
    narrow = narrow or _narrow_format(array, k, element)
    if narrow is not None:
        block = NV if _blocks(k, NV) == array.shape[1] and (narrow == "ue4m3" or k > MX) else MX
        if narrow == "ue4m3":
            block = NV
        if array.shape != (rows, _blocks(k, block)):
            is_known = scale_format is not None or array.dtype != np.uint8
            blocks = {narrow: block} if is_known else _NV_BLOCKS if element == NV_ELEMENT else {"ue8m0": MX}
            raise InputError(_wrong_shape(name, array, blocks, (rows, k), element))
        fmt = format_of(narrow)
        return Scales(codes_of(np.ascontiguousarray(array), fmt), narrow, 1, block, factor)
    if array.dtype.kind not in "fV" or array.dtype.itemsize > 8:
        raise InputError(f"{name} has dtype {array.dtype}; allowed: real numbers, or codes of ue8m0 or ue4m3 (uint8)")
    with np.errstate(over="ignore", invalid="ignore"):
        values = array.astype(np.float32)
    tall, long = array.shape
    if tall not in (1, rows, _blocks(rows, TALL)) or long not in (1, _blocks(k, LONG)):
        raise InputError(f"{name} has shape {array.shape}; allowed: {_shapes(rows, k)}")
    if long == 1 and tall == 1:
        return Scales(values, "fp32", None, None, factor)
    of_rows = values if tall == rows else np.repeat(values, rows if tall == 1 else TALL, 0)[:rows]
    if long == 1 and (tall == rows or k > LONG):
        return Scales(of_rows, "fp32", 1, None, factor)
    return Scales(of_rows, "fp32", 1 if tall == rows else TALL, LONG, factor)


def joined(a: Scales, b: Scales, m: int, n: int, k: int) -> tuple[Scales, Scales]:
    """Scales of A and B, where a shape has two readings, as the other side has them.

    One block along K may be a block or all of K; a factor of one row may be of the row or of the operand.
    """
    sides = [a, b]
    for index, extent in enumerate((m, n)):
        side, other = sides[index], sides[1 - index]
        if side.format != "fp32" or side.k is not None:
            continue
        if other.format == "fp32" and other.k is not None and k <= LONG and (side.rows == 1 or extent <= TALL):
            values = np.broadcast_to(side.values, (extent, 1))
            sides[index] = replace(side, values=values, rows=side.rows or TALL, k=LONG)
        elif side.rows is None and extent == 1 and other.k is None and other.rows == 1:
            sides[index] = replace(side, rows=1)
    return sides[0], sides[1]


def of_quantized(quantized: Quantized) -> Scales:
    """The scales of a matrix that was quantised, for a product."""
    values = quantized.scales
    if quantized.rows not in (1, None):
        extent = quantized.elements.shape[-1 if quantized.axis == -2 else -2]
        values = np.repeat(values, quantized.rows, -2)[:extent]
    return Scales(values, quantized.scale_format, quantized.rows, quantized.k, quantized.factor)


def _narrow_format(array: AnyArray, k: int, element: str) -> str | None:
    """The format of scales that are codes, or of such a type; None: they are numbers."""
    for name in ("ue8m0", "ue4m3"):
        if array.dtype == array_dtype(format_of(name)):
            return name
    if array.dtype != np.uint8:
        return None
    of_nv, of_mx = (array.shape[1] == _blocks(k, block) for block in (NV, MX))
    return "ue4m3" if of_nv and (not of_mx or element == NV_ELEMENT) else "ue8m0"


def _wrong_shape(name: str, array: AnyArray, blocks: Mapping[str, int], sizes: tuple[int, int], element: str) -> str:
    """What is wrong with the shape of scales in narrow formats. blocks: {format that they may have: elements of K}."""
    rows, k = sizes
    shapes = {fmt: (rows, _blocks(k, block)) for fmt, block in blocks.items()}
    allowed = " or ".join(f"{shape} of {fmt} ({blocks[fmt]} of K)" for fmt, shape in shapes.items())
    hint = "; its transpose fits" if array.shape[::-1] in shapes.values() else ""
    row = "column of B" if name.endswith("b") else "row of A"
    return (
        f"{name} has shape {array.shape} of {array.dtype}, and elements are {element}; allowed: {allowed}, a row of "
        f"scales for each {row}{hint}"
    )


def _blocks(extent: int, length: int) -> int:
    return -(-extent // length)


def _shapes(rows: int, k: int) -> str:
    high, long = _blocks(rows, TALL), _blocks(k, LONG)
    return (
        f"fp32 of ({rows}, {high} or 1; {long} or 1), or codes of ue8m0 of {(rows, _blocks(k, MX))} or ue4m3 of "
        f"{(rows, _blocks(k, NV))}"
    )
