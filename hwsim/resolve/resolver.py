"""Resolves a request into the record of a GEMM: scheme, plan, order of summation, mapping, and who decided what.

This is the only place where records are made for runs: one pass over a request. Resolved requests are cached, because
resolving takes longer than a small product; schemes whose plan depends on the operands are resolved anew.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from threading import Lock

from hwsim.backend.cpu import CPU
from hwsim.backend.operations import Backend
from hwsim.dataflows.options import INSTRUCTION, LAYOUT_OPTIONS
from hwsim.dataflows.registry import dataflow
from hwsim.devices.device import Device
from hwsim.devices.query import instruction, sparse_instruction
from hwsim.errors import InputError, UnsupportedError
from hwsim.evaluate.epilogue import check_whole
from hwsim.gemm.mapping import Setting
from hwsim.gemm.plan import Mixed, Plan
from hwsim.gemm.planned import Planned
from hwsim.gemm.record import By, Decision, Gemm
from hwsim.gemm.schedule import Schedule, has_integer_epilogue
from hwsim.gemm.summation import Chain, Reduction
from hwsim.libraries.call import LibraryCall
from hwsim.libraries.providers import known_libraries
from hwsim.operands.operand import Operand
from hwsim.request.request import Request
from hwsim.resolve import evidence
from hwsim.resolve.gemm_record import in_other_order, record_of
from hwsim.resolve.mapping_choice import cut_where_open, mapped, program_of
from hwsim.resolve.mapping_of_base import base_of, faster_of
from hwsim.resolve.planning import as_calls, plan_for
from hwsim.resolve.resolved import NOT_ASKED, Resolved
from hwsim.resolve.saved_options import check_scheme_options
from hwsim.resolve.slice_choice import with_best_mapping
from hwsim.schemes import Scheme


def resolve(request: Request, operands: tuple[Operand, Operand] | None = None) -> Resolved:
    """The resolved record of a request. operands: A and B, for schemes whose options or plans depend on the data.

    Raises InputError for what does not fit together, UnsupportedError for what the device cannot do.
    """
    if request.scheme.is_of_data(request.scheme_options):
        return _resolved(request, operands)
    key = request.key
    resolved = _CACHE.get(key)
    if resolved is None:
        resolved = _resolved(request, operands)
        if not isinstance(resolved.gemm.plan, Mixed):
            _CACHE.put(key, request, resolved)
    return resolved


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
    check_sparsity(device, gemm)
    options = {setting.name: setting.value for setting in gemm.scheme_options}
    program, reason = None, "" if gemm.mapping is not None else "the record has no mapping: bits only"
    try:
        program = None if reason else program_of(gemm, device)
    except UnsupportedError as error:
        reason = f"{error}: bits only"
    if reason and not exact:
        raise UnsupportedError(f"nothing to do: {reason}, and bits were not asked for")
    return Resolved(gemm, device, options, program=program, no_program=reason, backend=backend)


class _ResolvedCache:
    """The most recently used resolved requests."""

    def __init__(self, most: int) -> None:
        self.most, self.lock = most, Lock()
        self.entries: OrderedDict[str, tuple[Request, Resolved]] = OrderedDict()

    def get(self, key: str) -> Resolved | None:
        """The cached result of a request of this key, or None."""
        with self.lock:
            entry = self.entries.get(key)
            if entry is None:
                return None
            self.entries.move_to_end(key)
        return entry[1]

    def put(self, key: str, request: Request, resolved: Resolved) -> None:
        """Add an entry; it also keeps the device alive, whose identity is part of the key."""
        with self.lock:
            self.entries[key] = request, resolved
            while len(self.entries) > self.most:
                self.entries.popitem(last=False)


_CACHE = _ResolvedCache(128)


def _resolved(request: Request, operands: tuple[Operand, Operand] | None) -> Resolved:
    """One pass: the plan, the record and its program."""
    planned = request.planned
    if planned is None:
        planned = plan_for(
            request.device, request.scheme, request.problem, request.format, request.scheme_options, operands
        )
    call = request.library
    if call is None:
        return _of_schedule(request, planned, operands)
    return _by_library(request, call, planned)


def _by_library(request: Request, call: LibraryCall, planned: Planned) -> Resolved:
    """The record in the library's order of summation. Where no program carries that, the program is of the same record
    with each slice of K in order.
    """
    gemm = _unmapped(request, planned)
    try:
        resolved = _with_program(request, planned, gemm)
    except (UnsupportedError, InputError) as error:
        bits_alone = replace(request, exact=True, timing=False, mapping={})
        resolved = replace(_with_program(bits_alone, planned, gemm), no_program=str(error))
    if resolved.program is None and resolved.no_program != NOT_ASKED:
        resolved = replace(resolved, no_program=f"the library's kernel {call.choice.kernel}: {resolved.no_program}")
    if resolved.program is not None or not call.mapping or not request.timing:
        return resolved
    schedule = replace(call.in_order(request.problem.k), epilogue=replace(gemm.epilogue, product_format=None))
    in_order = in_other_order(gemm, request.device, schedule)
    alone = replace(request, schedule=schedule, exact=False, functional=False)
    of_user = {name: value for name, value in request.mapping.items() if name not in call.mapping}
    for mapping in (request.mapping, of_user):
        try:
            timed = _with_program(replace(alone, mapping=mapping), planned, in_order)
            return replace(resolved, in_order=timed)
        except (UnsupportedError, InputError) as error:
            resolved = replace(resolved, no_program=str(error))
    return resolved


def _of_schedule(request: Request, planned: Planned, operands: tuple[Operand, Operand] | None) -> Resolved:
    """The record of a plan in the order of summation that the request asks for. A device with other numbers has the
    faster of two mappings: the one chosen for it, and the one of the device without the changes.
    """
    chosen, base = _with_program(request, planned, _unmapped(request, planned)), base_of(request.device)
    if chosen.program is None or base is None:
        return chosen
    try:
        of_base = resolve(replace(request, device=base), operands).gemm
    except (InputError, UnsupportedError):  # what runs on the changed device alone
        return chosen
    of_base_here = faster_of(chosen.gemm, of_base, request.device, base, request.state)
    if of_base_here is None:
        return chosen
    gemm, program = of_base_here
    record = replace(gemm, decisions=_decisions(request, planned, gemm))
    return replace(chosen, gemm=record, program=replace(program, gemm=record))


def _unmapped(request: Request, planned: Planned) -> Gemm:
    """The record without its mapping."""
    settings = tuple([Setting(option.name, planned.options.get(option.name)) for option in request.scheme.options])
    plan = planned.plan if request.library is None else as_calls(planned.plan)
    gemm = record_of(plan, request.device, request.problem, _with_instruction(request, plan), settings)
    if has_integer_epilogue(gemm.single.arithmetic, gemm.output):
        check_whole(gemm.epilogue.alpha, gemm.epilogue.beta or 0.0, None)
    return gemm


def _with_instruction(request: Request, plan: Plan | Mixed) -> Schedule:
    """The order of summation that is asked for, with the instruction for a sparse A where none is named.

    Raises InputError for an instruction that takes A sparse where it is not, or the other way round.
    """
    schedule, sparsity = request.schedule, request.problem.sparsity
    if schedule.instruction is not None:
        check_taken(request.device, schedule.instruction, sparsity)
        return schedule
    if sparsity is None or isinstance(plan, Mixed):
        return schedule
    formats = plan.a_pieces[0].format, plan.b_pieces[0].format
    return replace(schedule, instruction=sparse_instruction(request.device, *formats, sparsity))


def check_sparsity(device: Device, gemm: Gemm) -> None:
    """Raise InputError for a record with an instruction that takes A sparse where it is not, or the other way round."""
    if gemm.schedule.instruction is not None:
        check_taken(device, gemm.schedule.instruction, gemm.problem.sparsity)


def check_taken(device: Device, name: str, sparsity: str | None) -> None:
    """Raise InputError where the instruction takes another A than one of that sparsity."""
    taken = instruction(device, name).sparsity
    if taken != sparsity:
        raise InputError(f"instruction {name} is for A {taken or 'dense'}; A is {sparsity or 'dense'} (sparsity=)")


def _with_program(request: Request, planned: Planned, gemm: Gemm) -> Resolved:
    """The record with its mapping, its decisions and, where there is one, its program."""
    device = request.device
    if request.library is not None:
        gemm = replace(gemm, library=request.library.id)
    gemm, no_program = _mapped(request, gemm)
    names = [name for name, value in request.mapping.items() if value is not None]
    if no_program and names and gemm.mapping is None and request.library is None:
        raise InputError(f"{', '.join(names)}: for a device's program, and there is none here ({no_program})")
    if no_program and not request.exact:
        raise UnsupportedError(f"nothing to do: {no_program}, and bits were not asked for")
    gemm = replace(gemm, decisions=_decisions(request, planned, gemm))
    program = None
    try:
        program = None if no_program else program_of(gemm, device)
    except UnsupportedError as error:  # what the dataflow finds only when it writes the program
        if not request.exact:
            raise
        gemm, no_program = replace(gemm, mapping=None), f"{error}: bits only"
    return Resolved(
        gemm,
        device,
        options=dict(planned.options),
        refused=dict(planned.refused),
        program=program,
        no_program=no_program,
        backend=request.backend,
    )


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
    names = {name for name, value in options.items() if value is not None}
    is_asked = request.timing or request.functional or not request.exact or bool(names.difference(LAYOUT_OPTIONS))
    if not is_asked and not names and not flow.features.k_group:  # storage orders are the record's: bits may need them
        return gemm, NOT_ASKED
    if not request.scheduled and request.library is None:
        gemm = cut_where_open(gemm, device, options)
    try:
        if is_asked:
            return with_best_mapping(gemm, device, options), ""
        return mapped(gemm, device, options), NOT_ASKED
    except UnsupportedError as error:
        if not request.exact:
            raise
        return gemm, f"{error}: bits only"


def _decisions(request: Request, planned: Planned, gemm: Gemm) -> tuple[Decision, ...]:
    """The decisions: the scheme's plan, the instruction and the order of summation, then the mapping's own."""
    device = request.device
    unit = gemm.unit if gemm.mapping is None else gemm.mapping.kernels[0].instruction
    of_mapping = {decision.name: decision for decision in gemm.decisions}
    is_asked = request.schedule.instruction is not None or request.mapping.get(INSTRUCTION.name)
    instruction_by: By = "user" if is_asked else "device"
    by: By = of_mapping["instruction"].by if "instruction" in of_mapping else "device"
    by = instruction_by if by == "device" else by
    if request.library is not None and request.schedule.instruction is not None:  # that of the library's kernel
        by = "library"
    numerics = str(evidence.of_numerics(device, gemm, unit))
    decisions = [
        Decision("scheme", gemm.scheme, "user" if "taken" not in planned.options else "estimate"),
        Decision("instruction", unit, by, numerics, "its dot unit fixes the bits of each product"),
    ]
    if gemm.mapping is not None and dataflow(device).features.k_group and not request.scheduled:
        decisions.append(
            Decision("order of summation", _order(gemm), "estimate", "", "runs of K as the mapping makes them")
        )
    else:
        level, why = str(evidence.of_schedule(device, gemm)), ""
        if request.library is not None:
            level, why = request.library.evidence, request.library.why
        decisions.append(Decision("order of summation", _order(gemm), _by(request, gemm), level, why))
    if gemm.mapping is not None:
        times = str(evidence.of_times(device, gemm, unit))
        decisions.append(Decision("times", device.name, "device", times, "numbers of the device file"))
    if request.library is not None:
        of_library = request.library.decisions
        if request.library.times is not None and not request.library.has_times_of(gemm):
            of_library = tuple(decision for decision in of_library if decision.name != "times")
        names = {decision.name for decision in of_library}
        decisions = [*(decision for decision in decisions if decision.name not in names), *of_library]
    names_above = {decision.name for decision in decisions}
    rest = [decision for decision in gemm.decisions if decision.name not in names_above]
    if request.library is not None:  # that of the library's kernel
        rest = [
            replace(decision, by="library") if decision.name in request.library.mapping else decision
            for decision in rest
        ]
    return (*decisions, *rest)


def _by(request: Request, gemm: Gemm) -> By:
    cut = (gemm.decided("decomposition") if gemm.schedule.regions else None) or gemm.decided("split_k")
    if request.library is not None:
        return "library"
    if request.scheduled:
        return "user"
    if cut is not None:
        return cut.by
    return "scheme" if gemm.single.products > 1 or gemm.schedule.promotion_k is not None else "default"


def _lengths(slices: tuple[int, ...]) -> str:
    """The lengths of slices in words; many different ones by their least and largest."""
    *first, last = slices
    if len(set(slices)) == 1:
        return str(last)
    return f"{first[0]}, the last of {last}" if len(set(first)) == 1 else f"{min(slices)} to {max(slices)}"


def _sum_words(sum_of_parts: Chain | Reduction) -> str:
    """A sum that is written out, in words."""
    if isinstance(sum_of_parts, Chain):
        return "one chain"
    order = sum_of_parts.order if isinstance(sum_of_parts.order, str) else "in the order of their indices"
    return f"{len(sum_of_parts.parts)} parts of K, {order}, through {sum_of_parts.level}"


def _order(gemm: Gemm) -> str:
    """The order of summation over K, in words."""
    schedule, k = gemm.schedule, gemm.problem.k
    slices = schedule.slice_lengths(k) if schedule.sum is None else ()
    words = []
    if len(slices) > 1:
        words.append(f"{len(slices)} slices of K of {_lengths(slices)}")
    if schedule.sum is not None:
        words.append(_sum_words(schedule.sum))
    if schedule.regions:
        kinds = sorted({_sum_words(region.sum) for region in schedule.regions})
        count = len(schedule.regions)
        words.append(f"{count} region{'s' * (count > 1)} of C: {'; '.join(kinds)}")
    if schedule.promotion_k is not None:
        words.append(f"runs of {schedule.promotion_k} of K, added outside the unit")
    if schedule.k_permutation is not None:
        words.append("K permuted")
    if schedule.remainder == "first":
        words.append("the rest of K first")
    return ", ".join(words) or "one chain in order of K"
