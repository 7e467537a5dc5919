"""Slices of K merged into one sum, or into the output one after the other, in the schedule's order and formats.

The module knows sums of slices and the schedule of their merge; it knows no operands and no instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.rounded_once import to_odd
from hwsim.errors import UnsupportedError
from hwsim.evaluate.epilogue import narrowed
from hwsim.evaluate.plan_evaluation import PlanEvaluation, UnitResult
from hwsim.formats import format_of

if TYPE_CHECKING:
    from hwsim.evaluate.join import Value

AnyArray = NDArray[Any]
Codes = NDArray[Any]


def merged(job: PlanEvaluation, parts: Sequence[UnitResult | Value]) -> Value:
    """The sum of a term's slices in their stored format, added in the schedule's order."""
    schedule, values = job.schedule, [job.value(part) for part in parts]
    if not job.is_float:
        return _total(job, values)
    if schedule.partial_format is not None:
        values = [narrowed(job.join.lanes, value, schedule.partial_format) for value in values]
    values = ordered(values, schedule.merge_order)
    if schedule.merge_order != "pairwise":
        return _in_own_type(job, _total(job, values))
    while len(values) > 1:
        pairs = [_sum(job, x, y) for x, y in zip(values[::2], values[1::2], strict=False)]
        values = pairs + values[len(pairs) * 2 :]
    return _in_own_type(job, values[0])


def into_output(
    job: PlanEvaluation, slices: Sequence[AnyArray], c: Codes | None, bias: AnyArray | None, threads: int
) -> Codes:
    """Codes of D from the first slice, then alpha times each later slice added to it (merge_into = "output").

    D is of the output's format after each slice. A bias behind a product_format is added to the last D.
    """
    value: AnyArray | None = None
    lanes, is_last = job.join.lanes, job.epilogue.epilogue.product_format is not None
    for slice_sum in ordered(slices, job.schedule.merge_order):
        if value is None:
            value = job.epilogue.scaled_sum(slice_sum, c, len(slices))
            if bias is not None and not is_last:  # it is part of the first slice's epilogue
                value = lanes.add(value, np.broadcast_to(bias.astype(lanes.dtype), value.shape))
        else:
            value = lanes.add(value, lanes.multiply(job.schedule.epilogue.alpha, slice_sum))
        value = narrowed(lanes, value, job.output)
    assert value is not None
    return job.epilogue.biased_codes(value, lanes, bias if is_last else None, threads)


def calls_into_output(job: PlanEvaluation, slices: Sequence[Sequence[UnitResult | Value]]) -> Value:
    """The terms as calls that add to C, each slice of K of each of them in turn (merge_into = "output")."""
    assert job.calls is not None
    join, total = job.join, None
    for call in job.calls:
        in_order = ordered([job.value(values[call.term]) for values in slices], job.schedule.merge_order)
        for index, value in enumerate(in_order):
            added = join.scaled(value, call.term_exponent) if call.term_exponent else value
            if total is None:
                total = added
                continue
            if call.exponent and not index:
                total = join.scaled(total, call.exponent)
            total = join.add(added, total) if call.order == "value" and not index else join.add(total, added)
    return total


def refuse_formats(job: PlanEvaluation) -> None:
    """Raise UnsupportedError where the sums are no floats, which alone are rounded to another format."""
    if not job.is_float:
        raise UnsupportedError(
            f"schedule: {job.plan.arithmetic} sums are added as such; leave format and stored of reductions out"
        )


def narrow_sum(job: PlanEvaluation, left: Value, right: Value, fmt: str) -> Value:
    """One addition of a written-out reduction, rounded once to a format no wider than the accumulator's.

    Below the accumulator's format it is an addition there, rounded to odd and then once more: the operands may have
    more digits than the format, which `_sum` takes off first.
    """
    refuse_formats(job)
    if format_of(fmt).bits > job.join.format.bits:
        raise UnsupportedError(
            f"schedule: a reduction in {fmt} of {job.join.format.name} sums; allowed: formats that are no wider"
        )
    total = job.join.add(left, right)
    return total if fmt == job.join.format.name else narrowed(job.join.lanes, to_odd(total, left, right), fmt)


def ordered(slices: Sequence[AnyArray], order: str | tuple[int, ...]) -> list[AnyArray]:
    """The slices in the order of addition ("pairwise": unchanged)."""
    if isinstance(order, tuple):
        return [slices[i] for i in order]
    return list(slices)[::-1] if order == "descending" else list(slices)


def _in_own_type(job: PlanEvaluation, value: Value) -> Value:
    """A sum that was merged in a wider type, rounded to the accumulator's as the device's lanes round."""
    return narrowed(job.join.lanes, value, job.join.format.name).astype(job.join.dtype, copy=False)


def _total(job: PlanEvaluation, values: Sequence[Value]) -> Value:
    total = values[0]
    for value in values[1:]:
        total = _sum(job, total, value)
    return total


def _sum(job: PlanEvaluation, left: Value, right: Value) -> Value:
    """One addition of the merge.

    Below fp32 it is an fp32 addition rounded once more, which gives the same bits as one rounding, because fp32 has
    more than twice the digits and two.
    """
    wanted, lanes = job.schedule.merge_format, job.join.lanes
    if wanted == "fp64":
        left, right = left.astype(np.float64), right.astype(np.float64)
    elif wanted is not None:
        left, right = narrowed(lanes, left, wanted), narrowed(lanes, right, wanted)
    total = job.join.add(left, right)
    return total if wanted is None else narrowed(lanes, total, wanted)
