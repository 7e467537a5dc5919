"""Where a program's time went: how busy each part was, and the causes of the matrix units' other time, as shares.

It knows the timing machine's accounts and the device; it knows no words.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwsim.devices import find
from hwsim.devices.model.memories import PE
from hwsim.devices.query import is_of_array
from hwsim.machines.timing import moved_bytes
from hwsim.program.ir import GlobalTile, LocalTile

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.devices.model import InstructionModel
    from hwsim.devices.model.memories import LinkModel
    from hwsim.machines.timing import KernelTime, Timing
    from hwsim.program.ir import Kernel, Program

LAST_WAVE = "last wave"  # cores without a tile while others compute the last ones
UNEVEN = "uneven"  # cores that finish before others, with as many tiles
IDLE_CORES = "idle cores"
EPILOGUE = "epilogue"  # no accumulator is free: the epilogue has not emptied it
LAST_EPILOGUE = "last epilogue"  # from the last product on any core to the kernel's end
OPERANDS = "operands"
START = "start"
ISSUE = "issue"
IN_FLIGHT = "in flight"
SUMS = "sums"  # accumulators that are brought back from memory
FILL = "fill"  # of a systolic array: what stays shifts in
SKEW = "skew"  # of a systolic array: from the first element's first PE to the last one's last
DRAIN = "drain"  # of a systolic array: sums shift out
BEFORE = "passes before"
BETWEEN = "passes between"
AFTER = "passes after"
LAUNCHES = "launches"
#: Causes that fewer or smaller tiles would change, and those of kernels without products.
OF_TILES = (LAST_WAVE, UNEVEN, IDLE_CORES)
OF_PASSES = (BEFORE, BETWEEN, AFTER)
#: Causes that follow from the size of a systolic array and the tiles that its PEs hold.
OF_FOLDS = (FILL, SKEW, DRAIN)


@dataclass(frozen=True, slots=True)
class PartUse:
    """How busy one part is: the share of the whole time, over all cores of the device.

    kind: "matrix" (units), "elementwise", "copy" (an engine that copies within cores), "link" (from or to L2), "L2" or
    "DRAM". name: of the engine or link. share: busy time; of links, L2 and DRAM, bytes / rate / time.
    """

    kind: str
    name: str
    share: float


@dataclass(frozen=True, slots=True)
class TimeShares:
    """A time, divided. busy: share of all cores' time in which the matrix units work; padding: what part of it goes
    to the zeros of padded tiles. lost: the rest by cause; busy + lost add up to 1. parts: the busiest first.
    passes: {cause: names of such kernels}. engine: of the products. is_array: it is a systolic array, which works while
    elements enter (stream); its skew is lost, whichever operand stays. for_tile: share that it waits for the tile in
    its PEs.
    """

    busy: float
    padding: float
    lost: Mapping[str, float]
    parts: tuple[PartUse, ...]
    passes: Mapping[str, tuple[str, ...]]
    engine: str
    is_array: bool = False
    for_tile: float = 0.0

    @property
    def tiles(self) -> float:
        """The share that is lost because there are too few tiles for the cores, or uneven ones."""
        return sum(self.lost.get(cause, 0.0) for cause in OF_TILES)

    @property
    def waits(self) -> float:
        """The share in which matrix units of cores with tiles wait, for all but parts of folds."""
        aside = (*OF_TILES, *OF_PASSES, *OF_FOLDS, LAUNCHES)
        return sum(share for cause, share in self.lost.items() if cause not in aside)

    @property
    def folds(self) -> float:
        """The share in which systolic arrays fill, drain, or have their skew."""
        return sum(self.lost.get(cause, 0.0) for cause in OF_FOLDS)

    @property
    def works_more_than_it_waits(self) -> bool:
        """Whether matrix units of cores with tiles work for longer than they wait: then more cores would help."""
        return self.busy + self.folds >= self.waits


def time_shares(
    timed: Timing, program: Program, chip: Device, *, tiles: Mapping[str, tuple[int, int]], launch_cycles: float = 0.0
) -> TimeShares:
    """The shares of a timed program's time.

    tiles: {kernel: (tiles of C, cores with a tile)}, where they are known. launch_cycles: of all launches, where the
    time has them.
    """
    roles = [_engines(kernel) for kernel in program.kernels]
    multiplying = [i for i, engines_of in enumerate(roles) if engines_of["matrix"]]
    total = chip.cores * (timed.cycles + launch_cycles)
    cycles = defaultdict[str, float](float, {LAUNCHES: chip.cores * launch_cycles})
    passes: dict[str, tuple[str, ...]] = {}
    busy, for_tile, engines = 0.0, 0.0, defaultdict[str, float](float)
    streams: dict[int, float] = {}  # cycles in which systolic arrays work, by kernel
    for i, (kernel, kernel_time) in enumerate(zip(program.kernels, timed.kernels, strict=True)):
        matrix = roles[i]["matrix"]
        if not matrix:
            cause = BEFORE if not multiplying or i < multiplying[0] else AFTER if i > multiplying[-1] else BETWEEN
            cycles[cause] += chip.cores * kernel_time.cycles
            passes[cause] = (*passes.get(cause, ()), kernel_time.name)
            continue
        engine = _busiest(kernel_time, matrix)
        stalls = _stalls(kernel_time, engine, chip, _accumulators(kernel), tiles)
        working = kernel_time.engines[engine].busy_cycles
        if (unit := _array_unit(kernel, chip)) is not None:
            working = _streaming(kernel_time, engine, unit)
            for_tile += _tile_waits(kernel_time, engine)
            _divide_folds(stalls, kernel_time, engine, chip, unit, tiles.get(kernel_time.name, (0, 0))[0], working)
            streams[i] = working
        engines[engine] += working
        busy += working
        for cause, value in stalls.items():
            cycles[cause] += value
    return TimeShares(
        busy=busy / total if total else 0.0,
        padding=1 - timed.macs / timed.padded_macs if timed.padded_macs else 0.0,
        lost={cause: value / total for cause, value in sorted(cycles.items(), key=lambda item: -item[1]) if value > 0},
        parts=tuple(sorted(_parts(timed, roles, chip, total, streams), key=lambda part: -part.share)),
        passes=passes,
        engine=max(engines, key=lambda name: engines[name], default=""),
        is_array=bool(streams),
        for_tile=for_tile / total if total else 0.0,
    )


def _stalls(
    kernel_time: KernelTime,
    engine: str,
    chip: Device,
    accumulators: set[str],
    tiles: Mapping[str, tuple[int, int]],
) -> dict[str, float]:
    """Core cycles of a kernel in which the matrix units do not work, by cause."""
    cycles = defaultdict[str, float](float, {IDLE_CORES: (chip.cores - kernel_time.cores) * kernel_time.cycles})
    for stall, value in kernel_time.engines[engine].stall_cycles.items():
        buffer, _, state = stall.removeprefix("semaphore:").rpartition(".")
        if stall == "empty":
            start = min(value, (chip.core_start_us or 0.0) * chip.clock_mhz * kernel_time.cores)
            cycles[START] += start
            cycles[ISSUE] += value - start
        elif stall == "queue-full":
            cycles[ISSUE] += value
        elif stall == "in-flight":
            cycles[IN_FLIGHT] += value
        elif stall == "done":
            last = min(value, kernel_time.after_last_cycles.get(engine, 0.0) * kernel_time.cores)
            count, cores = tiles.get(kernel_time.name, (0, 0))
            is_wave = count > cores > 0 and count % cores != 0
            cycles[LAST_EPILOGUE] += last
            cycles[LAST_WAVE if is_wave else UNEVEN] += value - last
        elif state == "free":
            cycles[EPILOGUE] += value
        else:
            cycles[SUMS if buffer in accumulators else OPERANDS] += value
    return cycles


def skew_cycles(timed: Timing, program: Program, chip: Device) -> dict[str, float]:
    """{engine of a systolic array: core cycles of its instructions in which no element enters}, above 0."""
    cycles = defaultdict[str, float](float)
    for kernel, kernel_time in zip(program.kernels, timed.kernels, strict=True):
        if (unit := _array_unit(kernel, chip)) is not None:
            engine = _busiest(kernel_time, _engines(kernel)["matrix"])
            cycles[engine] += kernel_time.engines[engine].busy_cycles - _streaming(kernel_time, engine, unit)
    return {engine: value for engine, value in cycles.items() if value > 0}


def _busiest(kernel_time: KernelTime, engines: set[str]) -> str:
    return max(sorted(engines), key=lambda name: kernel_time.engines[name].busy_cycles)


def _streaming(kernel_time: KernelTime, engine: str, unit: InstructionModel) -> float:
    """Core cycles in which elements enter a systolic array."""
    return min(kernel_time.engines[engine].busy_cycles, float(kernel_time.padded_macs / unit.macs_per_cycle))


def _array_unit(kernel: Kernel, chip: Device) -> InstructionModel | None:
    """The instruction of a kernel that multiplies on a systolic array; None where none does."""
    units = sorted({instr.unit for instr in kernel.instrs() if instr.unit is not None})
    models = [model for unit in units if (model := find(chip, unit)) is not None and is_of_array(model)]
    return models[0] if models else None


def _tile_waits(kernel_time: KernelTime, engine: str) -> float:
    stalls = kernel_time.engines[engine].stall_cycles
    return sum(value for cause, value in stalls.items() if cause in (f"semaphore:{PE}.full", f"semaphore:{PE}.free"))


def _divide_folds(
    stalls: dict[str, float],
    kernel_time: KernelTime,
    engine: str,
    chip: Device,
    unit: InstructionModel,
    tiles: int,
    working: float,
) -> None:
    """Name fill, skew and drain among the stalls. working: cycles in which elements enter.

    The skew is in the instruction where sums leave the PEs (overhead_cycles), and else what a tile of C waits for after
    its last instruction (drain_cycles); fill and drain are no longer than their engines are busy.
    """
    waits = kernel_time.engines[engine].stall_cycles
    filled = _busy(kernel_time, {link.engine for link in chip.links.values() if link.target == PE})
    drained = _busy(kernel_time, {link.engine for link in chip.links.values() if link.source == PE})
    skew = 0.0 if unit.timing is None else unit.timing.drain_cycles * tiles
    _take(stalls, SKEW, kernel_time.engines[engine].busy_cycles - working)
    for source, most in ((EPILOGUE, waits.get(f"semaphore:{PE}.free", 0.0)), (LAST_EPILOGUE, stalls[LAST_EPILOGUE])):
        of_skew = _take(stalls, SKEW, min(skew, most), source)
        of_drain = _take(stalls, DRAIN, min(drained, most - of_skew), source)
        skew, drained = skew - of_skew, drained - of_drain
    _take(stalls, FILL, min(filled, waits.get(f"semaphore:{PE}.full", 0.0)), OPERANDS)


def _busy(kernel_time: KernelTime, engines: set[str]) -> float:
    return sum(kernel_time.engines[name].busy_cycles for name in engines if name in kernel_time.engines)


def _take(stalls: dict[str, float], cause: str, cycles: float, source: str = "") -> float:
    """Give cycles to a cause, from another one where there is a source; returns them."""
    stalls[cause] += cycles
    if source:
        stalls[source] -= cycles
    return cycles


def _engines(kernel: Kernel) -> dict[str, set[str]]:
    """Engines of a kernel that multiply, that compute elements, and that copy within cores alone."""
    matrix, elementwise, copies, shared = set(), set(), set(), set()
    for instr in kernel.instrs():
        if instr.opcode == "mma":
            matrix.add(instr.engine)
        elif any(isinstance(tile, GlobalTile) for tile in (*instr.writes, *instr.reads)):
            shared.add(instr.engine)
        elif instr.opcode == "copy":
            copies.add(instr.engine)
        elif instr.opcode != "sync":
            elementwise.add(instr.engine)
    copies -= matrix | elementwise | shared
    return {"matrix": matrix, "elementwise": elementwise - matrix - shared, "copy": copies}


def _accumulators(kernel: Kernel) -> set[str]:
    return {
        tile.buffer
        for instr in kernel.instrs()
        if instr.opcode == "mma"
        for tile in instr.writes
        if isinstance(tile, LocalTile)
    }


def _parts(
    timed: Timing,
    roles: Sequence[Mapping[str, set[str]]],
    chip: Device,
    total: float,
    streams: Mapping[int, float],
) -> Iterable[PartUse]:
    """The parts of the device that had work. streams: cycles in which systolic arrays work, by kernel."""
    if not total:
        return
    busy = defaultdict[tuple[str, str], float](float)
    for i, (engines_of, kernel_time) in enumerate(zip(roles, timed.kernels, strict=True)):
        for kind, names in engines_of.items():
            for name in names:
                of_array = streams.get(i) if kind == "matrix" else None
                busy[kind, name] += kernel_time.engines[name].busy_cycles if of_array is None else of_array
    for (kind, name), cycles in busy.items():
        yield PartUse(kind, name, cycles / total)
    moved, seconds = timed.traffic_bytes, total / chip.cores / (chip.clock_mhz * 1e6)
    for name, link in chip.links.items():
        if moved.get(name) and "GM" in (link.source, link.target):
            yield PartUse("link", name, moved[name] / _link_rate(link) / total)
    if chip.l2 is not None:
        read, write = chip.l2.bytes_per_second, chip.l2.write_bytes_per_second or chip.l2.bytes_per_second
        taken = moved.get("L2 read", 0) / read + moved.get("L2 write", 0) / write
        yield PartUse("L2", "L2", taken / seconds)
    if chip.hbm is not None:
        yield PartUse("DRAM", "DRAM", moved_bytes(moved, "HBM") / chip.hbm.bytes_per_second / seconds)


def _link_rate(link: LinkModel) -> float:
    return float(link.bytes_per_cycle) / float(link.conflict_factor or 1)
