"""The elementwise instructions of a softmax in programs: masks, sums in the order of lanes, special functions.

It knows fp32 arrays and a chip's tables of special functions; it knows no kernel of attention and no order of blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.cuda_math import CudaMath
from hwsim.arithmetic.power_polynomial import power_by_polynomial
from hwsim.arithmetic.rounded_once import multiply_add
from hwsim.numerics import special_functions
from hwsim.numerics.special_functions import Tables
from hwsim.program.ir import LANE_COLUMNS, LANES, Instr
from hwsim.program.roles import Opcode

Single = NDArray[np.float32]
AnyArray = NDArray[Any]


class SoftmaxLanes:
    """Executes the instructions. tables: gives the tables of the chip's special functions, when one is executed."""

    def __init__(self, tables: Callable[[], Tables]) -> None:
        self._tables = tables

    @cached_property
    def _math(self) -> CudaMath:
        return CudaMath(self._tables())

    def execute(self, instr: Instr, values: list[AnyArray], reduced: tuple[int, ...] | None) -> Single:
        """The result of an instruction of OPCODES. values: of its operands. reduced: the axes of a reduction, where
        source and total do not say them.
        """
        source, *others = values
        if instr.opcode in _PLAIN:
            return _PLAIN[instr.opcode](source)
        if instr.opcode in _MATH:
            return _MATH[instr.opcode](self._math, source)
        number = np.float32(instr.scalar)
        if instr.opcode == "mask":
            index, limit = others
            return np.where(index < limit, source, number)
        if instr.opcode == "halve_below":
            return np.where(source < number, source * np.float32(0.5), source)
        if instr.opcode == "square_below":
            return np.where(others[0] < number, source * source, source)
        if instr.opcode == "reduce_lanes":
            return added_by_lanes(others[0], source)
        if instr.opcode == "divide":
            quotient: Single = np.divide(source, others[0])
            return quotient
        if instr.opcode == "choose_above":
            return np.where(source >= number, others[0], others[1])
        if instr.opcode == "reduce_row":
            return added_by_row(others[0], source)
        if instr.opcode == "reduce_meet":
            return met(source, instr.scale_exponent)
        axes = (1,) if reduced is None and source.shape[1] != others[0].shape[1] else reduced or ()
        largest: Single = np.fmax(others[0], np.fmax.reduce(source, axis=axes, keepdims=True))
        return largest


def added_by_lanes(total: Single, source: Single, rescale: Single | None = None) -> Single:
    """total (..., 4) with the columns of source (..., columns), each lane in the order of its columns. Columns that
    are missing of the last eight count as zeros. rescale: as total, multiplies it in one rounding with a lane's first
    column.
    """
    width = LANES * LANE_COLUMNS
    missing = -source.shape[-1] % width
    padded = np.pad(source, ((0, 0),) * (source.ndim - 1) + ((0, missing),)) if missing else source
    turns = padded.reshape(*source.shape[:-1], -1, LANES, LANE_COLUMNS)
    for turn in range(turns.shape[-3]):
        for column in range(LANE_COLUMNS):
            added = turns[..., turn, :, column]
            is_first = turn == column == 0
            total = multiply_add(total, rescale, added) if rescale is not None and is_first else total + added
    return total


def added_by_row(total: Single, source: Single) -> Single:
    """total (..., 1) with the columns of source (..., columns) in eight sums: column i belongs to sum i of eight, and
    the first one begins at the total. Sums that are 2 apart meet, then 4, then 1.
    """
    width = LANES * LANE_COLUMNS
    missing = -source.shape[-1] % width
    padded = np.pad(source, ((0, 0),) * (source.ndim - 1) + ((0, missing),)) if missing else source
    turns = padded.reshape(*source.shape[:-1], -1, width)
    sums = turns[..., 0, :].copy()
    sums[..., :1] += total
    for turn in range(1, turns.shape[-2]):
        sums = sums + turns[..., turn, :]
    pairs = sums.reshape(*source.shape[:-1], 2, 2, 2)  # sums 0 to 7 as 4 i + 2 j + k
    fours = pairs[..., 0, :] + pairs[..., 1, :]
    halves = fours[..., 0, :] + fours[..., 1, :]
    result: Single = halves[..., :1] + halves[..., 1:]
    return result


def met(lanes: Single, first_partner: int) -> Single:
    """The sum of four lanes (..., 4), of those first that are first_partner apart (1 or 2); (..., 1)."""
    if first_partner == 1:
        pairs = lanes[..., 0::2] + lanes[..., 1::2]
    else:
        pairs = lanes[..., :2] + lanes[..., 2:]
    result: Single = pairs[..., :1] + pairs[..., 1:]
    return result


def without_infinity(x: Single) -> Single:
    """x, with 0 in place of -infinity."""
    return np.where(np.isneginf(x), np.float32(0), x)


def without_zero(x: Single) -> Single:
    """x, with 1 in place of 0 and of a NaN."""
    return np.where((x == 0) | np.isnan(x), np.float32(1), x)


def _lg2(math: CudaMath, x: Single) -> Single:
    return special_functions.lg2(np.ascontiguousarray(x).view(np.uint32), math.tables).view(np.float32)


_PLAIN: Mapping[Opcode, Callable[[Single], Single]] = {
    "ex2_cubic": power_by_polynomial,
    "or_zero": without_infinity,
    "or_one": without_zero,
    "reciprocal": lambda x: np.float32(1) / x,
}
_MATH: Mapping[Opcode, Callable[[CudaMath, Single], Single]] = {
    "ex2": CudaMath.ex2,
    "rcp": CudaMath.reciprocal,
    "lg2": _lg2,
    "exp": CudaMath.expf,
    "log": CudaMath.logf,
}
OPCODES: frozenset[Opcode] = frozenset(
    (
        *(*_PLAIN, *_MATH, "mask", "halve_below", "square_below", "choose_above", "divide"),
        *("reduce_lanes", "reduce_meet", "reduce_row", "reduce_largest"),
    )
)
