"""The terms of a plan over a block of rows: chains in the unit, promoted sums, and terms that join after each run of K.

The module knows a plan's terms and the spans of K that they run over; it does not know how slices of K are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError
from hwsim.evaluate.plan_evaluation import PlanEvaluation, UnitResult
from hwsim.evaluate.scaling import Scaling
from hwsim.gemm.plan import Depth, Expression, OperandSum, Term

if TYPE_CHECKING:
    from hwsim.evaluate.chains import Chains
    from hwsim.evaluate.join import Value
    from hwsim.evaluate.split import Pieces
    from hwsim.gemm.schedule import KPartition, Run

AnyArray = NDArray[Any]
Codes = NDArray[Any]


class RowBlock:
    """A block of rows: its operands, and the partition of K. chains: of these operands. progress: called between terms,
    with the share done.
    """

    def __init__(
        self,
        job: PlanEvaluation,
        chains: Chains,
        a: Pieces,
        b: Pieces,
        cuts: KPartition,
        *,
        threads: int,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        self.job, self.chains, self.a, self.b = job, chains, a, b
        self.threads, self.progress = threads, progress
        self.scaling: Scaling | None = None
        if a.scales is not None and b.scales is not None:
            self.scaling = Scaling(a.scales, b.scales, job.schedule.scale_order, job.join.lanes)
        self.k = max(stop for runs in cuts.slices for run in runs for _, stop in run)
        self.cuts, self.shape = cuts, (*a.lead, a.shape[0], b.shape[1])
        sums = len(cuts.slices) if job.plan.join == "end" else sum(map(len, cuts.slices))
        self.done, self.all = 0, sums * len(job.plan.terms)

    def terms(self, runs: tuple[Run, ...], start: Codes | None) -> list[UnitResult | Value]:
        """The value of each term over a slice; the first run starts from `start`."""
        values = []
        for term in self.job.plan.terms:
            values.append(self.term(term, runs, start))
            self.done += 1
            if self.progress is not None and self.done < self.all:  # sums come after the last one
                self.progress(self.done / self.all)
        return values

    def joined_runs(self, runs: tuple[Run, ...]) -> list[UnitResult | Value]:
        """The terms combined after every run, and the combined values added up (join = "group")."""
        join = self.job.join
        total = None
        for run in runs:
            value = self.joined(self.terms((run,), None), (run,), True)
            if total is None:
                total = join.zeros(self.shape)
            total = join.add(total, value, in_place=True, threads=self.threads)
        return [total]

    def joined(
        self, parts: Sequence[UnitResult | Value], runs: tuple[Run, ...] | None = None, is_group: bool = False
    ) -> Value:
        """The combined value of the terms. runs: the K that it covers (None: all). is_group: over one promotion
        group.
        """
        values = [self.job.value(part, self.threads) for part in parts]
        plan = self.job.plan
        if plan.join == "group" and not is_group:
            return values[0]
        extra: dict[Expression, AnyArray] = {node: self._extra(node, runs) for node in self.job.extra}
        return self.job.join.joined(plan.combine, values, extra)

    def _extra(self, node: Expression, runs: tuple[Run, ...] | None) -> AnyArray:
        """The int64 values of an OperandSum or Depth node over the K of the runs."""
        spans = [span for run in (sum(self.cuts.slices, ()) if runs is None else runs) for span in run]
        if isinstance(node, Depth):
            depth = self.job.backend.zeros((1, 1), np.int64)
            depth[...] = node.factor * sum(stop - start for start, stop in spans)
            return depth
        assert isinstance(node, OperandSum)
        pieces, axis = (self.a, -1) if node.side == "a" else (self.b, -2)
        if pieces.source is None:
            raise InputError("the plan needs the sum of an operand: give the pieces as hwsim.evaluate.split makes them")
        source = pieces.source.array
        sums: list[AnyArray] = [
            (source[..., i:j] if axis == -1 else source[..., i:j, :]).sum(axis=axis, dtype=np.int64, keepdims=True)
            for i, j in spans
        ]
        return sum(sums[1:], sums[0]) * np.int64(node.factor)

    def term(self, term: Term, runs: tuple[Run, ...], start: Codes | None) -> UnitResult | Value:
        """One term: a single chain from `start`, or promoted partial sums of its runs."""
        job = self.job
        group = job.instructions.step(term) if term.k_group == "instruction" else term.k_group
        is_own = isinstance(group, int)
        if isinstance(group, int):
            runs = in_groups(runs, group, term.k_group == "instruction")
        spec = job.instructions.spec(term)
        is_promoted = is_own or (job.schedule.promotion_k is not None and job.plan.join == "end")
        scaling = self.scaling
        if scaling is not None and scaling.is_inside:
            return self._scaled_inside(term, runs, start, scaling)
        if scaling is not None and scaling.is_of_runs:
            return self._scaled_runs(term, runs, scaling)
        if not is_promoted:
            return UnitResult(self.chains.chain(term, runs[0], self.a.codes, self.b.codes, start, self.threads), spec)
        total = job.join.zeros(self.shape)
        specials = job.join.addition_specials(spec)
        while runs:
            done = 0
            if start is None and specials is not None:
                done = self.chains.promoted(term, runs, self.a.codes, self.b.codes, total, specials, self.threads)
            if not done:
                codes = self.chains.chain(term, runs[0], self.a.codes, self.b.codes, start, self.threads)
                total = job.join.add(
                    total, job.join.load(codes, spec, self.threads), in_place=True, threads=self.threads
                )
                start, done = None, 1
            runs = runs[done:]
        return total

    def _scaled_inside(
        self, term: Term, runs: tuple[Run, ...], start: Codes | None, scaling: Scaling
    ) -> UnitResult | Value:
        """One term whose products are scaled inside the unit."""
        job, spec = self.job, self.job.instructions.spec(term)
        parts = [
            self.chains.scaled(term, run, self.a.codes, self.b.codes, scaling.codes, start, self.threads)
            for run in runs
        ]
        if len(parts) == 1:
            return UnitResult(parts[0], spec)
        total = job.join.zeros(self.shape)
        for codes in parts:
            total = job.join.add(total, job.join.load(codes, spec), in_place=True, threads=self.threads)
        return total

    def _scaled_runs(self, term: Term, runs: tuple[Run, ...], scaling: Scaling) -> Value:
        """One term as the sum of its runs, each times the factors of its block of K."""
        job, spec = self.job, self.job.instructions.spec(term)
        total = job.join.zeros(self.shape)
        for run in runs:
            codes = self.chains.chain(term, run, self.a.codes, self.b.codes, None, self.threads)
            total = scaling.added(total, job.join.load(codes, spec, self.threads), run[0][0], self.threads)
        return total


def in_groups(runs: tuple[Run, ...], group: int, by_span: bool = False) -> tuple[Run, ...]:
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
    groups: list[list[tuple[int, int]]] = []
    room = 0
    for start, stop in spans:
        while start < stop:
            if not room:
                groups.append([])
                room = group
            end = min(start + room, stop)
            groups[-1].append((start, end))
            room -= end - start
            start = end
    return tuple(map(tuple, groups))
