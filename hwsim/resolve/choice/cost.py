"""Predicted cost of a plan on a device: its program's cycles by the timing machine, at the clock under load.

Selections use these numbers. The module knows records, dataflows and the timing machine; it selects nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hwsim.devices.device import Device
from hwsim.errors import UnsupportedError
from hwsim.gemm.plan import Mixed, Piece, Plan, TermValue, chain
from hwsim.gemm.problem import Problem
from hwsim.gemm.record import Gemm
from hwsim.gemm.schedule import Schedule
from hwsim.machines import timing
from hwsim.machines.l2_state import DEFAULT
from hwsim.machines.load import under_load
from hwsim.resolve.gemm_record import record_of
from hwsim.resolve.mapping_choice import facts_of, mapped, program_of

NATIVE = "native"  # the name of a plan of one product


@dataclass(frozen=True, slots=True)
class PlanCost:
    """Predicted cost: core clock cycles, and seconds without launches. hbm_bytes: read and written. facts: the
    mapping's, by name.
    """

    cycles: int
    seconds: float
    hbm_bytes: int
    facts: Mapping[str, Any]


def cost(
    plan: Plan | Mixed,
    chip: Device,
    sizes: tuple[int, int, int],
    options: Mapping[str, Any] | None = None,
    *,
    l2: str = DEFAULT,
) -> PlanCost:
    """The cost of C[m, n] = A[m, k] B[k, n] by `plan`. sizes: m, n, k. options: of the mapping. l2: as in
    `under_load`.

    Raises UnsupportedError where the device has no dataflow or no times for the plan.
    """
    return cost_of(plan_record(plan, chip, sizes, options or {}), chip, l2=l2)


def plan_record(
    plan: Plan | Mixed,
    chip: Device,
    sizes: tuple[int, int, int],
    options: Mapping[str, Any],
    schedule: Schedule | None = None,
) -> Gemm:
    """The mapped record of a plan for sizes (m, n, k). options: of the mapping.

    Raises UnsupportedError and InputError as the dataflow does.
    """
    return mapped(record_of(plan, chip, Problem.of(plan_input(plan), *sizes), schedule), chip, options)


def cost_of(gemm: Gemm, chip: Device, *, l2: str = DEFAULT) -> PlanCost:
    """The cost of a mapped record. Raises UnsupportedError where the device has no times for it."""
    program = program_of(gemm, chip)
    reason = timing.missing(chip, program)
    if reason is not None:
        raise UnsupportedError(reason)
    facts = facts_of(gemm, chip)
    loaded, timed = under_load(program, chip, str(facts.get("unit", "")), l2=l2)
    moved = sum(timed.traffic_bytes.get(f"HBM {way}", 0) for way in ("read", "write"))
    return PlanCost(timed.cycles, timing.seconds(timed, loaded), moved, facts)


def plan_input(plan: Plan | Mixed) -> str:
    """The format of the operands that the plan splits (for a mixture, fp32)."""
    return getattr(plan, "input_format", "fp32")


def native_plan(format: str, input_format: str) -> Plan:
    """The plan of one product of the operands, rounded to `format`, in one chain over K."""
    piece = (Piece(format),)
    return Plan(NATIVE, piece, piece, (chain((0, 0)),), TermValue(0), input_format=input_format)
