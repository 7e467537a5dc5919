"""Mapping of a record by the dataflow of the device's family, and the checked program of a mapped record.

The module connects dataflows with mixed plans and with steps common to all dataflows; it makes no choice itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hwsim.dataflows import mixed, parts_of_k
from hwsim.dataflows.options import AUTO, LAYOUT_OPTIONS, SPLIT_K, asks_for_stream_k
from hwsim.dataflows.protocol import CuttingDataflow
from hwsim.dataflows.registry import dataflow
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.option_types import checked
from hwsim.gemm.plan import Mixed
from hwsim.gemm.record import Decision, Gemm
from hwsim.gemm.schedule import SLICE_MULTIPLE
from hwsim.program.check import check
from hwsim.program.executed import executed
from hwsim.resolve.mixed_parts import with_parts
from hwsim.resolve.program_cache import ProgramCache

if TYPE_CHECKING:
    from hwsim.dataflows.protocol import Dataflow, SplitK
    from hwsim.devices.device import Device
    from hwsim.program.ir import Program

MOST_LINES = 1 << 28  # of a size: rows and columns of matrices in L2's model, some 0.2 us each
MOST_INSTRUCTIONS = 1 << 34  # a minute or three
MOST_ON_A_CORE = 1 << 28  # one core's cannot be shared among the cores
INSTEAD = "take smaller sizes and scale the time, or ask for bits alone (timing=False, --no-timing)"
MOST_PRODUCTS = 1024  # in a program: each is a kernel, and takes some 5 ms to make and time


def checked_options(device: Device, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a mapping that were given (not None), validated against the dataflow's declarations.

    Raises InputError for one that the family has not and for slices of K beside stream-K, UnsupportedError for a
    family without a dataflow.
    """
    flow = dataflow(device)
    values = {name: value for name, value in options.items() if value is not None}
    allowed = ", ".join(option.name for option in flow.options)
    names = {option.name for option in flow.options}
    for name, value in values.items():
        if name not in names:
            raise InputError(f"{name} = {value}: programs of family {device.family} have {allowed}")
    values_checked = checked(flow.options, values, "")
    slices = values_checked.get(SPLIT_K.name)
    if asks_for_stream_k(values_checked) and slices not in (None, 1):
        raise InputError(f"decomposition = stream-k: split_k = {slices} cuts K, too; leave one of them out")
    return {name: values_checked[name] for name in values}


