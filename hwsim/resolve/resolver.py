"""Resolves a request into the record of a GEMM: scheme, plan, order of summation, mapping, and who decided what.

This is the only place where records are made for runs. Resolved requests are cached, because resolving takes longer
than a small product; schemes whose plan depends on the operands are resolved anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

from hwsim.backend.cpu import CPU
from hwsim.dataflows.registry import dataflow
from hwsim.devices import instruction
from hwsim.errors import InputError, UnsupportedError
from hwsim.evaluate.product import Evaluator
from hwsim.gemm.mapping import Setting
from hwsim.gemm.plan import Mixed
from hwsim.gemm.record import By, Decision, Gemm
from hwsim.gemm.schedule import Schedule
from hwsim.libraries.registry import known_libraries
from hwsim.resolve import evidence
from hwsim.resolve.gemm_record import record_of
from hwsim.resolve.library_scheme import as_calls
from hwsim.resolve.mapping_choice import facts_of, mapped, program_of
from hwsim.resolve.planning import plan_for
from hwsim.resolve.saved_options import check_scheme_options

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.devices.device import Device
    from hwsim.gemm.problem import Problem
    from hwsim.operands.operand import Operand
    from hwsim.program.ir import Program
    from hwsim.resolve.library_call import LibraryCall
    from hwsim.resolve.planned import Planned
    from hwsim.schemes import Scheme

NOT_ASKED = "not asked for"


@dataclass(frozen=True, slots=True)
class Request:
    """A request for one GEMM, apart from the arrays themselves.

    scheme_options, mapping: as given by the user. schedule: what is asked for of the order of summation, with the
    epilogue. scheduled: whether the user gave a schedule. exact: bits are wanted; timing: cycles are; functional: bits
    by the program. library: the library call that the schedule comes from. backend: computes the bits.
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
    backend: Backend = CPU

    @property
    def key(self) -> str:
        """The request as text; it distinguishes 1 from True and 0.0 from -0.0."""
        fixed = (self.scheme.name, self.format, sorted(self.scheme_options.items()), sorted(self.mapping.items()))
        wanted = (self.exact, self.timing, self.functional, self.scheduled, self.library)
        return repr((id(self.device), id(self.scheme), id(self.backend), fixed, wanted, self.problem, self.schedule))


@dataclass(frozen=True)
class Resolved:
    """A record with its evaluator and program, each made once.

    options: as a result shows them. refused: {choice: reason} for the choices that the scheme left to the device.
    no_program: the reason why there is no program; empty where there is one. backend: computes the bits.
    """

    gemm: Gemm
    device: Device
    options: Mapping[str, Any] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    no_program: str = ""
    backend: Backend = CPU

    @cached_property
    def evaluator(self) -> Evaluator:
        """The direct evaluator of the record."""
        return Evaluator(self.gemm, self.device, self.backend)

    @cached_property
    def needs(self) -> dict[Any, int]:
        """Bytes that its products take, without C as given and joined stacks; filled by who asks (hwsim.compute.bits).

        By (shape and format of A, the same of B, leading extents of a stack, its matrices in a call, whether values
        are made of the unit's results before they are codes, host threads).
        """
        return {}

    @cached_property
    def program(self) -> Program | None:
        """The checked program, or None."""
        return None if self.no_program else program_of(self.gemm, self.device)

    @property
    def has_stack_program(self) -> bool:
        """Whether one program computes all matrices of a batch."""
        return bool(self.gemm.problem.lead) and not self.no_program and dataflow(self.device).features.stacks

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The mapping and the order of summation as a result's `options` show them."""
        if self.gemm.mapping is not None:
            return facts_of(self.gemm, self.device)
        return {"k_group": accumulated_k(self.gemm, self.device), "unit": self.gemm.unit}


def resolve(request: Request, operands: tuple[Operand, Operand] | None = None) -> Resolved:
    """The resolved record of a request. operands: A and B, for schemes whose options or plans depend on the data.

    Raises InputError for what does not fit together, UnsupportedError for what the device cannot do.
    """
    if request.scheme.survey is not None:
        return _resolved(request, operands)
    key = request.key
    found = _CACHE.get(key)
    if found is None:
        found = _resolved(request, operands)
        if not isinstance(found.gemm.plan, Mixed):
            _CACHE.put(key, request, found)
    return found


