"""What if numbers of the device file were others: the cycles of a program, or of a call, with some of them replaced.

The module knows the timing machine, and the device's numbers by their paths; it does not know what the program
computes, nor how a call is resolved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from hwsim.analysis.program_times import Times
from hwsim.analysis.what_if import WhatIf, what_if
from hwsim.devices import changed, instruction
from hwsim.devices.device import Device
from hwsim.devices.numbers import Reach, new_values, reach_of, with_numbers
from hwsim.devices.query import entry
from hwsim.errors import InputError
from hwsim.gemm.record import Gemm
from hwsim.host.renderers import rendered
from hwsim.machines import timing
from hwsim.machines.l2_state import COLD
from hwsim.program.ir import Program

PORTS = "operand_bytes_per_cycle"  # number of an instruction: what its operands' memories give
MUCH_FASTER = 1000
#: The times of a call on its device with other numbers, by path.
Anew = Callable[[Mapping[str, float]], Times]
#: The times of a call with C in another format.
InOutput = Callable[[str], Times]
#: The times of a call in the mapping of a record, chosen with these numbers, on the device with those; None where it
#: does not fit.
InMapping = Callable[[Gemm, Mapping[str, float], Mapping[str, float]], Times | None]
#: The times of a call on its device with the tile of a record, and all else chosen for that; None where it does not go.
WithTile = Callable[[Gemm], Times | None]
#: What else than cycles follows from numbers, by what they reach.
BESIDE: Mapping[Reach, str] = {
    Reach.BITS: "changes bits too: compare a file with it by hwsim diff",
    Reach.COST: "of energy or area alone: hwsim sweep --set",
}


class ComparedMapping(StrEnum):
    """Which mapping the changed device has in a comparison."""

    SAME = "kept"  # the one of before: the choice for the changed device is the same, or takes more time
    ANEW = "chosen anew"  # it takes less time than the one of before, or that one does not fit
    OF_LIBRARY = "of the library"  # of the kernel that the library runs on the changed device, whatever it takes
    FIXED = "fixed"  # by a saved record or a library


@dataclass(frozen=True, slots=True)
class OnMatrixUnit:
    """The cycles of a GEMM on the matrix unit, whose operands are of another format than that unit takes."""

    operands: str
    format: str
    cycles: int


@dataclass(frozen=True, slots=True)
class TileElsewhere:
    """The tile of a mapping that fits the changed device alone, on the device without the changes: the tile as the
    option takes it, the call's seconds with it, and whether K is added in another order than without it.
    """

    tile: str
    seconds: float
    has_other_sums: bool


@dataclass(frozen=True, slots=True)
class ChangedNumbers:
    """Cycles before and after a change of the device's numbers.

    numbers: {path: (value before, value after)}, in the device file's units; the instructions that the program executes
    come first. cycles: before, after, in cycles of each device's core clock. clock_mhz: that clock, under the load.
    seconds: the same in seconds; of the program where the call's time is a library's. bound: the part whose absence
    would then save most, None where none saves anything. mapping: of the changed device; a fixed one is timed at the
    same clock. old_mapping_seconds: with the mapping of before, where it fits and another one was chosen.
    new_mapping_seconds: of the device without the changes in that other mapping, where it fits there. held: {path: the
    number that keeps its change from saving time}, where that is known. anew_seconds: of the changed device in the
    mapping chosen for it, where the one of before is kept. tile: where the new mapping does not fit without the
    changes, what its tile gives there.
    """

    numbers: dict[str, tuple[float, float]]
    cycles: tuple[int, int]
    clock_mhz: tuple[float, float]
    seconds: tuple[float, float]
    bound: WhatIf | None
    mapping: ComparedMapping = ComparedMapping.FIXED
    old_mapping_seconds: float | None = None
    new_mapping_seconds: float | None = None
    held: dict[str, str] = field(default_factory=dict)
    beside: dict[str, str] = field(default_factory=dict)
    anew_seconds: float | None = None
    tile: TileElsewhere | None = None

    def __str__(self) -> str:
        return str(rendered("text of a change", self))


@dataclass(frozen=True, slots=True)
class ChangeableCall:
    """The device of a call, before its clock under load was known, and the call's times on it with other numbers.

    anew: None where the call's kernel is fixed, as by a saved record. on_matrix_unit: its cycles there, where it runs
    on the lanes because nobody asked for a format. in_output: the call's times with C in a format; None where the call
    says C's format already, or its kernel is fixed. in_mapping: its times in another record's mapping; None where its
    kernel is fixed. chosen_anew: as anew, in the mapping chosen for the numbers even where the one of before is faster.
    with_tile: its times with another record's tile.
    """

    device: Device
    anew: Anew | None
    on_matrix_unit: Callable[[], OnMatrixUnit | None] = lambda: None
    in_output: InOutput | None = None
    in_mapping: InMapping | None = None
    chosen_anew: Anew | None = None
    with_tile: WithTile | None = None


def program_with_numbers(
    program: Program, device: Device, changes: Mapping[str, object], *, l2: str = COLD
) -> ChangedNumbers:
    """Time the program on the device as it is and with `changes`: {path or pattern: "2x" for a factor, or a value}.

    l2: the state in which L2 is before each run. Raises InputError for a path that the device does not have, and for a
    value that is no number or that the device cannot have; ProgramError where the program does not fit the changed
    device.
    """
    numbers = new_values(device, changes)
    other = with_numbers(device, {path: after for path, (_, after) in numbers.items()})
    before, after = (timing.run_in(program, chip, l2).cycles for chip in (device, other))
    return ChangedNumbers(
        _used_first(numbers, program, device),
        (before, after),
        (device.clock_mhz, other.clock_mhz),
        (before / (device.clock_mhz * 1e6), after / (other.clock_mhz * 1e6)),
        _bound(program, other, l2),
        held=_held(program, other, numbers, l2, after) if after == before else {},
    )


def _held(program: Program, device: Device, paths: Collection[str], l2: str, cycles: int) -> dict[str, str]:
    """{path: the operands' port} of rates of instructions whose operands, were their memories faster, would let the
    program take fewer cycles. device: with the changed rates; cycles: of the program on it.
    """
    held = {}
    for unit in sorted(program.units):
        timing_of_unit = f"instructions.{entry(device, unit)}.timing"
        path, rate = f"{timing_of_unit}.macs_per_cycle", instruction(device, unit).timing
        if path not in paths or rate is None or not rate.operand_bytes_per_cycle:
            continue
        ports = {
            f"{timing_of_unit}.{PORTS}.{memory}": MUCH_FASTER * limit
            for memory, limit in rate.operand_bytes_per_cycle.items()
        }
        if timing.run_in(program, changed(device, ports), l2).cycles < cycles:
            held[path] = PORTS
    return held


def call_with_numbers(times: Times, call: ChangeableCall, changes: Mapping[str, object]) -> ChangedNumbers | None:
    """The same of a call. times: of the call; None is returned where there are none.

    The call is resolved again for the changed device, which has the faster of two mappings: the one chosen for it, and
    the one of before. A saved record or a library fixes the kernel; then its program is timed again at its clock,
    unless the kernel or the clock follows from a number. `beside` says what else than cycles follows from a number.
    Raises InputError as `program_with_numbers`.
    """
    if times.program is None or times.chip is None or times.cycles is None or times.seconds is None:
        return None
    device, anew = call.device, call.anew
    numbers = new_values(device, changes)
    reaches = {path: reach_of(path) for path in numbers}
    beside = {path: BESIDE[reach] for path, reach in reaches.items() if reach in BESIDE}
    is_of_times = set(reaches.values()) <= {Reach.TIME, Reach.COST}
    if is_of_times and (anew is None or times.by_library):
        return replace(program_with_numbers(times.program, times.chip, changes, l2=times.l2), beside=beside)
    if anew is None:
        named = ", ".join(path for path, reach in reaches.items() if reach not in (Reach.TIME, Reach.COST))
        raise InputError(
            f"what-if: {named}: the kernel would be another one, and a saved record fixes it; run without it"
        )
    new_numbers = {path: value for path, (_, value) in numbers.items()}
    after = anew(new_numbers)
    if after.program is None or after.chip is None or after.cycles is None or after.seconds is None:
        raise InputError(f"what-if: {', '.join(numbers)}: there are no cycles then: {after.note}")
    assert times.program.gemm is not None and after.program.gemm is not None
    seconds_of = _program_seconds if times.by_library else _call_seconds
    now, then = seconds_of(times), seconds_of(after)
    assert now is not None and then is not None
    mapping = ComparedMapping.OF_LIBRARY if after.program.gemm.library is not None else ComparedMapping.ANEW
    if are_mapped_alike(times.program.gemm, after.program.gemm):
        mapping = ComparedMapping.SAME
    changed_call = ChangedNumbers(
        _used_first(numbers, after.program, device),
        (times.cycles, after.cycles),
        (times.chip.clock_mhz, after.chip.clock_mhz),
        (now, then),
        _bound(after.program, after.chip, after.l2),
        mapping=mapping,
        held=_held(after.program, after.chip, numbers, after.l2, after.cycles) if after.cycles == times.cycles else {},
        beside=beside,
    )
    if mapping == ComparedMapping.SAME:
        return replace(changed_call, anew_seconds=_anew_seconds(call, after.program.gemm, new_numbers, seconds_of))
    if call.in_mapping is None:
        return changed_call
    old = call.in_mapping(times.program.gemm, {}, new_numbers)
    new = call.in_mapping(after.program.gemm, new_numbers, {})
    return replace(
        changed_call,
        old_mapping_seconds=None if old is None else seconds_of(old),
        new_mapping_seconds=None if new is None else seconds_of(new),
        tile=_tile_elsewhere(call, times.program.gemm, after.program.gemm, seconds_of) if new is None else None,
    )


def _call_seconds(times: Times) -> float | None:
    """The seconds of a call, with its launches where they are asked for."""
    return times.seconds


def _program_seconds(times: Times) -> float | None:
    """The seconds of a program without launches: what a library's call is compared by, as its own times are of the chip
    as it is.
    """
    return times.program_seconds


SecondsOf = Callable[[Times], float | None]


def _anew_seconds(
    call: ChangeableCall, record: Gemm | None, numbers: Mapping[str, float], seconds_of: SecondsOf
) -> float | None:
    """The seconds of a call with numbers in the mapping chosen for them, where its record has kept another one."""
    decision = None if record is None else record.decided("mapping")
    return None if decision is None or call.chosen_anew is None else seconds_of(call.chosen_anew(numbers))


def _tile_elsewhere(call: ChangeableCall, before: Gemm, after: Gemm, seconds_of: SecondsOf) -> TileElsewhere | None:
    """The tile of the record `after` on the call's device, whose record is `before`; None where it does not fit."""
    times = None if call.with_tile is None else call.with_tile(after)
    gemm = None if times is None or times.program is None else times.program.gemm
    seconds = None if times is None else seconds_of(times)
    if seconds is None or gemm is None or gemm.mapping is None:
        return None
    sides = gemm.mapping.kernels[0].tile.to_dict()
    text = ",".join(f"{side}={size}" for side, size in sides.items())
    return TileElsewhere(text, seconds, gemm.schedule != before.schedule)


def are_mapped_alike(before: Gemm | None, after: Gemm | None) -> bool:
    """Whether two records have one mapping, in one order of summation."""
    first, second = [
        None if gemm is None else (gemm.mapping, gemm.schedule, [(part.mapping, part.schedule) for part in gemm.parts])
        for gemm in (before, after)
    ]
    return first == second


def _used_first(
    numbers: dict[str, tuple[float, float]], program: Program, device: Device
) -> dict[str, tuple[float, float]]:
    """The numbers: first the numbers of instructions that the program has."""
    used = tuple(f"instructions.{entry(device, unit)}." for unit in program.units)
    return dict(sorted(numbers.items(), key=lambda item: not item[0].startswith(used)))


def _bound(program: Program, device: Device, l2: str) -> WhatIf | None:
    parts = what_if(program, device, l2=l2)
    return parts[0] if parts and parts[0].saved > 0 else None
