"""The timing machine: the cycles of a program on a device, and how each engine spends them.

It reads the same program as the functional machine and computes no values. The rules, which kernels_ext/src/engine.c
implements in integer ticks (TICKS_PER_CYCLE to a cycle):

* Kernels run one after another, each from a whole cycle on; all cores of a group do the same, and one represents them.
  Their streams begin `core_start_us` after the kernel, where the device file gives it.
* A stream issues in order. An instruction costs the stream its engine's issue cycles, then enters the
  engine's queue; the stream stalls while `queue_depth` instructions wait there (not counting the executing one), of
  which each wait and signal counts as one where the device's flags are queued. All streams for which there is room
  go on, by index.
* An engine executes its queue in order. The head starts when the engine is free and all its waits can be satisfied
  together. It occupies the engine, and completes `tail` after the occupancy has ended: latency apart from issue
  interval. Completions of one engine are in order; signals are given at completion.
* A copy to or from global memory progresses at the minimum of its link's rate and its fair share (max-min, all
  cores alike) of L2, which every byte crosses, and of HBM, which misses and write-backs cross; shares are
  recomputed whenever a transfer starts or ends. Its overhead comes before, its start-up latency after the transfer. Up
  to `deferred_write_bytes` of write-backs wait until HBM is idle.
* L2 holds sectors of 16 rows x 32 bytes, replaced by LRU or at random (kernels_ext/src/engine_l2.c). Cores of a
  group that read the same tile miss once; tiles whose address depends on the core are looked up core by core.
  A tile of a view (GlobalArray.of) crosses L2 whole at each read; its sectors are those of what is in memory.
  Its contents persist from kernel to kernel; what is dirty at the end of the program is not written back.
* At equal times: by group, completions before starts before issue, then by index. Two runs give the same ticks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from hwsim._kernels import engine
from hwsim._kernels.engine import TICKS_PER_CYCLE
from hwsim.devices import find
from hwsim.errors import DeadlockError, ProgramError, UnsupportedError
from hwsim.machines.cost import Free, latency_ticks, shared_rate
from hwsim.machines.l2_state import STATES
from hwsim.machines.recorder import TraceRecorder
from hwsim.machines.tables import CAUSES, KernelTables, tables_of, with_arrays
from hwsim.machines.trace_rows import TickRows, TraceWindow
from hwsim.program.flat import FlatKernel
from hwsim.program.ir import Kernel, Program
from hwsim.program.quick import quick
from hwsim.program.resolve import Scope

if TYPE_CHECKING:
    from hwsim.devices.device import Device

_Number = TypeVar("_Number", int, float)
_Key = TypeVar("_Key")
_COUNTERS = ("L2 read", "L2 write", "HBM read", "HBM write")


@quick
@dataclass(frozen=True, slots=True)
class EngineTime:
    """How an engine spent its time, in cycles (exact: ticks are binary fractions of a cycle).

    stall_cycles by cause: "semaphore:<name>" the head of the queue waited for it; "in-flight" too many bytes of its
    link were; "queue-full" nothing had been issued because the stream waited for room in another engine's queue;
    "empty" nothing had been issued for other reasons; "done" after its last instruction.
    busy_cycles + all stalls = the time looked at.
    """

    busy_cycles: float
    stall_cycles: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The timing of one kernel. `engines`: summed over its `cores` cores; `critical`: of one core of the group that
    ends last.

    streams: cycles, over all cores, that a stream waited for space in an engine's queue, by (stream, engine).

    traffic_bytes: payload by link name, and "L2 read", "L2 write", "HBM read", "HBM write", over all cores. macs:
    multiply-accumulates of elements; padded_macs: the unit's, with the zeros of padded blocks. instructions:
    executed, repeats counted once. after_last_cycles: by engine with work, from its last instruction on any core to
    the kernel's end.
    """

    name: str
    cycles: int
    cores: int
    engines: Mapping[str, EngineTime]
    critical: Mapping[str, EngineTime]
    streams: Mapping[tuple[str, str], float]
    traffic_bytes: Mapping[str, int]
    macs: int
    padded_macs: int
    instructions: int
    after_last_cycles: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Timing:
    """The timing of a program: cycles and other quantities, summed over its kernels."""

    cycles: int
    kernels: tuple[KernelTime, ...]
    engines: Mapping[str, EngineTime]
    streams: Mapping[tuple[str, str], float]
    traffic_bytes: Mapping[str, int]
    macs: int
    padded_macs: int
    instructions: int
    trace: TickRows | None


