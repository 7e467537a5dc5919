"""Compares two ways of computing one GEMM bit for bit: which elements differ, by how much, and from which k on.

The ways differ in device, scheme, options or schedule; the operands are the same. The first difference of an element is
found from its running sums: the value of that row and column over the first k of K, by both ways.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.devices import find, load
from hwsim.errors import InputError
from hwsim.evaluate.product import Evaluator, subset
from hwsim.evaluate.split import Pieces
from hwsim.formats import format_of
from hwsim.gemm.problem import Problem
from hwsim.gemm.schedule import Schedule
from hwsim.host.threads import worker_count
from hwsim.operands.operand import Operand, operand, selected_indices, to_common_format
from hwsim.report.notebook import card
from hwsim.request.declarations import DEFAULT_SCHEME
from hwsim.resolve.prepare import prepare
from hwsim.schemes import scheme_of
from hwsim.studies.diff_units import UnitStep, exact_sum, relative_error, unit_steps

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.record import Gemm
    from hwsim.libraries.on_device import LibraryOnDevice
    from hwsim.schemes import Scheme

CELLS = 64  # rows and columns of a map of blocks

AnyArray = NDArray[Any]
SHOWN = 4  # instructions of a side in text
Sided = tuple[Evaluator, Operand, Operand]  # a way of computing, A and B


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of computing the product; fields as the arguments of hwsim.run. label: for the report (generated if
    empty). gemm: a resolved record of `device`: its plan, order of summation and epilogue instead of scheme, format,
    schedule, output and options; A and B are rounded to its input format. library: by whose kernel it is computed, as
    of hwsim.run.
    """

    device: str | Path | Mapping[str, Any] | Device
    scheme: str | Scheme = DEFAULT_SCHEME
    format: str | None = None
    schedule: Schedule | Mapping[str, Any] | None = None
    output: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    gemm: Gemm | None = None
    library: str | Path | LibraryOnDevice | None = None


@dataclass(frozen=True, slots=True)
class ElementDifference:
    """One differing element. left, right: values; ulps: distance in units in the last place, None for infinities, NaNs.

    relative: |left - right| over the larger magnitude; None where it is not a number.
    """

    row: int
    column: int
    left_code: str
    right_code: str
    left: float
    right: float
    ulps: int | None
    relative: float | None


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where the running sums of an element diverge: equal over k < k_first, different over k < k_end.

    Codes are in hex, with values beside them. Sums are compared after every `step` of K, the shortest length that is a
    whole number of instructions of both units. equal_again: number of later comparisons in which they are equal.
    last_equal: the code before the divergence, or None. exact: the sum over k < k_end without rounding, to nearest in
    fp64; left_error, right_error: relative to it; None where they are not numbers. left_steps, right_steps: the
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


@dataclass(frozen=True, slots=True)
class ElementErrors:
    """One element over all of K: its value without rounding, to nearest in fp64, and both sides' errors relative to it
    (None where they are not numbers).
    """

    row: int
    column: int
    left_code: str
    right_code: str
    exact: float | None
    left: float | None
    right: float | None


