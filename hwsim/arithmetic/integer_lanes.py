"""Integer instructions of programs on arrays of codes: sums and multiples that wrap, bit fields, wider integers.

It knows integer formats and instructions; it knows no device, no plan and no rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.formats import code_dtype, decode

if TYPE_CHECKING:
    from hwsim.formats import Format
    from hwsim.program.ir import Instr

Codes = NDArray[Any]
Source = tuple[Codes, "Format"]
BYTE_BITS = 8


def integers(codes: Codes, fmt: Format) -> Codes:
    """The values of codes of an integer format, as integers of a NumPy dtype that holds them."""
    if fmt.bits >= BYTE_BITS:
        return codes.view(fmt.dtype_name)
    values = [int(decode(fmt, code).fraction) for code in range(1 << fmt.bits)]
    held: Codes = np.array(values, np.int8)[codes]
    return held


def is_of_integers(target: Source, sources: Sequence[Source]) -> bool:
    """Whether an instruction reads and writes integers alone."""
    return target[1].is_integer and all(fmt.is_integer for _, fmt in sources)


def execute(instr: Instr, target: Source, sources: Sequence[Source], reduced: tuple[int, ...] | None = None) -> None:
    """Execute an instruction of integers and write its result to the codes of `target`. reduced: as of VectorUnit."""
    codes, fmt = target
    codes[...] = _narrowed(_result(instr, fmt, sources, reduced), fmt)


def code_of(number: float, fmt: Format) -> int:
    """The code of a whole number in an integer format, beyond which it wraps."""
    return int(number) & ((1 << fmt.bits) - 1)


def _result(instr: Instr, fmt: Format, sources: Sequence[Source], reduced: tuple[int, ...] | None) -> Codes:
    """The result as integers of at least the target's width, of which the low bits count."""
    if instr.opcode == "cast":
        return _held(integers(*sources[0]), fmt)
    if instr.opcode == "extract":
        shifted: Codes = integers(*sources[0]) >> instr.scale_exponent
        return shifted
    values: list[Codes] = [
        codes for codes, _ in sources
    ]  # of the target's format: unsigned codes wrap as its integers do
    factor = code_dtype(fmt).type(code_of(instr.scalar, fmt))
    total: Codes
    match instr.opcode:
        case "scale":
            total = values[0] * factor
        case "fma":
            total = values[0] * factor + values[1]
        case "sub":
            total = values[0] - values[1]
        case "reduce_add":
            axes = differing_axes(*values) if reduced is None else reduced
            total = values[1] + values[0].sum(axis=axes, keepdims=True, dtype=values[0].dtype)
        case "select":
            total = np.where(values[0] != 0, values[1], values[2])
        case _:
            total = values[0] + values[1]
    return total


def differing_axes(source: Codes, total: Codes) -> tuple[int, ...]:
    """The axes along which a reduction goes: those in which both differ in size."""
    return tuple([axis for axis in range(source.ndim) if source.shape[axis] != total.shape[axis]])


def _held(values: Codes, fmt: Format) -> Codes:
    """The nearest integers that a format holds."""
    low, high = (-(1 << (fmt.bits - 1)), (1 << (fmt.bits - 1)) - 1) if fmt.signed else (0, (1 << fmt.bits) - 1)
    limits = np.iinfo(values.dtype)
    return np.clip(values, max(low, limits.min), min(high, limits.max))


def _narrowed(values: Codes, fmt: Format) -> Codes:
    """The low bits of integers, as codes of a format."""
    codes: Codes = values.astype(code_dtype(fmt))
    return codes & codes.dtype.type((1 << fmt.bits) - 1) if fmt.bits < BYTE_BITS else codes
