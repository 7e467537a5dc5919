"""A library's answer for a call: its own where it was recorded, else what the trees give, or an estimate.

It knows where answers come from and which stands before which; not how kernels add, nor what they are called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hwsim.errors import UnsupportedError
from hwsim.libraries.cublas.answer import Answer, Generation
from hwsim.libraries.cublas.answers.fitted import BATCHES, FittedAnswer, FittedChoices
from hwsim.libraries.cublas.answers.neighbours import near
from hwsim.libraries.cublas.answers.sweeps import REFUSED_ID, CallKind, Sweeps, shipped
from hwsim.libraries.cublas.answers.vectors import is_vector
from hwsim.libraries.cublas.calls import ALL_ASKED, Extrapolation, HeuristicQuery
from hwsim.libraries.cublas.versions import ASSUMED, Version

if TYPE_CHECKING:
    from hwsim.libraries.cublas.answers.estimated import Estimate, Estimates

ANSWERED = "microbenchmark"  # evidence: the library's own answer, asked on the chip
ROUNDED = 0.5 / 51  # by so much a tree's confidence is rounded at most (lab/tools/library/grow.py)


class KernelAnswer(NamedTuple):
    """An answer, recorded or fitted: cuBLASLt's numbers (id, stages, slices, reduction, custom option), those of tile,
    cluster and swizzle (None: not known yet), how sure it is, and of what in the call it does not speak. estimate:
    where it is one; then `order` has the K of a stage for the stages."""

    order: tuple[int, ...]
    shape: tuple[int, ...] | None
    confidence: float
    evidence: str
    unasked: Extrapolation = ALL_ASKED
    estimate: Estimate | None = None


@dataclass(frozen=True, slots=True)
class AnswerSources:
    """Where answers for a chip come from. answers: of a user's file; they stand before what is shipped. estimates:
    where the chip was not asked; they stand for all.
    """

    version: Version
    device: str
    answers: Sweeps | None
    estimates: Estimates | None

    @property
    def fitted(self) -> FittedChoices:
        """The trees' choices."""
        return FittedChoices(self.version, self.device)

    def of(
        self, query: HeuristicQuery, sizes_m: Sequence[int], progress: Callable[[float], None] | None = None
    ) -> list[KernelAnswer]:
        """What the library answers for a call with each m: its own answers where they were recorded, else fitted ones,
        or those for nearly the same K where they are surer.

        Recorded answers are of single products; for a batch only a user's own stand, where nothing was fitted. Raises
        UnsupportedError where the library refuses the call and where nothing is known of it.
        """
        if self.estimates is not None:
            estimated = []
            for place, m in enumerate(sizes_m):
                estimated.append(_estimated(self.estimates, _with_m(query, m)))
                if progress is not None:
                    progress((place + 1) / len(sizes_m))
            return estimated
        answers = self._recorded(query, sizes_m)
        missing: dict[bool, list[int]] = {}  # by whether m fits the alignment of a row, where A's rows are as long as m
        for place, answer in enumerate(answers):
            if answer is None and query.batch > 1 and is_vector(sizes_m[place], query.call.n):
                of_vector = self.fitted.vector_answer(_with_m(query, sizes_m[place]))
                answers[place] = None if of_vector is None else self._of_trees(of_vector)
            if answers[place] is None:
                is_aligned = query.call.a_layout == "rows" or sizes_m[place] % query.call.vector_elements == 0
                missing.setdefault(is_aligned, []).append(place)
        for places in missing.values():
            sizes = np.array([sizes_m[place] for place in places])
            self._check_own(_with_m(query, int(sizes[0])))
            fitted, beside = self.fitted.answers(query, sizes), self._beside(query, sizes.tolist())
            for place, fit, other in zip(places, fitted, beside, strict=True):
                is_surer = other is not None and other.confidence > fit.confidence - ROUNDED
                answers[place] = other if is_surer else self._of_trees(fit)
        return [answer for answer in answers if answer is not None]

    def full(
        self, query: HeuristicQuery, source: KernelAnswer, cores: int, generation: Generation
    ) -> tuple[Answer, int]:
        """An answer with its tile and cluster, as far as they are known; and the stages (0: not said)."""
        if source.estimate is not None:
            return source.estimate.answer, source.estimate.stages
        trees = self.fitted.trees
        number, stages, slices, reduction, custom = source.order
        tile_k, count = trees.stages.get(stages, (None, 0))
        numbers = self.fitted.tile(query, source.order) if source.shape is None else source.shape
        tile, cluster = (trees.tiles.get(numbers[0]), trees.clusters.get(numbers[1])) if numbers else (None, None)
        swizzle = numbers[2] if len(numbers) > 2 else 0
        answer = Answer(
            algorithm=number,
            tile_k=tile_k,
            slices=slices,
            reduction=reduction,
            custom=custom,
            tile=tile,
            cluster=cluster,
            swizzle=swizzle,
            cores=cores,
            generation=generation,
        )
        return answer, count

    def _of_trees(self, fitted: FittedAnswer) -> KernelAnswer:
        evidence = ASSUMED if any(fitted.unasked) else self.version.evidence
        return KernelAnswer(fitted.order, None, fitted.confidence, evidence, fitted.unasked)

    def _recorded(self, query: HeuristicQuery, sizes_m: Sequence[int]) -> list[KernelAnswer | None]:
        """The library's own answers, None where there is none."""
        call, is_batch = query.call, query.batch > 1
        answers: list[KernelAnswer | None] = [None] * len(sizes_m)
        unasked = Extrapolation((BATCHES,)) if is_batch else ALL_ASKED
        files = [] if self.answers is None else [self.answers]
        if files and is_batch and self.fitted.entries(call, query.fast, True):
            files = []
        files += [shipped(self.version.layers)] if self.version.layers and not is_batch else []
        kind = kind_of(query)
        for file in files:
            is_own = not is_batch and (file is self.answers or self.version.is_asked)
            sweep = file.sweep(self.device, kind)
            rows = [] if sweep is None else sweep.at(sizes_m, call.n, call.k)
            for place, row in enumerate(rows):
                if row is not None and row[0] == REFUSED_ID:
                    raise UnsupportedError(
                        f"cuBLASLt refuses {sizes_m[place]} x {call.n} x {call.k}, {kind.text} ({file.path.name}); "
                        f"leave m = {sizes_m[place]} out, or take other sizes, formats or layouts"
                    )
                if row is not None and answers[place] is None:
                    shape = row[5:] if row[5] >= 0 else None
                    answers[place] = KernelAnswer(row[:5], shape, 1.0, ANSWERED if is_own else ASSUMED, unasked)
        return answers

    def _beside(self, query: HeuristicQuery, sizes_m: Sequence[int]) -> list[KernelAnswer | None]:
        """What the library answered, for each m, for weights of the same n and nearly the same k; None where for
        none.
        """
        files, call = self.version.layers, query.call
        sweep = shipped(files).sweep(self.device, kind_of(query)) if files and query.batch == 1 else None
        if sweep is None:
            return [None] * len(sizes_m)
        neighbours = near(self.version.neighbours, sweep, call.operand, sizes_m, call.n, call.k)
        evidence = self.version.evidence
        return [
            None if neighbour is None else KernelAnswer(neighbour.answer[:5], None, neighbour.confidence, evidence)
            for neighbour in neighbours
        ]

    def _check_own(self, query: HeuristicQuery) -> None:
        """Raise UnsupportedError where a user's file lacks a call of which nothing is fitted."""
        recorded, call = self.answers, query.call
        if recorded is None or self.fitted.simple_entries(call, query.fast):
            return
        kind = kind_of(query)
        raise UnsupportedError(
            f"{recorded.path}: no answer for {call.m} x {call.n} x {call.k}, {kind.full_text}"
            f"{_there(recorded.kinds(self.device, call.n, call.k), kind)}, and no fitted choices for "
            f"{recorded.library} {recorded.version} on {self.device}; record this call (hwsim library record)"
        )


