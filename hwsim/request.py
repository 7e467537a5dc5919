"""One request of the API carried out: scheme -> plan -> program, or schedule -> bits.

It joins the layers and holds no fact of its own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError, UnsupportedError
from hwsim.measures import Ending, errors_of, wide

if TYPE_CHECKING:
    from types import ModuleType

    from hwsim.devices.model import Device
    from hwsim.gemm.plan import Plan
    from hwsim.gemm.schedule import Schedule
    from hwsim.operands import Operand
    from hwsim.program.ir import Program
    from hwsim.resolve.bits import Prepared
    from hwsim.schemes import Scheme

MOST_PRODUCTS = 1024  # in a program: each is a kernel, and takes some 5 ms to make and time
Array = NDArray[Any]


@dataclass(slots=True)
class Work:
    """How a request is carried out: by a program, or directly (plan and schedule alone fix the bits).

    program: None where the device has none for the plan. direct: bits by the evaluator. no_timing: why there are
    no cycles, empty where there are. in_one: the program is for all matrices of a stack. chose: the program chose what
    the bits depend on.
    """

    prepared: Prepared
    program: Program | None
    direct: bool
    no_timing: str
    in_one: bool
    chose: bool

    @property
    def unit(self) -> str:
        """The instruction that the result names."""
        facts = {} if self.program is None else self.program.facts
        return str(facts.get("unit", self.prepared.unit))


@dataclass(slots=True)
class Request:
    """What `run` was asked for, apart from A and B. extras: schedule, c, alpha, beta, bias, output, where given."""

    chip: Device
    scheme: Scheme
    format: str | None
    scheme_options: Mapping[str, Any]
    lowering: Mapping[str, Any]
    extras: dict[str, Any]
    rows: Any
    cols: Any
    timing: bool
    functional: bool | None

    @property
    def operand_format(self) -> str:
        """Format of operands of which nothing but the sizes is known: the one asked for by name, or fp32."""
        named = self.format or self.scheme_options.get("format")
        return "fp32" if named is None else str(named)

    def prepare(
        self,
        input_format: str,
        sizes: tuple[int, int, int],
        exact: bool,
        operands: tuple[Operand, Operand] | None,
        batch: int,
    ) -> Work:
        """The plan, the schedule, and the program where there is one. batch: matrices in a stack."""
        from hwsim.gemm.problem import Problem
        from hwsim.gemm.schedule import schedule_of
        from hwsim.resolve.bits import plan_for, prepared, with_epilogue

        chip, extras = self.chip, self.extras
        if operands is not None:
            input_format = operands[0].format
        problem = Problem(input_format, *sizes)
        planned = plan_for(chip, self.scheme, problem, self.format, self.scheme_options, operands)
        epilogue = {name: extras.get(name) for name in ("alpha", "beta", "output")}
        schedule = with_epilogue(schedule_of(extras.get("schedule")), **epilogue)
        direct = prepared(chip, planned, schedule)
        program, no_timing, in_one = self._program(direct, sizes, exact, batch)
        if program is None and not exact:
            raise UnsupportedError(f"nothing to do: {no_timing}, and bits were not asked for")
        if program is None:
            unused = [name for name, value in self.lowering.items() if value is not None]
            if unused:
                raise InputError(f"{', '.join(unused)}: for a device's program, and there is none here ({no_timing})")
        else:
            direct = prepared(chip, planned, _as_program(schedule, direct.plan, program, sizes[2]))
        is_partial = bool(extras) or self.rows is not None or self.cols is not None
        can_run = program is not None and program.computes and not in_one and not is_partial
        if self.functional and exact and not can_run:
            raise UnsupportedError(
                "functional=True: no program gives these bits; it needs a device's program that computes the scheme, "
                "for whole matrices, without schedule, C, alpha, beta, bias and output"
            )
        chose = program is not None and self._chooses_k_group()
        wanted = chose if self.functional is None else self.functional
        return Work(direct, program, not (can_run and wanted), no_timing, in_one, chose)

    def evidence(self, work: Work, sizes: tuple[int, int, int], matrices: int) -> dict[str, str]:
        """Levels of what the bits rest on; "schedule" where it is not the program's own choice."""
        from hwsim.resolve import evidence

        ready = work.prepared
        found = {"numerics": str(evidence.of_numerics(self.chip, ready.plan, work.unit))}
        if work.direct and not work.chose:
            given = {"split_k": self.lowering.get("split_k"), **self.extras, "matrices": matrices}
            found["schedule"] = str(evidence.of_schedule(self.chip, ready.plan, ready.schedule, sizes, given))
        return found

    def _chooses_k_group(self) -> bool:
        """Whether the bits depend on what the family's dataflow chooses."""
        from hwsim.dataflows import dataflow

        try:
            return bool(getattr(dataflow(self.chip), "CHOOSES_K_GROUP", False))
        except UnsupportedError:
            return False

    def _program(
        self, ready: Prepared, sizes: tuple[int, int, int], exact: bool, batch: int
    ) -> tuple[Program | None, str, bool]:
        """The device's program, or None; why there are no cycles, empty where there are; whether it is for all of the
        stack."""
        from hwsim.dataflows import dataflow

        chip, extras = self.chip, self.extras
        try:
            flow = dataflow(chip)
            unasked = exact and not self.timing and not self.functional and not any(self.lowering.values())
            if unasked and not self._chooses_k_group():
                return None, "not asked for", False  # plan and schedule fix the bits
            takes = getattr(flow, "EPILOGUE", False) and "schedule" not in extras
            program = None
            gives = ready.plan.output_format in getattr(flow, "OUTPUTS", (ready.plan.output_format,))
            in_one = batch > 1 and "batch" in flow.OPTIONS
            if "schedule" not in extras and gives:
                program = lower(chip, ready, sizes, self.lowering, **self._beside(flow, batch))
            no_timing = ""
            if extras and not takes:
                no_timing = f"a device's program knows no {', '.join(sorted(extras))}: bits only"
            elif not gives:
                no_timing = f"programs of family {chip.family} do not give {ready.plan.output_format}: bits only"
            return program, no_timing, in_one
        except UnsupportedError as error:
            if not exact:
                raise
            return None, f"{error}: bits only", False

    def _beside(self, flow: ModuleType, batch: int) -> dict[str, Any]:
        """What the dataflow is told besides how to block: the epilogue, and how many matrices there are."""
        found: dict[str, Any] = {}
        if getattr(flow, "EPILOGUE", False):
            found = {name: self.extras.get(name) for name in ("alpha", "beta", "output")}
            found |= {name: name in self.extras for name in ("c", "bias")}
        return found | ({"batch": batch} if batch > 1 and "batch" in flow.OPTIONS else {})

    def uncut(self, work: Work, sizes: tuple[int, int, int], batch: int) -> list[dict[str, Any]]:
        """Whether slices of K would make the program much faster, as a warning."""
        from hwsim.dataflows import dataflow
        from hwsim.resolve.bits import Prepared
        from hwsim.resolve.split_k_advice import uncut

        if work.program is None or type(work.prepared) is not Prepared:
            return []
        flow = dataflow(self.chip)
        options = _options(flow, self.lowering, self._beside(flow, batch))
        return uncut(work.prepared.plan, self.chip, sizes, options)

    def compute(
        self,
        work: Work,
        a: Operand,
        b: Operand,
        lead: tuple[int, ...],
        threads: int,
        progress: Callable[[float], None] | None,
    ) -> tuple[Array, Callable[[], dict[str, Any]]]:
        """The product, and a function that gives its errors. lead: leading dimensions of the product."""
        from hwsim.operands import Operand, chosen
        from hwsim.resolve.bits import subset

        if not work.direct:
            assert work.program is not None
            program, taken = work.program, work.prepared.plan.input_format

            def by_program(x: Operand, y: Operand, _: Array | None, report: Any) -> Array:
                return _exact(program, self.chip, x, y, taken, threads, report)

            product = _stacked(a, b, None, lead, by_program, progress)
            return product, lambda: errors_of(a.values(), b.values(), product, Ending())
        shape = (a.shape[0], b.shape[1])
        c, bias = self.extras.get("c"), self._bias(shape[1])
        cut: Array | None = None
        if not work.prepared.by_rows and (self.rows is not None or self.cols is not None):
            whole = dataclasses.replace(self, rows=None, cols=None).compute(work, a, b, lead, threads, progress)[0]
            cut = whole if self.rows is None else whole[..., chosen("rows", self.rows, shape[0]), :]
            cut = cut if self.cols is None else cut[..., chosen("cols", self.cols, shape[1])]
        codes_c = None if c is None else work.prepared.c_codes(c, (*lead, *shape))
        if self.rows is not None:
            a = subset(a, rows=self.rows)
            codes_c = None if codes_c is None else codes_c[..., chosen("rows", self.rows, shape[0]), :]
        if self.cols is not None:
            index = chosen("cols", self.cols, shape[1])
            b = subset(b, cols=self.cols)
            codes_c = None if codes_c is None else codes_c[..., index]
            bias = None if bias is None else bias[index]
        prepared = work.prepared

        def directly(x: Operand, y: Operand, start: Array | None, report: Any) -> Array:
            return prepared.typed(prepared.product(x, y, c=start, bias=bias, threads=threads, progress=report))

        if cut is not None:  # other blocks would choose otherwise
            product = cut
        elif lead and not b.lead and prepared.by_rows:  # one product: rows do not know of each other
            tall = Operand(a.codes.reshape(-1, a.shape[1]), a.format)
            start = None if codes_c is None else codes_c.reshape(-1, b.shape[1])
            product = directly(tall, b, start, progress).reshape(*lead, a.shape[0], b.shape[1])
        else:
            product = _stacked(a, b, codes_c, lead, directly, progress)
        epilogue = prepared.schedule.epilogue
        beta = epilogue.beta if epilogue.beta is not None else float(codes_c is not None)

        added = [] if codes_c is None or not beta else [(beta, wide(Operand(codes_c, prepared.output).values()))]
        added += [] if bias is None else [(1.0, bias)]
        ending = Ending(epilogue.alpha, tuple(added))
        return product, lambda: errors_of(a.values(), b.values(), product, ending)

    def _bias(self, n: int) -> Array | None:
        if "bias" not in self.extras:
            return None
        bias: Array = np.asarray(self.extras["bias"])
        if bias.shape != (n,) or bias.dtype.kind not in "iuf":
            raise InputError(
                f"bias has shape {bias.shape} of {bias.dtype}; allowed: ({n},) real numbers, one per column"
            )
        return bias


