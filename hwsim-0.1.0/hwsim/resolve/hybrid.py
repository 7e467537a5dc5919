"""hybrid=True: a scheme or native fp32, whichever the timing machine predicts to be faster.

Small and bandwidth-bound problems gain nothing from products of narrow pieces.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from hwsim.errors import UnsupportedError
from hwsim.gemm.plan import Piece, Plan, TermValue, chain
from hwsim.gemm.problem import Problem
from hwsim.resolve.cost import cost

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.resolve.planned import Planned

FORMAT = "fp32"
NATIVE = "native"  # what the result's options call the other way


def native_plan(format: str, input_format: str) -> Plan:
    """The plan of one product of the operands, rounded to `format`, in one chain over K."""
    piece = (Piece(format),)
    return Plan(NATIVE, piece, piece, (chain((0, 0)),), TermValue(0), input_format=input_format)


def faster(chip: Device, planned: Planned, problem: Problem) -> Planned:
    """`planned`, or native fp32 where that is faster. The options record the decision (`taken`) and both times
    (`predicted_us`).

    Raises UnsupportedError where the device has no native fp32, no dataflow, or no times.
    """
    name = planned.plan.scheme
    if FORMAT not in chip.native:
        raise UnsupportedError(f"scheme {name}: hybrid needs native fp32, which device {chip.name} has not")
    sizes = (problem.m, problem.n, problem.k)
    native = native_plan(FORMAT, problem.input_format)
    try:
        costs = {name: cost(planned.plan, chip, sizes), NATIVE: cost(native, chip, sizes)}
    except UnsupportedError as error:
        raise UnsupportedError(f"scheme {name}: hybrid has no times to choose by: {error}; leave it out") from error
    taken = min(costs, key=lambda one: costs[one].seconds)
    said = {"taken": taken, "predicted_us": {one: round(costs[one].seconds * 1e6, 3) for one in costs}}
    plan = native if taken == NATIVE else planned.plan
    return dataclasses.replace(planned, plan=plan, options=planned.options | said)
