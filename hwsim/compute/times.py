"""The times of a product call: its program's, with a library's where one was asked for.

It knows resolved calls and options; it resolves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hwsim.analysis.changed_numbers import OnMatrixUnit
from hwsim.analysis.program_times import TimedWork, Times, times_of
from hwsim.analysis.run_records import Evidence
from hwsim.compute.call import ProductCall, clocked, resolved_call
from hwsim.dataflows.options import TILE_OPTION
from hwsim.devices.device import Device
from hwsim.devices.numbers import with_numbers, without_base
from hwsim.devices.query import instruction
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.plan import Mixed
from hwsim.gemm.record import Gemm
from hwsim.gemm.schedule import schedule_of
from hwsim.libraries.times import library_times
from hwsim.machines.timing import missing
from hwsim.request.option_records import MachineOptions
from hwsim.resolve.mapping_of_base import on_device
from hwsim.resolve.resolved import NOT_ASKED, Resolved

#: Why products of parts have no cycles.
OF_PARTS = "cycles are of whole products, and A and B are parts of one (at=)"


def why_no_cycles(call: ProductCall) -> str:
    """The reason why a call has no cycles, before anything is computed; empty where it has some."""
    machine, timed = call.options.machine, call.resolved.timed
    if not machine.timing:
        return NOT_ASKED
    if call.options.region.at is not None:
        return OF_PARTS
    return call.resolved.no_program if timed.program is None else missing(timed.device, timed.program) or ""


def call_times(call: ProductCall) -> Times:
    """The times of a call. Raises UnsupportedError where launches are to be counted and the device has no time of
    one.
    """
    machine, resolved = call.options.machine, call.resolved
    if not machine.timing:
        return Times(NOT_ASKED)
    if call.options.region.at is not None:
        return Times(OF_PARTS)
    scheme, library, launches = call.request.scheme, call.request.library, machine.launch_overhead
    is_fitted = library is not None and library.has_times_of(resolved.timed.gemm)
    if is_fitted:  # whose launches come on top
        machine = replace(machine, launch_overhead=False)
    times = _program_times(resolved.timed, resolved.no_program, machine)
    if call.operands.pair is None and scheme.assumes is not None and not times.note:
        times = replace(times, note=scheme.assumes(resolved.options))
    if library is None or not is_fitted:
        return times
    return library_times(library, resolved.timed.gemm, call.request.device, times, launches=launches)


def times_with_numbers(call: ProductCall, changes: Mapping[str, float]) -> Times:
    """The times of a call on its device with other numbers, by path: its kernels are chosen again.

    Raises as `hwsim.run`, and InputError for a number that the device cannot have.
    """
    chip = _changed_device(call, changes)
    return call_times(resolved_call(chip, call.request.scheme, call.options, call.operands, call.choice))


def _changed_device(call: ProductCall, numbers: Mapping[str, float]) -> Device:
    """The device of a call with other numbers, by path, at the clock or power limit that the call asks for: what a run
    on a device with these numbers has.
    """
    if not numbers:
        return call.request.device
    machine = call.options.machine
    device = call.request.device if call.device is None else call.device
    return clocked(with_numbers(device, numbers), machine.clock_mhz, machine.power_limit_w)


def times_in_mapping(
    call: ProductCall, gemm: Gemm, chosen_with: Mapping[str, float], changes: Mapping[str, float]
) -> Times | None:
    """The times of a call in the mapping of its record `gemm`, which was chosen for its device with the numbers
    `chosen_with`, on its device with the numbers `changes`; by path.

    None where the mapping does not fit this device.
    """
    base, chip = (_changed_device(call, numbers) for numbers in (chosen_with, changes))
    moved = on_device(gemm, chip, base)
    if moved is None:
        return None
    record, program = moved
    timed = replace(call.resolved.timed, gemm=record, device=chip, program=program, in_order=None)
    return _program_times(timed, "", call.options.machine)


def times_chosen_anew(call: ProductCall, changes: Mapping[str, float]) -> Times:
    """As `times_with_numbers`, in the mapping chosen for these numbers even where the one of before is faster."""
    chip = without_base(_changed_device(call, changes))
    return call_times(resolved_call(chip, call.request.scheme, call.options, call.operands, call.choice))


def times_with_tile(call: ProductCall, gemm: Gemm) -> Times | None:
    """The times of a call on its device with the tile of another record, and all else chosen for that.

    None where the call says its tile, the record has several kernels or parts, or the tile does not fit.
    """
    asked = call.options.mapping
    kernels = () if gemm.mapping is None or gemm.parts else gemm.mapping.kernels
    if len(kernels) != 1 or asked.values.get(TILE_OPTION.name) is not None:
        return None
    options = replace(
        call.options, mapping=replace(asked, values={**asked.values, TILE_OPTION.name: kernels[0].tile.to_dict()})
    )
    try:
        tiled = resolved_call(call.request.device, call.request.scheme, options, call.operands, call.choice)
        return call_times(tiled)
    except (InputError, UnsupportedError):
        return None


def on_matrix_unit(call: ProductCall) -> OnMatrixUnit | None:
    """A call's cycles in the device's default format, if it runs on the lanes, and its operands alone decided so.

    None for other calls, and where the device cannot compute the call in that format.
    """
    request, asked = call.request, call.options
    chip = request.device
    wanted = chip.default_format
    is_asked = asked.scheme.format is not None or asked.library.library is not None or call.choice is not None
    unit = call.resolved.timed.facts.get("unit")
    if is_asked or chip.vector is None or unit is None or wanted not in chip.native:
        return None
    engines = [instruction(chip, str(name)).engine for name in (unit, chip.native[wanted])]
    if engines[0] != chip.vector.engine or engines[1] == chip.vector.engine:
        return None
    options = replace(asked, scheme=replace(asked.scheme, format=wanted))
    try:
        cycles = call_times(resolved_call(chip, request.scheme, options, call.operands)).cycles
    except (InputError, UnsupportedError):
        return None
    return OnMatrixUnit(call.resolved.gemm.single.input_format, wanted, cycles) if cycles else None


def has_output(call: ProductCall) -> bool:
    """Whether the call says in which format C is."""
    order = call.options.order.schedule
    of_schedule = None if order is None else schedule_of(order).epilogue.output_format
    return call.options.epilogue.output is not None or of_schedule is not None


def times_in_output(call: ProductCall, output: str) -> Times:
    """The times of a call with C in another format: its kernels are chosen again. Raises as `hwsim.run`."""
    options = replace(call.options, epilogue=replace(call.options.epilogue, output=output))
    return call_times(resolved_call(call.request.device, call.request.scheme, options, call.operands, call.choice))


def _program_times(timed: Resolved, no_program: str, machine: MachineOptions) -> Times:
    """The times of a record's program. no_program: why there is none."""
    if timed.program is None:
        return Times(no_program)
    record = timed.gemm
    matrices = record.problem.matrices
    products = timed.facts.get("products", record.single.products)
    if not isinstance(record.plan, Mixed):
        products = record.plan.products
    work = TimedWork(
        record.problem.sizes,
        products,
        str(timed.facts["unit"]),
        matrices,
        1 if timed.has_stack_program else matrices,
    )
    return times_of(timed.program, timed.device, work, launch_overhead=machine.launch_overhead, l2=machine.l2)


def evidence_of(record: Gemm, times: Times) -> Evidence:
    """Evidence levels of numerics, timing and schedule, from the record's decisions."""
    levels: Evidence = {}
    if level := _level(record, "instruction"):
        levels["numerics"] = level
    if level := _level(record, "order of summation"):
        levels["schedule"] = level
    if times.seconds is not None and (level := _level(record, "times")):
        levels["timing"] = level
    return levels


def _level(record: Gemm, decision: str) -> str:
    decided = record.decided(decision)
    return "" if decided is None else decided.evidence
