"""Records and programs of plans, from options by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hwsim.devices.device import Device
from hwsim.gemm.plan import Plan
from hwsim.gemm.problem import Problem
from hwsim.gemm.record import Gemm
from hwsim.gemm.schedule import Epilogue, Schedule
from hwsim.program.ir import Program
from hwsim.resolve.mapping import facts_of, mapped, program_of
from hwsim.resolve.record import record_of

EPILOGUE = ("alpha", "beta", "output", "c", "bias", "batch")


def resolved(plan: Plan, device: Device, m: int, n: int, k: int, options: Mapping[str, Any]) -> Gemm:
    """The mapped record of C[m, n] = A[m, k] B[k, n]. options: of the mapping; alpha, beta, output; c, bias: whether
    there is one; batch: matrices of a stack."""
    given = {name: options[name] for name in EPILOGUE if options.get(name) is not None}
    problem = Problem(
        plan.input_format,
        *(m, n, k),
        lead=(given["batch"],) if "batch" in given else (),
        has_c=bool(given.get("c")),
        bias="fp32" if given.get("bias") else None,
    )
    epilogue = Epilogue(given.get("alpha", 1.0), given.get("beta"), output_format=given.get("output"))
    gemm = record_of(plan, device, problem, Schedule(epilogue=epilogue))
    return mapped(gemm, device, {name: value for name, value in options.items() if name not in EPILOGUE})


def lower(plan: Plan, device: Device, m: int, n: int, k: int, options: Mapping[str, Any]) -> Program:
    """The checked program of `resolved`."""
    return program_of(resolved(plan, device, m, n, k, options), device)


def facts(program: Program, device: Device) -> dict[str, Any]:
    """What results show of a program's mapping."""
    assert program.gemm is not None
    return facts_of(program.gemm, device)


def of_one_matrix(program: Program) -> Gemm:
    """The record of a program, for one matrix of its stack."""
    assert program.gemm is not None
    return replace(program.gemm, problem=replace(program.gemm.problem, lead=()))