def rerun(gemm: Gemm, device: Device, scheme: Scheme, exact: bool, backend: Backend = CPU) -> Resolved:
    """A saved record with its program, where the dataflow supports it. exact: a result without cycles is acceptable.

    Raises InputError for a record whose parts or scheme options do not fit together, UnsupportedError for a record
    with features that hwsim does not compute, and for one without cycles where bits are not wanted.
    """
    gemm.check()
    check_scheme_options(gemm, scheme)
    # of any version: the record says the order of summation
    if gemm.library is not None and gemm.library.name not in known_libraries():
        raise UnsupportedError("gemm record: it has library, which nothing computes")
    options = {one.name: one.value for one in gemm.scheme_options}
    reason = "" if gemm.mapping is not None else "the record has no mapping: bits only"
    found = Resolved(gemm, device, options, {}, reason, backend)
    try:
        _ = found.program
    except UnsupportedError as error:
        found = replace(found, no_program=f"{error}: bits only")
    if found.no_program and not exact:
        raise UnsupportedError(f"nothing to do: {found.no_program}, and bits were not asked for")
    return found


class _ResolvedCache:
    """The most recently used resolved requests."""

    def __init__(self, most: int) -> None:
        self.most, self.lock = most, Lock()
        self.found: OrderedDict[str, tuple[Request, Resolved]] = OrderedDict()

    def get(self, key: str) -> Resolved | None:
        """The cached result of a request of this key, or None."""
        with self.lock:
            entry = self.found.get(key)
            if entry is None:
                return None
            self.found.move_to_end(key)
        return entry[1]

    def put(self, key: str, request: Request, resolved: Resolved) -> None:
        """Add an entry; it also keeps the device alive, whose identity is part of the key."""
        with self.lock:
            self.found[key] = request, resolved
            while len(self.found) > self.most:
                self.found.popitem(last=False)


_CACHE = _ResolvedCache(128)


def _resolved(request: Request, operands: tuple[Operand, Operand] | None) -> Resolved:
    device, problem = request.device, request.problem
    planned = plan_for(device, request.scheme, problem, request.format, request.scheme_options, operands)
    settings = tuple([Setting(option.name, planned.options.get(option.name)) for option in request.scheme.options])
    plan = planned.plan if request.library is None else as_calls(planned.plan)
    gemm = record_of(plan, device, problem, request.schedule, settings)
    gemm, no_program = _mapped(request, gemm)
    given = [name for name, value in request.mapping.items() if value is not None]
    if no_program and given and gemm.mapping is None:
        raise InputError(f"{', '.join(given)}: for a device's program, and there is none here ({no_program})")
    if no_program and not request.exact:
        raise UnsupportedError(f"nothing to do: {no_program}, and bits were not asked for")
    if request.library is not None:
        gemm = replace(gemm, library=request.library.id)
    gemm = replace(gemm, decisions=_decisions(request, planned, gemm))
    found = Resolved(gemm, device, dict(planned.options), dict(planned.refused), no_program, request.backend)
    try:
        _ = found.program  # what the dataflow finds only when it writes it
    except UnsupportedError as error:
        if not request.exact:
            raise
        gemm = replace(gemm, mapping=None)
        found = replace(found, gemm=gemm, no_program=f"{error}: bits only")
    return found


