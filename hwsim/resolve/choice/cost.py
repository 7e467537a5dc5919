"""Predicted cost of a plan on a device: that of its record with the mapping that a run would take.

Selections use these numbers. The module knows plans, records and their costs; it selects no plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hwsim.devices.device import Device
from hwsim.gemm.plan import Mixed, Piece, Plan, TermValue, chain
from hwsim.gemm.problem import OperandScale, Problem
from hwsim.gemm.record import Gemm
from hwsim.gemm.schedule import Schedule
from hwsim.machines.l2_state import DEFAULT
from hwsim.resolve.gemm_record import record_of
from hwsim.resolve.mapping_choice import cut_where_open, mapped
from hwsim.resolve.record_cost import PlanCost, cost_of
from hwsim.resolve.slice_choice import with_best_mapping

NATIVE = "native"  # the name of a plan of one product


def cost(
    plan: Plan | Mixed,
    chip: Device,
    sizes: tuple[int, int, int],
    options: Mapping[str, Any] | None = None,
    *,
    l2: str = DEFAULT,
    search: bool = True,
) -> PlanCost:
    """The cost of C[m, n] = A[m, k] B[k, n] by `plan`. sizes: m, n, k. options: of the mapping. l2: as in
    `under_load`. search: with the mapping of a run; False: with the dataflow's first choice, as the parts of mixed
    plans have it.

    Raises UnsupportedError where the device has no dataflow or no times for the plan.
    """
    if search:
        return cost_of(plan_record(plan, chip, sizes, options or {}), chip, l2=l2)
    record = record_of(plan, chip, Problem.of(plan_input(plan), *sizes))
    return cost_of(mapped(record, chip, options or {}), chip, l2=l2)


def plan_record(
    plan: Plan | Mixed,
    chip: Device,
    sizes: tuple[int, int, int],
    options: Mapping[str, Any],
    schedule: Schedule | None = None,
    scales: tuple[OperandScale | None, OperandScale | None] = (None, None),
    lead: tuple[int, ...] = (),
    *,
    cuts_open_k: bool = False,
) -> Gemm:
    """The mapped record of a plan for sizes (m, n, k). options: of the mapping. scales: of A and B. lead: leading
    dimensions of a stack. cuts_open_k: K is cut where a run that says nothing of slices cuts it.

    Raises UnsupportedError and InputError as the dataflow does.
    """
    problem = Problem.of(plan_input(plan), *sizes, lead=lead)
    a, b = (replace(side, scale=scale) for side, scale in zip(problem.operands, scales, strict=True))
    gemm = record_of(plan, chip, replace(problem, a=a, b=b), schedule)
    return with_best_mapping(cut_where_open(gemm, chip, options) if cuts_open_k else gemm, chip, options)


def plan_input(plan: Plan | Mixed) -> str:
    """The format of the operands that the plan splits (for a mixture, fp32)."""
    return getattr(plan, "input_format", "fp32")


def native_plan(format: str, input_format: str) -> Plan:
    """The plan of one product of the operands, rounded to `format`, in one chain over K."""
    piece = (Piece(format),)
    return Plan(NATIVE, piece, piece, (chain((0, 0)),), TermValue(0), input_format=input_format)
