"""Makes the plan of a scheme on a device: format, options, and the choices left to the device or the data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from hwsim.devices.device import Device
from hwsim.devices.query import native_format, without_native
from hwsim.errors import InputError, UnsupportedError, nearest
from hwsim.evaluate import defaults
from hwsim.gemm.plan import Mixed, Plan
from hwsim.gemm.planned import Planned
from hwsim.gemm.problem import Problem
from hwsim.gemm.schedule import Schedule
from hwsim.operands.operand import Operand
from hwsim.resolve.choice import hybrid
from hwsim.resolve.choice.mixed_choice import surveyed
from hwsim.resolve.gemm_record import check_mixed
from hwsim.schemes import OWN, Scheme

SCALED = tuple(scheme.name for scheme in OWN if scheme.quantizes is not None)


def plan_for(
    chip: Device,
    scheme: Scheme,
    problem: Problem,
    format: str | None,
    scheme_options: Mapping[str, Any],
    operands: tuple[Operand, Operand] | None = None,
) -> Planned:
    """The scheme's complete options and its plan for `problem`; with hybrid=True, of it or native fp32, whichever is
    faster.

    A format that is the operands' alone is the problem's, and no option. Without `format`, a scheme with that option
    uses the input's format if the device has a unit for it, otherwise the device's default. operands: A and B, for
    schemes whose options depend on the data. Of the choices that a scheme leaves to the device, the first supported one
    is used. Raises InputError for options that do not fit, UnsupportedError for a format without a unit, and where the
    device supports none of the choices.
    """
    planned = _own_plan(chip, scheme, problem, format, scheme_options, operands)
    return hybrid.faster(chip, planned, problem) if planned.options.get("hybrid") is True else planned


def _own_plan(
    chip: Device,
    scheme: Scheme,
    problem: Problem,
    format: str | None,
    scheme_options: Mapping[str, Any],
    operands: tuple[Operand, Operand] | None,
) -> Planned:
    options, input_format = {**scheme.values, **scheme_options}, problem.input_format
    if format is not None and not scheme.takes_operands_of(format):
        options["format"] = format
    has_format = scheme.takes_native_formats
    if has_format and options.get("format") is None:
        options["format"] = native_format(chip, input_format)
    complete = scheme.complete(options)
    if has_format and complete["format"] not in chip.native:
        if complete["format"] in SCALED:
            raise UnsupportedError(
                f"format {complete['format']}: operands of it have scales; give scheme={complete['format']!r}, which "
                "quantises, or elements with scale_a and scale_b"
            )
        has = f"it has {', '.join(chip.native)}{nearest(complete['format'], list(chip.native))}"
        raise UnsupportedError(
            f"device {chip.name} has no native {complete['format']!r} matrix unit; "
            f"{has if chip.native else without_native(chip) or 'it has none'}"
        )
    own_format = complete.get("format") if has_format else None
    operand_format = next(
        (name for name in (input_format, "fp32") if name in (own_format, *scheme.input_formats)),
        scheme.input_formats[0],
    )
    if scheme.survey is not None and scheme.is_of_data(complete) and operands is not None:
        a, b = (side.on_host() for side in operands)
        complete = scheme.survey(a.values(), b.values(), complete)
    problem_as_taken = problem.with_format(operand_format)
    name = scheme.alternatives
    if name is None or complete[name] is not None:
        own_plan = _with_its_pieces(scheme, scheme.plan(complete, problem_as_taken))
        if isinstance(own_plan, Mixed):
            own_plan, facts = surveyed(chip, own_plan, (problem.m, problem.n, problem.k), operands)
            complete |= facts
        return Planned(complete, own_plan)
    refused: dict[str, str] = {}
    for choice in next(option.choices for option in scheme.options if option.name == name):
        chosen_options = complete | {name: choice}
        plan = _with_its_pieces(scheme, scheme.plan(chosen_options, problem_as_taken))
        reason = carries(chip, plan)
        if reason is None:
            return Planned(chosen_options, plan, refused)
        refused[choice] = reason
    reasons = list(dict.fromkeys(refused.values()))
    told = reasons[0] if len(reasons) == 1 else "; ".join(f"{name}={choice}: {why}" for choice, why in refused.items())
    raise UnsupportedError(f"scheme {scheme.name} cannot run on device {chip.name}: {told}")


def _with_its_pieces(scheme: Scheme, planned: Plan | Mixed) -> Plan | Mixed:
    """The plan, whose products name pieces that it has. Raises InputError for another one."""
    for plan in planned.plans if isinstance(planned, Mixed) else (planned,):
        for number, term in enumerate(plan.terms):
            for product in term.products:
                for side, piece, pieces in zip("AB", product, (plan.a_pieces, plan.b_pieces), strict=True):
                    if not 0 <= piece < len(pieces):
                        raise InputError(
                            f"scheme {scheme.name}: term {number} of its plan multiplies piece {piece} of {side}; "
                            f"allowed: 0 to {len(pieces) - 1}, its {side.lower()}_pieces; name one of these"
                        )
    return planned


def carries(device: Device, plan: Plan | Mixed) -> str | None:
    """The reason why the device's units cannot execute the plan, or None where they can."""
    try:
        if isinstance(plan, Mixed):
            check_mixed(device, plan)
        else:
            defaults.resolved(Schedule(), plan, device)
    except UnsupportedError as error:
        return str(error)
    return None


def as_calls(plan: Plan | Mixed) -> Plan | Mixed:
    """The plan with each of its terms a kernel of its own."""
    is_several = isinstance(plan, Plan) and len(plan.terms) > 1
    return dataclasses.replace(plan, calls=True) if is_several and isinstance(plan, Plan) else plan