def missing(device: Device, program: Program | None = None) -> str | None:
    """The reason why `device` cannot give cycles (for `program`, if given), or None when it can."""
    for part, there in (("engines", device.engines), ("links", device.links), ("hbm", device.hbm)):
        if not there:
            return f"device {device.name} has no timing data: no {part}"
    units = sorted(program.units) if program else []
    for unit in units:
        model = find(device, unit)
        if model is None or model.timing is None:
            return f"device {device.name} has no timing data for instruction {unit}"
    return None


def run(
    program: Program,
    device: Device,
    *,
    trace: int = 0,
    window: TraceWindow | None = None,
    warm: int = 0,
    is_clean: bool = False,
    other: Collection[str] = (),
    write_back: bool = False,
    free: Free | None = None,
) -> Timing:
    """Time `program` on `device`, and record at most `trace` rows of a trace (0: none), of `window` (None: all).

    warm: how many times the program has run before, back to back: L2 holds what they left (0: it is empty).
    is_clean: HBM has all that those runs wrote: nothing in L2 is dirty.
    other: names of arrays of which those runs had others, equal in size (layers in turn have other weights).
    write_back: after the last kernel, what is dirty in L2 is written to HBM, as a kernel "write-back" of its own.
    free: says of an instruction, and the link it takes, whether it costs nothing but its bytes in L2 and HBM.
    Raises ProgramError for a deadlock, a semaphore that does not end at its initial value, or an instruction
    that the device has no link, operation or time for (see `missing`); MemoryError; ValueError beyond the
    engine's widths (kernels_ext/include/hw_engine.h).
    """
    tables = tables_of(program, device, free)
    places = [i for i, array in enumerate(program.arrays) if array.name in other] if warm else []
    machine = _machine(np.vstack([tables.arrays, tables.arrays[places]]) if places else tables.arrays, device)
    ready = [(kernel, kernel.cost_at(device)) for kernel in tables.kernels]
    before = [(with_arrays(kernel, places, len(tables.arrays)) if places else kernel, cost) for kernel, cost in ready]
    for _ in range(warm):
        for kernel, cost in before:
            _executed(kernel, cost, device, machine)
    if is_clean:
        machine.flush()
    recorder = TraceRecorder(program, device, trace, window or TraceWindow()) if trace else None
    kernels = []
    for kernel, cost in ready:
        outcome = _executed(kernel, cost, device, machine, recorder)
        kernels.append(_kernel_time(kernel, device, outcome))
    dirty, waiting = (machine.flush(), machine.waiting) if write_back else (0, 0)
    if dirty or waiting:
        kernels.append(_write_back(dirty, waiting, device))
    return Timing(
        cycles=sum(k.cycles for k in kernels),
        kernels=tuple(kernels),
        engines=_sum_engines([k.engines for k in kernels]),
        streams=_sum_counts([k.streams for k in kernels]),
        traffic_bytes=_sum_counts([k.traffic_bytes for k in kernels]),
        macs=sum(k.macs for k in kernels),
        padded_macs=sum(k.padded_macs for k in kernels),
        instructions=sum(k.instructions for k in kernels),
        trace=recorder.finish() if recorder is not None else None,
    )


def run_in(
    program: Program,
    device: Device,
    l2: str,
    *,
    trace: int = 0,
    window: TraceWindow | None = None,
    free: Free | None = None,
) -> Timing:
    """As `run`, with L2 in a state that has a name (hwsim.machines.l2_state)."""
    state = STATES[l2]
    return run(program, device, trace=trace, window=window, warm=state.runs_before, is_clean=state.is_clean, free=free)


def busy(program: Program, device: Device, engine_name: str) -> tuple[int, float]:
    """The cycles of `program`, run once with L2 empty, and those that an engine is busy, summed over all cores.

    Both as in `run`, without the rest of a Timing. Raises as `run`.
    """
    tables = tables_of(program, device)
    machine = _machine(tables.arrays, device)
    cycles, busy_cycles = 0, 0.0
    for kernel in tables.kernels:
        outcome = _executed(kernel, kernel.cost_at(device), device, machine)
        cycles += outcome["end"] // TICKS_PER_CYCLE
        if engine_name in kernel.engines:
            busy_ticks = int(outcome["account"][:, kernel.engines.index(engine_name), 0] @ kernel.counts)
            busy_cycles += busy_ticks / TICKS_PER_CYCLE
    return cycles, busy_cycles


