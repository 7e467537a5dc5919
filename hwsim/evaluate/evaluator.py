"""The direct evaluator: the bits of a plan under a schedule on a device, without a program.

A plan and a schedule fix every rounding, so no dataflow is needed: each product of pieces is chained by the compiled
dot unit of its instruction over the spans that the schedule gives, and the results go through the plan's arithmetic. It
knows plans, schedules and devices; it knows no scheme, no tile and no time.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.devices import instruction_taking
from hwsim.errors import InputError, UnsupportedError
from hwsim.evaluate.chains import Chains
from hwsim.evaluate.epilogue import EpilogueEvaluator, narrowed, to_odd
from hwsim.evaluate.explicit import Arithmetic, diagonal, elements, gathered, reduced
from hwsim.evaluate.join import join_for
from hwsim.evaluate.specials import SpecialsPatch
from hwsim.evaluate.split import Pieces, as_pieces
from hwsim.formats import code_dtype, format_of
from hwsim.gemm.expressions import sequential_form
from hwsim.gemm.plan import Depth, Expression, OperandSum, Plan, Scaled, Sum, Term, TermValue
from hwsim.gemm.schedule import SLICE_MULTIPLE, Layout, Run, Schedule
from hwsim.gemm.summation import Chain, Reduction
from hwsim.libraries.model import observed

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.evaluate.join import Value
    from hwsim.numerics.units import DotSpec

__all__ = ["evaluate", "apply_epilogue", "first_unit", "resolved", "with_result_formats"]

Codes = NDArray[Any]
Array = NDArray[Any]
PRODUCTS_PER_CALL = 1 << 31  # of a thread between two reports of progress; also how long an interrupt may wait
LINES_PER_CALL = 256  # rows of a thread, and columns, that a call has at least: each arranges its A and B
VALUES_PER_CALL = 1 << 22  # of a thread's block of C in a call, those of all terms, slices and chains: memory
LEAST_LINES = 64  # where K is so long that 256 by 256 take too long
MACS_OF_A_CALL = 100_000  # what a call of a kernel costs besides its multiply-adds, in such
VALUES_AT_ONCE = 1 << 22  # of the additions of a written-out sum
UNIT_TYPES = {"fp64": "fp64", "int32": "int32"}  # working types of a unit's own results; others: fp32


def with_result_formats(plan: Plan, spec: DotSpec) -> Plan:
    """The plan with its arithmetic and output format filled in: a plan of one unsplit product takes the unit's."""
    is_bare = len(plan.terms) == 1 and isinstance(plan.combine, TermValue) and plan.split == "round"
    if not is_bare or (plan.arithmetic, plan.output_format) != ("fp32", "fp32") or spec.d == "fp32":
        return plan
    arithmetic: Any = UNIT_TYPES.get(spec.d, "fp32")
    return dataclasses.replace(plan, arithmetic=arithmetic, output_format=spec.d)


def resolved(schedule: Schedule, plan: Plan, device: Device) -> Schedule:
    """The schedule with everything filled in that it leaves to the plan and the device.

    Raises UnsupportedError for a plan that no instruction of the device serves, InputError where plan and schedule
    contradict each other.
    """
    chains = Chains(plan, device, schedule.instruction)
    plan = with_result_formats(plan, chains.spec(plan.terms[0]))
    _check(plan, [chains.spec(term) for term in plan.terms])
    if plan.k_group is not None and schedule.promotion_k not in (None, plan.k_group):
        raise InputError(
            f"schedule: promotion_k = {schedule.promotion_k}, but the scheme's k_group (or accumulate) says "
            f"{plan.k_group}; leave one of them out"
        )
    seen, names = observed(device), chains.names
    multiple = schedule.slice_multiple or (SLICE_MULTIPLE if seen is None else seen.slice_multiple)
    given = dataclasses.replace(
        schedule,
        instruction=names[0] if len(names) == 1 else None,
        slice_multiple=multiple,
        promotion_k=schedule.promotion_k or plan.k_group,
    )
    if given.start == "c" and (len(plan.terms) > 1 or plan.join == "group"):
        raise InputError(f"schedule: start='c' needs a plan with one term; {plan.scheme} has {len(plan.terms)}")
    return given


def takes_stacks(schedule: Schedule) -> bool:
    """Whether `evaluate` takes stacks of matrices under this schedule: not where it writes the order out."""
    return schedule.sum is None and not schedule.regions


