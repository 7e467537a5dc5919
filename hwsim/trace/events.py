"""Events of a trace as timelines show them: tracks, slices, counters, flows. It knows rows, and no file format.

One cycle is shown as one nanosecond (the name of each process says so, and gives the clock), because scaling by the
clock would round different times to the same one. Times below a cycle are truncated to whole cycles, all in the same
way, so that slices of one track never overlap.

A process is one kind of core. Its tracks: the kernels; each engine's occupancy (an engine does one thing at a time, so
these never overlap); and, since an instruction may complete after its engine has gone on, the instructions still in
flight, on as many tracks as there are such at once. Its counters: bytes in flight to and from global memory, their
bandwidth (each transfer's bytes spread evenly over its time), and the slots of each buffer that are
taken (where the trace begins later, counted from there). A flow goes from the
instruction whose signal ended a wait to the one that waited.

Rows are read twice, in blocks: once for what is there, once for the events. What is held in between does not grow with
the number of rows, but for two bytes for each instruction that was started meanwhile.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwsim.trace.levels import RunningLevel
from hwsim.trace.rows import TraceRows

BLOCK = 1 << 14  # rows
NEVER = 1 << 62
SLOTS = 1 << 10  # tracks of one engine, at most, in their order
FLIGHT, BANDWIDTH = "bytes in flight", "global memory bandwidth"


class Process(NamedTuple):
    """A kind of core. pid counts from 1."""

    pid: int
    name: str


class Track(NamedTuple):
    """A line of slices. number: of its own over all processes, in the order of display; parent: of the engine's track
    where it shows what is in flight, else None.
    """

    pid: int
    number: int
    name: str
    parent: int | None


class Counter(NamedTuple):
    """A curve. number: as a track's."""

    pid: int
    number: int
    name: str
    unit: str


class Slice(NamedTuple):
    """Something on a track from one time to another, in whole cycles. flow: the flow that leaves here, arrives: the one
    that comes in; 0: none.
    """

    pid: int
    track: int
    name: str
    start: int
    end: int
    values: dict[str, Any]
    flow: int
    arrives: int


class Point(NamedTuple):
    """The value of a counter from a time on, in whole cycles."""

    pid: int
    counter: int
    name: str
    unit: str
    time: int
    value: float


Event = Process | Track | Counter | Slice | Point


def events(trace: TraceRows, progress: Callable[[float], Any] | None = None) -> Iterator[Event]:
    """All events; a process, track or counter comes before what is on it. progress: called with the share done."""
    seen = _Survey(trace)
    cores: dict[int, _CoreEvents] = {}
    for pid, core in enumerate(sorted(seen.cores), 1):
        cores[core] = _CoreEvents(trace, pid, pid << 20)
        about = f"{trace.device} at {trace.clock_mhz:g} MHz, 1 ns shown is 1 cycle"
        yield Process(pid, f"{_name_of(core, seen.cores[core])} ({about})")
        yield Track(pid, pid << 20, "kernel", None)
        for (of, kernel), (first, last, count) in seen.kernels.items():
            if of == core:
                name = trace.names["kernel"][kernel]
                yield Slice(
                    pid=pid,
                    track=pid << 20,
                    name=name,
                    start=first,
                    end=last,
                    values={"instructions": count},
                    flow=0,
                    arrives=0,
                )
        for engine in sorted(engine for of, engine in seen.engines if of == core):
            yield Track(pid, cores[core].track(engine), trace.names["engine"][engine], None)
    for number, part in enumerate(trace.blocks(BLOCK, progress)):
        present = np.unique(part.rows["core"]).tolist()
        tiles = np.array(part.tiles(), object)
        flows = seen.flows(part.rows)
        for core in present:
            of_core = part.rows["core"] == core
            yield from cores[core].slices(
                part.rows[of_core], tiles[of_core].tolist(), [flow[of_core].tolist() for flow in flows]
            )
            cores[core].note(part.rows[of_core])
        for here in cores.values():
            yield from here.points(seen.earliest[number + 1])


def _name_of(core: int, counts: set[int]) -> str:
    if len(counts) > 1:
        return f"core {core} and those that do the same"
    count = next(iter(counts))
    return f"core {core}" if count == 1 else f"core {core}, as cores {core} to {core + count - 1}"


