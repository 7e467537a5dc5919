"""Programs of bare plans, for tests: a plan, a device, sizes and options in, the checked program out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwsim.devices.device import Device
from hwsim.evaluate.product import Evaluator
from hwsim.gemm.plan import Mixed, Plan
from hwsim.gemm.problem import Problem
from hwsim.gemm.record import Gemm
from hwsim.gemm.schedule import Epilogue, Schedule
from hwsim.program.ir import Program
from hwsim.resolve.choice.cost import plan_input
from hwsim.resolve.gemm_record import record_of
from hwsim.resolve.mapping_choice import facts_of, mapped, program_of

_EPILOGUE = ("alpha", "beta", "c", "bias", "output", "batch")


def gemm_of(plan: Plan | Mixed, device: Device, m: int, n: int, k: int, options: Mapping[str, Any]) -> Gemm:
    """The mapped record. options: of the mapping, and alpha, beta, c (True), bias (True), output, batch (a number)."""
    given = {name: options[name] for name in _EPILOGUE if options.get(name) is not None}
    epilogue = Epilogue(float(given.get("alpha", 1.0)), given.get("beta"), output_format=given.get("output"))
    problem = Problem.of(
        plan_input(plan),
        m,
        n,
        k,
        (given["batch"],) if "batch" in given else (),
        has_c=bool(given.get("c")),
        bias="fp32" if given.get("bias") else None,
    )
    record = record_of(plan, device, problem, Schedule(epilogue=epilogue))
    return mapped(record, device, {name: value for name, value in options.items() if name not in _EPILOGUE})


def lower(plan: Plan | Mixed, device: Device, m: int, n: int, k: int, options: Mapping[str, Any]) -> Program:
    """The checked program of `gemm_of`."""
    return program_of(gemm_of(plan, device, m, n, k, options), device)


def facts(program: Program, device: Device | None = None) -> dict[str, Any]:
    """What a result's options show of the program's mapping."""
    from hwsim.devices import load

    assert program.gemm is not None
    return facts_of(program.gemm, device or load(program.gemm.device.name))


def evaluator_of(plan: Plan | Mixed, device: Device, sizes: tuple[int, int, int], schedule: Schedule) -> Evaluator:
    """The direct evaluator of a plan under a schedule for (m, n, k)."""
    return Evaluator(record_of(plan, device, Problem.of(plan_input(plan), *sizes), schedule), device)