def lower(
    chip: Device, ready: Prepared, sizes: tuple[int, int, int], lowering: Mapping[str, Any], **epilogue: Any
) -> Program:
    """The checked program of a plan for `chip` and (m, n, k). epilogue: for dataflows that take one.

    Raises UnsupportedError for a plan of more than MOST_PRODUCTS products.
    """
    from hwsim.dataflows import dataflow
    from hwsim.dataflows.cache import KEPT
    from hwsim.program.check import check
    from hwsim.resolve.bits import Prepared

    flow = dataflow(chip)
    products = ready.plan.products
    if products > MOST_PRODUCTS:
        raise UnsupportedError(
            f"scheme {ready.plan.scheme}: {products:,} products; programs are made of at most {MOST_PRODUCTS:,}"
        )
    _check_lowering(flow, chip, lowering)
    options = _options(flow, lowering, epilogue)

    def make() -> Program:
        made: Program = ready.program(flow, sizes, options)
        check(made, chip)
        return made

    # Of a mixture of plans the program follows from the data as well.
    return KEPT.get(flow.lower, chip, ready.plan, sizes, options, make) if type(ready) is Prepared else make()


def _options(flow: ModuleType, lowering: Mapping[str, Any], beside: Mapping[str, Any]) -> dict[str, Any]:
    """What the dataflow's `lower` is given."""
    own = {name: value for name, value in lowering.items() if name in flow.OPTIONS}
    return {**own, "tile": _tile(lowering["tile"], flow.TILE_KEYS), **beside}


