"""Cycles of a record's program on its device, and quantities derived from them: time, rate, phases, engines,
traffic.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hwsim.analysis.run_records import EngineUse, Macs, Occupancy, Phase, TimingState
from hwsim.devices import find
from hwsim.devices.device import Device
from hwsim.machines import timing
from hwsim.machines.l2_state import DEFAULT
from hwsim.machines.load import under_load
from hwsim.machines.timing import Timing
from hwsim.program.identity_cache import IdentityCache
from hwsim.program.ir import Program

PROGRAMS = 32  # whose times are kept


@dataclass(frozen=True, slots=True)
class Times:
    """Times of all matrices of a batch; fields as in hwsim.result.Result. Empty, with a note, where there are none.

    program, chip, timed, unit, l2: what they were taken from (one program, at the clock under load, with L2 in that
    state before it), for traces. by_library: seconds, tflops and peak_fraction are with fitted times of a library's
    kernels; all else is the program's. launch_seconds: of them the launches, of a library's calls that have some.
    """

    note: str = ""
    cycles: int | None = None
    seconds: float | None = None
    tflops: float | None = None
    peak_fraction: float | None = None
    clock_mhz: float | None = None
    phases: list[Phase] = field(default_factory=list)
    engines: dict[str, EngineUse] = field(default_factory=dict)
    macs: Macs = field(default_factory=Macs)
    traffic_bytes: dict[str, int] = field(default_factory=dict)
    occupancy: list[Occupancy] = field(default_factory=list)
    program: Program | None = None
    chip: Device | None = None
    timed: Timing | None = None
    unit: str = ""
    l2: str = DEFAULT
    clock: str = ""  # where the clock is from; as of TimingState
    launches: bool = False
    by_library: bool = False
    launch_seconds: float = 0.0

    @property
    def program_seconds(self) -> float | None:
        """Seconds of the program's cycles, without launches; None where there are none."""
        if self.cycles is None or self.chip is None:
            return None
        return self.cycles / (self.chip.clock_mhz * 1e6)

    @property
    def beside_program(self) -> float:
        """By which share of the program's time a library's fitted time is longer, below 0 where it is shorter; both
        without launches.

        0 where the time is the program's.
        """
        program = self.program_seconds
        if not self.by_library or not program or not self.seconds:
            return 0.0
        return (self.seconds - self.launch_seconds) / program - 1


@dataclass(frozen=True, slots=True)
class TimedWork:
    """The timed work: sizes (m, n, k) of one matrix, products of pieces per product A B, number of matrices and of
    programs.

    unit: the matrix instruction whose peak rate is the reference.
    """

    sizes: tuple[int, int, int]
    products: float
    unit: str
    matrices: int = 1
    programs: int = 1


def times_of(
    program: Program, chip: Device, work: TimedWork, *, launch_overhead: bool = False, l2: str = DEFAULT
) -> Times:
    """Times at the clock that the chip sustains under this load. launch_overhead: seconds include that of every kernel.
    l2: the state of L2 before the run, by its name in hwsim.machines.l2_state.

    Raises UnsupportedError where launch_overhead is asked for and the device file gives none.
    """
    if launch_overhead:
        timing.launch_us(chip)
    given_mhz, clock = chip.clock_mhz, clock_source(chip)
    reason = timing.missing(chip, program)
    if reason is not None:
        return Times(reason)
    parts = _parts(program, chip, work.unit, l2)
    chip, timed = parts.chip, parts.timed
    hertz = chip.clock_mhz * 1e6
    seconds = timing.seconds(timed, chip, launch_overhead=launch_overhead)
    m, n, k = work.sizes
    tflops = 2 * m * n * k / seconds / 1e12
    model, fraction = find(chip, work.unit), None
    if model is not None and model.timing is not None:
        fraction = tflops / (2 * float(model.macs_per_cycle) * chip.cores * hertz / 1e12 / work.products)
    times = Times(
        note="",
        cycles=timed.cycles,
        seconds=seconds,
        tflops=tflops,
        peak_fraction=fraction,
        clock_mhz=chip.clock_mhz if chip.clock_mhz != given_mhz else None,
        phases=list(parts.phases),
        engines=dict(parts.engines),
        macs=parts.macs,
        traffic_bytes=dict(timed.traffic_bytes),
        occupancy=list(parts.occupancy),
        program=program,
        chip=chip,
        timed=timed,
        unit=work.unit,
        l2=l2,
        clock=clock,
        launches=launch_overhead,
    )
    return times if work.matrices == 1 else _of_a_stack(times, work.matrices, work.programs)


def clock_source(chip: Device) -> str:
    """Where the clock of a run on this chip is from, as of TimingState."""
    if chip.asked_mhz is not None:
        return "asked"
    return "under load" if chip.sustained_clock_mhz or chip.power_limit is not None else "device file"