def _machine(arrays: NDArray[np.int64], device: Device) -> engine.Machine:
    """The engine for a program's arrays: rates at the device's clock, L2 empty."""
    return engine.Machine(
        l2_capacity=device.l2.capacity_bytes if device.l2 else 0,
        l2_rate=shared_rate(device.l2.bytes_per_second, device) if device.l2 else 0,
        hbm_rate=shared_rate(device.hbm.bytes_per_second, device) if device.hbm else 0,
        has_hbm=device.hbm is not None,
        arrays=arrays,
        miss_ticks=latency_ticks(device.hbm.latency_ns, device) if device.hbm else 0,
        deferred_bytes=(device.l2.deferred_write_bytes or 0) if device.l2 else 0,
        l2_random=device.l2 is not None and device.l2.replacement == "random",
    )


def seconds(timing: Timing, device: Device, *, launch_overhead: bool = False) -> float:
    """The time in seconds at the device's clock; launch_overhead: including the device's time of launching each kernel.

    Raises UnsupportedError when the device file does not give that time.
    """
    time = timing.cycles / (device.clock_mhz * 1e6)
    return time + launch_seconds(timing, device) if launch_overhead else time


def moved_bytes(traffic_bytes: Mapping[str, int], memory: str) -> int:
    """The bytes read and written of "L2" or "HBM". traffic_bytes: as of `Timing`."""
    return sum(traffic_bytes.get(f"{memory} {way}", 0) for way in ("read", "write"))


def launch_seconds(timing: Timing, device: Device) -> float:
    """The seconds of launching every kernel of a timed program. Raises as `launch_us`."""
    return sum(kernel.cores > 0 for kernel in timing.kernels) * launch_us(device) * 1e-6


def launch_us(device: Device) -> float:
    """The microseconds of launching one kernel. Raises UnsupportedError when the device file does not give them."""
    if device.launch_overhead_us is None:
        raise UnsupportedError(f"device {device.name}: its file has no launch_overhead_us; leave launch_overhead out")
    return device.launch_overhead_us