def _check_lowering(flow: ModuleType, chip: Device, lowering: Mapping[str, Any]) -> None:
    """Refuse what was given for other families' dataflows."""
    for name, value in lowering.items():
        if value is not None and name not in flow.OPTIONS:
            known = ", ".join(x for x in flow.OPTIONS if x in lowering)
            raise InputError(f"{name} = {value}: programs of family {chip.family} have {known}")


def _as_program(schedule: Schedule, plan: Plan, program: Program, k: int) -> Schedule:
    """The schedule with what the program chose of it: slices of K, and runs of K where the plan has none."""
    split = int(str(program.facts.get("split_k", 1)))
    if split > 1 and schedule.split_k == 1 and schedule.slice_k is None:
        schedule = dataclasses.replace(schedule, split_k=split)
    group = int(str(program.facts.get("k_group", k)))
    is_open = plan.k_group is None and all(term.k_group is None for term in plan.terms)
    if is_open and schedule.promotion_k is None and group < max(schedule.slice_lengths(k)):
        schedule = dataclasses.replace(schedule, promotion_k=group)
    return schedule


def _tile(tile: Mapping[str, int] | tuple[int, ...] | None, keys: tuple[str, ...]) -> dict[str, int] | None:
    if tile is None:
        return None
    if not isinstance(tile, Mapping):
        if not isinstance(tile, tuple | list):
            raise InputError(f"tile = {tile!r}; allowed: {len(keys)} numbers, in the order {', '.join(keys)}")
        if len(tile) != len(keys):
            raise InputError(
                f"tile {tuple(tile)}: {len(tile)} numbers; allowed: {len(keys)}, in the order {', '.join(keys)}"
            )
        tile = dict(zip(keys, tile, strict=True))
    if set(tile) != set(keys):
        raise InputError(f"tile has keys {', '.join(map(str, tile))}; allowed: {', '.join(keys)}")
    for key, value in tile.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"tile {key} = {value!r}; allowed: an integer of at least 1")
    return {key: int(value) for key, value in tile.items()}


