"""Compares two ways of computing one GEMM bit for bit: which elements differ, by how much, and from which k on.

The ways differ in device, scheme, options, schedule or library; the operands are the same. The first difference of an
element is found from its running sums: the value of that row and column over the first k of K, by both ways.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.analysis.exact_product import exact_sum, reference
from hwsim.analysis.metrics import relative_frobenius
from hwsim.devices import find
from hwsim.errors import InputError
from hwsim.evaluate.product import subset
from hwsim.formats import format_of
from hwsim.host.threads import worker_count
from hwsim.operands.operand import Operand, operand_pair, selected_indices
from hwsim.studies.diff_parts import DifferingBlocks, Divergence, ElementDifference, ElementErrors, SideAccuracy
from hwsim.studies.diff_result import Difference
from hwsim.studies.diff_sides import DiffSide, Variant, reason_of, side_of
from hwsim.studies.diff_sizes import size_histogram
from hwsim.studies.diff_units import relative_error, unit_steps

if TYPE_CHECKING:
    from hwsim.evaluate.product import Evaluator
    from hwsim.evaluate.split import Pieces

CELLS = 64  # rows and columns of a map of blocks

AnyArray = NDArray[Any]


def diff(
    a: Any,
    b: Any,
    left: Variant,
    right: Variant,
    *,
    element: tuple[int, int] | None = None,
    input_format: str | None = None,
    rows: Any = None,
    cols: Any = None,
    first: int = 10,
    threads: int = 1,
    progress: Callable[[float], None] | None = None,
    operands: str = "",
) -> Difference:
    """Compute A B in both settings and compare the codes.

    a, b: matrices as hwsim.run takes them (codes need `input_format`, or a `format` in the setting). element: (row,
    column) whose first difference in K is searched; by default the one with the largest difference (not for plans
    mixed block by block). rows, cols: compare only those (positions are still those of the whole product). first:
    number of positions listed. operands: what A and B are, in words. Each setting is resolved as hwsim.run resolves it,
    and its bits are those of hwsim.run. Raises InputError where the two have different output formats, or for operands
    or positions that do not fit.
    """
    threads = worker_count(threads)
    sides = side_of(a, b, left, input_format), side_of(a, b, right, input_format)
    outputs = [side.record.output for side in sides]
    if outputs[0] != outputs[1]:
        raise InputError(f"diff: the results are {outputs[0]} and {outputs[1]}; give both settings one output format")
    output, (m, k), n = outputs[0], sides[0].a.shape, sides[0].b.shape[1]
    row_index, col_index = _indices("rows", rows, m), _indices("cols", cols, n)
    codes = []
    for index, side in enumerate(sides):

        def report(share: float, index: int = index) -> None:
            if progress is not None:
                progress((index + share) / 2)

        codes.append(_product(side, rows, cols, (row_index, col_index), threads, report))
    compared = _Compared(codes[0], codes[1], output, row_index, col_index)
    worst, largest = compared.worst(), compared.largest()
    where = element if element is not None else (largest.row, largest.column) if largest is not None else None
    step = errors = None
    if where is not None and all(side.evaluator.by_rows for side in sides):
        i, j = where
        for name, index, size in (("row", i, m), ("column", j, n)):
            if not 0 <= index < size:
                raise InputError(f"diff: element's {name} is {index}; allowed: 0 to {size - 1}")
        step = first_step(sides[0], sides[1], i, j)
        errors = _errors(sides[0], sides[1], i, j)
    values = [_values(x, output) for x in codes]
    share = compared.differing / codes[0].size if codes[0].size else 0.0
    return Difference(
        left=sides[0].label,
        right=sides[1].label,
        m=m,
        n=n,
        k=k,
        output=output,
        elements=codes[0].size,
        differing=compared.differing,
        special=compared.special,
        largest_ulps=compared.largest_ulps,
        mean_ulps=compared.mean_ulps,
        largest_relative=compared.largest_relative,
        first=compared.places(first),
        worst=worst,
        step=step,
        schedules=(sides[0].evaluator.schedule.to_dict(), sides[1].evaluator.schedule.to_dict()),
        errors=errors,
        where=_blocks(codes[0] != codes[1], compared.all_over_rms()),
        largest=largest,
        sizes=compared.sizes,
        accuracy=_accuracies(a, b, sides, input_format, values, (rows, cols)),
        evidence=(sides[0].evidence, sides[1].evidence),
        confidence=(sides[0].confidence, sides[1].confidence),
        instructions=(sides[0].instruction, sides[1].instruction),
        reason=reason_of(*sides, share, None if compared.special else compared.sizes.largest),
        operands=operands,
        notes=_notes(sides),
    )


def _product(
    side: DiffSide,
    rows: Any,
    cols: Any,
    places: tuple[AnyArray, AnyArray],
    threads: int,
    progress: Callable[[float], None],
) -> AnyArray:
    """The codes of some rows and columns of a side."""
    evaluator = side.evaluator
    if not evaluator.by_rows:  # its blocks are those of the whole matrices
        whole: AnyArray = evaluator.product(side.a, side.b, threads=threads, progress=progress)
        part: AnyArray = whole[np.ix_(*places)]
        return part
    at = places if side.record.schedule.regions else None
    parts = subset(side.a, rows=rows), subset(side.b, cols=cols)
    return evaluator.product(*parts, at=at, threads=threads, progress=progress)


def _notes(sides: tuple[DiffSide, DiffSide]) -> tuple[str, ...]:
    """What the reader should know: sides that multiply on the CUDA cores, not in the matrix units."""
    fallen = [name for name, side in zip(("left", "right"), sides, strict=True) if side.is_fp32_fma]
    if len(fallen) == 2 and all(side.format in (None, "fp32") for side in sides):
        return ("compares FP32 FMA on CUDA cores; --format (format=) picks a matrix unit",)
    return tuple(
        f"{name} multiplies by FP32 FMA on CUDA cores, not in a matrix unit: {side.instruction}"
        for name, side in zip(("left", "right"), sides, strict=True)
        if name in fallen
    )


def _accuracies(
    a: Any,
    b: Any,
    sides: tuple[DiffSide, DiffSide],
    input_format: str | None,
    results: list[AnyArray],
    part: tuple[Any, Any],
) -> tuple[SideAccuracy, SideAccuracy]:
    """The errors of both sides, against the exact product of the operands as they came and as the units take them.

    part: the rows and columns of the results.
    """
    rows, cols = part
    products: dict[
        tuple[str | None, str | None], tuple[AnyArray, AnyArray | float, slice]
    ] = {}  # of the operands as they came, by format
    accuracies = []
    for side, result in zip(sides, results, strict=True):
        formats = side.format, side.format_b
        if formats not in products:
            x, y = operand_pair(a, b, input_format=input_format, format=side.format, format_b=side.format_b)
            products[formats] = _fp64_product(subset(x, rows=rows), subset(y, cols=cols))
        unrounded = products[formats]
        x, y = side.multiplied
        exact, low, sampled = _fp64_product(subset(x, rows=rows), subset(y, cols=cols))
        alpha = side.record.epilogue.alpha
        with np.errstate(all="ignore"):
            arithmetic = relative_frobenius(alpha * exact, result[sampled], alpha * low)
            rounding = relative_frobenius(unrounded[0], exact) if sampled == unrounded[2] else math.nan
        accuracies.append(SideAccuracy(*(e if math.isfinite(e) else None for e in (rounding, arithmetic))))
    return accuracies[0], accuracies[1]


def _fp64_product(a: Operand, b: Operand) -> tuple[AnyArray, AnyArray | float, slice]:
    """The product of two operands in fp64, what is below its precision, and which rows it has: of fp64 operands as a
    pair of fp64 (`reference`).
    """
    x, y = (side.multiplied_values(axis) for side, axis in ((a, -1), (b, -2)))
    if "fp64" in (a.format, b.format):
        return reference(x, y)
    with np.errstate(all="ignore"):
        return x.astype(np.float64) @ y.astype(np.float64), 0.0, slice(None)


def _errors(left: DiffSide, right: DiffSide, row: int, column: int) -> ElementErrors:
    output = left.record.output
    codes, exact = [], []
    for side in (left, right):
        evaluator = side.at(row, column)
        code = evaluator.product(subset(side.a, rows=[row]), subset(side.b, cols=[column]))[0, 0]
        codes.append(int(code))
        exact.append(_exact_element(side, row, column, side.a.shape[1]))
    errors = [relative_error(_value(code, output), value) for code, value in zip(codes, exact, strict=True)]
    return ElementErrors(
        row=row,
        column=column,
        left_code=_hex(codes[0], output),
        right_code=_hex(codes[1], output),
        exact=_rounded(exact[0]),
        left=errors[0],
        right=errors[1],
        right_exact=_rounded(exact[1]),
    )


def _exact_element(side: DiffSide, row: int, column: int, k: int) -> Fraction | None:
    """The sum of the first k products of an element, times alpha, of the operands as the unit takes them."""
    a, b = side.multiplied
    left, right = subset(a, rows=[row]).multiplied_values(-1), subset(b, cols=[column]).multiplied_values(-2)
    total = exact_sum(left[0, :k], right[:k, 0])
    return None if total is None else Fraction(side.record.epilogue.alpha) * total


def _rounded(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


def first_step(left: DiffSide, right: DiffSide, row: int, column: int) -> Divergence | None:
    """Where the running sums of C[row, column] diverge, or None.

    The running sum over the first k is the finished result of a product that ends there, with slices where the schedule
    puts them for the whole of K.
    """
    sums, step = [], 1
    k = left.a.shape[1]
    for side in (left, right):
        evaluator = side.at(row, column)
        model = find(evaluator.device, evaluator.gemm.unit)
        assert model is not None
        step = math.lcm(step, model.k)
        pieces = evaluator.pieces(subset(side.a, rows=[row]), subset(side.b, cols=[column]))
        sums.append(_Running(evaluator, *pieces))
    stops = [*range(step, k, step), k]
    values = [(value := sums[0].at(end), sums[1].at(end), value == sums[1].at(end)) for end in stops]
    at = next((i for i, (_, _, same) in enumerate(values) if not same), None)
    if at is None:
        return None
    output = left.record.output
    one_code, other_code, _ = values[at]
    k_first, k_end = stops[at - 1] if at else 0, stops[at]
    exact = [_exact_element(side, row, column, k_end) for side in (left, right)]
    return Divergence(
        row=row,
        column=column,
        step=step,
        k_first=k_first,
        k_end=k_end,
        last_equal=_hex(values[at - 1][0], output) if at else None,
        left_code=_hex(one_code, output),
        right_code=_hex(other_code, output),
        left=_value(one_code, output),
        right=_value(other_code, output),
        equal_again=sum(same for _, _, same in values[at:]),
        exact=_rounded(exact[0]),
        left_error=relative_error(_value(one_code, output), exact[0]),
        right_error=relative_error(_value(other_code, output), exact[1]),
        left_steps=unit_steps(sums[0].side, sums[0].a, sums[0].b, k_first, k_end, left.instruction),
        right_steps=unit_steps(sums[1].side, sums[1].a, sums[1].b, k_first, k_end, right.instruction),
        right_exact=_rounded(exact[1]),
    )


def _blocks(differs: AnyArray, over_rms: AnyArray) -> DifferingBlocks:
    """The blocks of (rows, columns) truths and sizes."""
    down, across = (max(-(-size // CELLS), 1) for size in differs.shape)
    starts = [np.arange(0, size, span) for size, span in zip(differs.shape, (down, across), strict=True)]
    if not differs.size:
        empty = np.zeros((0, 0), np.int64)
        return DifferingBlocks((down, across), empty, empty, np.zeros((0, 0)))
    counts, sizes = (
        np.add.reduceat(np.add.reduceat(x.astype(np.int64), starts[0], axis=0), starts[1], axis=1)
        for x in (differs, np.ones(differs.shape))
    )
    largest = np.maximum.reduceat(np.maximum.reduceat(over_rms, starts[0], axis=0), starts[1], axis=1)
    return DifferingBlocks((down, across), counts, sizes, largest)


class _Running:
    """Running sums of one element in one setting."""

    def __init__(self, side: Evaluator, a: Pieces, b: Pieces) -> None:
        self.side, self.a, self.b = side, a.contiguous(), b.contiguous()
        self.partition = side.schedule.k_partition(a.shape[1])

    def at(self, k: int) -> int:
        """The code of the sum over the first k."""
        return int(self.side.evaluate(self.a, self.b, partition=self.partition.prefix(k))[0, 0])


class _Compared:
    """Two arrays of codes of one format, and their position in the whole product."""

    def __init__(self, left: AnyArray, right: AnyArray, output: str, rows: AnyArray, cols: AnyArray) -> None:
        self.codes, self.output = (left, right), output
        self.rows, self.cols = rows, cols
        whole = _values(left, output), _values(right, output)
        self.sizes = size_histogram(*whole)
        self.at = np.argwhere(left != right)
        index = tuple(self.at.T)
        left_values, right_values = (x[index].astype(np.float64) for x in whole)
        self.values = (left_values, right_values)
        self.finite = np.isfinite(left_values) & np.isfinite(right_values)
        self.ulps: AnyArray = np.abs(_ordered(left[index], output) - _ordered(right[index], output))
        with np.errstate(all="ignore"):
            distance = np.abs(left_values - right_values)
            self.relative = distance / np.maximum(np.abs(left_values), np.abs(right_values))
            self.over_rms = np.where(self.finite, distance / self.sizes.rms, 0.0)
        self.differing = len(self.at)
        self.special = int(self.differing - self.finite.sum())
        finite_ulps = self.ulps[self.finite]
        self.largest_ulps = int(max(finite_ulps)) if finite_ulps.size else 0
        self.mean_ulps = float(np.mean(finite_ulps.astype(np.float64))) if finite_ulps.size else 0.0
        usable = self.relative[self.finite & np.isfinite(self.relative)]
        self.largest_relative = float(usable.max()) if usable.size else 0.0

    def places(self, count: int) -> tuple[ElementDifference, ...]:
        """The first `count` differing elements, by row and column."""
        return tuple(self._place(i) for i in range(min(count, self.differing)))

    def worst(self) -> ElementDifference | None:
        """The differing element with the largest distance in ulps."""
        return self._most(self.ulps.astype(np.float64))

    def largest(self) -> ElementDifference | None:
        """The differing element with the largest |left - right|."""
        return self._most(np.nan_to_num(self.over_rms))

    def all_over_rms(self) -> AnyArray:
        """|left - right| / RMS of all elements; 0 where either is an infinity or a NaN."""
        sizes = np.zeros(self.codes[0].shape)
        sizes[tuple(self.at.T)] = np.nan_to_num(self.over_rms)
        return sizes

    def _most(self, sizes: AnyArray) -> ElementDifference | None:
        if not self.differing:
            return None
        return self._place(int(np.argmin(self.finite) if self.special else np.argmax(sizes)))

    def _place(self, i: int) -> ElementDifference:
        row, column = (int(x) for x in self.at[i])
        left_code, right_code = (int(x[row, column]) for x in self.codes)
        is_finite, relative, over_rms = bool(self.finite[i]), float(self.relative[i]), float(self.over_rms[i])
        return ElementDifference(
            row=int(self.rows[row]),
            column=int(self.cols[column]),
            left_code=_hex(left_code, self.output),
            right_code=_hex(right_code, self.output),
            left=float(self.values[0][i]),
            right=float(self.values[1][i]),
            ulps=int(self.ulps[i]) if is_finite else None,
            relative=relative if is_finite and math.isfinite(relative) else None,
            over_rms=over_rms if is_finite and math.isfinite(over_rms) else None,
        )


def _values(codes: AnyArray, output: str) -> AnyArray:
    """Codes of a format as numbers."""
    values: AnyArray = Operand(np.atleast_2d(codes), output).values()
    return values


def _indices(name: str, index: Any, size: int) -> AnyArray:
    whole = np.arange(size)
    return whole if index is None else whole[selected_indices(name, index, size)]


def _hex(code: int, output: str) -> str:
    return f"0x{code:0{max(format_of(output).bits, 8) // 4}x}"


def _value(code: int, output: str) -> float:
    return float(_values(np.array([[code]], f"u{max(format_of(output).bits, 8) // 8}"), output)[0, 0])


def _ordered(codes: AnyArray, output: str) -> AnyArray:
    """Integers that increase by one from each number of the format to the next; +0 and -0 are equal. 64-bit formats:
    Python integers.
    """
    fmt = format_of(output)
    sign = fmt.signed & (codes >> codes.dtype.type(fmt.bits - 1)).astype(bool)
    if fmt.is_integer:
        wide: AnyArray = codes.astype(object if fmt.bits > 32 else np.int64)
        return np.asarray(np.where(sign, wide - (1 << fmt.bits), wide))
    magnitude = (codes >> codes.dtype.type(fmt.ignored_bits) & codes.dtype.type((1 << fmt.magnitude_bits) - 1)).astype(
        np.int64
    )
    ordered: AnyArray = np.where(sign, -magnitude, magnitude)
    return ordered.astype(object) if fmt.bits > 32 else ordered


__all__ = ["Difference", "Variant", "diff", "first_step"]