def _mapped(request: Request, gemm: Gemm) -> tuple[Gemm, str]:
    """The record with its mapping, where one is asked for and possible; otherwise the reason why there is no
    program.
    """
    device, options = request.device, request.mapping
    try:
        flow = dataflow(device)
    except UnsupportedError as error:
        if not request.exact:
            raise
        return gemm, f"{error}: bits only"
    asked = request.timing or request.functional or not request.exact or any(x is not None for x in options.values())
    if not asked and not flow.features.k_group:
        return gemm, NOT_ASKED
    try:
        return mapped(gemm, device, options), "" if asked else NOT_ASKED
    except UnsupportedError as error:
        if not request.exact:
            raise
        reason = f"{error}: bits only"
    if not flow.features.k_group or request.scheduled:
        return gemm, reason
    # The bits depend on the mapping of the product, also where no program of the family finishes the sum as asked.
    try:
        bare = replace(gemm.epilogue, alpha=1.0, beta=0.0, contraction=None, output_format=gemm.single.output_format)
        problem = replace(gemm.problem, has_c=False, bias=None)
        schedule = replace(gemm.schedule, epilogue=bare)
        core = mapped(
            replace(gemm, problem=problem, schedule=schedule, output=gemm.single.output_format), device, options
        )
    except UnsupportedError:
        return gemm, reason
    schedule = replace(core.schedule, epilogue=gemm.epilogue)
    return replace(gemm, mapping=core.mapping, parts=core.parts, schedule=schedule, decisions=core.decisions), reason


def _decisions(request: Request, planned: Planned, gemm: Gemm) -> tuple[Decision, ...]:
    """The decisions: the scheme's plan, the instruction and the order of summation, then the mapping's own."""
    device = request.device
    unit = gemm.unit if gemm.mapping is None else gemm.mapping.kernels[0].instruction
    own = {decision.name: decision for decision in gemm.decisions}
    asked: By = "user" if request.schedule.instruction is not None or request.mapping.get("instruction") else "device"
    by: By = own["instruction"].by if "instruction" in own else asked
    if request.library is not None and request.schedule.instruction is not None:  # that of the library's kernel
        by = "library"
    numerics = str(evidence.of_numerics(device, gemm, unit))
    found = [
        Decision("scheme", gemm.scheme, "user" if "taken" not in planned.options else "estimate"),
        Decision("instruction", unit, by, numerics, "its dot unit fixes the bits of each product"),
    ]
    if gemm.mapping is not None and dataflow(device).features.k_group and not request.scheduled:
        found.append(
            Decision("order of summation", _order(gemm), "estimate", "", "runs of K as the mapping makes them")
        )
    else:
        level, why = str(evidence.of_schedule(device, gemm)), ""
        if request.library is not None:
            level, why = request.library.evidence, request.library.why
        found.append(Decision("order of summation", _order(gemm), _by(request, gemm), level, why))
    if gemm.mapping is not None:
        times = str(evidence.of_times(device, gemm, unit))
        found.append(Decision("times", device.name, "device", times, "numbers of the device file"))
    if request.library is not None:
        decided = request.library.decisions
        names = {decision.name for decision in decided}
        found = [*(decision for decision in found if decision.name not in names), *decided]
    taken = {decision.name for decision in found}
    rest = [decision for decision in gemm.decisions if decision.name not in taken]
    if request.library is not None:  # that of the library's kernel
        rest = [replace(one, by="library") if one.name in request.library.mapping else one for one in rest]
    return (*found, *rest)


def _by(request: Request, gemm: Gemm) -> By:
    cut = gemm.decided("split_k")
    if request.library is not None:
        return "library"
    if request.scheduled:
        return "user"
    if cut is not None:
        return cut.by
    return "scheme" if gemm.single.products > 1 or gemm.schedule.promotion_k is not None else "default"


def _order(gemm: Gemm) -> str:
    """The order of summation over K, in words."""
    schedule, k = gemm.schedule, gemm.problem.k
    slices = schedule.slice_lengths(k) if schedule.sum is None else ()
    words = []
    if len(slices) > 1:
        words.append(f"{len(slices)} slices of K of {slices[0]}")
    if schedule.promotion_k is not None:
        words.append(f"runs of {schedule.promotion_k} of K, added outside the unit")
    if schedule.k_permutation is not None:
        words.append("K permuted")
    if schedule.remainder == "first":
        words.append("the rest of K first")
    return ", ".join(words) or "one chain in order of K"


def accumulated_k(gemm: Gemm, device: Device) -> int:
    """The length of K that the unit accumulates from zero (at most K = k)."""
    groups = {term.k_group for term in gemm.single.terms}
    own = groups.pop() if len(groups) == 1 else None
    if own == "instruction":
        own = instruction(device, gemm.unit).k
    k = gemm.problem.k
    return int(own or gemm.schedule.promotion_k or max(gemm.schedule.slice_lengths(k)))