def _stacked(
    a: Operand,
    b: Operand,
    c: Array | None,
    lead: tuple[int, ...],
    one: Callable[[Operand, Operand, Array | None, Any], Array],
    progress: Callable[[float], None] | None,
) -> Array:
    """`one` for each pair of matrices of two stacks; c: codes (*lead, m, n)."""
    from hwsim.operands import Operand

    if not lead:
        return one(a, b, c, progress)
    left, right = (np.broadcast_to(x.codes, (*lead, *x.shape)) for x in (a, b))
    product: Array | None = None
    total = math.prod(lead)
    for index, at in enumerate(np.ndindex(*lead)):

        def report(share: float, index: int = index) -> None:
            if progress is not None:
                progress((index + share) / total)

        pair = Operand(left[at], a.format), Operand(right[at], b.format)
        part = one(*pair, None if c is None else c[at], report)
        if product is None:
            product = np.empty((*lead, *part.shape), part.dtype)
        product[at] = part
    assert product is not None
    return product


def _exact(
    program: Program,
    chip: Device,
    a: Operand,
    b: Operand,
    input_format: str,
    threads: int,
    progress: Callable[[float], None] | None,
) -> Array:
    from hwsim.formats import array_of, format_of
    from hwsim.machines import functional

    codes = [np.ascontiguousarray(x.converted(input_format).codes) for x in (a, b)]
    out = functional.run(
        program, chip, dict(zip(program.inputs, codes, strict=True)), threads=threads, progress=progress
    )
    array = next(x for x in program.arrays if x.name == program.output)
    return array_of(out, format_of(array.format))