class _Survey:
    """What is in a trace: cores, engines, kernels with their times, which instructions' signals ended waits, and the
    earliest time in each block and those behind it.
    """

    def __init__(self, trace: TraceRows) -> None:
        self.cores: dict[int, set[int]] = {}
        self.engines: set[tuple[int, int]] = set()
        self.kernels: dict[tuple[int, int], tuple[int, int, int]] = {}
        earliest = []
        self.first, last = NEVER, -1
        for part in trace.blocks(BLOCK):
            rows = part.rows
            for core, count in np.unique(rows[["core", "cores"]]).tolist():
                self.cores.setdefault(core, set()).add(count)
            self.engines |= set(np.unique(rows[["core", "engine"]]).tolist())
            for key in np.unique(rows[["core", "kernel"]]).tolist():
                own_rows = rows[(rows["core"] == key[0]) & (rows["kernel"] == key[1])]
                first, end, count = self.kernels.get(key, (NEVER, 0, 0))
                span = min(first, int(own_rows["issue"].min())), max(end, int(own_rows["end"].max()))
                self.kernels[key] = *span, count + len(own_rows)
            earliest.append(int(rows["start"].min()))
            self.first, last = min(self.first, int(rows["number"].min())), max(last, int(rows["number"].max()))
        if last < 0:
            self.first = 0
        least = np.minimum.accumulate(np.array([*earliest, NEVER])[::-1])[::-1]
        self.earliest: list[int] = least.tolist()
        present, signalled = np.zeros((2, last + 2 - self.first), bool)
        for part in trace.blocks(BLOCK):
            present[part.rows["number"] - self.first] = True
            signalled[self._places(part.rows["signaller"], len(signalled))] = True
        signalled[-1] = False
        self.both = present & signalled

    def _places(self, numbers: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        """Places of instructions in `both`; the last, always False, for one outside the trace."""
        places: NDArray[np.int64] = numbers - self.first
        places[(places < 0) | (places >= length)] = length - 1
        return places

    def flows(self, rows: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of each row the flow that leaves and the one that comes in; 0: none. A flow is its signaller's number + 1."""
        flow_numbers = []
        for name in ("number", "signaller"):
            is_flow = self.both[self._places(rows[name], len(self.both))]
            flow_numbers.append(np.where(is_flow, rows[name] + 1, 0))
        return flow_numbers[0], flow_numbers[1]


class _CoreEvents:
    """Events of one kind of core; `number` is its first track's."""

    def __init__(self, trace: TraceRows, pid: int, number: int) -> None:
        self.trace, self.pid, self.number = trace, pid, number
        self.flights: dict[int, list[tuple[int, int]]] = {}  # by engine: when each track is empty, its number
        self.levels: dict[tuple[str, str], RunningLevel] = {}
        self.counters: dict[str, int] = {}

    def track(self, engine: int) -> int:
        return self.number + SLOTS * (engine + 1)

    def slices(self, rows: NDArray[Any], tiles: list[str], flows: list[list[int]]) -> Iterator[Event]:
        """Slices of consecutive rows of this core."""
        names = self.trace.names
        opcodes, labels, causes = names["opcode"], [*names["label"], ""], [*names["waited_for"], ""]
        fields = ("engine", "opcode", "label", "waited_for", "issue", "start", "free", "end", "bytes", "macs", "instr")
        columns = [rows[name].tolist() for name in fields]
        for engine, opcode, label, cause, issue, start, free, end, size, macs, instr, tile, leaves, arrives in zip(
            *columns, tiles, *flows, strict=True
        ):
            title = f"{opcodes[opcode]} {labels[label]}".rstrip()
            moved: dict[str, Any] = {"tile": tile}
            if size:
                moved["bytes"] = size
            if macs:
                moved["macs"] = macs
            values = dict(moved)
            if causes[cause]:
                values["waited for"] = causes[cause]
            values |= {"issued": issue, "complete": end, "instruction": instr}
            yield Slice(
                pid=self.pid,
                track=self.track(engine),
                name=title,
                start=int(start),
                end=int(free),
                values=values,
                flow=leaves,
                arrives=arrives,
            )
            if int(end) > int(free):
                flights = self.flights.setdefault(engine, [])
                if flights and flights[0][0] <= int(free):
                    number = heapq.heappop(flights)[1]
                else:
                    number = self.track(engine) + len(flights) + 1
                    name = f"{names['engine'][engine]} in flight {len(flights) + 1}"
                    yield Track(self.pid, number, name, self.track(engine))
                heapq.heappush(flights, (int(end), number))
                yield Slice(
                    pid=self.pid,
                    track=number,
                    name=title,
                    start=int(free),
                    end=int(end),
                    values=moved,
                    flow=0,
                    arrives=0,
                )

    def note(self, rows: NDArray[Any]) -> None:
        """Note what rows change in the counters."""
        moves = rows[(rows["array"] >= 0) & (rows["bytes"] > 0)]
        if len(moves):
            start, end = moves["start"].astype(np.int64), moves["end"].astype(np.int64)
            self._change(FLIGHT, "bytes", start, end, moves["bytes"].astype(float))
            rate = moves["bytes"] / np.maximum(moves["end"] - moves["start"], 1) * self.trace.clock_mhz / 1e3
            self._change(BANDWIDTH, "GB/s", start, end, rate)
        for kernel, instr in np.unique(rows[["kernel", "instr"]]).tolist():
            for buffer, change in self.trace.fills.get((kernel, instr), ()):
                instr_rows = rows[(rows["kernel"] == kernel) & (rows["instr"] == instr)]
                level = self.levels.setdefault((f"buffer {buffer}", "slots"), RunningLevel())
                times = instr_rows["start" if change > 0 else "end"].astype(np.int64)
                level.add(times, np.full(len(instr_rows), float(change)))

    def _change(
        self, name: str, unit: str, start: NDArray[np.int64], end: NDArray[np.int64], amount: NDArray[np.float64]
    ) -> None:
        level = self.levels.setdefault((name, unit), RunningLevel())
        level.add(np.concatenate([start, end]), np.concatenate([amount, -amount]))

    def points(self, until: int) -> Iterator[Event]:
        """Points of the counters before time `until`, as far as they are new."""
        for (name, unit), level in self.levels.items():
            for time, value in level.steps(until):
                if name not in self.counters:
                    self.counters[name] = self.number + len(self.counters) + 1
                    yield Counter(self.pid, self.counters[name], name, unit)
                yield Point(self.pid, self.counters[name], name, unit, time, value)