def state_of(times: Times) -> TimingState | None:
    """What the times are of; None where there are none."""
    if times.seconds is None:
        return None
    chip = times.chip
    return TimingState(
        l2=times.l2,
        clock_mhz=times.clock_mhz or (None if chip is None else chip.clock_mhz),
        clock=times.clock,
        power_limit_w=chip.most_watts if chip is not None and times.clock == "under load" else None,
        kernels=[] if times.by_library else [phase.name for phase in times.phases],
        launches=times.launches,
        by_library=times.by_library,
    )


@dataclass(frozen=True, slots=True)
class TimedParts:
    """A timed program: the chip at its clock under load, the timing, and the records that a result shows of it."""

    chip: Device
    timed: Timing
    phases: tuple[Phase, ...]
    engines: dict[str, EngineUse]
    macs: Macs
    occupancy: tuple[Occupancy, ...]


_CACHE: IdentityCache[dict[tuple[str, str], TimedParts]] = IdentityCache(PROGRAMS, PROGRAMS)


def _parts(program: Program, chip: Device, unit: str, l2: str) -> TimedParts:
    """The parts of a program's times; a program that is asked for again is not timed again."""
    of_units = _CACHE.get(program, chip)
    if of_units is None:
        of_units = {}
        _CACHE.put(of_units, 1, program, chip)
    if (unit, l2) not in of_units:
        loaded, timed = under_load(program, chip, unit, l2=l2)
        hertz = loaded.clock_mhz * 1e6
        of_units[unit, l2] = TimedParts(
            chip=loaded,
            timed=timed,
            phases=tuple(Phase(kernel.name, kernel.cycles, kernel.cycles / hertz) for kernel in timed.kernels),
            engines={
                name: EngineUse(engine.busy_cycles, dict(engine.stall_cycles))
                for name, engine in timed.engines.items()
                if engine.busy_cycles or chip.special is None or name != chip.special.engine  # most kernels need none
            },
            macs=Macs(timed.macs, timed.padded_macs),
            occupancy=tuple(occupancy(program, loaded)),
        )
    return of_units[unit, l2]


def occupancy(program: Program, chip: Device) -> list[Occupancy]:
    """For each GEMM kernel: its tiles of C times slices of K, the cores with at least one, idle cores, and waves.

    tiles: of all cores, counted with edges. waves: tiles of the busiest core. A record without a mapping has none.
    """
    if program.gemm is None or program.gemm.mapping is None:
        return []
    problem, rows = program.gemm.problem, []
    slices = len(program.gemm.schedule.slice_lengths(problem.k)) if not program.gemm.parts else 1
    stack = problem.matrices if any(array.rows > problem.m for array in program.arrays if array.name == "C") else 1
    for mapping in program.gemm.mapping.kernels:
        kernel = next(
            (
                kernel_program
                for kernel_program in program.kernels
                if kernel_program.name.rpartition(".")[2] == mapping.name
            ),
            None,
        )
        if kernel is None:
            continue
        busy = sum(group.count for group in kernel.groups)
        tiles = -(-problem.m // mapping.tile.m) * -(-problem.n // mapping.tile.n) * stack * slices
        rows.append(
            Occupancy(
                kernel=kernel.name,
                tiles=tiles,
                cores=chip.cores,
                idle_cores=chip.cores - busy,
                waves=-(-tiles // max(busy, 1)),
                slices=slices if slices > 1 else None,
                memory_bytes=kernel.memory_bytes,
                capacity_bytes={name: chip.memories[name].capacity_bytes for name in kernel.memory_bytes},
            )
        )
    return rows


def _of_a_stack(times: Times, matrices: int, programs: int) -> Times:
    """Times of a batch of matrices from those of one of its programs, which run one after another."""
    assert times.cycles is not None and times.seconds is not None and times.tflops is not None
    rate = matrices // programs  # matrices in one program
    return replace(
        times,
        cycles=times.cycles * programs,
        seconds=times.seconds * programs,
        tflops=times.tflops * rate,
        peak_fraction=None if times.peak_fraction is None else times.peak_fraction * rate,
        phases=[Phase(phase.name, phase.cycles * programs, phase.seconds * programs) for phase in times.phases],
        engines={
            name: EngineUse(
                engine.busy_cycles * programs,
                {cause: cycles * programs for cause, cycles in engine.stall_cycles.items()},
            )
            for name, engine in times.engines.items()
        },
        macs=Macs(times.macs["useful"] * programs, times.macs["padded"] * programs),
        traffic_bytes={name: size * programs for name, size in times.traffic_bytes.items()},
    )