@dataclass(frozen=True, slots=True)
class DifferingBlocks:
    """The elements compared in at most CELLS x CELLS blocks. spans: rows and columns of a block.

    counts, sizes: (rows, columns) int64, elements that differ and all elements of each block.
    """

    spans: tuple[int, int]
    counts: NDArray[np.int64]
    sizes: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Difference:
    """The result of `diff`. largest_ulps, largest_relative: over differing elements that are finite on both sides.

    special: number of differing elements with an infinity or NaN on either side. first: the first positions by row and
    column. worst: the largest distance (infinities and NaNs first). step: divergence of the chosen element, or of the
    worst; None if equal there. schedules: both, resolved, as plain data. errors: of that element over all of K.
    where: block by block; not in `to_dict`.
    """

    left: str
    right: str
    m: int
    n: int
    k: int
    output: str
    elements: int
    differing: int
    special: int
    largest_ulps: int
    mean_ulps: float
    largest_relative: float
    first: tuple[ElementDifference, ...]
    worst: ElementDifference | None
    step: Divergence | None
    schedules: tuple[dict[str, Any], dict[str, Any]]
    errors: ElementErrors | None
    where: DifferingBlocks

    @property
    def share(self) -> float:
        """Differing elements over all elements, 0 to 1."""
        return self.differing / self.elements if self.elements else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON once infinities and NaNs among the values are replaced."""
        plain = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "where"}
        plain["first"] = tuple(asdict(place) for place in self.first)
        plain |= {name: None if plain[name] is None else asdict(plain[name]) for name in ("worst", "step", "errors")}
        return {"schema": "hwsim.diff/1"} | plain | {"share": self.share}

    def _repr_html_(self) -> str:
        pairs: list[tuple[str, object]] = [("left", self.left), ("right", self.right)]
        pairs.append(("differ", f"{self.differing:,} of {self.elements:,} elements ({100 * self.share:.3g} %)"))
        if self.step is not None:
            s = self.step
            pairs.append((f"C[{s.row}, {s.column}] first differs", f"at k = {s.k_first} to {s.k_end - 1}"))
        rows = [(p.row, p.column, p.left_code, p.left, p.right_code, p.right, p.ulps) for p in self.first]
        head = ("row", "column", "left code", "left", "right code", "right", "ulps")
        return card(f"C[{self.m} x {self.n}], K = {self.k}, {self.output}", pairs, head, rows)

    def to_text(self) -> str:
        """A summary of a few lines."""
        lines = [
            f"left   {self.left}",
            f"right  {self.right}",
            f"C[{self.m} x {self.n}], K = {self.k}, {self.output}: {self.differing} of {self.elements} elements differ "
            f"({100 * self.share:.3g} %)",
        ]
        if self.differing:
            lines.append(
                f"largest difference {self.largest_ulps} ulps, mean of the differing {self.mean_ulps:.3g}; "
                f"largest relative {self.largest_relative:.3g}; {self.special} with an infinity or NaN"
            )
        lines += [f"  C[{p.row}, {p.column}]  {_side(p)}" for p in self.first]
        if self.worst is not None:
            lines.append(f"worst: C[{self.worst.row}, {self.worst.column}]  {_side(self.worst)}")
        return "\n".join([*lines, *self._of_element()])

    def _of_element(self) -> list[str]:
        """Lines on the chosen element."""
        lines = []
        if (e := self.errors) is not None:
            if self.step is None:
                lines.append(f"C[{e.row}, {e.column}] is {e.left_code} in both, and so is every sum before the last")
            if e.exact is not None:
                lines.append(
                    f"C[{e.row}, {e.column}] of these operands exactly: {e.exact:.9g}; relative error "
                    f"{_relative(e.left)} left, {_relative(e.right)} right"
                )
        if (s := self.step) is not None:
            before = "both from zero" if s.last_equal is None else f"both {s.last_equal} before"
            lines.append(
                f"C[{s.row}, {s.column}] first differs at k = {s.k_first} to {s.k_end - 1} ({before}): "
                f"{s.left_code} ({s.left:.9g}) against {s.right_code} ({s.right:.9g})"
                + (f"; equal again at {s.equal_again} later k" if s.equal_again else "")
            )
            if s.exact is not None:
                lines.append(
                    f"  exactly {s.exact:.9g} up to there; relative error {_relative(s.left_error)} left, "
                    f"{_relative(s.right_error)} right"
                )
            both = (("left", s.left_steps, s.right_steps), ("right", s.right_steps, s.left_steps))
            for name, steps, others in both:
                unlike = [step for step in steps if not step.is_as_in(others)]
                lines += [
                    f"  {name:5} term {step.term}, k = {step.k_start} to {step.k_stop - 1}: "
                    f"{step.c} ({step.c_value:.9g}) becomes {step.d} ({step.d_value:.9g})\n    {step.command}"
                    for step in unlike[:SHOWN]
                ]
                if not steps:
                    lines.append(f"  {name:5} no instruction has these K alone (written-out sums, scaled terms)")
                if len(unlike) > SHOWN:
                    lines.append(f"  {name:5} ... and {len(unlike) - SHOWN} more; --json has them")
        return lines


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
) -> Difference:
    """Compute A B in both settings and compare the codes.

    a, b: matrices as hwsim.run takes them (codes need `input_format`, or a `format` in the setting). element: (row,
    column) whose first difference in K is searched; by default the worst one (not for plans mixed block by block).
    rows, cols: compare only those (positions are still those of the whole product). first: number of positions listed.
    Each setting is evaluated from its plan and schedule: for devices whose program determines the bits, give `k_group`
    or a schedule. Raises InputError where the two have different output formats, or for operands or positions that do
    not fit.
    """
    threads = worker_count(threads)
    sides = [_side_of(a, b, setting, input_format) for setting in (left, right)]
    (left_side, x, y), (right_side, u, v) = sides
    if left_side.gemm.output != right_side.gemm.output:
        raise InputError(
            f"diff: the results are {left_side.gemm.output} and {right_side.gemm.output}; give both "
            "settings one output format"
        )
    (m, k), n = x.shape, y.shape[1]
    row_index, col_index = _indices("rows", rows, m), _indices("cols", cols, n)
    codes = []
    for index, (side, p, q) in enumerate(sides):

        def report(share: float, index: int = index) -> None:
            if progress is not None:
                progress((index + share) / 2)

        p, q = subset(p, rows=rows), subset(q, cols=cols)
        codes.append(side.product(p, q, threads=threads, progress=report))
    compared = _Compared(codes[0], codes[1], left_side.gemm.output, row_index, col_index)
    worst = compared.worst()
    where = element if element is not None else (worst.row, worst.column) if worst is not None else None
    step = errors = None
    if where is not None and not any(not side.by_rows for side in (left_side, right_side)):
        i, j = where
        for name, index, size in (("row", i, m), ("column", j, n)):
            if not 0 <= index < size:
                raise InputError(f"diff: element's {name} is {index}; allowed: 0 to {size - 1}")
        step = first_step((left_side, x, y), (right_side, u, v), i, j)
        errors = _errors((left_side, x, y), (right_side, u, v), i, j)
    return Difference(
        left=left.label or _label(left_side),
        right=right.label or _label(right_side),
        m=m,
        n=n,
        k=k,
        output=left_side.gemm.output,
        elements=codes[0].size,
        differing=compared.differing,
        special=compared.special,
        largest_ulps=compared.largest_ulps,
        mean_ulps=compared.mean_ulps,
        largest_relative=compared.largest_relative,
        first=compared.places(first),
        worst=worst,
        step=step,
        schedules=(left_side.schedule.to_dict(), right_side.schedule.to_dict()),
        errors=errors,
        where=_blocks(codes[0] != codes[1]),
    )


def _errors(left: Sided, right: Sided, row: int, column: int) -> ElementErrors:
    output = left[0].gemm.output
    codes = []
    for side, a, b in (left, right):
        x, y = side.pieces(subset(a, rows=[row]), subset(b, cols=[column]))
        codes.append(int(side.evaluate(x, y)[0, 0]))
    exact = exact_sum(subset(left[1], rows=[row]), subset(left[2], cols=[column]), left[1].shape[1])
    errors = [relative_error(_value(code, output), exact) for code in codes]
    return ElementErrors(
        row=row,
        column=column,
        left_code=_hex(codes[0], output),
        right_code=_hex(codes[1], output),
        exact=None if exact is None else float(exact),
        left=errors[0],
        right=errors[1],
    )


def first_step(left: Sided, right: Sided, row: int, column: int) -> Divergence | None:
    """Where the running sums of C[row, column] diverge, or None; each side is (setting, A, B).

    The running sum over the first k is the finished result of a product that ends there, with slices where the schedule
    puts them for the whole of K.
    """
    sums, step = [], 1
    k = left[1].shape[1]
    for side, a, b in (left, right):
        model = find(side.device, side.gemm.unit)
        assert model is not None
        step = math.lcm(step, model.k)
        pieces = side.pieces(subset(a, rows=[row]), subset(b, cols=[column]))
        sums.append(_Running(side, *pieces))
    stops = [*range(step, k, step), k]
    values = [(value := sums[0].at(end), sums[1].at(end), value == sums[1].at(end)) for end in stops]
    at = next((i for i, (_, _, same) in enumerate(values) if not same), None)
    if at is None:
        return None
    output = left[0].gemm.output
    one_code, other_code, _ = values[at]
    k_first = stops[at - 1] if at else 0
    exact = exact_sum(subset(left[1], rows=[row]), subset(left[2], cols=[column]), stops[at])
    return Divergence(
        row=row,
        column=column,
        step=step,
        k_first=k_first,
        k_end=stops[at],
        last_equal=_hex(values[at - 1][0], output) if at else None,
        left_code=_hex(one_code, output),
        right_code=_hex(other_code, output),
        left=_value(one_code, output),
        right=_value(other_code, output),
        equal_again=sum(same for _, _, same in values[at:]),
        exact=None if exact is None else float(exact),
        left_error=relative_error(_value(one_code, output), exact),
        right_error=relative_error(_value(other_code, output), exact),
        left_steps=unit_steps(left[0], sums[0].a, sums[0].b, k_first, stops[at]),
        right_steps=unit_steps(right[0], sums[1].a, sums[1].b, k_first, stops[at]),
    )


def _blocks(differs: AnyArray) -> DifferingBlocks:
    """The blocks of (rows, columns) truths."""
    down, across = (max(-(-size // CELLS), 1) for size in differs.shape)
    starts = [np.arange(0, size, span) for size, span in zip(differs.shape, (down, across), strict=True)]
    if not differs.size:
        return DifferingBlocks((down, across), np.zeros((0, 0), np.int64), np.zeros((0, 0), np.int64))
    counts, sizes = (
        np.add.reduceat(np.add.reduceat(x.astype(np.int64), starts[0], axis=0), starts[1], axis=1)
        for x in (differs, np.ones(differs.shape))
    )
    return DifferingBlocks((down, across), counts, sizes)


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
        self.at = np.argwhere(left != right)
        index = tuple(self.at.T)
        left_values, right_values = (
            Operand(np.atleast_2d(x[index]), output).values()[0].astype(np.float64) for x in (left, right)
        )
        self.values = (left_values, right_values)
        self.finite = np.isfinite(left_values) & np.isfinite(right_values)
        self.ulps: AnyArray = np.abs(_ordered(left[index], output) - _ordered(right[index], output))
        with np.errstate(all="ignore"):
            self.relative = np.abs(left_values - right_values) / np.maximum(np.abs(left_values), np.abs(right_values))
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
        """The differing element with the largest distance."""
        if not self.differing:
            return None
        if self.special:
            return self._place(int(np.argmin(self.finite)))
        return self._place(int(np.argmax(self.ulps.astype(np.float64))))

    def _place(self, i: int) -> ElementDifference:
        row, column = (int(x) for x in self.at[i])
        left_code, right_code = (int(x[row, column]) for x in self.codes)
        finite, relative = bool(self.finite[i]), float(self.relative[i])
        return ElementDifference(
            row=int(self.rows[row]),
            column=int(self.cols[column]),
            left_code=_hex(left_code, self.output),
            right_code=_hex(right_code, self.output),
            left=float(self.values[0][i]),
            right=float(self.values[1][i]),
            ulps=int(self.ulps[i]) if finite else None,
            relative=relative if finite and math.isfinite(relative) else None,
        )


def _side_of(a: Any, b: Any, setting: Variant, input_format: str | None) -> tuple[Evaluator, Operand, Operand]:
    scheme = scheme_of(setting.scheme) if isinstance(setting.scheme, str) else setting.scheme
    left, right = to_common_format(
        *(operand(x, y, input_format=input_format, format=setting.format) for x, y in (("A", a), ("B", b)))
    )
    if left.shape[1] != right.shape[0]:
        raise InputError(
            f"A is {left.shape[0]} x {left.shape[1]} and B {right.shape[0]} x {right.shape[1]}: "
            "A's columns must equal B's rows"
        )
    if setting.gemm is not None:
        operand_format = setting.gemm.problem.input_format  # kernels that multiply wider operands do not round them
        return (
            Evaluator(setting.gemm, load(setting.device)),
            left.converted(operand_format),
            right.converted(operand_format),
        )
    side = prepare(
        load(setting.device),
        scheme,
        Problem.of(left.format, left.shape[0], right.shape[1], left.shape[1]),
        format=setting.format,
        schedule=setting.schedule,
        output=setting.output,
        scheme_options=setting.options,
        operands=(left, right),
    )
    return side, left, right


def _indices(name: str, index: Any, size: int) -> AnyArray:
    whole = np.arange(size)
    return whole if index is None else whole[selected_indices(name, index, size)]


def _label(side: Evaluator) -> str:
    plain, schedule = Schedule().to_dict(), side.schedule.to_dict()
    skipped = ("instruction", "slice_multiple", "epilogue")
    settings = [f"{name}={schedule[name]}" for name in plain if name not in skipped and schedule[name] != plain[name]]
    return ", ".join([f"{side.device.name} {side.plan.scheme}", side.gemm.unit, *settings])


def _side(place: ElementDifference) -> str:
    ulps = "" if place.ulps is None else f", {place.ulps} ulps"
    return f"{place.left_code} ({place.left:.9g}) against {place.right_code} ({place.right:.9g}){ulps}"


def _relative(error: float | None) -> str:
    return "unknown" if error is None else f"{error:.3g}"


def _hex(code: int, output: str) -> str:
    return f"0x{code:0{max(format_of(output).bits, 8) // 4}x}"


def _value(code: int, output: str) -> float:
    array = np.array([[code]], f"u{max(format_of(output).bits, 8) // 8}")
    return float(Operand(array, output).values()[0, 0])


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
