"""One plan under one schedule, ready for any operands: everything that depends neither on them nor on their sizes.

The module knows plans, schedules, devices and the arithmetic around the matrix unit; it knows no operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from hwsim.errors import UnsupportedError
from hwsim.evaluate.defaults import nodes_of, with_result_formats
from hwsim.evaluate.epilogue import EpilogueEvaluator
from hwsim.evaluate.join import Join, join_for
from hwsim.evaluate.product_instructions import ProductInstructions, instructions_of
from hwsim.evaluate.specials import SpecialsPatch
from hwsim.formats import format_of
from hwsim.gemm.expressions import sequential_form
from hwsim.gemm.plan import SLICED, Depth, Expression, OperandSum, Plan

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.devices.device import Device
    from hwsim.evaluate.join import Value
    from hwsim.gemm.expressions import JoinStep
    from hwsim.gemm.schedule import Schedule
    from hwsim.numerics.units import DotSpec

AnyArray = NDArray[Any]
Codes = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class UnitResult:
    """A unit's own result, kept as codes until an operation needs its value."""

    codes: Codes
    spec: DotSpec


@dataclass(frozen=True, slots=True, eq=False)
class PlanEvaluation:
    """A plan under a schedule on a device. Several threads may use one at a time.

    plan: with the formats of its results. products: how many of its pieces. spec: the dot unit of the first product.
    join: the arithmetic outside of the unit. output: the format of D. from_c: whether the accumulator starts from C.
    patch: what replaces elements with infinities and NaNs (None: the unit's stay). extra: nodes of the plan that are
    sums of operands, or K. calls: the terms as calls that add to C, where slices are merged into the output one call
    after the other (else None).
    """

    plan: Plan
    products: int
    schedule: Schedule
    device: Device
    backend: Backend
    instructions: ProductInstructions
    spec: DotSpec
    join: Join
    output: str
    from_c: bool
    epilogue: EpilogueEvaluator
    patch: SpecialsPatch | None
    extra: tuple[Expression, ...]
    calls: tuple[JoinStep, ...] | None

    @property
    def is_float(self) -> bool:
        """Whether terms are added in floating point."""
        return self.plan.arithmetic in ("fp32", "fp64")

    @property
    def has_one_sum(self) -> bool:
        """Whether each slice of K has one sum, whatever the number of terms."""
        return len(self.plan.terms) == 1 or self.plan.join == "group"

    def value(self, part: UnitResult | Value, threads: int = 1) -> Value:
        """The value of a unit's result, loaded from its codes where needed."""
        return self.join.load(part.codes, part.spec, threads) if isinstance(part, UnitResult) else part

    def is_unit_result(self, bias: AnyArray | None) -> bool:
        """Whether the result is the unit's own, with nothing done to it."""
        is_same = self.output == self.spec.d and self.plan.split not in SLICED
        return self.plan.is_one_term and is_same and self.epilogue.is_plain(bias)

    def makes_values(self, slices: int, bias: AnyArray | None) -> bool:
        """Whether values are made of the unit's results before they are the output's codes. slices: of K."""
        is_promoted = self.schedule.promotion_k is not None or any(x.k_group is not None for x in self.plan.terms)
        is_one_chain = slices == 1 and self.schedule.sum is None and self.patch is None and not is_promoted
        return not (is_one_chain and self.is_unit_result(bias))


def plan_evaluation(plan: Plan, schedule: Schedule, device: Device, backend: Backend, has_c: bool) -> PlanEvaluation:
    """The evaluation of a plan under a schedule, by a backend. has_c: whether there is a C.

    Raises InputError and UnsupportedError for what does not fit together.
    """
    instructions = instructions_of(plan, device, schedule.instruction)
    spec = instructions.spec(plan.terms[0])
    plan = with_result_formats(plan, spec)
    join = join_for(plan.arithmetic, device, spec, plan.output_format, backend)
    output = schedule.epilogue.output_format or plan.output_format
    from_c = schedule.start == "c" and has_c
    is_in_turn = schedule.merge_into == "output" and len(plan.terms) > 1 and plan.join != "group"
    calls = sequential_form(plan.combine) if is_in_turn else None
    evaluation = PlanEvaluation(
        plan=plan,
        products=plan.products,
        schedule=schedule,
        device=device,
        backend=backend,
        instructions=instructions,
        spec=spec,
        join=join,
        output=output,
        from_c=from_c,
        epilogue=EpilogueEvaluator(
            epilogue=schedule.epilogue, join=join, device=device, spec=spec, output=output, has_c=has_c, from_c=from_c
        ),
        patch=SpecialsPatch(join, plan.output_format) if plan.specials == "fma_chain" else None,
        extra=tuple(node for node in nodes_of(plan.combine) if isinstance(node, OperandSum | Depth)),
        calls=None if calls is None else tuple(calls),
    )
    _check(evaluation)
    return evaluation


def _check(evaluation: PlanEvaluation) -> None:
    """Raise UnsupportedError for a schedule or an output that the plan's arithmetic does not have."""
    plan, schedule, output = evaluation.plan, evaluation.schedule, format_of(evaluation.output)
    if plan.arithmetic == "exact" and (output.is_integer or not output.signed):
        raise UnsupportedError(f"exact sums are rounded to signed float formats; the output is {evaluation.output}")
    if not evaluation.is_float and (schedule.partial_format or schedule.merge_format):
        raise UnsupportedError(
            f"schedule: the {plan.arithmetic} sums of slices are merged as such; leave the formats out"
        )
    if schedule.sum is not None and (plan.join != "end" or evaluation.from_c):
        raise UnsupportedError(
            f"schedule: a written-out sum is for products that join at their end and start from zero; "
            f"{plan.scheme} joins groups, or C is in the accumulator"
        )
    if schedule.merge_into == "output" and (
        not evaluation.is_float
        or (evaluation.patch is not None and evaluation.calls is None)
        or format_of(evaluation.output).is_integer
        or (evaluation.output != evaluation.spec.d and evaluation.calls is not None)
    ):
        raise UnsupportedError(
            f"schedule: merge_into='output' is known for fp32 and fp64 results without rounding or patches; the "
            f"unit gives {evaluation.spec.d}, the output is {evaluation.output}"
        )
