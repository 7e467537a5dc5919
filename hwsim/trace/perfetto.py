"""Writes a trace as trace-event JSON, which ui.perfetto.dev and Chrome open. It knows rows and that format only.

One cycle is shown as one nanosecond (the name of each process says so, and gives the clock), because scaling by the
clock would round different times to the same one. Times below a cycle are truncated to whole cycles, all in the same
way, so that events on one track never overlap.

A process is one kind of core. Its tracks: the kernels; each engine's occupancy (an engine does one thing at a time, so
these never overlap); and, since an instruction may complete after its engine has gone on, the instructions still in
flight, on as many tracks as there are such at once (events on one track may nest, not overlap). A counter shows the
bytes in flight to and from global memory.
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.trace.rows import TraceRows

EVENTS_PER_WRITE = 4096
# Viewers take process 0 for the idle one, and the thread numbered as its process for the main one.
FIRST_TRACK = 1 << 20


def write(trace: TraceRows, file: IO[bytes]) -> None:
    """Write `trace` to a binary file."""
    head = {
        "displayTimeUnit": "ns",
        "otherData": {
            "device": trace.device,
            "clock_mhz": trace.clock_mhz,
            "time": "1 cycle is shown as 1 ns",
            "complete": trace.complete,
            "rows": len(trace),
        },
    }
    file.write(json.dumps(head)[:-1].encode() + b', "traceEvents": [\n')
    separator = b""
    events = _events(trace)
    while block := list(itertools.islice(events, EVENTS_PER_WRITE)):
        file.write(separator + ",\n".join(block).encode())
        separator = b",\n"
    file.write(b"\n]}\n")


def _events(trace: TraceRows) -> Iterator[str]:
    rows = trace.rows
    tiles = np.array([*trace.tiles(), ""], object)
    tracks = itertools.count(FIRST_TRACK)
    for pid, core in enumerate(np.unique(rows["core"]).tolist(), 1):
        here = np.flatnonzero(rows["core"] == core)
        about = f"{trace.device} at {trace.clock_mhz:g} MHz, 1 ns shown is 1 cycle"
        yield _name("process_name", pid, 0, f"{_cores(rows[here])} ({about})")
        yield from _kernels(trace, pid, tracks, rows[here])
        yield from _in_flight_bytes(pid, rows[here])
        for number, engine in enumerate(trace.names["engine"]):
            own = here[rows["engine"][here] == number]
            if len(own):
                own = own[np.argsort(rows["start"][own], kind="stable")]
                yield from _engine(trace, pid, tracks, engine, rows[own], tiles[own].tolist())


def _cores(rows: NDArray[Any]) -> str:
    first, counts = int(rows["core"][0]), np.unique(rows["cores"])
    if len(counts) > 1:
        return f"core {first} and those that do the same"
    return f"core {first}" if counts[0] == 1 else f"core {first}, as cores {first} to {first + counts[0] - 1}"


def _kernels(trace: TraceRows, pid: int, tracks: Iterator[int], rows: NDArray[Any]) -> Iterator[str]:
    track = next(tracks)
    yield from _track(pid, track, "kernel")
    for number, kernel in enumerate(trace.names["kernel"]):
        own = rows[rows["kernel"] == number]
        if len(own):
            yield _slice(pid, track, kernel, int(own["issue"].min()), int(own["end"].max()), {"instructions": len(own)})


def _in_flight_bytes(pid: int, rows: NDArray[Any]) -> Iterator[str]:
    moves = rows[(rows["array"] >= 0) & (rows["bytes"] > 0)]
    times = np.concatenate([moves["start"], moves["end"]]).astype(np.int64)
    steps = np.concatenate([moves["bytes"], -moves["bytes"]])
    unique, position = np.unique(times, return_inverse=True)
    level = np.cumsum(np.bincount(position, steps, len(unique))) if len(unique) else np.zeros(0)
    for time, value in zip(unique.tolist(), level.tolist(), strict=True):
        yield f'{{"ph":"C","pid":{pid},"name":"bytes in flight","ts":{_us(time)},"args":{{"bytes":{value:.0f}}}}}'


def _engine(
    trace: TraceRows, pid: int, tracks: Iterator[int], engine: str, rows: NDArray[Any], tiles: list[str]
) -> Iterator[str]:
    """Events of one engine of one core; rows in order of start."""
    track = next(tracks)
    yield from _track(pid, track, engine)
    free_slots: list[tuple[int, int]] = []  # of the tracks of what is in flight: when each is empty, its number
    columns = [rows[name].tolist() for name in ("issue", "start", "free", "end", "bytes", "macs", "instr")]
    names = [_named(trace, rows, field) for field in ("opcode", "label", "waited_for")]
    for issue, start, free, end, size, macs, instr, opcode, label, cause, tile in zip(
        *columns, *names, tiles, strict=True
    ):
        title = f"{opcode} {label}".rstrip()
        moved: dict[str, Any] = {"tile": tile} | {key: x for key, x in (("bytes", size), ("macs", macs)) if x}
        waited = {"waited for": cause} if cause else {}
        yield _slice(
            pid,
            track,
            title,
            int(start),
            int(free),
            moved | waited | {"issued": issue, "complete": end, "instruction": instr},
        )
        if int(end) > int(free):
            if free_slots and free_slots[0][0] <= int(free):
                slot = heapq.heappop(free_slots)[1]
            else:
                slot = next(tracks)
                yield from _track(pid, slot, f"{engine} in flight {len(free_slots) + 1}")
            heapq.heappush(free_slots, (int(end), slot))
            yield _slice(pid, slot, title, int(free), int(end), moved)


def _named(trace: TraceRows, rows: NDArray[Any], field: str) -> list[str]:
    names = trace.names[field]
    return [names[i] for i in rows[field].tolist()]


def _us(cycles: int) -> str:
    """A time in microseconds, the format's unit; three decimals are whole nanoseconds."""
    return f"{cycles // 1000}.{cycles % 1000:03d}"


def _slice(pid: int, tid: int, name: str, start: int, end: int, args: dict[str, Any]) -> str:
    return (
        f'{{"ph":"X","pid":{pid},"tid":{tid},"name":{json.dumps(name)},"ts":{_us(start)},'
        f'"dur":{_us(end - start)},"args":{json.dumps(args, separators=(",", ":"))}}}'
    )


def _name(kind: str, pid: int, tid: int, name: str) -> str:
    return json.dumps({"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": {"name": name}})


def _track(pid: int, tid: int, name: str) -> Iterator[str]:
    yield _name("thread_name", pid, tid, name)
    yield json.dumps({"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}})
