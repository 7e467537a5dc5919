"""K in slices, each a call of a library of its own, whose results are merged: what ranks of tensor parallelism do.

It knows calls, choices and schedules; it knows no library's rules and no array.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.record import Decision
from hwsim.gemm.schedule import Schedule
from hwsim.gemm.summation import Chain, Range, Reduction
from hwsim.libraries.call import LibraryCall
from hwsim.libraries.gemm_call import GemmCall
from hwsim.libraries.kernel_choice import ASSUMED, SummationOrder

#: Fields of a schedule that say how slices are cut and merged.
OF_SLICES = ("split_k", "slice_k", "slice_multiple", "merge_order", "partial_format", "merge_format")
CallSum = Chain | Reduction


def is_of_slices(schedule: Schedule) -> bool:
    """Whether a schedule says how K is cut and how the slices are merged, and nothing else beside its epilogue."""
    names = {entry.name for entry in dataclasses.fields(Schedule)} - {*OF_SLICES, "epilogue"}
    plain = Schedule()
    return all(getattr(schedule, name) == getattr(plain, name) for name in names)


@dataclass(frozen=True, slots=True)
class SlicedCalls:
    """The calls of the slices of K of one product. schedule: how it is cut and merged."""

    schedule: Schedule

    def joined(self, call: GemmCall, ask: Callable[[GemmCall], LibraryCall]) -> LibraryCall:
        """One call in the place of all. call: of all of K. ask: what the library makes of a call.

        Raises UnsupportedError for operands with scales, and where the kernels of the slices have no order of summation
        in common form.
        """
        if call.scales is not None:
            raise UnsupportedError(
                "split_k beside a library: calls of operands with scales are not merged; leave split_k or library out"
            )
        lengths = self.schedule.slice_lengths(call.k)
        if len(lengths) == 1:
            raise InputError(
                f"split_k: K = {call.k} is one slice of {lengths[0]}; leave split_k out, or cut it shorter"
            )
        plain = replace(call, bias=False, has_c=False, is_scaled=False, is_c_whole=True)
        narrow = self.schedule.partial_format == call.format  # else a cast follows the call
        plain = replace(plain, output=call.format if narrow else None)
        by_length = {length: ask(replace(plain, k=length)) for length in dict.fromkeys(lengths)}
        parts = [by_length[length] for length in lengths]
        choices = [part.choice for part in parts]
        order = SummationOrder(
            self._order(lengths, [choice.schedule for choice in choices]),
            known=all(choice.known for choice in choices),
            seen=all(choice.seen for choice in choices),
            assumed=next((choice.order.assumed for choice in choices if choice.order.assumed), ""),
        )
        first = min(by_length.values(), key=lambda part: part.choice.confidence)
        return replace(
            first,
            gemm=call,
            choice=replace(first.choice, order=order, split_k=len(lengths)),
            times=None,
            aligned=None,
            decisions=_decisions(by_length, parts[0]),
        )

    def _order(self, lengths: Sequence[int], schedules: Sequence[Schedule]) -> Schedule:
        """The order of summation of all slices."""
        alike = {(part.instruction, part.promotion_k, part.k_permutation, part.operand_rounding) for part in schedules}
        if len(alike) > 1:
            raise UnsupportedError(
                "split_k: the library's kernels of these slices have unlike instructions or promotion intervals; cut K "
                "into equal slices"
            )
        merged = {name: getattr(self.schedule, name) for name in ("merge_order", "partial_format", "merge_format")}
        instruction, promotion_k, permutation, rounding = alike.pop()
        if all(_is_chain(part, length) for part, length in zip(schedules, lengths, strict=True)):
            return Schedule(
                instruction=instruction,
                slice_k=tuple(lengths),
                promotion_k=promotion_k,
                k_permutation=permutation,
                operand_rounding=rounding,
                **merged,
            )
        starts = [sum(lengths[:index]) for index in range(len(lengths))]
        trees = [_tree(part, start, length) for part, start, length in zip(schedules, starts, lengths, strict=True)]
        total = Reduction(
            tuple(trees),
            self.schedule.merge_order,
            format=self.schedule.merge_format,
            stored=self.schedule.partial_format,
            level="kernel",
        )
        return Schedule(
            instruction=instruction,
            sum=total,
            promotion_k=promotion_k,
            k_permutation=permutation,
            operand_rounding=rounding,
        )


def _is_chain(schedule: Schedule, k: int) -> bool:
    """Whether a kernel adds all of K in one slice, by the rules that slices of one schedule have in common."""
    return (
        schedule.sum is None
        and not schedule.regions
        and schedule.remainder == "last"
        and len(schedule.slice_lengths(k)) == 1
    )


def _tree(schedule: Schedule, start: int, k: int) -> CallSum:
    """The order of summation of one slice, written out; its K begins at `start`."""
    if schedule.regions or schedule.merge_into != "sum":
        raise UnsupportedError(
            "split_k: the library's kernel of a slice shares the K of tiles among CTAs, or adds slices to its result "
            "one by one, which is not computed within a slice; take another split_k"
        )
    if schedule.sum is not None:
        return _shifted(schedule.sum, start)
    parts = []
    for runs in replace(schedule, promotion_k=None).k_partition(k).slices:
        [spans] = runs
        parts.append(Chain(tuple(Range(start + at, start + stop, stop - at, stop - at) for at, stop in spans)))
    if len(parts) == 1:
        return parts[0]
    return Reduction(
        tuple(parts),
        schedule.merge_order,
        format=schedule.merge_format,
        stored=schedule.partial_format,
        level="kernel",
    )


def _shifted(tree: CallSum, start: int) -> CallSum:
    """A sum whose K begins at `start`."""
    if isinstance(tree, Chain):
        return Chain(tuple(replace(part, start=part.start + start, stop=part.stop + start) for part in tree.ranges))
    return replace(tree, parts=tuple(_shifted(part, start) for part in tree.parts))


def _decisions(by_length: dict[int, LibraryCall], first: LibraryCall) -> tuple[Decision, ...]:
    """Of a slice's call, with the kernels of all, and with times of their own."""
    kernels = {length: part.choice.kernel for length, part in by_length.items()}
    text = ", ".join(f"{kernel} for k = {length}" for length, kernel in kernels.items())
    if len(set(kernels.values())) == 1:
        text = first.choice.kernel
    why = "each slice of K is a call of its own; how long the calls and the merge take is the program's time"
    of_call = [
        replace(decision, value=text) if decision.name == "kernel" else decision
        for decision in first.decisions
        if decision.name not in ("split_k", "times")
    ]
    return (*of_call, Decision("times", "the program's", "default", ASSUMED, why))