def cut_where_open(gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Gemm:
    """The record with the slices of K that the dataflow takes where a request leaves their number open.

    gemm: in the default order of summation. options: of the mapping, as given by a user.
    """
    flow, schedule = dataflow(device), gemm.schedule
    is_cut = schedule.split_k > 1 or schedule.slice_k is not None or schedule.promotion_k is not None
    if is_cut or options.get("split_k") is not None or not isinstance(flow, CuttingDataflow):
        return gemm
    orders = {name: value for name, value in options.items() if name in LAYOUT_OPTIONS}
    slices = flow.open_slices(_laid_out(gemm, orders), device)
    if slices == 1:
        return gemm
    cut = schedule.with_slices_of(gemm.problem.k, slices)
    why = "narrow operands, read in whole requests, leave no other work for all cores; 1 keeps K in one piece"
    decision = Decision("split_k", str(cut.split_k), "default", "assumption", why)
    return replace(gemm, schedule=cut, decisions=(*gemm.decisions, decision))


def estimated_slices(gemm: Gemm, device: Device, options: Mapping[str, Any]) -> SplitK | None:
    """The dataflow's estimate of numbers of slices of K; None where it has no split-K. options: as of `mapped`, of
    which the number of slices is not read.
    """
    values = checked_options(device, options)
    values.pop(SPLIT_K.name, None)
    return dataflow(device).split_k(_laid_out(gemm, values), device, values)


def slices_that_run(gemm: Gemm, counts: Iterable[int]) -> tuple[int, ...]:
    """The numbers of slices of K that run where these are asked for, each once, in this order.

    Slices are whole multiples, so several numbers may run as one. gemm: its schedule does not cut K.
    """
    k = parts_of_k.longest(gemm).problem.k if parts_of_k.is_in_parts(gemm) else gemm.problem.k
    return tuple(dict.fromkeys(gemm.schedule.with_slices_of(k, count).split_k for count in counts))


def mapped(gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Gemm:
    """The record with its mapping. options: as given by a user; split_k and the layouts change the record itself.

    Raises InputError for options that do not fit, UnsupportedError for a plan that no program of the family supports.
    """
    values = checked_options(device, options)
    is_in_parts = parts_of_k.is_in_parts(gemm)
    if asks_for_stream_k(values) and (is_in_parts or isinstance(gemm.plan, Mixed)):
        raise InputError(
            f"decomposition = stream-k: not for scheme {gemm.scheme}, whose parts are kernels of their own; "
            "leave it out"
        )
    if is_in_parts:
        return parts_of_k.with_mapping_of(gemm, mapped(parts_of_k.longest(gemm), device, options))
    flow = dataflow(device)
    if gemm.single.products > MOST_PRODUCTS:
        raise UnsupportedError(
            f"scheme {gemm.scheme}: {gemm.single.products:,} products; programs are made of at most {MOST_PRODUCTS:,}"
        )
    if gemm.problem.image is not None and not flow.features.images:
        raise UnsupportedError(f"the {flow.name} dataflow has no programs of convolutions")
    if gemm.problem.image is not None and isinstance(gemm.plan, Mixed):
        raise UnsupportedError(f"scheme {gemm.scheme}: convolutions have no blocks with plans of their own")
    gemm = _laid_out(gemm, values)
    slices = values.pop("split_k", None)
    if isinstance(gemm.plan, Mixed):
        if slices not in (None, 1):
            raise InputError(f"scheme {gemm.scheme}: split_k = {slices}; its blocks are not cut along K")
        return replace(
            mixed.mapped(flow, with_parts(_of_matrices(gemm, flow), device), device, values), problem=gemm.problem
        )
    if slices is not None:
        gemm = _cut(gemm, device, slices, values)
    gemm_with_mapping = flow.map(without_stack(gemm, flow), device, values)
    return replace(gemm_with_mapping, problem=gemm.problem)


def has_stack_programs(gemm: Gemm, flow: Dataflow) -> bool:
    """Whether one program of such a record computes all matrices of a stack."""
    return (flow.features.stacks or mixed.has_blocks(gemm)) and not parts_of_k.is_in_parts(gemm)


def _of_matrices(gemm: Gemm, flow: Dataflow) -> Gemm:
    """The record whose parts the dataflow maps: of one matrix where a kernel is of one."""
    return gemm if flow.features.stacks else replace(gemm, problem=replace(gemm.problem, lead=()))


def without_stack(gemm: Gemm, flow: Dataflow) -> Gemm:
    """The record for the dataflow: reduced to one matrix of a batch where its programs support no batches."""
    if has_stack_programs(gemm, flow) or not gemm.problem.lead:
        return gemm
    return replace(gemm, problem=replace(gemm.problem, lead=()))


def _laid_out(gemm: Gemm, values: dict[str, Any]) -> Gemm:
    """The record with the requested storage orders."""
    orders = {name: values.pop(name) for name in LAYOUT_OPTIONS if values.get(name) is not None}
    if not orders:
        return gemm
    decisions = tuple([Decision(name, value, "user") for name, value in orders.items()])
    problem = gemm.problem.with_layouts(orders.get("a_layout"), orders.get("b_layout"))
    return replace(gemm, problem=problem, decisions=gemm.decisions + decisions)


def _cut(gemm: Gemm, device: Device, slices: int | str, values: Mapping[str, Any]) -> Gemm:
    """The record with split-K into this number of slices ("auto": the number with the least estimated time).

    A schedule that cuts K already keeps its slices. Raises InputError where another number of them is asked for, and
    for more slices than K has multiples.
    """
    schedule, k = gemm.schedule, gemm.problem.k
    multiple = schedule.slice_multiple or SLICE_MULTIPLE
    most = -(-k // multiple)
    if isinstance(slices, int) and schedule.slice_k is None:
        if slices > most:
            has = f"{most} slice{'s' if most > 1 else ''} of {multiple}"
            raise InputError(f"split_k = {slices}: K = {k} has {has}; allowed: at most {most}")
        slices = schedule.with_slices_of(k, slices).split_k
    if schedule.split_k != 1 or schedule.slice_k is not None:
        running = len(schedule.slice_lengths(k))
        if slices != running:
            raise InputError(
                f"split_k = {slices!r}, but the schedule says how K is cut (slices: {running}); leave one out"
            )
        return replace(gemm, decisions=(*gemm.decisions, Decision("split_k", str(running), "user")))
    if slices == AUTO:
        best = dataflow(device).split_k(gemm, device, values)
        cut = schedule.with_slices_of(k, 1 if best is None else best.slices)
        why = f"{1.0 if best is None else best.share:.0%} of the estimated time of K in one piece"
        decision = Decision("split_k", str(cut.split_k), "estimate", "assumption", why)
    else:
        cut = schedule.with_slices_of(k, int(slices))
        decision = Decision("split_k", str(cut.split_k), "user")
    return replace(gemm, schedule=cut, decisions=(*gemm.decisions, decision))


def program_of(gemm: Gemm, device: Device, *, is_checked: bool = True) -> Program:
    """The program of a mapped record; one that was made lately is not made again.

    is_checked: by all rules of the device; a search leaves that to the mapping that it chooses.
    Raises UnsupportedError for one that would take minutes to time: sizes above MOST_LINES, more instructions than
    MOST_INSTRUCTIONS, or on one core than MOST_ON_A_CORE.
    """
    digest = gemm.digest
    program = _PROGRAMS.get(device, digest)
    if program is None:
        program = _made(gemm, device)
        _PROGRAMS.put(device, digest, program)
    if is_checked and not _PROGRAMS.is_checked(device, digest):
        check(program, device)
        _PROGRAMS.note_checked(device, digest)
    return replace(program, gemm=gemm)


def _made(gemm: Gemm, device: Device) -> Program:
    flow = dataflow(device)
    of_one_matrix = without_stack(gemm, flow)
    m, n, k = of_one_matrix.problem.sizes
    lines = {"m": m * of_one_matrix.problem.matrices, "n": n, "k": k}
    for name, size in lines.items():
        if size > MOST_LINES:
            stack = (
                f" times {of_one_matrix.problem.matrices:,} matrices"
                if name == "m" and of_one_matrix.problem.lead
                else ""
            )
            raise UnsupportedError(f"{name} = {size:,}{stack}: programs have at most {MOST_LINES:,}; {INSTEAD}")
    if isinstance(gemm.plan, Mixed):
        program = mixed.lowered(flow, of_one_matrix, device)
    elif parts_of_k.is_in_parts(gemm):
        program = parts_of_k.lowered(flow, of_one_matrix, device)
    else:
        program = flow.lower(of_one_matrix, device)
    count = executed(program)
    for number, most, where in (
        (count.total, MOST_INSTRUCTIONS, ""),
        (count.longest, MOST_ON_A_CORE, " on one core"),
    ):
        if number > most:
            raise UnsupportedError(
                f"m, n, k = {m:,}, {n:,}, {k:,}: the program executes {number:,} instructions{where}; "
                f"programs of at most {most:,} are timed; {INSTEAD}"
            )
    return program


_PROGRAMS = ProgramCache(1024, 1 << 16)  # as many instructions as hwsim.program.flat keeps tables of


def facts_of(gemm: Gemm, device: Device) -> dict[str, Any]:
    """The mapping as a result's `options` show it: JSON data by name."""
    flow = dataflow(device)
    return mixed.facts(flow, gemm, device) if isinstance(gemm.plan, Mixed) else flow.facts(gemm)
