"""What would make a timed run faster, each change with its gain: numbers of the device, and the mapping.

It knows times, their shares and the timing machine; of what was asked for, only the formats in the record.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from math import ceil
from typing import TYPE_CHECKING, Any

from hwsim.analysis.better_numbers import L2_CAPACITY, NumberChanges, dram_rate, l2_rate, link_rate, matrix_rate, saved
from hwsim.analysis.changed_numbers import InOutput, OnMatrixUnit
from hwsim.analysis.least_share import least_share
from hwsim.analysis.program_times import Times
from hwsim.analysis.time_shares import BEFORE, IDLE_CORES, LAST_WAVE, LAUNCHES, TimeShares
from hwsim.devices import instruction
from hwsim.devices.model.memories import PE
from hwsim.devices.numbers import new_values, paths_of
from hwsim.devices.query import entry, follow_from_array
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import format_of

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.program.ir import Kernel, Program

WORTH_ADVISING = 0.01  # of the time
HALF = 0.5  # of the time: only a part that is busy for longer can be what is left when another one is twice as fast
NARROW_BITS = 16  # of an operand, whose format C may have too
TIMING = ".timing."  # of an instruction, in the path of a number
#: Of a program's time: where a library's fitted time differs by more, the program's shares say nothing of it.
MOST_BESIDE = 0.1
MOST_INSTRUCTIONS = 10_000_000  # of all timing runs together that look for advice


@dataclass(frozen=True, slots=True)
class Advice:
    """A change and the share of the time that it saves; is_most: at most that. gain: None where it is not known.
    option: of `hwsim run` that tries it.

    of_device: a change of the chip, not of the call. sentence: what str() says, where that is not "CHANGE would save
    GAIN". alone: the gains of the parts of two changes together.
    """

    change: str
    gain: float | None
    is_most: bool
    option: str
    sentence: str = ""
    alone: tuple[float, ...] = ()
    of_device: bool = False

    def __str__(self) -> str:
        if self.sentence:
            return self.sentence
        assert self.gain is not None  # one that is not known is in a sentence
        share = _percent(self.gain)
        gain = f"at most {share}" if self.is_most else f"{share} with the same tiles and clock"
        gain += f", alone {' and '.join(_percent(part) for part in self.alone)}" if self.alone else ""
        return f"{self.change} would save {gain} ({self.option})"

    def to_dict(self) -> dict[str, Any]:
        """Plain data; `text` is the sentence."""
        fields = asdict(self)
        del fields["sentence"], fields["alone"]
        return {"text": str(self)} | fields


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= WORTH_ADVISING else f"{100 * max(share, 0.0):.1f} %"


def matrix_unit_advice(cycles: int, other: OnMatrixUnit) -> Advice:
    """The advice to take the matrix unit. cycles: of the run on the lanes, core clock cycles."""
    times = cycles / other.cycles
    fewer = f"{times:,.0f}" if times >= 10 else f"{times:.1f}"
    return Advice(
        f"{other.format}, the format of the matrix unit",
        1 - other.cycles / cycles,
        False,
        f"--format {other.format}",
        f"the matrix unit was not used: operands are {other.operands}; --format {other.format} takes it "
        f"({fewer} times fewer cycles, operands rounded to {other.format})",
    )


def advice_on(times: Times, shares: TimeShares, in_output: InOutput | None = None) -> tuple[Advice, ...]:
    """Changes worth a try: first of the call, then of the device; unknown gains first, then the largest. in_output: the
    times of the call with C in another format.

    Of a library's call whose fitted time is far from the program's, only what follows from fitted times.
    """
    of_program = () if is_apart(times) else (*_of_mapping(times, shares), *_of_numbers(times, shares))
    items = (*of_program, *_of_library(times, shares), *_of_output(times, in_output))
    worth = [item for item in items if item.gain is None or item.gain >= WORTH_ADVISING]
    return tuple(
        sorted(worth, key=lambda item: (item.of_device, item.gain is not None, -(item.gain or 0), item.option))
    )


def is_apart(times: Times) -> bool:
    """Whether the program's shares say nothing of the time that is shown."""
    return abs(times.beside_program) > MOST_BESIDE


def _of_mapping(times: Times, shares: TimeShares) -> Iterator[Advice]:
    """Changes of the call. What they save is at most what is lost today, and what products and bytes leave."""
    as_they_are = 1 - least_share(times)
    for change, gain, option in _of_lost(times, shares):
        yield Advice(change, min(gain, as_they_are), True, option)
    if taken := _format_taken(times):
        gain = min(_casting(times, shares), 1 - least_share(times, taken))
        yield Advice(f"operands that are in {taken} already", gain, True, f"--input-format {taken}")