def kind_of(query: HeuristicQuery) -> CallKind:
    """As files of answers key a call."""
    call, told = query.call, query.told
    return CallKind(
        operand=call.operand,
        output=call.output,
        bias=query.bias,
        fast=query.fast,
        a_layout=call.a_layout,
        b_layout=call.b_layout,
        workspace_bytes=told.workspace_bytes,
        reductions=told.mask,
    )


def _with_m(query: HeuristicQuery, m: int) -> HeuristicQuery:
    return query._replace(call=query.call._replace(m=int(m)))


def _estimated(estimates: Estimates, query: HeuristicQuery) -> KernelAnswer:
    """The estimate for a call, on a chip that was not asked."""
    estimate = estimates.of(query.call, query.fast, query.batch, query.told.workspace_bytes)
    if not query.told.mask:
        estimate = estimate._replace(answer=estimate.answer._replace(slices=1, reduction=0))
    answer = estimate.answer
    order = (answer.algorithm, answer.tile_k or 0, answer.slices, answer.reduction, answer.custom)
    return KernelAnswer(order, None, estimate.confidence, ASSUMED, estimate=estimate)


def _there(kinds: list[CallKind], wanted: CallKind) -> str:
    """What a file has for a weight, in words; nothing where it has nothing."""
    if wanted in kinds:
        return " (it has this n and k for other m)"
    return f" (it has this n and k for {' and for '.join(kind.full_text for kind in kinds)})" if kinds else ""
