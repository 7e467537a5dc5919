"""Makes the record of a plan on a device, without the mapping: units, order of summation and epilogue, complete.

The module knows plans, schedules and devices' units; it knows no scheme and no dataflow.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from hwsim.devices import dot_spec
from hwsim.errors import InputError, UnsupportedError
from hwsim.evaluate import defaults
from hwsim.gemm.plan import Mixed, Plan
from hwsim.gemm.record import DeviceId, Gemm
from hwsim.gemm.schedule import Epilogue, Schedule
from hwsim.resolve.scaled_record import scaled_schedule

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.mapping import Setting
    from hwsim.gemm.problem import Problem


def record_of(
    plan: Plan | Mixed,
    device: Device,
    problem: Problem,
    schedule: Schedule | None = None,
    scheme_options: tuple[Setting, ...] = (),
) -> Gemm:
    """The record of `plan` for `problem` on `device`, without a mapping.

    schedule: the requested order of summation and epilogue; the rest follows from the plan and the device. beta
    defaults to 1 where a C is given, else to 0. Raises UnsupportedError for a plan that no instruction of the device
    supports, InputError where plan and schedule contradict each other.
    """
    wanted = schedule or Schedule()
    if isinstance(plan, Mixed):
        if dataclasses.replace(wanted, epilogue=Epilogue()) != Schedule():
            raise UnsupportedError(f"scheme {plan.scheme}: its blocks follow different plans; a schedule fits none")
        check_mixed(device, plan)
    single = plan.plans[-1] if isinstance(plan, Mixed) else plan
    wanted = scaled_schedule(wanted, problem, single, device)
    full = defaults.resolved(wanted, single, device)
    unit = defaults.first_unit(single, full, device)
    complete = defaults.with_result_formats(single, dot_spec(device, unit))
    output = full.epilogue.output_format or complete.output_format
    beta = full.epilogue.beta
    if beta is None:
        beta = 1.0 if problem.has_c else 0.0
    if beta and not problem.has_c:
        raise InputError(f"beta = {beta:g} needs a C; give c, or beta = 0")
    epilogue = dataclasses.replace(full.epilogue, output_format=output, beta=float(beta))
    complete_plan = (
        dataclasses.replace(plan, plans=(*plan.plans[:-1], complete)) if isinstance(plan, Mixed) else complete
    )
    return Gemm(
        device=DeviceId(device.name, device.sha256, device.asked_mhz),
        problem=problem,
        scheme=plan.scheme,
        scheme_options=scheme_options,
        plan=complete_plan,
        unit=unit,
        output=output,
        schedule=_with_slices_that_run(dataclasses.replace(full, epilogue=epilogue), single, problem.k),
    )


def _with_slices_that_run(schedule: Schedule, plan: Plan, k: int) -> Schedule:
    """The schedule with the number of slices of K that run; each part of K that is split alone has its own."""
    return schedule if plan.k_parts else schedule.with_slices_of(k)


def in_other_order(gemm: Gemm, device: Device, schedule: Schedule) -> Gemm:
    """A record without a mapping in another order of summation; its plan, problem and result stay.

    schedule: complete but for what follows from the plan and the device.
    """
    full = _with_slices_that_run(defaults.resolved(schedule, gemm.single, device), gemm.single, gemm.problem.k)
    return dataclasses.replace(gemm, schedule=full, unit=defaults.first_unit(gemm.single, full, device))


def check_mixed(device: Device, mixed: Mixed) -> None:
    """Raise UnsupportedError where one of the plans does not run, or its result format differs from the others'."""
    for plan in mixed.plans:
        unit = defaults.first_unit(plan, defaults.resolved(Schedule(), plan, device), device)
        output_format = defaults.with_result_formats(plan, dot_spec(device, unit)).output_format
        if output_format != plan.output_format:
            raise UnsupportedError(
                f"scheme {mixed.scheme}: its blocks are added in {plan.output_format}; {plan.scheme} gives "
                f"{output_format} by {unit} of {device.name}"
            )
