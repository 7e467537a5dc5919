"""What scales of operands decide of a record: the instruction that takes them, and the runs of K that they multiply.

The module knows problems, schedules and a device's instructions; it knows no scheme and no library.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from math import lcm
from typing import TYPE_CHECKING

from hwsim.devices.query import dot_spec, example
from hwsim.devices.which import which
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.schedule import SLICE_MULTIPLE

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.plan import Plan
    from hwsim.gemm.problem import OperandScale, Problem
    from hwsim.gemm.schedule import Schedule


def scaled_schedule(schedule: Schedule, problem: Problem, plan: Plan, device: Device) -> Schedule:
    """The schedule with what the problem's scales decide.

    Raises UnsupportedError where no instruction takes them, InputError for an instruction or a promotion interval that
    does not fit.
    """
    scale = problem.a.scale
    if schedule.instruction is not None:
        _check_instruction(schedule.instruction, scale, device)
    if scale is None:
        return schedule
    if scale.kind in ("vector", "block") and scale.k is not None:
        schedule = _whole_blocks(schedule, problem.k, scale.k)
    if scale.kind == "vector" and schedule.instruction is None:
        formats = plan.a_pieces[0].format, plan.b_pieces[0].format
        own_formats = problem.a.format, problem.b.format
        return replace(schedule, instruction=block_scaled_instruction(device, *formats, scale, own_formats))
    if scale.kind == "block":
        if schedule.promotion_k not in (None, scale.k) or plan.k_group not in (None, scale.k):
            raise InputError(
                f"promotion of {schedule.promotion_k or plan.k_group} of K: blocks of scales are {scale.k}"
            )
        return replace(schedule, promotion_k=scale.k)
    return schedule


def _whole_blocks(schedule: Schedule, k: int, block: int) -> Schedule:
    """The schedule with slices of K that begin where blocks of scales begin: equal slices are cut so.

    Raises InputError for lengths that the caller gave and that cut a block.
    """
    multiple = schedule.slice_multiple or SLICE_MULTIPLE
    if schedule.slice_k is None and multiple % block:  # split_k may come with the mapping
        return replace(schedule, slice_multiple=lcm(multiple, block))
    starts = list(accumulate(schedule.slice_lengths(k)))[:-1]
    cut = [start for start in starts if start % block]
    if cut:
        raise InputError(f"slices of K begin at {cut[0]}, inside a block of scales; allowed: multiples of {block}")
    return schedule


def block_scaled_instruction(
    device: Device, a: str, b: str, scale: OperandScale, own_formats: tuple[str, str] | None = None
) -> str:
    """The widest instruction for operands of these formats with such scales. own_formats: those that A and B came
    in, where the unit's are wider. Raises UnsupportedError without one.
    """
    fitting: list[tuple[int, str]] = []
    known = set()
    for key, model in device.matrix_instructions.items():
        if model.scale_format is None:
            continue
        known.add(f"{model.a} x {model.b} with {model.scale_format} by {model.scale_block}")
        is_open = a in model.formats and b in model.formats
        if (is_open or (a, b) == (model.a, model.b)) and (model.scale_format, model.scale_block) == (
            scale.format,
            scale.k,
        ):
            n = model.n_last or model.n
            fitting.append((model.m * n * model.k, example(device, key, n=n, a=a, b=b)))
    if not fitting:
        has = ", ".join(sorted(known)) or "none with scales"
        of_a, of_b = own_formats or (a, b)
        others = dict.fromkeys(row.device for row in which(bits=of_a, bits_b=of_b, scales=scale.format))
        raise UnsupportedError(
            f"device {device.name} has no matrix instruction for {of_a} x {of_b} with scales of {scale.format} by "
            f"{scale.k} of K; it has {has}; devices that have one for {of_a} x {of_b} with scales of {scale.format}: "
            f"{', '.join(others) or 'none'}"
        )
    most = max(size for size, _ in fitting)
    return next(name for size, name in fitting if size == most)


def _check_instruction(name: str, scale: OperandScale | None, device: Device) -> None:
    spec = dot_spec(device, name)
    has = None if scale is None or scale.kind != "vector" else (scale.format, scale.k)
    if spec.scale_format is not None and has is None:
        raise UnsupportedError(f"instruction {name} needs block scales, which the operands do not have")
    if has is not None and has != (spec.scale_format, spec.scale_block):
        raise UnsupportedError(f"instruction {name} takes no scales of {has[0]} by {has[1]} of K")