def _of_lost(times: Times, shares: TimeShares) -> Iterator[tuple[str, float, str]]:
    """(change, what is lost for want of it, option) of changes that leave A and B in their formats."""
    if not times.by_library and shares.works_more_than_it_waits:
        yield "tiles or slices of K that keep all cores busy to the end", _idle(shares), "hwsim tune"
    yield "a second tile in the PEs", shares.for_tile * _hidden_by_second_tile(times), "--pe-tiles 2"
    if times.launches:
        yield "one launch for all kernels (a CUDA graph)", shares.lost.get(LAUNCHES, 0.0), "no --launch-overhead"


def _casting(times: Times, shares: TimeShares) -> float:
    """The share of the kernels before the products that cast operands."""
    if times.program is None or times.timed is None:
        return 0.0
    casts = {kernel.name for kernel in times.program.kernels if _casts(kernel)}
    names = [name for name in shares.passes.get(BEFORE, ()) if name in casts]
    cycles = sum(kernel.cycles for kernel in times.timed.kernels if kernel.name in names)
    return cycles / times.timed.cycles * (1 - shares.lost.get(LAUNCHES, 0.0))


def _idle(shares: TimeShares) -> float:
    """The share that other tiles or slices of K may give work to."""
    return shares.lost.get(LAST_WAVE, 0.0) + shares.lost.get(IDLE_CORES, 0.0)


def _of_library(times: Times, shares: TimeShares) -> Iterator[Advice]:
    """A kernel of one's own where a library's leaves cores without a tile, and its program loses time by that. How much
    of the fitted time is lost is not known, and so is the gain.
    """
    gemm = None if times.program is None else times.program.gemm
    idle = max((row.idle_cores for row in times.occupancy), default=0)
    if not times.by_library or gemm is None or gemm.library is None or times.chip is None or not idle:
        return
    if min(_idle(shares), 1 - least_share(times)) < WORTH_ADVISING:
        return
    option = f"hwsim tune --library {gemm.library.name}"
    sentence = (
        f"the library's kernel leaves {idle} of {times.chip.cores} cores without a tile: {option} times other tiles "
        "and slices of K beside it; what they save of the library's time is not known"
    )
    yield Advice("tiles or slices of K of a kernel of your own", None, False, option, sentence=sentence)


def _of_output(times: Times, in_output: InOutput | None) -> Iterator[Advice]:
    """C in the operands' format of 16 bits instead of fp32, from the times of that call. It changes the bits of C."""
    gemm = None if times.program is None else times.program.gemm
    if in_output is None or gemm is None or times.timed is None or not times.seconds:
        return
    fmt = gemm.problem.a.format
    is_narrow = format_of(fmt).bits == NARROW_BITS and gemm.problem.b.format == fmt and gemm.output == "fp32"
    if gemm.parts or not is_narrow or times.timed.instructions > MOST_INSTRUCTIONS:
        return
    try:
        other = in_output(fmt)
    except (InputError, UnsupportedError):  # the unit or the library has no such C
        return
    if other.seconds is not None and other.by_library == times.by_library:
        yield Advice(f"a C in {fmt}", 1 - other.seconds / times.seconds, False, f"--output {fmt}")


def _format_taken(times: Times) -> str:
    """The format that the only product takes its operands in, where these are in another one; "" otherwise."""
    gemm = None if times.program is None else times.program.gemm
    if gemm is None or times.chip is None or gemm.parts or gemm.single.products != 1:
        return ""
    taken = instruction(times.chip, times.unit).a
    return "" if taken == gemm.problem.input_format else taken


def _hidden_by_second_tile(times: Times) -> float:
    """The share of the waits for the tile in the PEs that a second tile there may hide.

    It hides no array's first fill. 0 where there is no array, or no room in it for a second tile.
    """
    if times.program is None or times.chip is None or times.timed is None:
        return 0.0
    inside = [buffer for kernel in times.program.kernels for buffer in kernel.buffers if buffer.memory == PE]
    if not inside or any(buffer.slots > 1 for buffer in inside):
        return 0.0
    largest = max(buffer.slot_bytes for buffer in inside)
    if 2 * largest > times.chip.memories[PE].capacity_bytes:
        return 0.0
    fills = [name for name, link in times.chip.links.items() if link.target == PE]
    folds = ceil(sum(times.timed.traffic_bytes.get(name, 0) for name in fills) / largest)
    busiest = max((row.cores - row.idle_cores for row in times.occupancy), default=1)
    return max(1 - busiest / folds, 0.0) if folds else 1.0


def _casts(kernel: Kernel) -> bool:
    return any(instr.opcode == "cast" for instr in kernel.instrs())


