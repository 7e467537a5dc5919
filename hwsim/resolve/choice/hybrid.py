"""hybrid=True: a scheme or native fp32, whichever the timing machine predicts to be faster.

Small and bandwidth-bound problems gain nothing from products of narrow pieces.
"""

from __future__ import annotations

import dataclasses

from hwsim.devices.device import Device
from hwsim.errors import UnsupportedError
from hwsim.gemm.planned import Planned
from hwsim.gemm.problem import Problem
from hwsim.resolve.choice.cost import NATIVE, cost, native_plan

FORMAT = "fp32"  # of the other way


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
    cheapest = min(costs, key=lambda name: costs[name].seconds)
    decision = {"taken": cheapest, "predicted_us": {name: round(costs[name].seconds * 1e6, 3) for name in costs}}
    plan = native if cheapest == NATIVE else planned.plan
    return dataclasses.replace(planned, plan=plan, options=planned.options | decision)
