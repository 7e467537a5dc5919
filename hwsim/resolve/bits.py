"""The bits of one GEMM from a device, a scheme and a schedule: what the API, `diff` and searches have in common.

It joins the layers below and holds no fact of its own: scheme -> plan, schedule -> evaluator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.lanes import Lanes
from hwsim.dataflows.mixed import program_mixed
from hwsim.devices import dot_spec, find
from hwsim.errors import InputError, UnsupportedError, nearest
from hwsim.evaluate import evaluator as scheduled
from hwsim.evaluate import mixed as adaptive
from hwsim.evaluate.split import Pieces, pieces_of
from hwsim.formats import array_of, format_of
from hwsim.gemm.plan import Mixed, Plan
from hwsim.gemm.problem import Problem
from hwsim.gemm.schedule import Epilogue, Layout, Schedule, schedule_of
from hwsim.operands import Operand, chosen, operand
from hwsim.resolve import hybrid
from hwsim.resolve.mixed_choice import surveyed
from hwsim.resolve.planned import Planned

if TYPE_CHECKING:
    from types import ModuleType

    from hwsim.devices.model import Device
    from hwsim.gemm.plan import Side
    from hwsim.program.ir import Program
    from hwsim.schemes import Scheme

Array = NDArray[Any]


def plan_for(
    chip: Device,
    scheme: Scheme,
    problem: Problem,
    format: str | None,
    scheme_options: Mapping[str, Any],
    operands: tuple[Operand, Operand] | None = None,
) -> Planned:
    """The scheme's complete options and its plan for `problem`; with hybrid=True the faster of it and native fp32.

    Without `format`, a scheme that has that option takes the input's, if the device has a unit for it, else the
    device's default. operands: A and B, for schemes whose options the data decide. Of the choices that a scheme
    leaves to the device the first that it carries is taken. Raises InputError for options that do not fit,
    UnsupportedError for a format without a unit, and where the device carries none of the choices.
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
    options, input_format = dict(scheme_options), problem.input_format
    if format is not None:
        options["format"] = format
    has_format = scheme.takes_native_formats
    if has_format and options.get("format") is None:
        options["format"] = input_format if input_format in chip.native else chip.default_format
    complete = scheme.complete(options)
    if has_format and complete["format"] not in chip.native:
        raise UnsupportedError(
            f"device {chip.name} has no native {complete['format']!r} matrix unit; it has {', '.join(chip.native)}"
            f"{nearest(complete['format'], list(chip.native))}"
        )
    own = complete.get("format") if has_format else None
    taken = next((x for x in (input_format, "fp32") if x in (own, *scheme.input_formats)), scheme.input_formats[0])
    if scheme.survey is not None and operands is not None:
        a, b = operands
        complete = scheme.survey(a.values(), b.values(), complete)
    known = dataclasses.replace(problem, input_format=taken)
    name = scheme.alternatives
    if name is None or complete[name] is not None:
        made = scheme.plan(complete, known)
        if isinstance(made, Mixed):
            made, said = surveyed(chip, made, (problem.m, problem.n, problem.k), operands)
            complete |= said
        return Planned(complete, made)
    refused: dict[str, str] = {}
    for choice in next(option.choices for option in scheme.options if option.name == name):
        chosen_options = complete | {name: choice}
        plan = scheme.plan(chosen_options, known)
        reason = carries(chip, plan)
        if reason is None:
            return Planned(chosen_options, plan, refused)
        refused[choice] = reason
    reasons = list(dict.fromkeys(refused.values()))
    told = reasons[0] if len(reasons) == 1 else "; ".join(f"{name}={x}: {why}" for x, why in refused.items())
    raise UnsupportedError(f"scheme {scheme.name} cannot run on device {chip.name}: {told}")


def carries(device: Device, plan: Plan | Mixed) -> str | None:
    """Why the device's units cannot carry the plan, or None where they can."""
    try:
        if isinstance(plan, Mixed):
            _check_mixed(device, plan)
        else:
            scheduled.resolved(Schedule(), plan, device)
    except UnsupportedError as error:
        return str(error)
    return None


