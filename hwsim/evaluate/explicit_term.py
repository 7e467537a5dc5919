"""One term of a plan in an order of summation that the schedule writes out (hwsim.evaluate.explicit has the order).

The module knows chains over chosen elements of K and the additions of their results; it knows no slices and no output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.evaluate.epilogue import narrowed
from hwsim.evaluate.explicit import Arithmetic, diagonal, elements, gathered, reduced
from hwsim.evaluate.plan_evaluation import PlanEvaluation, UnitResult
from hwsim.evaluate.row_block import RowBlock, in_groups
from hwsim.evaluate.slice_merge import narrow_sum, refuse_formats
from hwsim.evaluate.split import Pieces, as_pieces
from hwsim.gemm.schedule import KPartition, Run

if TYPE_CHECKING:
    from hwsim.evaluate.chains import Chains
    from hwsim.evaluate.join import Value
    from hwsim.gemm.plan import Term
    from hwsim.gemm.summation import Chain, Reduction

Codes = NDArray[Any]
MACS_OF_A_CALL = 100_000  # what a call of a kernel costs besides its multiply-adds, in such
VALUES_AT_ONCE = 1 << 22  # of the additions of a written-out sum


def explicit_sum(
    job: PlanEvaluation, chains: Chains, term: Term, node: Chain | Reduction, a: Pieces, b: Pieces, threads: int
) -> UnitResult | Value:
    """A term over a (m, K) and b (K, n) in the order of `node`; promotion counts from the start of each chain."""
    schedule, join, step = job.schedule, job.join, job.instructions.step(term)
    if schedule.k_permutation is not None:  # its blocks begin anew with an instruction
        step = math.lcm(step, len(schedule.k_permutation))
    promotion = schedule.promotion_k if term.k_group is None else None  # a term's own groups go before
    group = term.k_group if isinstance(term.k_group, int) else promotion
    m, n = a.shape[0], b.shape[1]

    def of_chains(parts: Sequence[Chain]) -> list[UnitResult | Value]:
        most = math.isqrt(MACS_OF_A_CALL // max(1, m * n * elements(parts[0]))) if join.is_array else 1
        count = min(max(most, 1), len(parts))
        return [x for at in range(0, len(parts), count) for x in some(parts[at : at + count])]

    def some(parts: Sequence[Chain]) -> list[UnitResult | Value]:
        left, right, spans = gathered(parts, step, group, a.codes, b.codes)
        if not spans:
            return [zero() for _ in parts]
        partition = KPartition(((tuple(spans),),))
        runs: tuple[Run, ...] = (tuple(spans),)
        if promotion is not None:
            runs = in_groups(runs, promotion)
        block = RowBlock(job, chains, as_pieces(left), as_pieces(right), partition, threads=threads)
        value = block.term(term, runs, None)
        if len(parts) == 1:
            return [value]
        if isinstance(value, UnitResult):
            return [UnitResult(codes, value.spec) for codes in diagonal(value.codes, len(parts))]
        return list(diagonal(value, len(parts)))

    def add(
        left: list[UnitResult | Value], right: list[UnitResult | Value], fmt: str | None
    ) -> list[UnitResult | Value]:
        count = max(1, VALUES_AT_ONCE // max(1, m * n)) if join.is_array else 1
        return [
            x for at in range(0, len(left), count) for x in sums(left[at : at + count], right[at : at + count], fmt)
        ]

    def sums(left: list[UnitResult | Value], right: list[UnitResult | Value], fmt: str | None) -> list[Value]:
        x, y = (_side_by_side(job, side, threads) for side in (left, right))
        total = join.add(x, y, threads=threads) if fmt is None else narrow_sum(job, x, y, fmt)
        return [total] if len(left) == 1 else list(total.reshape(len(left), m, n))

    def stored(values: list[UnitResult | Value], fmt: str | None) -> list[UnitResult | Value]:
        if fmt is None:
            return values
        refuse_formats(job)
        return [narrowed(join.lanes, job.value(value, threads), fmt) for value in values]

    def zero() -> Value:
        return join.zeros((m, n))

    return reduced(node, Arithmetic(of_chains, add, stored, zero))


def _side_by_side(job: PlanEvaluation, parts: Sequence[UnitResult | Value], threads: int) -> Value:
    """Values of one shape as one array, one after the other."""
    if len(parts) == 1:
        return job.value(parts[0], threads)
    if all(isinstance(part, UnitResult) for part in parts):
        codes = np.concatenate([part.codes for part in parts])
        return job.value(UnitResult(codes, parts[0].spec), threads)
    return np.concatenate([job.value(part, threads) for part in parts])
