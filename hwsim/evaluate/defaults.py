"""What a plan and a schedule leave open, filled in from each other and the device; and whether they fit together.

The module knows plans, schedules and a device's instructions; it computes no bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hwsim.devices import instruction_taking
from hwsim.errors import InputError, UnsupportedError
from hwsim.evaluate.product_instructions import instructions_of
from hwsim.formats import format_of
from hwsim.gemm.plan import SLICED, Depth, Expression, OperandSum, Plan, Scaled, Sum, TermValue
from hwsim.gemm.schedule import SLICE_MULTIPLE, Schedule
from hwsim.libraries.model import observed

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.numerics.units import DotSpec

EXACT_BITS = tuple(f"{part}fraction_bits" for part in ("", "product_", "sum_", "accumulator_", "final_"))
MOST_FP8_PRODUCT, MOST_FP8_K = 1 << 8, 1 << 16  # of parts of residues; K over which fp32 adds them exactly
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
    instructions = instructions_of(plan, device, schedule.instruction)
    plan = with_result_formats(plan, instructions.spec(plan.terms[0]))
    _check(plan, [instructions.spec(term) for term in plan.terms])
    if plan.split == "residues":
        for term in plan.terms:
            length = instructions.step(term) if term.k_group == "instruction" else MOST_FP8_K
            _check_exact(plan, instructions.spec(term), length)
    if plan.k_group is not None and schedule.promotion_k not in (None, plan.k_group):
        raise InputError(
            f"schedule: promotion_k = {schedule.promotion_k}, but the scheme's k_group (or accumulate) says "
            f"{plan.k_group}; leave one of them out"
        )
    seen, names = observed(device), instructions.names
    multiple = schedule.slice_multiple or (SLICE_MULTIPLE if seen is None else seen.slice_multiple)
    complete = dataclasses.replace(
        schedule,
        instruction=names[0] if len(names) == 1 else None,
        slice_multiple=multiple,
        promotion_k=schedule.promotion_k or plan.k_group,
    )
    if complete.start == "c" and (len(plan.terms) > 1 or plan.join == "group"):
        raise InputError(f"schedule: start='c' needs a plan with one term; {plan.scheme} has {len(plan.terms)}")
    return complete


def first_unit(plan: Plan, schedule: Schedule, device: Device) -> str:
    """The name of the instruction of the plan's first product."""
    i, j = plan.terms[0].products[0]
    return instruction_taking(device, plan.a_pieces[i].format, plan.b_pieces[j].format, schedule.instruction)


def _check(plan: Plan, specs: Sequence[DotSpec]) -> None:
    """Raise for a plan whose arithmetic cannot use the units' result formats."""
    is_whole = plan.arithmetic in ("int32", "int64")
    for spec in specs:
        if is_whole and not format_of(spec.d).is_integer:
            raise UnsupportedError(
                f"scheme {plan.scheme}: {plan.arithmetic} sums need an integer unit; it gives {spec.d}"
            )
        if plan.arithmetic == "fp64" and plan.split == "round" and spec.d != "fp64":
            raise UnsupportedError(
                f"scheme {plan.scheme}: arithmetic='fp64' with split='round' adds fp64 terms; this unit gives {spec.d}"
            )
    if any(isinstance(node, OperandSum | Depth) for node in nodes_of(plan.combine)) and not is_whole:
        raise UnsupportedError(f"scheme {plan.scheme}: sums of operands are for integer arithmetic")
    if plan.split in SLICED and is_whole:
        raise UnsupportedError(f"scheme {plan.scheme}: the exponents of slices have no place in {plan.arithmetic}")


def _check_exact(plan: Plan, spec: DotSpec, length: int) -> None:
    """Raise where sums over this length of K of products of residues would not be exact: then the number is wrong."""
    unit: Any = spec.unit
    if format_of(spec.d).is_integer:
        return
    result = format_of(getattr(unit, "result_format", None) or spec.d)
    bits = min([result.precision, *(getattr(unit, name) for name in EXACT_BITS if hasattr(unit, name))])
    needed = (MOST_FP8_PRODUCT * length - 1).bit_length()
    if bits < needed:
        raise UnsupportedError(
            f"scheme {plan.scheme}: products of residues must add up exactly; sums of its {spec.a} unit keep {bits} "
            f"bits, {needed} are needed"
        )


def nodes_of(expression: Expression) -> list[Expression]:
    """All nodes of an expression, without recursion, because sums of many slices are very deep."""
    nodes, left = [], [expression]
    while left:
        node = left.pop()
        nodes.append(node)
        match node:
            case Sum(one, other):
                left += [other, one]
            case Scaled(value, _):
                left.append(value)
    return nodes
