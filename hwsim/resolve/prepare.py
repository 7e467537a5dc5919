"""Makes the evaluator of a scheme's GEMM, for studies that need bits only: no mapping, no program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hwsim.evaluate.product import Evaluator
from hwsim.gemm.mapping import Setting
from hwsim.gemm.schedule import Schedule, schedule_of
from hwsim.request.epilogue import with_epilogue
from hwsim.resolve.gemm_record import record_of
from hwsim.resolve.planning import plan_for

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.problem import Problem
    from hwsim.operands.operand import Operand
    from hwsim.schemes import Scheme


def prepare(
    chip: Device,
    scheme: Scheme,
    problem: Problem,
    *,
    format: str | None = None,
    schedule: Schedule | Mapping[str, Any] | None = None,
    alpha: float | None = None,
    beta: float | None = None,
    output: str | None = None,
    scheme_options: Mapping[str, Any] | None = None,
    operands: tuple[Operand, Operand] | None = None,
) -> Evaluator:
    """The evaluator of `scheme` under a schedule on `chip`; a beta other than 0 needs problem.has_c.

    Raises as `plan_for` and `record_of`.
    """
    planned = plan_for(chip, scheme, problem, format, scheme_options or {}, operands)
    wanted = with_epilogue(schedule_of(schedule), alpha=alpha, beta=beta, output=output)
    settings = tuple([Setting(option.name, planned.options.get(option.name)) for option in scheme.options])
    return Evaluator(record_of(planned.plan, chip, problem, wanted, settings), chip)
