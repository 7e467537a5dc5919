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
from hwsim.libraries.cublas.calls import ALL_ASKED, Asked, Unasked
from hwsim.libraries.cublas.versions import ASSUMED, Version

if TYPE_CHECKING:
    from hwsim.libraries.cublas.answers.estimated import Estimate, Estimates

ANSWERED = "microbenchmark"  # evidence: the library's own answer, asked on the chip
ROUNDED = 0.5 / 51  # by so much a tree's confidence is rounded at most (lab/tools/library/grow.py)


class FoundAnswer(NamedTuple):
    """An answer, recorded or fitted: cuBLASLt's numbers (id, stages, slices, reduction, custom option), those of tile,
    cluster and swizzle (None: not known yet), how sure it is, and of what in the call it does not speak. estimate:
    where it is one; then `order` has the K of a stage for the stages."""

    order: tuple[int, ...]
    shape: tuple[int, ...] | None
    confidence: float
    evidence: str
    unasked: Unasked = ALL_ASKED
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
        self, asked: Asked, sizes_m: Sequence[int], progress: Callable[[float], None] | None = None
    ) -> list[FoundAnswer]:
        """What the library answers for a call with each m: its own answers where they were recorded, else fitted ones,
        or those for nearly the same K where they are surer.

        Recorded answers are of single products; for a batch only a user's own stand, where nothing was fitted. Raises
        UnsupportedError where the library refuses the call and where nothing is known of it.
        """
        if self.estimates is not None:
            estimated = []
            for place, m in enumerate(sizes_m):
                estimated.append(_estimated(self.estimates, _with_m(asked, m)))
                if progress is not None:
                    progress((place + 1) / len(sizes_m))
            return estimated
        found = self._recorded(asked, sizes_m)
        missing: dict[bool, list[int]] = {}  # by whether m fits the alignment of a row, where A's rows are as long as m
        for place, one in enumerate(found):
            if one is None and asked.batch > 1 and is_vector(sizes_m[place], asked.call.n):
                own = self.fitted.vector_answer(_with_m(asked, sizes_m[place]))
                found[place] = None if own is None else self._of_trees(own)
            if found[place] is None:
                is_aligned = asked.call.a_layout == "rows" or sizes_m[place] % asked.call.vector_elements == 0
                missing.setdefault(is_aligned, []).append(place)
        for places in missing.values():
            sizes = np.array([sizes_m[place] for place in places])
            self._check_own(_with_m(asked, int(sizes[0])))
            fitted, beside = self.fitted.answers(asked, sizes), self._beside(asked, sizes.tolist())
            for place, fit, other in zip(places, fitted, beside, strict=True):
                is_surer = other is not None and other.confidence > fit.confidence - ROUNDED
                found[place] = other if is_surer else self._of_trees(fit)
        return [one for one in found if one is not None]

    def full(self, asked: Asked, found: FoundAnswer, cores: int, generation: Generation) -> tuple[Answer, int]:
        """An answer with its tile and cluster, as far as they are known; and the stages (0: not said)."""
        if found.estimate is not None:
            return found.estimate.answer, found.estimate.stages
        trees = self.fitted.trees
        number, stages, slices, reduction, custom = found.order
        tile_k, count = trees.stages.get(stages, (None, 0))
        numbers = self.fitted.tile(asked, found.order) if found.shape is None else found.shape
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

    def _of_trees(self, found: FittedAnswer) -> FoundAnswer:
        evidence = ASSUMED if any(found.unasked) else self.version.evidence
        return FoundAnswer(found.order, None, found.confidence, evidence, found.unasked)

    def _recorded(self, asked: Asked, sizes_m: Sequence[int]) -> list[FoundAnswer | None]:
        """The library's own answers, None where there is none."""
        call, is_batch = asked.call, asked.batch > 1
        found: list[FoundAnswer | None] = [None] * len(sizes_m)
        unasked = Unasked((BATCHES,)) if is_batch else ALL_ASKED
        files = [] if self.answers is None else [self.answers]
        if files and is_batch and self.fitted.entries(call, asked.fast, True):
            files = []
        files += [shipped(self.version.layers)] if self.version.layers and not is_batch else []
        kind = kind_of(asked)
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
                if row is not None and found[place] is None:
                    shape = row[5:] if row[5] >= 0 else None
                    found[place] = FoundAnswer(row[:5], shape, 1.0, ANSWERED if is_own else ASSUMED, unasked)
        return found

    def _beside(self, asked: Asked, sizes_m: Sequence[int]) -> list[FoundAnswer | None]:
        """What the library answered, for each m, for weights of the same n and nearly the same k; None where for
        none.
        """
        files, call = self.version.layers, asked.call
        sweep = shipped(files).sweep(self.device, kind_of(asked)) if files and asked.batch == 1 else None
        if sweep is None:
            return [None] * len(sizes_m)
        answers = near(self.version.neighbours, sweep, call.operand, sizes_m, call.n, call.k)
        evidence = self.version.evidence
        return [None if x is None else FoundAnswer(x.answer[:5], None, x.confidence, evidence) for x in answers]

    def _check_own(self, asked: Asked) -> None:
        """Raise UnsupportedError where a user's file lacks a call of which nothing is fitted."""
        own, call = self.answers, asked.call
        if own is None or self.fitted.simple_entries(call, asked.fast):
            return
        kind = kind_of(asked)
        raise UnsupportedError(
            f"{own.path}: no answer for {call.m} x {call.n} x {call.k}, {kind.full_text}"
            f"{_there(own.kinds(self.device, call.n, call.k), kind)}, and no fitted choices for {own.library} "
            f"{own.version} on {self.device}; record this call (hwsim library record)"
        )


def kind_of(asked: Asked) -> CallKind:
    """As files of answers key a call."""
    call, told = asked.call, asked.told
    return CallKind(
        operand=call.operand,
        output=call.output,
        bias=asked.bias,
        fast=asked.fast,
        a_layout=call.a_layout,
        b_layout=call.b_layout,
        workspace_bytes=told.workspace_bytes,
        reductions=told.mask,
    )


def _with_m(asked: Asked, m: int) -> Asked:
    return asked._replace(call=asked.call._replace(m=int(m)))


def _estimated(own: Estimates, asked: Asked) -> FoundAnswer:
    """The estimate for a call, on a chip that was not asked."""
    found = own.of(asked.call, asked.fast, asked.batch, asked.told.workspace_bytes)
    answer = found.answer
    order = (answer.algorithm, answer.tile_k or 0, answer.slices, answer.reduction, answer.custom)
    return FoundAnswer(order, None, found.confidence, ASSUMED, estimate=found)


def _there(kinds: list[CallKind], wanted: CallKind) -> str:
    """What a file has for a weight, in words; nothing where it has nothing."""
    if wanted in kinds:
        return " (it has this n and k for other m)"
    return f" (it has this n and k for {' and for '.join(kind.full_text for kind in kinds)})" if kinds else ""
