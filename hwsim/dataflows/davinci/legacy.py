"""Adapter for callers that still hand a plan and a dict of options to a dataflow: makes the record, maps and lowers it.

It goes when the last of them has a record.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.layouts import layout_of
from hwsim.devices import dot_spec
from hwsim.evaluate import evaluator
from hwsim.gemm.options import checked
from hwsim.gemm.problem import Problem
from hwsim.gemm.record import DeviceId, Gemm
from hwsim.gemm.schedule import Epilogue, Schedule

if TYPE_CHECKING:
    from hwsim.dataflows.protocol import Dataflow
    from hwsim.devices.model import Device
    from hwsim.gemm.plan import Plan
    from hwsim.program.ir import Program

DISTRIBUTIONS = {"tiles": "cyclic", "blocks": "block"}  # by the old option `deal`


def lowered(
    flow: Dataflow, plan: Plan, device: Device, sizes: tuple[int, int, int], options: Mapping[str, Any]
) -> Program:
    """The program of `flow`, with its facts. options: of the mapping, and of the epilogue where it takes one."""
    given = {name: value for name, value in options.items() if value is not None}
    if "deal" in given:
        given["distribution"] = DISTRIBUTIONS.get(given.pop("deal"), options["deal"])
    known = [option for option in flow.options if option.name in given]
    own = checked(known, {option.name: given[option.name] for option in known}, f"family {device.family}")
    gemm = flow.map(_record(flow, plan, device, sizes, given), device, own)
    return dataclasses.replace(flow.lower(gemm, device), facts=flow.facts(gemm))


def _record(flow: Dataflow, plan: Plan, device: Device, sizes: tuple[int, int, int], given: Mapping[str, Any]) -> Gemm:
    epilogue, has_c, bias = Epilogue(), False, None
    if flow.features.epilogue:
        has_c, bias = bool(given.get("c")), "fp32" if given.get("bias") else None
        alpha, beta = float(given.get("alpha", 1.0)), float(given.get("beta", has_c))
        epilogue = Epilogue(alpha, beta, output_format=given.get("output"))
    schedule = evaluator.resolved(Schedule(epilogue=epilogue), plan, device)
    unit = evaluator.first_unit(plan, schedule, device)
    settled = evaluator.settled(plan, dot_spec(device, unit))
    output = epilogue.output_format or settled.output_format
    schedule = dataclasses.replace(schedule, epilogue=dataclasses.replace(epilogue, output_format=output))
    orders = {"a_layout": layout_of(given, "A"), "b_layout": layout_of(given, "B")}
    m, n, k = sizes
    problem = Problem(
        plan.input_format, m, n, k, (), (), orders["a_layout"], orders["b_layout"], has_c=has_c, bias=bias
    )
    return Gemm(DeviceId(device.name, device.sha256), problem, plan.scheme, (), settled, unit, output, schedule)