def _check_mixed(device: Device, mixed: Mixed) -> None:
    """Raise UnsupportedError where a plan does not run, or does not give what the others give."""
    for plan in mixed.plans:
        unit = scheduled.first_unit(plan, scheduled.resolved(Schedule(), plan, device), device)
        given = scheduled.settled(plan, dot_spec(device, unit)).output_format
        if given != plan.output_format:
            raise UnsupportedError(
                f"scheme {mixed.scheme}: its blocks are added in {plan.output_format}; {plan.scheme} gives {given} by "
                f"{unit} of {device.name}"
            )


def with_epilogue(
    schedule: Schedule, *, alpha: float | None = None, beta: float | None = None, output: str | None = None
) -> Schedule:
    """The schedule with these in its epilogue. Raises InputError where it says something else already."""
    plain, own = Epilogue(), schedule.epilogue
    wanted = {"alpha": alpha, "beta": beta, "output_format": output}
    given: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    for name, value in given.items():
        said = getattr(own, name)
        if said not in (getattr(plain, name), value):
            raise InputError(
                f"{name.removesuffix('_format')} = {value!r}, but the schedule says {said!r}; leave one out"
            )
    return dataclasses.replace(schedule, epilogue=dataclasses.replace(own, **given))  # checks the whole again


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan and a resolved schedule on a device. `options`: the scheme's, complete; `refused`: see Planned."""

    chip: Device
    plan: Plan
    options: dict[str, Any]
    schedule: Schedule
    unit: str
    output: str
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def by_rows(self) -> bool:
        """Whether a row of the result depends on no other row of A."""
        return True

    def facts(self, k: int) -> dict[str, Any]:
        """What was chosen for the caller: the unit, and the length of K accumulated in it from zero (K = k at most)."""
        groups = {term.k_group for term in self.plan.terms}
        own = groups.pop() if len(groups) == 1 else None
        model = find(self.chip, self.unit)
        assert model is not None
        if own == "instruction":
            own = model.k
        return {
            "k_group": own or self.schedule.promotion_k or max(self.schedule.slice_lengths(k)),
            "unit": self.unit,
        }

    def pieces(self, a: Operand, b: Operand, threads: int = 1) -> tuple[Pieces, Pieces]:
        """The plan's pieces of both operands."""
        model = find(self.chip, self.unit)
        assert model is not None
        sides: tuple[tuple[Operand, Side], ...] = ((a, "a"), (b, "b"))
        left, right = (
            pieces_of(
                given.converted(self.plan.input_format),
                self.plan,
                side,
                self.chip,
                rounding=self.schedule.operand_rounding,
                word_rounding=model.operand_rounding,
                threads=threads,
            )
            for given, side in sides
        )
        return left, right

    def c_codes(self, c: Any, shape: tuple[int, ...]) -> Array:
        """Codes of C in the output format. Raises InputError for another shape, or no real matrix."""
        fmt = format_of(self.output)
        x = np.asarray(c)
        if x.shape != shape:
            raise InputError(f"C has shape {x.shape}; allowed: {shape}")
        if x.dtype.kind == "u" and x.dtype.itemsize * 8 == max(fmt.bits, 8):
            return operand("C", x, input_format=self.output).codes
        given = operand("C", x)
        if given.format == self.output:
            return given.codes
        if fmt.is_integer:
            low, high = -(1 << (fmt.bits - 1)), 1 << (fmt.bits - 1)
            if x.dtype.kind not in "iu" or int(x.min(initial=0)) < low or int(x.max(initial=0)) >= high:
                raise InputError(f"C has dtype {x.dtype}; allowed: integers that {fmt.name} holds, as the output does")
            return np.ascontiguousarray(x.astype(fmt.dtype_name)).view(f"u{fmt.bits // 8}")
        lanes = Lanes(self.chip, dot_spec(self.chip, self.unit))
        values = x.astype(np.float64) if x.dtype.kind in "iu" else given.values()
        return (
            lanes.store(values, fmt, "RNE")
            if values.dtype != np.float16
            else lanes.store(values.astype(np.float32), fmt, "RNE")
        )

    def evaluate(
        self,
        a: Pieces | Sequence[Array],
        b: Pieces | Sequence[Array],
        *,
        c: Array | None = None,
        bias: Array | None = None,
        layout: Layout | None = None,
        threads: int = 1,
        progress: Callable[[float], None] | None = None,
    ) -> Array:
        """Codes of the result; arguments as of hwsim.evaluate.evaluator.evaluate."""
        return scheduled.evaluate(
            self.plan,
            self.schedule,
            self.chip,
            a,
            b,
            c=c,
            bias=bias,
            layout=layout,
            threads=threads,
            progress=progress,
        )

    def product(
        self,
        a: Operand,
        b: Operand,
        *,
        c: Array | None = None,
        bias: Array | None = None,
        threads: int = 1,
        progress: Callable[[float], None] | None = None,
    ) -> Array:
        """Codes of the result for operands not split yet."""
        left, right = self.pieces(a, b, threads)
        return self.evaluate(left, right, c=c, bias=bias, threads=threads, progress=progress)

    def program(self, flow: ModuleType, sizes: tuple[int, int, int], options: Mapping[str, Any]) -> Program:
        """The program that a family's dataflow makes of the plan. Raises UnsupportedError where it makes none."""
        lowered: Program = flow.lower(self.plan, self.chip, *sizes, options)
        return lowered

    def typed(self, codes: Array) -> Array:
        """The result's codes as a typed array."""
        return array_of(codes, format_of(self.output))