def rows_at_once(plan: Plan, n: int, k: int) -> int:
    """The rows of A that one call takes with one thread: an interrupt waits for a call."""
    return max(LINES_PER_CALL, PRODUCTS_PER_CALL // max(n * k * plan.products, 1))


def block_at_once(plan: Plan, n: int, k: int, sums: int = 1) -> tuple[int, int]:
    """The rows of A with one thread, and the columns of B, that one call takes: an interrupt waits for a call.

    sums: how many values of each element of C a call keeps.
    """
    rows, per_element = rows_at_once(plan, n, k), max(k * plan.products, 1)
    rows = min(rows, max(LINES_PER_CALL, VALUES_PER_CALL // max(n * sums, 1)))
    most = min(PRODUCTS_PER_CALL // per_element, max(VALUES_PER_CALL // sums, LINES_PER_CALL**2))
    if rows * n <= most:
        return rows, n
    cols = most // rows
    if cols >= LINES_PER_CALL:
        return rows, cols
    lines = max(LEAST_LINES, math.isqrt(most))
    return min(lines, LINES_PER_CALL), min(max(lines, cols), LINES_PER_CALL)


def sums_at_once(plan: Plan, schedule: Schedule, slices: int) -> int:
    """How many values of each element of C are kept until they are combined. slices: of K."""
    chains = 1 if schedule.sum is None else _chain_count(schedule.sum)
    return len(plan.terms) * (1 if plan.join == "group" else max(slices, chains))


def _chain_count(node: Chain | Reduction) -> int:
    return 1 if isinstance(node, Chain) else sum(map(_chain_count, node.parts))


def first_unit(plan: Plan, schedule: Schedule, device: Device) -> str:
    """The name of the instruction of the plan's first product."""
    i, j = plan.terms[0].products[0]
    return instruction_taking(device, plan.a_pieces[i].format, plan.b_pieces[j].format, schedule.instruction)


def evaluate(
    plan: Plan,
    schedule: Schedule,
    device: Device,
    a: Pieces | Sequence[Codes],
    b: Pieces | Sequence[Codes],
    *,
    c: Array | None = None,
    bias: Array | None = None,
    layout: Layout | None = None,
    threads: int = 1,
    progress: Callable[[float], None] | None = None,
    made: PlanEvaluation | None = None,
) -> Codes:
    """Codes (m, n) of C in the epilogue's output format (by default the plan's, or the unit's).

    a, b: the plan's pieces, (m, K) and (K, n), any strides; plain codes where the plan needs no more; or stacks of
    these, (count, m, K) and (count, K, n), which give (count, m, n) (see `takes_stacks`). schedule:
    `resolved`. c: codes (m, n) of the output format. bias: (n,) values. layout: the partition of K, if not the
    schedule's for this K. threads, progress (called with 0..1): no influence on the bits. With some columns of b only,
    or some rows of a, the result equals those columns and rows of the full one. Raises InputError and UnsupportedError
    for what does not fit together. made: the evaluation of this plan, schedule and device, with or without a C; it is
    not changed.
    """
    left, right = as_pieces(a), as_pieces(b)
    job = PlanEvaluation(plan, schedule, device, c is not None) if made is None else made.afresh()
    (m, k), n = left.shape, right.shape[1]
    if not m * n:  # no rows or no columns chosen; strides of nothing fit no kernel
        return np.empty((*left.lead, m, n), code_dtype(format_of(job.output)))
    left, right = job.chains.taken("a", left), job.chains.taken("b", right)
    cuts = schedule.layout(k) if layout is None else layout
    rows, cols = job.block_at_once(n, k, len(cuts.slices))
    rows *= threads
    with np.errstate(all="ignore"):
        if (m <= rows and n <= cols) or left.lead:
            codes = job.block(left, right, c, bias, cuts, threads, progress)
            if progress is not None:
                progress(1.0)
            return codes
        out = np.empty((m, n), code_dtype(format_of(job.output)))
        done = 0
        for of_cols in (slice(start, min(start + cols, n)) for start in range(0, n, cols)):
            some = right if cols >= n else right.picked("b", of_cols)
            for of_rows in (slice(start, min(start + rows, m)) for start in range(0, m, rows)):
                block = of_rows, of_cols
                codes_c, of_bias = None if c is None else c[block], None if bias is None else bias[of_cols]
                size = (of_rows.stop - of_rows.start) * (of_cols.stop - of_cols.start)
                within = None
                if progress is not None:
                    within = partial(_share, progress, done / (m * n), (done + size) / (m * n))
                out[block] = job.block(left.picked("a", of_rows), some, codes_c, of_bias, cuts, threads, within)
                done += size
                if progress is not None:
                    progress(done / (m * n))
    return out


def _share(progress: Callable[[float], None], begin: float, end: float, share: float) -> None:
    """A progress callback that maps 0..1 onto the part of the whole from begin to end."""
    progress(begin + (end - begin) * share)


def apply_epilogue(
    plan: Plan,
    schedule: Schedule,
    device: Device,
    codes: Codes,
    *,
    c: Array | None = None,
    bias: Array | None = None,
    threads: int = 1,
) -> Codes:
    """Apply the schedule's epilogue to a finished sum, given as codes of the plan's own output format."""
    job = PlanEvaluation(plan, schedule, device, c is not None)
    if job.output == plan.output_format and job.epilogue.is_plain(bias):
        return codes
    with np.errstate(all="ignore"):
        return job.epilogue.apply(job.join.lanes.load(codes), c, bias, 1, threads)


def _check(plan: Plan, specs: Sequence[DotSpec]) -> None:
    """Raise for a plan whose arithmetic cannot use the units' result formats."""
    is_whole = plan.arithmetic in ("int32", "int64")
    for spec in specs:
        if is_whole and not format_of(spec.d).is_integer:
            raise UnsupportedError(
                f"scheme {plan.scheme}: {plan.arithmetic} sums need an integer unit; it gives {spec.d}"
            )
        if plan.arithmetic == "fp64" and plan.split == "round" and spec.d != "fp64":
            raise UnsupportedError(f"scheme {plan.scheme}: it needs a unit that gives fp64; this one gives {spec.d}")
    if any(isinstance(node, OperandSum | Depth) for node in _nodes(plan.combine)) and not is_whole:
        raise UnsupportedError(f"scheme {plan.scheme}: sums of operands are for integer arithmetic")
    if plan.split == "slices" and is_whole:
        raise UnsupportedError(f"scheme {plan.scheme}: the exponents of slices have no place in {plan.arithmetic}")


def _nodes(expression: Expression) -> list[Expression]:
    """All nodes of an expression, without recursion, because sums of many slices are very deep."""
    found, left = [], [expression]
    while left:
        node = left.pop()
        found.append(node)
        match node:
            case Sum(one, other):
                left += [other, one]
            case Scaled(value, _):
                left.append(value)
    return found


class PlanEvaluation:
    """One plan under one schedule: everything that does not depend on the block of rows."""

    def __init__(self, plan: Plan, schedule: Schedule, device: Device, has_c: bool) -> None:
        self.chains = Chains(plan, device, schedule.instruction, schedule.k_permutation)
        self.spec = self.chains.spec(plan.terms[0])
        plan = with_result_formats(plan, self.spec)
        self.plan, self.schedule, self.device = plan, schedule, device
        self.join = join_for(plan.arithmetic, device, self.spec, plan.output_format)
        self.output = schedule.epilogue.output_format or plan.output_format
        self.from_c = schedule.start == "c" and has_c
        self._blocks: dict[tuple[int, int, int], tuple[int, int]] = {}
        self.epilogue = EpilogueEvaluator(
            schedule.epilogue, self.join, device, self.spec, self.output, has_c, self.from_c
        )
        self.is_float = plan.arithmetic in ("fp32", "fp64")
        self.patch = SpecialsPatch(self.join, plan.output_format) if plan.specials == "fma_chain" else None
        self.extra = [node for node in _nodes(plan.combine) if isinstance(node, OperandSum | Depth)]
        if plan.arithmetic == "exact" and (format_of(self.output).is_integer or not format_of(self.output).signed):
            raise UnsupportedError(f"exact sums are rounded to signed float formats; the output is {self.output}")
        if not self.is_float and (schedule.partial_format or schedule.merge_format):
            raise UnsupportedError(
                f"schedule: the {plan.arithmetic} sums of slices are merged as such; leave the formats out"
            )
        if schedule.sum is not None and (plan.join != "end" or self.from_c):
            raise UnsupportedError(
                f"schedule: a written-out sum is for products that join at their end and start from zero; "
                f"{plan.scheme} joins groups, or C is in the accumulator"
            )
        self.has_one_sum = len(plan.terms) == 1 or plan.join == "group"  # of each slice
        is_in_turn = schedule.merge_into == "output" and not self.has_one_sum
        self.steps = sequential_form(plan.combine) if is_in_turn else None
        if schedule.merge_into == "output" and (
            not self.is_float or (self.patch is not None and self.steps is None) or self.output != self.spec.d
        ):
            raise UnsupportedError(
                f"schedule: merge_into='output' is known for fp32 and fp64 results without rounding or patches; the "
                f"unit gives {self.spec.d}, the output is {self.output}"
            )

    def afresh(self) -> PlanEvaluation:
        """The same, for other operands: it shares nothing that they change (blocks follow from sizes)."""
        other = object.__new__(PlanEvaluation)
        other.__dict__.update(self.__dict__)
        other.chains = self.chains.afresh()
        return other

    def block_at_once(self, n: int, k: int, slices: int) -> tuple[int, int]:
        """The rows of A with one thread, and the columns of B, of a call. slices: of K."""
        found = self._blocks.get((n, k, slices))
        if found is None:
            found = block_at_once(self.plan, n, k, sums_at_once(self.plan, self.schedule, slices))
            self._blocks[n, k, slices] = found
        return found

    def makes_values(self, slices: int, bias: Array | None) -> bool:
        """Whether values are made of the unit's results before they are the output's codes. slices: of K."""
        is_promoted = self.schedule.promotion_k is not None or any(x.k_group is not None for x in self.plan.terms)
        is_one_chain = slices == 1 and self.schedule.sum is None and self.patch is None and not is_promoted
        return not (is_one_chain and self._is_unit_result(bias))

    def block(
        self,
        a: Pieces,
        b: Pieces,
        c: Codes | None,
        bias: Array | None,
        cuts: Layout,
        threads: int,
        progress: Callable[[float], None] | None = None,
    ) -> Codes:
        """Codes of the output for a block of rows. progress: called between terms, with the share done."""
        start = None
        if self.from_c:
            assert c is not None
            lanes = self.join.lanes
            start = lanes.store(lanes.values(c, format_of(self.output)), format_of(self.spec.c), "RNE")
        part = _RowBlock(self, a, b, cuts, threads, progress)
        written = self.schedule.sum
        slices = [
            [self._explicit_sum(term, written, a, b, threads) for term in self.plan.terms]
            if written is not None
            else part.joined_runs(runs)
            if self.plan.join == "group"
            else part.terms(runs, start if index == 0 else None)
            for index, runs in enumerate(cuts.slices)
        ]
        if self.schedule.merge_into == "output" and len(slices) > 1 and self.has_one_sum:
            return self._into_output([part.joined(values) for values in slices], c, bias, threads)
        parts = slices[0]
        if len(slices) > 1 and self.steps is None:
            parts = [self._merge([values[t] for values in slices]) for t in range(len(parts))]
        special = None if self.patch is None else self.patch.find(a, b, part.k)
        if isinstance(parts[0], _UnitResult) and special is None and self._is_unit_result(bias):
            return parts[0].codes
        acc = part.joined(parts) if len(slices) == 1 or self.steps is None else self._calls_into_output(slices)
        if a.exponents is not None and b.exponents is not None:
            acc = self.join.raised(acc, a.exponents[..., :, None] + b.exponents[..., None, :])
        if special is not None and self.is_float:
            special.put(acc, threads)
        count = len(written.parts) if isinstance(written, Reduction) else len(slices)
        codes = self.epilogue.apply(acc, c, bias, count, threads)
        if special is not None and not self.is_float:
            special.put_codes(codes, self.epilogue, c, bias, threads)
        return codes

    def _explicit_sum(
        self, term: Term, node: Chain | Reduction, a: Pieces, b: Pieces, threads: int
    ) -> _UnitResult | Value:
        """One term in the order that the schedule writes out; promotion counts from the start of each chain."""
        join, step = self.join, self.chains.step(term)
        if self.schedule.k_permutation is not None:  # its blocks begin anew with an instruction
            step = math.lcm(step, len(self.schedule.k_permutation))
        promotion = self.schedule.promotion_k if term.k_group is None else None  # a term's own groups go before
        group = term.k_group if isinstance(term.k_group, int) else promotion
        m, n = a.shape[0], b.shape[1]

        def of_chains(chains: Sequence[Chain]) -> list[_UnitResult | Value]:
            most = math.isqrt(MACS_OF_A_CALL // max(1, m * n * elements(chains[0]))) if join.is_array else 1
            count = min(max(most, 1), len(chains))
            return [x for at in range(0, len(chains), count) for x in some(chains[at : at + count])]

        def some(chains: Sequence[Chain]) -> list[_UnitResult | Value]:
            left, right, spans = gathered(chains, step, group, a.codes, b.codes)
            if not spans:
                return [zero() for _ in chains]
            layout = Layout(((tuple(spans),),))
            runs: tuple[Run, ...] = (tuple(spans),)
            if promotion is not None:
                runs = _cut(runs, promotion)
            found = _RowBlock(self, as_pieces(left), as_pieces(right), layout, threads, None)._term(term, runs, None)
            if len(chains) == 1:
                return [found]
            if isinstance(found, _UnitResult):
                return [_UnitResult(codes, found.spec) for codes in diagonal(found.codes, len(chains))]
            return list(diagonal(found, len(chains)))

        def add(
            left: list[_UnitResult | Value], right: list[_UnitResult | Value], fmt: str | None
        ) -> list[_UnitResult | Value]:
            count = max(1, VALUES_AT_ONCE // max(1, m * n)) if join.is_array else 1
            return [
                x for at in range(0, len(left), count) for x in sums(left[at : at + count], right[at : at + count], fmt)
            ]

        def sums(left: list[_UnitResult | Value], right: list[_UnitResult | Value], fmt: str | None) -> list[Value]:
            x, y = (self._side_by_side(side, threads) for side in (left, right))
            total = join.add(x, y, threads=threads) if fmt is None else self._narrow_sum(x, y, fmt)
            return [total] if len(left) == 1 else list(total.reshape(len(left), m, n))

        def stored(values: list[_UnitResult | Value], fmt: str | None) -> list[_UnitResult | Value]:
            if fmt is None:
                return values
            self._refuse_formats()
            return [narrowed(join.lanes, self.value(value, threads), fmt) for value in values]

        def zero() -> Value:
            return join.zeros((m, n))

        return reduced(node, Arithmetic(of_chains, add, stored, zero))

    def _side_by_side(self, parts: Sequence[_UnitResult | Value], threads: int) -> Value:
        """Values of one shape as one array, one after the other."""
        if len(parts) == 1:
            return self.value(parts[0], threads)
        if all(isinstance(part, _UnitResult) for part in parts):
            codes = np.concatenate([part.codes for part in parts])
            return self.value(_UnitResult(codes, parts[0].spec), threads)
        return np.concatenate([self.value(part, threads) for part in parts])

    def value(self, part: _UnitResult | Value, threads: int = 1) -> Value:
        """The value of a unit's result, loaded from its codes where needed."""
        return self.join.load(part.codes, part.spec, threads) if isinstance(part, _UnitResult) else part

    def _into_output(self, slices: Sequence[Array], c: Codes | None, bias: Array | None, threads: int) -> Codes:
        """D from the first slice, then alpha times each later slice added to it (merge_into = "output")."""
        value: Array | None = None
        lanes = self.join.lanes
        for slice_sum in _ordered(slices, self.schedule.merge_order):
            if value is None:
                value = self.epilogue.scaled_sum(slice_sum, c, len(slices))
                if bias is not None:  # it is part of the first slice's epilogue
                    value = lanes.add(value, np.broadcast_to(bias.astype(lanes.dtype), value.shape))
            else:
                value = lanes.add(value, lanes.multiply(self.schedule.epilogue.alpha, slice_sum))
        assert value is not None
        return self.epilogue.biased_codes(value, lanes, None, threads)

    def _calls_into_output(self, slices: Sequence[Sequence[_UnitResult | Value]]) -> Value:
        """The terms as calls that add to C, each slice of K of each of them in turn (merge_into = "output")."""
        assert self.steps is not None
        join, total = self.join, None
        for step in self.steps:
            ordered = _ordered([self.value(values[step.term]) for values in slices], self.schedule.merge_order)
            for index, value in enumerate(ordered):
                added = join.scaled(value, step.own) if step.own else value
                if total is None:
                    total = added
                    continue
                if step.exponent and not index:
                    total = join.scaled(total, step.exponent)
                total = join.add(added, total) if step.order == "value" and not index else join.add(total, added)
        return total

    def _is_unit_result(self, bias: Array | None) -> bool:
        """Whether the result is the unit's own, with nothing done to it."""
        is_single = isinstance(self.plan.combine, TermValue) and len(self.plan.terms) == 1
        is_same = self.output == self.spec.d and self.plan.split != "slices"
        return is_single and is_same and self.epilogue.is_plain(bias)

    def _merge(self, parts: list[_UnitResult | Value]) -> Value:
        """The slices' sums in their stored format, added in the schedule's order."""
        schedule, values = self.schedule, [self.value(part) for part in parts]
        if not self.is_float:
            return self._total(values)
        if schedule.partial_format is not None:
            values = [narrowed(self.join.lanes, value, schedule.partial_format) for value in values]
        values = _ordered(values, schedule.merge_order)
        if schedule.merge_order != "pairwise":
            return self._in_own_type(self._total(values))
        while len(values) > 1:
            pairs = [self._sum(x, y) for x, y in zip(values[::2], values[1::2], strict=False)]
            values = pairs + values[len(pairs) * 2 :]
        return self._in_own_type(values[0])

    def _in_own_type(self, value: Value) -> Value:
        """A sum that was merged in a wider type, rounded to the accumulator's as the device's lanes round."""
        return narrowed(self.join.lanes, value, self.join.format.name).astype(self.join.dtype, copy=False)

    def _total(self, values: Sequence[Value]) -> Value:
        total = values[0]
        for value in values[1:]:
            total = self._sum(total, value)
        return total

    def _refuse_formats(self) -> None:
        """Raise UnsupportedError where the sums are no floats, which alone are rounded to another format."""
        if not self.is_float:
            raise UnsupportedError(
                f"schedule: {self.plan.arithmetic} sums are added as such; leave format and stored of reductions out"
            )

    def _narrow_sum(self, left: Value, right: Value, fmt: str) -> Value:
        """One addition of a written-out reduction, rounded once to a format no wider than the accumulator's.

        Below the accumulator's format it is an addition there, rounded to odd and then once more: the operands may have
        more digits than the format, which `_sum` takes off first.
        """
        self._refuse_formats()
        if format_of(fmt).bits > self.join.format.bits:
            raise UnsupportedError(
                f"schedule: a reduction in {fmt} of {self.join.format.name} sums; allowed: formats that are no wider"
            )
        total = self.join.add(left, right)
        return total if fmt == self.join.format.name else narrowed(self.join.lanes, to_odd(total, left, right), fmt)

    def _sum(self, left: Value, right: Value) -> Value:
        """One addition of the merge.

        Below fp32 it is an fp32 addition rounded once more, which gives the same bits as one rounding, because fp32 has
        more than twice the digits and two.
        """
        wanted, lanes = self.schedule.merge_format, self.join.lanes
        if wanted == "fp64":
            left, right = left.astype(np.float64), right.astype(np.float64)
        elif wanted is not None:
            left, right = narrowed(lanes, left, wanted), narrowed(lanes, right, wanted)
        total = self.join.add(left, right)
        return total if wanted is None else narrowed(lanes, total, wanted)


class _RowBlock:
    """A block of rows: its operands, and the partition of K."""

    def __init__(
        self,
        job: PlanEvaluation,
        a: Pieces,
        b: Pieces,
        cuts: Layout,
        threads: int,
        progress: Callable[[float], None] | None,
    ) -> None:
        self.job, self.a, self.b, self.threads, self.progress = job, a, b, threads, progress
        self.k = max(stop for runs in cuts.slices for run in runs for _, stop in run)
        self.cuts, self.shape = cuts, (*a.lead, a.shape[0], b.shape[1])
        sums = len(cuts.slices) if job.plan.join == "end" else sum(map(len, cuts.slices))
        self.done, self.all = 0, sums * len(job.plan.terms)

    def terms(self, runs: tuple[Run, ...], start: Codes | None) -> list[_UnitResult | Value]:
        """The value of each term over a slice; the first run starts from `start`."""
        values = []
        for term in self.job.plan.terms:
            values.append(self._term(term, runs, start))
            self.done += 1
            if self.progress is not None and self.done < self.all:  # sums come after the last one
                self.progress(self.done / self.all)
        return values

    def joined_runs(self, runs: tuple[Run, ...]) -> list[_UnitResult | Value]:
        """The terms combined after every run, and the combined values added up (join = "group")."""
        join = self.job.join
        total = None
        for run in runs:
            value = self.joined(self.terms((run,), None), (run,), True)
            if total is None:
                total = join.zeros(self.shape)
            total = join.add(total, value, own=True, threads=self.threads)
        return [total]

    def joined(
        self, parts: Sequence[_UnitResult | Value], runs: tuple[Run, ...] | None = None, is_group: bool = False
    ) -> Value:
        """The combined value of the terms. runs: the K that it covers (None: all). is_group: over one promotion
        group.
        """
        values = [self.job.value(part, self.threads) for part in parts]
        plan = self.job.plan
        if plan.join == "group" and not is_group:
            return values[0]
        extra: dict[Expression, Array] = {node: self._extra(node, runs) for node in self.job.extra}
        return self.job.join.joined(plan.combine, values, extra)

    def _extra(self, node: Expression, runs: tuple[Run, ...] | None) -> Array:
        """The int64 values of an OperandSum or Depth node over the K of the runs."""
        spans = [span for run in (sum(self.cuts.slices, ()) if runs is None else runs) for span in run]
        if isinstance(node, Depth):
            return np.full((1, 1), node.factor * sum(stop - start for start, stop in spans), np.int64)
        assert isinstance(node, OperandSum)
        pieces, axis = (self.a, -1) if node.side == "a" else (self.b, -2)
        if pieces.source is None:
            raise InputError("the plan needs the sum of an operand: give the pieces as hwsim.evaluate.split makes them")
        source = pieces.source.array
        found = sum(
            (source[..., i:j] if axis == -1 else source[..., i:j, :]).sum(axis=axis, dtype=np.int64, keepdims=True)
            for i, j in spans
        )
        return np.asarray(found) * np.int64(node.factor)

    def _term(self, term: Term, runs: tuple[Run, ...], start: Codes | None) -> _UnitResult | Value:
        """One term: a single chain from `start`, or promoted partial sums of its runs."""
        job = self.job
        group = job.chains.step(term) if term.k_group == "instruction" else term.k_group
        is_own = isinstance(group, int)
        if isinstance(group, int):
            runs = _cut(runs, group, term.k_group == "instruction")
        spec = job.chains.spec(term)
        is_promoted = is_own or (job.schedule.promotion_k is not None and job.plan.join == "end")
        if not is_promoted:
            return _UnitResult(job.chains.chain(term, runs[0], self.a.codes, self.b.codes, start, self.threads), spec)
        total = job.join.zeros(self.shape)
        specials = job.join.addition_specials(spec)
        while runs:
            done = 0
            if start is None and specials is not None:
                done = job.chains.promoted(term, runs, self.a.codes, self.b.codes, total, specials, self.threads)
            if not done:
                codes = job.chains.chain(term, runs[0], self.a.codes, self.b.codes, start, self.threads)
                total = job.join.add(total, job.join.load(codes, spec, self.threads), own=True, threads=self.threads)
                start, done = None, 1
            runs = runs[done:]
        return total


@dataclasses.dataclass(slots=True)
class _UnitResult:
    """A unit's own result, kept as codes until an operation needs its value."""

    codes: Codes
    spec: DotSpec


def _cut(runs: tuple[Run, ...], group: int, by_span: bool = False) -> tuple[Run, ...]:
    """The K of the runs divided into runs of `group` elements, counted from the first; by_span: from each span's first.

    Spans of one run begin new instructions, and so do their parts; runs that go on where the one before ends do not.
    """
    spans: list[tuple[int, int]] = []
    for run in runs:
        for index, (start, stop) in enumerate(run):
            if not index and spans and spans[-1][1] == start:
                spans[-1] = (spans[-1][0], stop)
            else:
                spans.append((start, stop))
    if len(spans) == 1 or by_span:
        return tuple(((at, min(at + group, stop)),) for start, stop in spans for at in range(start, stop, group))
    found: list[list[tuple[int, int]]] = []
    room = 0
    for start, stop in spans:
        while start < stop:
            if not room:
                found.append([])
                room = group
            end = min(start + room, stop)
            found[-1].append((start, end))
            room -= end - start
            start = end
    return tuple(map(tuple, found))


def _ordered(slices: Sequence[Array], order: str | tuple[int, ...]) -> list[Array]:
    """The slices in the order of addition ("pairwise": unchanged)."""
    if isinstance(order, tuple):
        return [slices[i] for i in order]
    return list(slices)[::-1] if order == "descending" else list(slices)
