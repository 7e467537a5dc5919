"""Writes a trace's events in Perfetto's own form, protocol buffers, which ui.perfetto.dev opens. It knows events and
that form only.

The form is written here byte by byte, because it needs little: numbers as varints, texts with their length, messages
within messages. Names are given a number the first time, and are numbers from then on. Cores are processes, engines
threads; what is in flight is on tracks below its engine's. A cycle is a nanosecond, as hwsim.trace.events says.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import IO, Any

from hwsim.trace.events import Counter, Event, Point, Process, Slice, Track, events
from hwsim.trace.rows import TraceRows

BYTES_PER_WRITE = 1 << 18
TEXTS = 1 << 16  # values that are given a number, at most: what memory they take is bounded
PROCESS_TRACKS = 1 << 48  # tracks of processes, beyond all others

# Numbers of fields, by message, as Perfetto's protos/perfetto/trace gives them.
PACKET = 1  # of the whole file
TIMESTAMP, SEQUENCE, TRACK_EVENT, INTERNED, SEQUENCE_FLAGS, TRACK_DESCRIPTOR = 8, 10, 11, 12, 13, 60  # of a packet
UUID, TRACK_NAME, PROCESS, THREAD, PARENT, COUNTER = 1, 2, 3, 4, 5, 8  # of a track's descriptor
PID, PROCESS_NAME, TID, THREAD_NAME, UNIT_NAME = 1, 6, 2, 5, 6  # of those of processes, threads and counters
ANNOTATION, TYPE, NAME_IID, TRACK_UUID, VALUE, FLOW, LAST_FLOW = 4, 9, 10, 11, 44, 47, 48  # of a track event
ANNOTATION_NAME, INTEGER, DOUBLE, TEXT, TEXT_IID = 1, 4, 5, 6, 17  # of a debug annotation
EVENT_NAMES, ANNOTATION_NAMES, ANNOTATION_TEXTS, IID, CONTENT = 2, 3, 29, 1, 2  # of interned data
BEGIN, END, POINT = 1, 2, 4  # types of track events
NEW_STATE, NEEDS_STATE = 1, 2  # flags of a sequence
VARINT, FIXED64, LENGTH = 0, 1, 2  # wire types


def write(trace: TraceRows, file: IO[bytes], progress: Callable[[float], Any] | None = None) -> None:
    """Write `trace` to a binary file. progress: called with the share done."""
    packets = _Packets()
    pending = bytearray()
    for event in events(trace, progress):
        packets.add(pending, event)
        if len(pending) >= BYTES_PER_WRITE:
            file.write(pending)
            pending.clear()
    file.write(pending)


_LAST, _MORE = ([bytes((x | more,)) for x in range(0x80)] for more in (0, 0x80))


def varint(value: int) -> bytes:
    """A number of at most 64 bits, seven bits to a byte, the lowest first; a negative one as its two's complement."""
    if 0 <= value < 0x80:
        return _LAST[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = b""
    while value >= 0x80:
        out += _MORE[value & 0x7F]
        value >>= 7
    return out + _LAST[value]


def _key(field: int, wire: int) -> bytes:
    return varint(field << 3 | wire)


def _number(field: int, value: int) -> bytes:
    return _key(field, VARINT) + varint(value)


def _message(field: int, content: bytes) -> bytes:
    return _key(field, LENGTH) + varint(len(content)) + content


_STATE = _number(SEQUENCE, 1) + _number(SEQUENCE_FLAGS, NEEDS_STATE)
_BEGIN, _END, _POINT = (_number(TYPE, kind) for kind in (BEGIN, END, POINT))
_AT, _INTEGER, _DOUBLE = _key(TIMESTAMP, VARINT), _key(INTEGER, VARINT), _key(DOUBLE, FIXED64)
_FILE, _EVENT, _ANNOTATION = _key(PACKET, LENGTH), _key(TRACK_EVENT, LENGTH), _key(ANNOTATION, LENGTH)
_FLOW, _LAST_FLOW = _key(FLOW, FIXED64), _key(LAST_FLOW, FIXED64)
_PACK_DOUBLE, _PACK_FIXED = struct.Struct("<d").pack, struct.Struct("<Q").pack


class _Packets:
    """Packets of one sequence: what has a number so far."""

    def __init__(self) -> None:
        self.events: dict[str, bytes] = {}
        self.annotations: dict[str, bytes] = {}
        self.texts: dict[str, bytes] = {}
        self.tracks: dict[int, tuple[bytes, bytes]] = {}  # how an event begins a slice; what ends one
        self.points: dict[int, bytes] = {}
        self.fresh = bytearray()  # interned data of the packet being made
        self.first = True

    def add(self, out: bytearray, event: Event) -> None:
        """Append the packets of an event."""
        match event:
            case Slice():
                self._slice(out, event)
            case Point(_, number, _, _, time, value):
                head = self.points.get(number)
                if head is None:
                    body = _POINT + _number(TRACK_UUID, number) + _key(VALUE, FIXED64)
                    head = self.points[number] = _STATE + _EVENT + varint(len(body) + 8) + body
                _packet(out, _AT + varint(time) + head + _PACK_DOUBLE(value))
            case Process(pid, name):
                about = _number(PID, pid) + _message(PROCESS_NAME, name.encode())
                self._descriptor(out, PROCESS_TRACKS + pid, _message(PROCESS, about))
            case Track(pid, number, name, None):
                about = _number(PID, pid) + _number(TID, number) + _message(THREAD_NAME, name.encode())
                self._descriptor(out, number, _number(PARENT, PROCESS_TRACKS + pid) + _message(THREAD, about))
            case Track(_, number, name, parent):
                self._descriptor(out, number, _number(PARENT, parent or 0) + _message(TRACK_NAME, name.encode()))
            case Counter(pid, number, name, unit):
                about = _number(PARENT, PROCESS_TRACKS + pid) + _message(TRACK_NAME, name.encode())
                self._descriptor(out, number, about + _message(COUNTER, _message(UNIT_NAME, unit.encode())))

    def _descriptor(self, out: bytearray, uuid: int, about: bytes) -> None:
        flags = NEW_STATE | NEEDS_STATE if self.first else NEEDS_STATE
        self.first = False
        head = _number(SEQUENCE, 1) + _number(SEQUENCE_FLAGS, flags)
        _packet(out, head + _message(TRACK_DESCRIPTOR, _number(UUID, uuid) + about))

    def _slice(self, out: bytearray, piece: Slice) -> None:
        track = self.tracks.get(piece.track)
        if track is None:
            uuid = _number(TRACK_UUID, piece.track)
            track = self.tracks[piece.track] = _BEGIN + uuid, _STATE + _message(TRACK_EVENT, _END + uuid)
        event = bytearray(track[0])
        event += self.events.get(piece.name) or self._known(self.events, EVENT_NAMES, NAME_IID, piece.name)
        for name, value in piece.values.items():
            note = self.annotations.get(name) or self._known(self.annotations, ANNOTATION_NAMES, ANNOTATION_NAME, name)
            if isinstance(value, int):
                note += _INTEGER + varint(value)
            elif isinstance(value, float):
                note += _DOUBLE + _PACK_DOUBLE(value)
            elif value in self.texts or len(self.texts) < TEXTS:
                note += self._known(self.texts, ANNOTATION_TEXTS, TEXT_IID, value)
            else:
                note += _message(TEXT, value.encode())
            event += _ANNOTATION + varint(len(note)) + note
        if piece.flow:
            event += _FLOW + _PACK_FIXED(piece.flow)
        if piece.arrives:
            event += _LAST_FLOW + _PACK_FIXED(piece.arrives)
        begin = _EVENT + varint(len(event)) + event
        if self.fresh:
            begin = _message(INTERNED, bytes(self.fresh)) + begin
            self.fresh.clear()
        _packet(out, _AT + varint(piece.start) + _STATE + begin)
        _packet(out, _AT + varint(piece.end) + track[1])

    def _known(self, table: dict[str, bytes], kind: int, field: int, text: str) -> bytes:
        """The field that names `text` by its number, which it is given here the first time."""
        reference = table.get(text)
        if reference is None:
            number = len(table) + 1
            self.fresh += _message(kind, _number(IID, number) + _message(CONTENT, text.encode()))
            reference = table[text] = _number(field, number)
        return reference


def _packet(out: bytearray, content: bytes) -> None:
    out += _FILE + varint(len(content)) + content
