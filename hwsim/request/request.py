"""A request for one GEMM: everything that fixes its record, but no array.

It knows devices, schemes, problems and a library's call; it knows nothing of how it is resolved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from hwsim.backend.by_name import backend
from hwsim.backend.cpu import CPU
from hwsim.backend.operations import Backend
from hwsim.devices.device import Device
from hwsim.devices.query import dot_spec, native_format
from hwsim.errors import InputError
from hwsim.formats import format_of
from hwsim.gemm.planned import Planned
from hwsim.gemm.problem import Problem, Sparsity
from hwsim.gemm.schedule import ScaleOrder, Schedule, schedule_of
from hwsim.host.arrays import is_of_a_backend
from hwsim.libraries.call import LibraryCall
from hwsim.machines.l2_state import DEFAULT as DEFAULT_L2
from hwsim.operands.added import checked_bias, checked_c
from hwsim.operands.operand import common_format, formats_in_memory
from hwsim.request.declarations import DEFAULT_SCHEME
from hwsim.request.epilogue import with_epilogue
from hwsim.request.operands import ProductOperands, element_format
from hwsim.request.option_records import EpilogueOptions
from hwsim.request.options import CallOptions
from hwsim.schemes import Scheme


@dataclass(frozen=True, slots=True)
class TimedState:
    """What times are of: the state of L2 before the run, by its name in hwsim.machines.l2_state, and whether launches
    of kernels count.
    """

    l2: str = DEFAULT_L2
    launches: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """A request for one GEMM, apart from the arrays themselves.

    scheme_options, mapping: as given by the user. schedule: what is asked for of the order of summation, with the
    epilogue. scheduled: whether the user gave a schedule. exact: bits are wanted; timing: cycles are; functional: bits
    by the program. library: the library call that the schedule comes from. planned: the scheme's plan, where a library
    was asked for its calls. backend: computes the bits. state: of times, by which a device with other numbers has the
    faster of two mappings; else no part of a record follows from it.
    """

    device: Device
    scheme: Scheme
    problem: Problem
    format: str | None = None
    scheme_options: Mapping[str, Any] = field(default_factory=dict)
    mapping: Mapping[str, Any] = field(default_factory=dict)
    schedule: Schedule = field(default_factory=Schedule)
    scheduled: bool = False
    exact: bool = True
    timing: bool = True
    functional: bool = False
    library: LibraryCall | None = None
    planned: Planned | None = None
    backend: Backend = CPU
    state: TimedState = TimedState()

    @property
    def key(self) -> str:
        """The request as text; it distinguishes 1 from True and 0.0 from -0.0. The plan follows from the rest."""
        fixed = (self.scheme.name, self.format, sorted(self.scheme_options.items()), sorted(self.mapping.items()))
        state = None if self.device.changed_from is None else self.state
        wanted = (self.exact, self.timing, self.functional, self.scheduled, self.library, state)
        return repr((id(self.device), id(self.scheme), id(self.backend), fixed, wanted, self.problem, self.schedule))


def request_of(
    chip: Device, scheme: Scheme, options: CallOptions, operands: ProductOperands, *, is_chosen: bool = False
) -> Request:
    """The request of a call, without a library's choice. is_chosen: scheme="auto" has chosen the scheme.

    Raises InputError for a schedule that is none, or that says something else than the epilogue's options.
    """
    is_exact = options.machine.exact
    if is_exact:
        _check_values(options.epilogue)
    else:  # else what computes them looks at C and the bias
        _check_added(options.epilogue, operands)
    assumed = _assumed(scheme, options, is_chosen=is_chosen)
    epilogue = options.epilogue
    schedule = with_epilogue(
        schedule_of(options.order.schedule), alpha=epilogue.alpha, beta=epilogue.beta, output=epilogue.output
    )
    if options.order.scale_order is not None:
        schedule = replace(schedule, scale_order=cast("ScaleOrder", options.order.scale_order))
    if options.problem.sparsity is not None and scheme.name != DEFAULT_SCHEME:
        raise InputError(f"sparsity is for scheme={DEFAULT_SCHEME!r}; leave it out of scheme {scheme.name}")
    problem = Problem.of(
        assumed if operands.left is None else operands.left.format,
        *operands.sizes,
        lead=operands.lead,
        has_c=epilogue.c is not None,
        bias=None if epilogue.bias is None else "fp32",
        image=None if operands.conv is None else operands.conv.image,
    ).with_sparsity(cast("Sparsity | None", options.problem.sparsity))
    if operands.scales != (None, None):
        problem = _scaled(problem, operands)
    return Request(
        chip,
        scheme,
        problem,
        format=options.scheme.format,
        scheme_options=options.of_scheme,
        mapping=options.mapping.values,
        schedule=schedule,
        scheduled=options.order.schedule is not None,
        exact=is_exact,
        timing=options.machine.timing,
        functional=bool(options.machine.functional),
        backend=backend(options.machine.engine, on_gpu=_is_on_gpu(operands)) if is_exact else CPU,
        state=TimedState(options.machine.l2, options.machine.launch_overhead),
    )


def _check_values(epilogue: EpilogueOptions) -> None:
    """Raise InputError where C or the bias is said to be there, and their values are needed."""
    for name in ("c", "bias"):
        if getattr(epilogue, name) is True:
            raise InputError(f"{name} = True: without values it is for cycles alone (exact=False); give its values")


def _check_added(epilogue: EpilogueOptions, operands: ProductOperands) -> None:
    """Raise InputError for a C or a bias that is not of the product's sizes."""
    m, n, _ = operands.sizes
    if epilogue.c is not None and epilogue.c is not True:
        checked_c(epilogue.c, (*operands.lead, m, n))
    if epilogue.bias is not None and epilogue.bias is not True:
        checked_bias(epilogue.bias, n)


