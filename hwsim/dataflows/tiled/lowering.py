"""Programs from a plan and options by name, for callers that have no record yet: the record is made here, then read.

It goes when all callers resolve a record first (hwsim.resolve).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.layouts import OPTIONS as ORDERS
from hwsim.dataflows.layouts import layout_of
from hwsim.dataflows.options import SPLIT_K, STAGES, SWIZZLE
from hwsim.dataflows.tiled.dataflow import TiledDataflow
from hwsim.dataflows.tiled.model import Family
from hwsim.devices import dot_spec
from hwsim.evaluate import evaluator
from hwsim.gemm.options import Option
from hwsim.gemm.plan import Plan
from hwsim.gemm.problem import Problem
from hwsim.gemm.record import DeviceId, Gemm
from hwsim.gemm.schedule import Epilogue, Schedule

if TYPE_CHECKING:
    from hwsim.devices.model import Device
    from hwsim.program.ir import Program

TILE_KEYS = ("m", "n", "k")
OPTIONS = ("tile", "stages", "split_k", "swizzle", "instruction", *ORDERS, "batch")
MAPPED = ("tile", "stages", "swizzle", "instruction", "cta_group", *ORDERS)
BATCH = Option("batch", int, None, "matrices of the stack", least=1)


def lower(
    flow: TiledDataflow | Family, plan: Plan, device: Device, m: int, n: int, k: int, options: Mapping[str, Any]
) -> Program:
    """The program that computes C[m, n] = A[m, k] B[k, n] by `plan` on `device`, with `facts`.

    options: those of the dataflow; batch: that many products, of matrices under one another in A, B and C; alpha, beta,
    c (True: C is read), bias (True), output (format of the result). Absent or None: chosen, or none.
    Raises InputError for a blocking that the device cannot hold, UnsupportedError for a plan that it cannot carry.
    """
    flow = _flow(flow) if isinstance(flow, Family) else flow
    split = SPLIT_K.check(options.get("split_k"))
    if isinstance(split, str):
        split = cut(flow, plan, device, m, n, k, options)[0]
    gemm = flow.map(_record(plan, device, m, n, k, options, split or 1), device, _mapped(options))
    return replace(flow.lower(gemm, device), facts=flow.facts(gemm))


def cut(
    flow: TiledDataflow | Family, plan: Plan, device: Device, m: int, n: int, k: int, options: Mapping[str, Any]
) -> tuple[int, float]:
    """The number of slices of K that "auto" takes, and its estimated time over that of K in one piece (0 to 1).

    m, n, k: elements. Arguments and errors as of `lower`; what `options` say of split_k is not looked at.
    """
    flow = _flow(flow) if isinstance(flow, Family) else flow
    found = flow.split_k(_record(plan, device, m, n, k, options, 1), device, _mapped(options))
    return found.slices, found.share


@lru_cache(maxsize=16)
def _flow(family: Family) -> TiledDataflow:
    return TiledDataflow(family)


def _mapped(options: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping's options, checked."""
    given = {name: options[name] for name in MAPPED if options.get(name) is not None}
    for option in (STAGES, SWIZZLE):
        if option.name in given:
            given[option.name] = option.check(given[option.name])
    return given


def _record(plan: Plan, device: Device, m: int, n: int, k: int, options: Mapping[str, Any], split_k: int) -> Gemm:
    batch = BATCH.check(options.get("batch")) or 1
    has_c, alpha, output = bool(options.get("c")), options.get("alpha"), options.get("output")
    beta = options.get("beta")
    beta = float(has_c) if beta is None or not has_c else float(beta)
    problem = Problem(
        plan.input_format,
        *(m, n, k),
        lead=(batch,) if batch > 1 else (),
        a_layout=layout_of(options, "A"),
        b_layout=layout_of(options, "B"),
        has_c=has_c,
        bias="fp32" if options.get("bias") else None,
    )
    epilogue = Epilogue(alpha=1.0 if alpha is None else float(alpha), beta=beta)
    schedule = evaluator.resolved(Schedule(split_k=split_k, epilogue=epilogue), plan, device)
    unit = evaluator.first_unit(plan, schedule, device)
    settled = evaluator.settled(plan, dot_spec(device, unit))
    output = output or settled.output_format
    schedule = replace(schedule, epilogue=replace(schedule.epilogue, output_format=output))
    return Gemm(DeviceId(device.name, device.sha256), problem, plan.scheme, (), settled, unit, output, schedule)


__all__ = ["OPTIONS", "TILE_KEYS", "cut", "lower"]
