"""What if numbers of the device file were others: the cycles of a program, or of a call, with some of them replaced.

The module knows the timing machine, and the device's numbers by their paths; it does not know what the program
computes, nor how a call is resolved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from hwsim.analysis.program_times import Times
from hwsim.analysis.what_if import WhatIf, what_if
from hwsim.devices import changed, instruction
from hwsim.devices.device import Device
from hwsim.devices.numbers import Reach, new_values, reach_of, with_numbers
from hwsim.devices.query import entry
from hwsim.errors import InputError
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
#: What else than cycles follows from numbers, by what they reach.
BESIDE: Mapping[Reach, str] = {
    Reach.BITS: "changes bits too: compare a file with it by hwsim diff",
    Reach.COST: "of energy or area alone: hwsim sweep --set",
}


@dataclass(frozen=True, slots=True)
class OnMatrixUnit:
    """The cycles of a GEMM on the matrix unit, whose operands are of another format than that unit takes."""

    operands: str
    format: str
    cycles: int


@dataclass(frozen=True, slots=True)
class ChangedNumbers:
    """Cycles before and after a change of the device's numbers.

    numbers: {path: (value before, value after)}, in the device file's units; the instructions that the program executes
    come first. cycles: before, after, in cycles of each
    device's core clock. clock_mhz: that clock, under the load. seconds: the same in seconds. bound: the part whose
    absence would then save most, None where none saves anything. is_anew: whether the kernel was chosen again for the
    changed device; else the same program was timed at the same clock. held: {path: the number that keeps its change
    from saving time}, where that is known.
    """

    numbers: dict[str, tuple[float, float]]
    cycles: tuple[int, int]
    clock_mhz: tuple[float, float]
    seconds: tuple[float, float]
    bound: WhatIf | None
    is_anew: bool = False
    held: dict[str, str] = field(default_factory=dict)
    beside: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return str(rendered("text of a change", self))


@dataclass(frozen=True, slots=True)
class ChangeableCall:
    """The device of a call, before its clock under load was known, and the call's times on it with other numbers.

    anew: None where the call's kernel is fixed, as by a saved record. on_matrix_unit: its cycles there, where it runs
    on the lanes because nobody asked for a format. in_output: the call's times with C in a format; None where the call
    says C's format already, or its kernel is fixed.
    """

    device: Device
    anew: Anew | None
    on_matrix_unit: Callable[[], OnMatrixUnit | None] = lambda: None
    in_output: InOutput | None = None


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

    A number that the choice of kernels or the clock follows from has the call resolved again; otherwise its program is
    timed again at its clock. `beside` says what else than cycles follows from a number. Raises InputError as
    `program_with_numbers`.
    """
    if times.program is None or times.chip is None or times.cycles is None or times.seconds is None:
        return None
    device, anew = call.device, call.anew
    numbers = new_values(device, changes)
    reaches = {path: reach_of(path) for path in numbers}
    beside = {path: BESIDE[reach] for path, reach in reaches.items() if reach in BESIDE}
    if set(reaches.values()) <= {Reach.TIME, Reach.COST}:
        return replace(program_with_numbers(times.program, times.chip, changes, l2=times.l2), beside=beside)
    if anew is None:
        named = ", ".join(path for path, reach in reaches.items() if reach not in (Reach.TIME, Reach.COST))
        raise InputError(
            f"what-if: {named}: the kernel would be another one, and a saved record fixes it; run without it"
        )
    after = anew({path: value for path, (_, value) in numbers.items()})
    if after.program is None or after.chip is None or after.cycles is None or after.seconds is None:
        raise InputError(f"what-if: {', '.join(numbers)}: there are no cycles then: {after.note}")
    return ChangedNumbers(
        _used_first(numbers, after.program, device),
        (times.cycles, after.cycles),
        (times.chip.clock_mhz, after.chip.clock_mhz),
        (times.seconds, after.seconds),
        _bound(after.program, after.chip, after.l2),
        is_anew=True,
        beside=beside,
    )


def _used_first(
    numbers: dict[str, tuple[float, float]], program: Program, device: Device
) -> dict[str, tuple[float, float]]:
    """The numbers: first the numbers of instructions that the program has."""
    used = tuple(f"instructions.{entry(device, unit)}." for unit in program.units)
    return dict(sorted(numbers.items(), key=lambda item: not item[0].startswith(used)))


def _bound(program: Program, device: Device, l2: str) -> WhatIf | None:
    parts = what_if(program, device, l2=l2)
    return parts[0] if parts and parts[0].saved > 0 else None