def _write_back(dirty: int, waiting: int, device: Device) -> KernelTime:
    """The time HBM takes for `dirty` bytes and earlier evictions, as a kernel on no core."""
    rate = shared_rate(device.hbm.bytes_per_second, device) if device.hbm else 0
    busy = -(-(dirty + waiting << engine.RATE_BITS) // rate) if rate else 0
    nothing = {name: EngineTime(0.0, {}) for name in device.engines}
    traffic = {"HBM write": dirty} if device.hbm else {}
    return KernelTime(
        name="write-back",
        cycles=-(-busy // TICKS_PER_CYCLE),
        cores=0,
        engines=nothing,
        critical=nothing,
        streams={},
        traffic_bytes=traffic,
        macs=0,
        padded_macs=0,
        instructions=0,
    )


def _executed(
    tables: KernelTables,
    cost: NDArray[np.int64],
    device: Device,
    machine: engine.Machine,
    recorder: TraceRecorder | None = None,
) -> engine.Outcome:
    """Time one kernel, recorded by `recorder`; updates the state of L2."""
    late = round((device.core_start_us or 0.0) * device.clock_mhz) * TICKS_PER_CYCLE
    with_costs = tables.tables | {"cost": cost}
    if recorder is None:
        outcome = machine.run(with_costs, 0)
    else:
        outcome = machine.run(with_costs, *recorder.begin(tables, cost, late))
    if outcome["status"] == engine.TOO_LONG:
        raise ProgramError(
            f"kernel '{tables.kernel.name}': takes longer than the timing machine can count (some 2^46 cycles)"
        )
    _start_late(outcome, late)
    if recorder is not None:
        recorder.end(outcome)
    if outcome["status"] == engine.DEADLOCK:
        raise DeadlockError(_deadlock(tables.scope, tables.flat, outcome))
    if outcome["status"] == engine.LEAK:
        raise DeadlockError(_leak(tables.kernel, outcome))
    return outcome


def _kernel_time(tables: KernelTables, device: Device, outcome: engine.Outcome) -> KernelTime:
    kernel, counts = tables.kernel, tables.counts
    *moved, macs, padded_macs, instructions = (tables.sums @ outcome["executed"]).tolist()
    traffic = dict(zip(tables.links, moved, strict=True))
    for name, count in zip(_COUNTERS, outcome["counters"], strict=True):
        if count:
            traffic[name] = traffic.get(name, 0) + count
    account = outcome["account"]
    return KernelTime(
        name=kernel.name,
        cycles=outcome["end"] // TICKS_PER_CYCLE,
        cores=int(counts.sum()),
        engines=_engine_times(tables, device, (account * counts[:, None, None]).sum(axis=0)),
        critical=_engine_times(tables, device, account[int(outcome["group_end"].argmax())]),
        streams=_stream_times(kernel, tables.engines, outcome["stalled"]),
        traffic_bytes=traffic,
        macs=macs,
        padded_macs=padded_macs,
        instructions=instructions,
        after_last_cycles={
            name: int(account[:, place, CAUSES.index("done") + 1].min()) / TICKS_PER_CYCLE
            for place, name in enumerate(tables.engines)
        },
    )


def _start_late(outcome: engine.Outcome, start: int) -> None:
    """Shift the times of a kernel, which the engine counts from the streams' start, by `core_start_us` in ticks."""
    if not start:
        return
    outcome["end"] += start
    outcome["group_end"] += start
    outcome["account"][:, :, CAUSES.index("empty") + 1] += start


def _engine_times(tables: KernelTables, device: Device, account: NDArray[np.int64]) -> dict[str, EngineTime]:
    """Times of all engines of the device; `account` has the rows of those with work, and all rows have the same sum."""
    rows: list[list[int]] = account.tolist()
    times = {name: _engine_time(tables.causes, row) for name, row in zip(tables.engines, rows, strict=True)}
    idle = EngineTime(0.0, {"done": total / TICKS_PER_CYCLE} if (total := sum(rows[0])) else {})
    return {name: times.get(name, idle) for name in device.engines}


def _engine_time(causes: tuple[str, ...], row: list[int]) -> EngineTime:
    """The times of one engine. row: ticks that it was busy, then those of the stalls by cause."""
    busy_ticks, *stalled = row
    return EngineTime(
        busy_ticks / TICKS_PER_CYCLE, {causes[i]: t / TICKS_PER_CYCLE for i, t in enumerate(stalled) if t}
    )


def _stream_times(kernel: Kernel, engines: tuple[str, ...], stalled: NDArray[np.int64]) -> dict[tuple[str, str], float]:
    times: Counter[tuple[str, str]] = Counter()
    owners = [(group.count, stream.name) for group in kernel.groups for stream in group.streams]
    for (count, stream), row in zip(owners, stalled.tolist(), strict=True):
        for engine_name, ticks_waited in zip(engines, row, strict=True):
            if ticks_waited:
                times[stream, engine_name] += count * ticks_waited
    return {key: waited / TICKS_PER_CYCLE for key, waited in times.items()}


def _sum_engines(parts: list[Mapping[str, EngineTime]]) -> dict[str, EngineTime]:
    names = list(parts[0]) if parts else []
    return {
        name: EngineTime(
            sum(part[name].busy_cycles for part in parts),
            _sum_counts([part[name].stall_cycles for part in parts]),
        )
        for name in names
    }


def _sum_counts(parts: Sequence[Mapping[_Key, _Number]]) -> dict[_Key, _Number]:
    total: dict[_Key, _Number] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total[name] + value if name in total else value
    return total


def _cores(kernel: Kernel, group: int) -> str:
    first, count = kernel.groups[group].first, kernel.groups[group].count
    return f"core {first}" if count == 1 else f"cores {first} to {first + count - 1}"


def _deadlock(scope: Scope, flat: FlatKernel, outcome: engine.Outcome) -> str:
    kernel, instrs, lines = scope.kernel, flat.instrs, []
    for group, heads in enumerate(outcome["blocked"]):
        for index, semaphore in heads:
            if index < 0:
                continue
            needs = sum(w.count for w in instrs[index].waits if w.semaphore == kernel.semaphores[semaphore].name)
            lines.append(
                f"{scope.place(int(index), instrs[index])}, {_cores(kernel, group)}, waits for semaphore "
                f"'{kernel.semaphores[semaphore].name}': has {outcome['semaphore'][group, semaphore]}, needs {needs}"
            )
    return "deadlock: nothing can proceed.\n" + "\n".join(lines[:8])


def _leak(kernel: Kernel, outcome: engine.Outcome) -> str:
    lines = [
        f"kernel '{kernel.name}', {_cores(kernel, group)}: semaphore '{semaphore.name}' ends at {values[i]}, "
        f"began at {semaphore.initial}; every wait needs its signal"
        for group, values in enumerate(outcome["semaphore"])
        for i, semaphore in enumerate(kernel.semaphores)
        if values[i] != semaphore.initial
    ]
    return "semaphore leak:\n" + "\n".join(lines[:8])