def _assumed(scheme: Scheme, options: CallOptions, *, is_chosen: bool) -> str:
    """The format of operands of which only the sizes are known."""
    named, of_unit = options.problem.input_format, options.scheme.format
    if scheme.quantizes is not None:
        return element_format(scheme, options.of_scheme, named)
    if named is not None:
        return common_format(*formats_in_memory(named))
    if not (options.machine.exact or is_chosen or of_unit is None):
        return str(of_unit)
    taken = scheme.input_formats
    return "fp32" if "fp32" in taken else taken[0]


def _is_on_gpu(operands: ProductOperands) -> bool:
    """Whether an operand is an array of a GPU."""
    return any(is_of_a_backend(side.codes) for side in operands.pair or ())


def _scaled(problem: Problem, operands: ProductOperands) -> Problem:
    """The problem with the operands' own formats and scales."""
    scale_a, scale_b = operands.scales
    right = problem.a.format if operands.right is None else operands.right.format
    return replace(problem, a=replace(problem.a, scale=scale_a), b=replace(problem.b, scale=scale_b, format=right))


def by_instruction(request: Request) -> Request:
    """The request in the format of its schedule's instruction, where that multiplies wider operands than asked for.

    So kernels without a matrix instruction take fp16 and bf16: each product is an FP32 one.
    """
    wanted = request.schedule.instruction
    if wanted is None or request.scheme.name != DEFAULT_SCHEME:
        return request
    fmt = str(request.format or native_format(request.device, request.problem.input_format))
    spec = dot_spec(request.device, wanted)
    if fmt == spec.a or spec.a != spec.b or not format_of(spec.a).holds(format_of(fmt)):
        return request
    return replace(request, format=spec.a)


def rounded_first(
    request: Request, input_format: str | None, operands: ProductOperands
) -> tuple[Request, ProductOperands]:
    """Operands in the format asked for, where the kernel multiplies wider ones and would not round them.

    Not tf32, which kernels of FP32 take as it is in memory: FP32.
    """
    if input_format in (None, request.format, "tf32") or request.scheme.name != DEFAULT_SCHEME:
        return request, operands
    if operands.left is None or operands.left.format == input_format:
        return request, operands
    problem = request.problem.with_format(str(input_format))
    return replace(request, problem=problem), operands.converted(str(input_format))
