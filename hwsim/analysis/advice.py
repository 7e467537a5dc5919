"""What would make a timed run faster, each change with its gain: numbers of the device, and the mapping.

It knows times, their shares and the timing machine; it does not know what was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hwsim.analysis.better_numbers import NumberChanges, dram_rate, l2_rate, link_rate, matrix_rate, saved
from hwsim.analysis.program_times import Times
from hwsim.analysis.time_shares import BEFORE, IDLE_CORES, LAST_WAVE, LAUNCHES, TimeShares
from hwsim.devices import instruction

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.program.ir import Kernel, Program

WORTH_ADVISING = 0.01  # of the time
LESS_IS_BETTER = ("latency_ns", "interval_cycles")  # ends of the names of numbers
MOST_INSTRUCTIONS = 1_000_000  # of a run that is timed again for each number; beyond, numbers are left out


@dataclass(frozen=True, slots=True)
class Advice:
    """A change and the share of the time that it saves; is_most: at most that. option: of `hwsim run` that tries it."""

    change: str
    gain: float
    is_most: bool
    option: str

    def __str__(self) -> str:
        share = f"{100 * self.gain:.0f} %" if self.gain >= 0.01 else f"{100 * self.gain:.1f} %"
        return f"{self.change} would save {'at most ' if self.is_most else ''}{share} ({self.option})"

    def to_dict(self) -> dict[str, Any]:
        """Plain data; `text` is the sentence."""
        return {"text": str(self)} | asdict(self)


def advice_on(times: Times, shares: TimeShares) -> tuple[Advice, ...]:
    """Changes worth a try, the largest gain first."""
    return tuple(
        sorted(
            (advice for advice in (*_of_mapping(times, shares), *_of_numbers(times)) if advice.gain >= WORTH_ADVISING),
            key=lambda advice: (-advice.gain, advice.option),
        )
    )


def _of_mapping(times: Times, shares: TimeShares) -> Iterator[Advice]:
    """Changes of the call. What they save is at most what is lost today."""
    lost = shares.lost
    tiles = lost.get(LAST_WAVE, 0.0) + lost.get(IDLE_CORES, 0.0)
    if not times.by_library and shares.works_more_than_it_waits:
        yield Advice("tiles that keep all cores busy to the end", tiles, True, "hwsim tune")
    taken = _format_taken(times)
    if taken:
        casts = {kernel.name for kernel in times.program.kernels if _casts(kernel)} if times.program else set()
        names = [name for name in shares.passes.get(BEFORE, ()) if name in casts]
        cycles = sum(kernel.cycles for kernel in times.timed.kernels if kernel.name in names) if times.timed else 0
        change = f"operands that are in {taken} already"
        yield Advice(change, cycles / (times.timed.cycles if times.timed else 1), True, f"--input-format {taken}")
    if times.launches:
        yield Advice("one launch for all kernels (a CUDA graph)", lost.get(LAUNCHES, 0.0), True, "no --launch-overhead")


def _format_taken(times: Times) -> str:
    """The format that the only product takes its operands in, where these are in another one; "" otherwise."""
    gemm = None if times.program is None else times.program.gemm
    if gemm is None or times.chip is None or gemm.parts or gemm.single.products != 1:
        return ""
    taken = instruction(times.chip, times.unit).a
    return "" if taken == gemm.problem.input_format else taken


def _casts(kernel: Kernel) -> bool:
    return any(instr.opcode == "cast" for instr in kernel.instrs())


def _of_numbers(times: Times) -> Iterator[Advice]:
    """Each rate, capacity and latency that the run uses, twice as good; the cycles are those of another timing run."""
    if times.program is None or times.chip is None or times.timed is None:
        return
    if times.timed.instructions > MOST_INSTRUCTIONS:
        return
    for words, numbers in _numbers(times.program, times.chip, times.timed.traffic_bytes):
        options = (f"--what-if {path}={_factor(path)}" for path in numbers)
        yield Advice(words, saved(times, numbers), False, " ".join(options))


def _factor(path: str) -> str:
    return "0.5x" if path.endswith(LESS_IS_BETTER) else "2x"


def _numbers(program: Program, chip: Device, traffic_bytes: Mapping[str, int]) -> Iterator[tuple[str, NumberChanges]]:
    """(words, numbers) of what the run's time may follow from."""
    if chip.hbm is not None:
        yield "twice the rate of DRAM", dram_rate(chip)
        if chip.hbm.latency_ns:
            yield "half the latency of DRAM", {"hbm.latency_ns": chip.hbm.latency_ns / 2}
    if chip.l2 is not None:
        yield "twice the rate of L2", l2_rate(chip)
        yield "twice the capacity of L2", {"l2.capacity_bytes": 2 * chip.l2.capacity_bytes}
        if chip.l2.latency_ns:
            yield "half the latency of L2", {"l2.latency_ns": chip.l2.latency_ns / 2}
    for name in chip.links:
        if traffic_bytes.get(name):
            yield f"twice the rate of link {name}", link_rate(chip, name)
    for unit in sorted(program.units):
        if numbers := matrix_rate(chip, unit):
            yield f"twice the rate of {unit}", numbers