def _of_numbers(times: Times, shares: TimeShares) -> Iterator[Advice]:
    """Rates, capacities and latencies that the run uses, twice as good; the cycles are those of another timing run.

    Of a long program only as many as MOST_INSTRUCTIONS allow: those of the busiest parts, and latencies by what is
    waited. Two changes together are advice where they save more than both do alone.
    """
    if times.program is None or times.chip is None or times.timed is None:
        return
    candidates = _numbers(times.program, times.chip, shares, times.timed.traffic_bytes)
    ranked = sorted(candidates, key=lambda candidate: -candidate[0])
    runs = affordable_runs(times)
    without_launches = 1 - shares.lost.get(LAUNCHES, 0.0)
    singles = []
    for share, change, numbers in ranked[:runs]:
        gain = saved(times, numbers) * without_launches
        singles.append((share, change, gain, numbers))
        yield Advice(change, gain, False, _option(times.chip, numbers), of_device=True)
    limits = [(change, gain, numbers) for share, change, gain, numbers in singles if share > HALF]
    for (first, of_first, numbers), (second, of_second, others) in list(combinations(limits, 2))[: runs - len(singles)]:
        both = {**numbers, **others}
        gain = saved(times, both) * without_launches
        if gain >= of_first + of_second + WORTH_ADVISING:
            change, option = f"{first} together with {second}", _option(times.chip, both)
            yield Advice(change, gain, False, option, of_device=True, alone=(of_first, of_second))


def affordable_runs(times: Times) -> int:
    """How many timing runs of the program MOST_INSTRUCTIONS allow."""
    assert times.timed is not None
    return MOST_INSTRUCTIONS // max(times.timed.instructions, 1)


def _option(chip: Device, numbers: NumberChanges) -> str:
    """The option that tries these numbers of the device; several of one part are named by one pattern."""
    parts: dict[tuple[str, str], list[str]] = {}
    for path, (before, after) in new_values(chip, dict(numbers)).items():
        factor = f"{float(after) / float(before):g}x"
        parts.setdefault((_part(path), factor), []).append(path)
    changes = [f"{named}={factor}" for (_, factor), paths in parts.items() for named in _pattern(chip, paths)]
    return f"--what-if {shlex.quote(','.join(changes)) if '*' in ''.join(changes) else ','.join(changes)}"


def _part(path: str) -> str:
    """The part of the device that a number is of: its path up to the number's own name."""
    return f"{path.partition(TIMING)[0]}{TIMING}" if TIMING in path else f"{path.rpartition('.')[0]}."


def _pattern(chip: Device, paths: list[str]) -> list[str]:
    """One pattern that names these numbers of one part and no other, where there is one; else the numbers."""
    part = _part(paths[0])
    word = min((path.removeprefix(part) for path in paths), key=len)
    pattern = f"{part}*{word}*"
    return [pattern] if len(paths) > 1 and set(paths_of(chip, pattern)) == set(paths) else paths


def _numbers(
    program: Program, chip: Device, shares: TimeShares, traffic_bytes: Mapping[str, int]
) -> Iterator[tuple[float, str, NumberChanges]]:
    """(how much it may matter, words, numbers) of what the run's time may follow from."""
    busy = {(part.kind, part.name): part.share for part in shares.parts}
    if chip.hbm is not None:
        crossed = busy.get(("DRAM", "DRAM"), 0.0)
        yield crossed, "twice the rate of DRAM", dram_rate(chip)
        if chip.l2 is not None and crossed:
            yield crossed, "twice the capacity of L2", {L2_CAPACITY: 2 * chip.l2.capacity_bytes}
        if chip.hbm.latency_ns:
            yield shares.waits, "half the latency of DRAM", {"hbm.latency_ns": chip.hbm.latency_ns / 2}
    if chip.l2 is not None:
        yield busy.get(("L2", "L2"), 0.0), "twice the rate of L2", l2_rate(chip)
        if chip.l2.latency_ns:
            yield shares.waits, "half the latency of L2", {"l2.latency_ns": chip.l2.latency_ns / 2}
    fixed = follow_from_array(chip)
    for name, link in chip.links.items():
        if traffic_bytes.get(name) and f"links.{name}" not in fixed:
            share = busy.get(("link", name), busy.get(("copy", link.engine), 0.0))
            yield share, f"twice the rate of link {name}", link_rate(chip, name)
    units: dict[tuple[str, ...], list[str]] = {}  # several instructions may have one rate
    for unit in sorted(program.units):
        if f"instructions.{entry(chip, unit)}.timing" not in fixed:
            units.setdefault(tuple(sorted(matrix_rate(chip, unit))), []).append(unit)
    for paths, names in units.items():
        if paths:
            yield shares.busy, f"twice the rate of {' and '.join(names)}", matrix_rate(chip, names[0])
