"""Writes a trace's events as trace-event JSON, which ui.perfetto.dev and Chrome open. It knows events and that format
only. A cycle is a nanosecond, as hwsim.trace.events says. A flow leaves in the last cycle of the slice that signals and
arrives at the start of the one that waits.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import IO, Any

from hwsim.trace.events import Counter, Point, Process, Slice, Track, events
from hwsim.trace.rows import TraceRows

EVENTS_PER_WRITE = 4096


def write(trace: TraceRows, file: IO[bytes], progress: Callable[[float], Any] | None = None) -> None:
    """Write `trace` to a binary file. progress: called with the share done."""
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
    lines = _lines(trace, progress)
    while block := list(itertools.islice(lines, EVENTS_PER_WRITE)):
        file.write(separator + ",\n".join(block).encode())
        separator = b",\n"
    file.write(b"\n]}\n")


def _lines(trace: TraceRows, progress: Callable[[float], Any] | None) -> Iterator[str]:
    for event in events(trace, progress):
        match event:
            case Slice():
                yield _slice(event)
                if event.flow:
                    yield _flow(event, "s", event.flow, max(event.start, event.end - 1))
                if event.arrives:
                    yield _flow(event, "f", event.arrives, event.start)
            case Point(pid, _, name, unit, time, value):
                shown = f"{value:.0f}" if value == int(value) else f"{value:.6g}"
                yield f'{{"ph":"C","pid":{pid},"name":"{name}","ts":{_us(time)},"args":{{"{unit}":{shown}}}}}'
            case Process(pid, name):
                yield _name("process_name", pid, 0, name)
            case Track(pid, number, name, _):
                yield _name("thread_name", pid, number, name)
                sort = {"sort_index": number}
                yield json.dumps({"ph": "M", "pid": pid, "tid": number, "name": "thread_sort_index", "args": sort})
            case Counter():
                pass  # its points name it


def _us(cycles: int) -> str:
    """A time in microseconds, the format's unit; three decimals are whole nanoseconds."""
    return f"{cycles // 1000}.{cycles % 1000:03d}"


def _slice(piece: Slice) -> str:
    return (
        f'{{"ph":"X","pid":{piece.pid},"tid":{piece.track},"name":{json.dumps(piece.name)},"ts":{_us(piece.start)},'
        f'"dur":{_us(piece.end - piece.start)},"args":{json.dumps(piece.values, separators=(",", ":"))}}}'
    )


def _flow(piece: Slice, phase: str, number: int, time: int) -> str:
    """The event that a flow begins ("s") or finishes ("f") with; it belongs to the slice around it."""
    around = ',"bp":"e"' if phase == "f" else ""
    return (
        f'{{"ph":"{phase}","cat":"flow","name":"signal","id":{number},"pid":{piece.pid},"tid":{piece.track},'
        f'"ts":{_us(time)}{around}}}'
    )


def _name(kind: str, pid: int, tid: int, name: str) -> str:
    return json.dumps({"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": {"name": name}})
