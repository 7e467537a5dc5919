"""The bits of one GEMM from a device, a scheme and a schedule: what the API, `diff` and searches have in common.

It joins the layers below and holds no fact of its own: scheme -> plan, schedule -> evaluator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.devices import dot_spec, find, numerics_evidence, schedule_evidence
from hwsim.errors import InputError, UnsupportedError, nearest
from hwsim.formats import array_of, format_of
from hwsim.machine import scheduled
from hwsim.machine.lanes import Lanes
from hwsim.machine.operands import Operand, chosen, operand, pieces_of
from hwsim.program.plan import Plan, Problem
from hwsim.program.schedule import Epilogue, Layout, Schedule, schedule_of

if TYPE_CHECKING:
    from hwsim.devices.model import Device
    from hwsim.schemes import Scheme

Array = NDArray[Any]


def plan_for(
    chip: Device, scheme: Scheme, problem: Problem, format: str | None, scheme_options: Mapping[str, Any]
) -> tuple[dict[str, Any], Plan]:
    """The scheme's complete options and its plan for `problem`.

    Without `format`, a scheme that has that option takes the input's, if the device has a unit for it, else the
    device's default. Raises InputError for options that do not fit, UnsupportedError for a format without a unit.
    """
    options, input_format = dict(scheme_options), problem.input_format
    if format is not None:
        options["format"] = format
    if "format" in {option.name for option in scheme.options} and options.get("format") is None:
        options["format"] = input_format if input_format in chip.native else chip.default_format
    complete = scheme.complete(options)
    if scheme.name == "native" and complete["format"] not in chip.native:
        raise UnsupportedError(
            f"device {chip.name} has no native {complete['format']!r} matrix unit; it has {', '.join(chip.native)}"
            f"{nearest(complete['format'], list(chip.native))}"
        )
    own = complete.get("format")
    taken = input_format if input_format in (own, *scheme.input_formats) else "fp32"
    if taken not in (own, *scheme.input_formats):
        taken = scheme.input_formats[0]
    plan = scheme.plan(complete, dataclasses.replace(problem, input_format=taken))
    if not isinstance(plan, Plan):
        raise UnsupportedError(f"scheme {scheme.name}: its blocks follow different plans; that has no single one")
    return complete, plan


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
    """A plan and a resolved schedule on a device. `options`: the scheme's, complete."""

    chip: Device
    plan: Plan
    options: dict[str, Any]
    schedule: Schedule
    unit: str
    output: str

    @property
    def unit_result(self) -> str:
        """Format of the unit's results."""
        return dot_spec(self.chip, self.unit).d

    def evidence(self) -> dict[str, str]:
        """Weakest level of evidence of the unit, and of the schedule as what the vendor's library does."""
        formats = {piece.format for piece in (*self.plan.a_pieces, *self.plan.b_pieces)}
        return {
            "numerics": str(numerics_evidence(self.chip, self.unit)),
            "schedule": str(schedule_evidence(self.chip, formats)),
        }

    def facts(self, k: int) -> dict[str, Any]:
        """What was chosen for the caller: the unit, and the length of K accumulated in it from zero (K = k at most)."""
        return {"k_group": self.schedule.promotion_k or max(self.schedule.slice_lengths(k)), "unit": self.unit}

    def pieces(self, a: Operand, b: Operand, threads: int = 1) -> tuple[list[Array], list[Array]]:
        """Codes of the plan's pieces of both operands."""
        model = find(self.chip, self.unit)
        assert model is not None
        sides = ((a, self.plan.a_pieces), (b, self.plan.b_pieces))
        left, right = (
            pieces_of(
                given if given.format == self.plan.input_format else given.fp32(),
                pieces,
                self.chip,
                rounding=self.schedule.operand_rounding,
                word_rounding=model.operand_rounding,
                threads=threads,
            )
            for given, pieces in sides
        )
        return left, right

    def c_codes(self, c: Any, shape: tuple[int, int]) -> Array:
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
        if fmt.name == "int32":
            if x.dtype.kind not in "iu" or x.min(initial=0) < -(1 << 31) or x.max(initial=0) >= 1 << 31:
                raise InputError(f"C has dtype {x.dtype}; allowed: integers that int32 holds, as the output is int32")
            return np.ascontiguousarray(x.astype(np.int32)).view(np.uint32)
        lanes = Lanes(self.chip, dot_spec(self.chip, self.unit))
        values = x.astype(np.float64) if x.dtype.kind in "iu" else given.values()
        return (
            lanes.store(values, fmt, "RNE")
            if values.dtype != np.float16
            else lanes.store(values.astype(np.float32), fmt, "RNE")
        )

    def evaluate(
        self,
        a: list[Array],
        b: list[Array],
        *,
        c: Array | None = None,
        bias: Array | None = None,
        layout: Layout | None = None,
        threads: int = 1,
        progress: Callable[[float], None] | None = None,
    ) -> Array:
        """Codes of the result; arguments as of hwsim.machine.scheduled.evaluate."""
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

    def typed(self, codes: Array) -> Array:
        """The result's codes as a typed array."""
        return array_of(codes, format_of(self.output))


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
) -> Prepared:
    """The plan of `scheme` and the schedule, resolved for `chip`. Raises as `plan_for` and `scheduled.resolved`."""
    complete, plan = plan_for(chip, scheme, problem, format, scheme_options or {})
    wanted = with_epilogue(schedule_of(schedule), alpha=alpha, beta=beta, output=output)
    return prepared(chip, complete, plan, wanted)


def prepared(chip: Device, options: dict[str, Any], plan: Plan, schedule: Schedule) -> Prepared:
    """A plan and a schedule, resolved for `chip`."""
    full = scheduled.resolved(schedule, plan, chip)
    i, j = plan.terms[0].products[0]
    unit = scheduled.instruction_for(chip, plan.a_pieces[i].format, plan.b_pieces[j].format, full.instruction)
    output = full.epilogue.output_format or dot_spec(chip, unit).d
    full = dataclasses.replace(full, epilogue=dataclasses.replace(full.epilogue, output_format=output))
    return Prepared(chip, plan, options, full, unit, output)


def subset(given: Operand, *, rows: Any = None, cols: Any = None) -> Operand:
    """Some rows, or some columns, of an operand. Raises InputError for indices that do not fit."""
    codes = given.codes
    if rows is not None:
        codes = codes[chosen("rows", rows, codes.shape[0])]
    if cols is not None:
        codes = codes[:, chosen("cols", cols, codes.shape[1])]
    return Operand(codes, given.format)
