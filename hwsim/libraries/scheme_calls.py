"""The calls of a library that a scheme stands for: one product of two pieces each, over all of K, added up outside.

It knows schemes' options and plans, and what a call takes; it knows no choice of a library, no bit and no time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.expressions import sequential_form
from hwsim.gemm.plan import Mixed
from hwsim.gemm.planned import Planned
from hwsim.gemm.schedule import Schedule
from hwsim.libraries.gemm_call import result_format
from hwsim.libraries.on_device import LibraryOnDevice
from hwsim.operands.operand import Operand
from hwsim.request.request import Request
from hwsim.resolve.planning import plan_for

ACCUMULATION, TERMWISE = "accumulation", "termwise"  # the option of schemes, and its value that means calls


@dataclass(frozen=True, slots=True)
class SchemeCalls:
    """The calls of a scheme: `count` products of pieces of `format`, stored in `layouts`. options: of the scheme.

    arithmetic: in which the products are added. adds: whether each call adds to the C of those before (else its result
    is a matrix of its own). planned: the plan whose products they are.
    """

    options: dict[str, Any]
    format: str
    layouts: tuple[str, str]
    count: int = 1
    arithmetic: str = ""
    adds: bool = False
    planned: Planned | None = None

    def schedule(self, of_kernel: Schedule) -> Schedule:
        """A call's schedule, for all products: what is added within a call is added in the format of its result, which
        may be narrower than the arithmetic in which the products are added.

        Raises UnsupportedError where that is not computed.
        """
        result = result_format(self.format)
        if not self.arithmetic or self.arithmetic == result:
            return of_kernel
        if format_of(self.format).is_integer:  # the same in any order
            return Schedule(instruction=of_kernel.instruction)
        if of_kernel.sum is not None or of_kernel.regions or of_kernel.promotion_k is not None:
            raise UnsupportedError(
                f"the library's kernel for these sizes adds parts of K in {result} in an order that is not computed "
                f"beside products which are added in {self.arithmetic}; take other sizes, or leave library out"
            )
        return replace(of_kernel, merge_into="sum", merge_format=cast(Any, result))


def calls_of(
    request: Request, layouts: tuple[str, str], chosen: LibraryOnDevice, pair: tuple[Operand, Operand] | None
) -> SchemeCalls:
    """The calls of a request's scheme. layouts: of A and B. pair: these, for schemes whose plan depends on them.

    Raises InputError for options that say otherwise, UnsupportedError for schemes whose products share an accumulator
    or an operand format that no call has.
    """
    scheme, library = request.scheme, chosen.id.name
    options = _termwise(request, library)
    planned = plan_for(request.device, scheme, request.problem, request.format, options, pair)
    plan = planned.plan
    if isinstance(plan, Mixed):
        raise UnsupportedError(
            f"library = {library!r}: blocks of scheme {scheme.name} follow different plans: no calls"
        )
    if plan.k_group is not None or any(term.k_group is not None for term in plan.terms):
        raise InputError(f"library = {library!r} decides what its kernels accumulate in the unit; leave k_group out")
    if any(len(term.products) > 1 for term in plan.terms) or plan.join != "end":
        raise UnsupportedError(
            f"library = {library!r}: products of scheme {scheme.name} share an accumulator of the matrix unit, as no "
            "library's calls do; leave library out, or take a scheme whose products are added outside"
        )
    formats = {piece.format for piece in (*plan.a_pieces, *plan.b_pieces)}
    if len(formats) > 1:
        raise UnsupportedError(
            f"library = {library!r}: scheme {scheme.name} multiplies pieces of {' and '.join(sorted(formats))}, for "
            "which no call is known"
        )
    fmt = formats.pop()
    stored = chosen.layouts(fmt, layouts)  # pieces are written so as the kernel takes them
    is_in_turn = plan.arithmetic == result_format(fmt) and sequential_form(plan.combine) is not None
    return SchemeCalls(
        options,
        fmt,
        stored,
        count=plan.products,
        arithmetic=plan.arithmetic,
        adds=is_in_turn and plan.products > 1,
        planned=planned,
    )


def _termwise(request: Request, library: str) -> dict[str, Any]:
    """The scheme's options with products that are added outside."""
    options: dict[str, Any] = dict(request.scheme_options)
    if options.get("hybrid"):
        raise InputError(f"library = {library!r}: hybrid compares hwsim's own kernels; leave one of them out")
    if not any(option.name == ACCUMULATION and TERMWISE in option.choices for option in request.scheme.options):
        return options
    if options.get(ACCUMULATION) not in (None, TERMWISE):
        raise InputError(
            f"library = {library!r}: accumulation = {options[ACCUMULATION]!r} is within one kernel; a library's "
            f"products are added outside: {TERMWISE!r}, or leave it out"
        )
    return options | {ACCUMULATION: TERMWISE}


def without_decided(options: Mapping[str, Any]) -> dict[str, Any]:
    """A scheme's options less those that a library decides."""
    return {name: value for name, value in options.items() if name != ACCUMULATION}
