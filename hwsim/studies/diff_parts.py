"""The parts of a comparison as data: elements, running sums, errors, blocks. It computes no bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwsim.studies.diff_units import UnitStep


@dataclass(frozen=True, slots=True)
class ElementDifference:
    """One differing element. left, right: values; ulps: distance in units in the last place, None for infinities, NaNs.

    relative: |left - right| over the larger magnitude; over_rms: |left - right| over the RMS of both results; None
    where they are not numbers.
    """

    row: int
    column: int
    left_code: str
    right_code: str
    left: float
    right: float
    ulps: int | None
    relative: float | None
    over_rms: float | None = None


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where the running sums of an element diverge: equal over k < k_first, different over k < k_end.

    Codes are in hex, with values beside them. Sums are compared after every `step` of K, the shortest length that is a
    whole number of instructions of both units. equal_again: number of later comparisons in which they are equal.
    last_equal: the code before the divergence, or None. exact: the sum over k < k_end without rounding, to nearest in
    fp64, of the operands as the left side's unit takes them; right_exact: as the right side's does. left_error,
    right_error: each side's relative to its own; None where they are not numbers. left_steps, right_steps: the
    instructions that took k_first to k_end, the first of them (`hwsim.studies.diff_units.MOST`).
    """

    row: int
    column: int
    step: int
    k_first: int
    k_end: int
    last_equal: str | None
    left_code: str
    right_code: str
    left: float
    right: float
    equal_again: int
    exact: float | None = None
    left_error: float | None = None
    right_error: float | None = None
    left_steps: tuple[UnitStep, ...] = ()
    right_steps: tuple[UnitStep, ...] = ()
    right_exact: float | None = None


@dataclass(frozen=True, slots=True)
class ElementErrors:
    """One element over all of K: its value without rounding, to nearest in fp64, of the operands as each side's unit
    takes them (exact: left's; right_exact), and both sides' errors relative to it (None where they are not numbers).
    """

    row: int
    column: int
    left_code: str
    right_code: str
    exact: float | None
    left: float | None
    right: float | None
    right_exact: float | None = None


@dataclass(frozen=True, slots=True)
class SideAccuracy:
    """Errors of one side, relative, in the Frobenius norm, over the elements compared.

    input_rounding: of the exact product of the operands as the unit takes them, against those that were given; 0: none
    were rounded. arithmetic: of the result against the former. None where they are not numbers.
    """

    input_rounding: float | None
    arithmetic: float | None


@dataclass(frozen=True, slots=True)
class DifferingBlocks:
    """The elements compared in at most CELLS x CELLS blocks. spans: rows and columns of a block.

    counts, sizes: (rows, columns) int64, elements that differ and all elements of each block. largest: float64, the
    largest |left - right| / RMS of each block.
    """

    spans: tuple[int, int]
    counts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    largest: NDArray[np.float64]