@dataclass(frozen=True, slots=True)
class PreparedMixed(Prepared):
    """A GEMM whose blocks follow different plans. `plan`: the most general of them; the epilogue follows at the end."""

    mixed: Mixed | None = None

    def product(
        self,
        a: Operand,
        b: Operand,
        *,
        c: Array | None = None,
        bias: Array | None = None,
        threads: int = 1,
        progress: Callable[[float], None] | None = None,
    ) -> Array:
        """Codes of the result, block by block."""
        fmt = self.plan.input_format
        operands = a.converted(fmt), b.converted(fmt)
        assert self.mixed is not None
        codes = adaptive.evaluate_mixed(self.chip, self.mixed, *operands, threads=threads, progress=progress)
        return scheduled.finished(self.plan, self.schedule, self.chip, codes, c=c, bias=bias, threads=threads)

    @property
    def by_rows(self) -> bool:
        """Blocks of rows choose together."""
        return False

    def evaluate(self, a: Any, b: Any, **given: Any) -> Array:
        """Not for mixed plans: their pieces differ from block to block. Raises UnsupportedError."""
        raise UnsupportedError(f"scheme {self.plan.scheme}: its blocks follow different plans; take `product`")

    def program(self, flow: ModuleType, sizes: tuple[int, int, int], options: Mapping[str, Any]) -> Program:
        """The program for the blocks' plans. Raises UnsupportedError where there is none."""
        assert self.mixed is not None
        return program_mixed(flow, self.mixed, self.chip, *sizes, options)


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
) -> Prepared:
    """The plan of `scheme` and the schedule, resolved for `chip`. Raises as `plan_for` and `scheduled.resolved`."""
    planned = plan_for(chip, scheme, problem, format, scheme_options or {}, operands)
    wanted = with_epilogue(schedule_of(schedule), alpha=alpha, beta=beta, output=output)
    return prepared(chip, planned, wanted)


def prepared(chip: Device, planned: Planned, schedule: Schedule) -> Prepared:
    """A plan and a schedule, resolved for `chip`.

    Raises UnsupportedError for blocks of different plans with a schedule that says more than the epilogue.
    """
    plan = planned.plan
    if isinstance(plan, Mixed):
        if dataclasses.replace(schedule, epilogue=Epilogue()) != Schedule():
            raise UnsupportedError(f"scheme {plan.scheme}: its blocks follow different plans; a schedule fits none")
        _check_mixed(chip, plan)
        single = plan.plans[-1]
    else:
        single = plan
    full = scheduled.resolved(schedule, single, chip)
    unit = scheduled.first_unit(single, full, chip)
    single = scheduled.settled(single, dot_spec(chip, unit))
    output = full.epilogue.output_format or single.output_format
    full = dataclasses.replace(full, epilogue=dataclasses.replace(full.epilogue, output_format=output))
    known = (chip, single, planned.options, full, unit, output, planned.refused)
    return PreparedMixed(*known, plan) if isinstance(plan, Mixed) else Prepared(*known)


def subset(given: Operand, *, rows: Any = None, cols: Any = None) -> Operand:
    """Some rows, or some columns, of an operand. Raises InputError for indices that do not fit."""
    codes = given.codes
    if rows is not None:
        codes = codes[..., chosen("rows", rows, codes.shape[-2]), :]
    if cols is not None:
        codes = codes[..., chosen("cols", cols, codes.shape[-1])]
    return Operand(codes, given.format)
