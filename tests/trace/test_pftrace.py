"""Perfetto's own form: by the rules of protocol buffers, read here; and with Perfetto's classes, where installed."""

import json
import os
import struct
from collections import Counter, defaultdict

import numpy as np
import pytest

import hwsim
from hwsim.api import program
from hwsim.machines import timing
from hwsim.trace import events
from hwsim.trace.pftrace import varint
from hwsim.trace.trace import Trace


@pytest.fixture(scope="module")
def trace():
    device, lowered = program(device="ascend910a", scheme="sgemm-cube", m=400, n=500, k=300, tile=(64, 32, 96))
    return Trace.of(timing.run(lowered, device, trace=Trace.LIMIT), device)


@pytest.fixture(scope="module")
def file(trace, tmp_path_factory):
    path = tmp_path_factory.mktemp("pf") / "t.pftrace"
    trace.to_pftrace(path)
    return path.read_bytes()


def fields(data):
    """(number, value) of each field of a message; a reader as short as the rules are."""
    at, found = 0, []

    def number():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 0:
            value = number()
        elif key & 7 == 1:
            value = struct.unpack_from("<Q", data, at)[0]
            at += 8
        else:
            assert key & 7 == 2
            size = number()
            value = data[at : at + size]
            assert len(value) == size
            at += size
        found.append((key >> 3, value))
    return found


def test_varints():
    for value in (0, 1, 127, 128, 300, 2**32, 2**63, 2**64 - 1):
        assert fields(b"\x08" + varint(value)) == [(1, value)]
    assert fields(b"\x08" + varint(-1)) == [(1, 2**64 - 1)]


def test_every_slice_and_flow_is_there(trace, file):
    kinds, begun, leaving, arriving = Counter(), Counter(), set(), []
    for number, packet in fields(file):
        assert number == 1
        for name, value in fields(packet):
            if name == 11:
                event = fields(value)
                kind = dict(event)[9]
                kinds[kind] += 1
                begun[dict(event)[11]] += {1: 1, 2: -1}.get(kind, 0)
                leaving |= {x for of, x in event if of == 47}
                arriving += [x for of, x in event if of == 48]
    rows = trace.rows
    late = (rows["end"].astype(int) > rows["free"].astype(int)).sum()
    kernels = len(np.unique(rows[["kernel", "core"]]))
    assert kinds[1] == kinds[2] == len(trace) + late + kernels
    assert set(begun.values()) == {0}
    assert Counter(arriving) == Counter((rows["signaller"][rows["signaller"] >= 0] + 1).tolist())
    assert leaving == set(arriving) and len(leaving) > 50


def test_a_wait_ends_when_its_signaller_is_complete(trace):
    rows, place = trace.rows, {number: i for i, number in enumerate(trace.rows["number"].tolist())}
    assert len(place) == len(rows)
    waiting = np.flatnonzero(rows["signaller"] >= 0)
    before = np.array([place[number] for number in rows["signaller"][waiting].tolist()])
    assert (rows["end"][before] == rows["start"][waiting]).all()
    assert (rows["core"][before] == rows["core"][waiting]).all()
    causes = trace.column("waited_for")
    assert ((rows["signaller"] >= 0) == ~np.isin(causes, ["", "empty", "queue-full", "in-flight"])).all()


def test_flows_of_a_part_stay_inside(trace, tmp_path):
    part = Trace(trace.rows[100:300], trace.names, "chip", 1000.0, False, trace.fills)
    found = [one for one in events.events(part) if isinstance(one, events.Slice)]
    arriving = {one.arrives for one in found} - {0}
    assert arriving == {one.flow for one in found} - {0} and arriving
    assert arriving <= set((part.rows["number"] + 1).tolist())


def test_json_has_the_same_flows(trace, tmp_path):
    trace.to_perfetto(tmp_path / "t.json")
    written = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    slices = [one for one in events.events(trace) if isinstance(one, events.Slice)]
    leaving = {one["id"]: one for one in written if one["ph"] == "s"}
    arriving = {one["id"]: one for one in written if one["ph"] == "f"}
    assert set(leaving) == {one.flow for one in slices} - {0} == set(arriving) and len(leaving) > 50
    assert all(leaving[number]["ts"] <= one["ts"] for number, one in arriving.items())
    on = defaultdict(list)
    for one in written:
        if one["ph"] == "X":
            on[one["pid"], one["tid"]].append((one["ts"], one["ts"] + one["dur"]))
    for one in (*leaving.values(), *arriving.values()):  # each within a slice of its track
        assert any(start <= one["ts"] <= stop for start, stop in on[one["pid"], one["tid"]])


def test_blocks_change_nothing(trace, monkeypatch):
    def found():
        return sorted(map(repr, events.events(trace)))

    whole = found()
    monkeypatch.setattr(events, "BLOCK", 37)
    assert found() == whole


def test_counters(trace):
    points = defaultdict(list)
    for one in events.events(trace):
        if isinstance(one, events.Point):
            points[one.pid, one.name].append((one.time, one.value))
    names = {name for _, name in points}
    assert {"bytes in flight", "global memory bandwidth", "buffer L0C", "buffer A"} <= names
    for key, values in points.items():
        assert [time for time, _ in values] == sorted({time for time, _ in values})
        assert values[-1][1] == 0 and min(value for _, value in values) == 0, key
    for pid, core in enumerate(np.unique(trace.rows["core"]).tolist(), 1):
        values = points[pid, "global memory bandwidth"]
        seconds = np.diff([time for time, _ in values]) / (trace.clock_mhz * 1e6)
        area = sum(value * 1e9 * length for (_, value), length in zip(values, seconds, strict=False))
        rows = trace.rows[(trace.rows["core"] == core) & (trace.rows["array"] >= 0)]
        assert area == pytest.approx(rows["bytes"].sum(), rel=0.02)  # times are whole cycles


def test_read_with_perfettos_classes(trace, file):
    classes = pytest.importorskip(
        "perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="perfetto and protobuf are not installed"
    )
    document = classes.Trace()
    document.ParseFromString(file)
    names, notes, texts, tracks, stacks = {}, {}, {}, {}, defaultdict(list)
    slices, ended = [], {}
    for packet in document.packet:
        assert packet.trusted_packet_sequence_id == 1
        for table, known in (
            (packet.interned_data.event_names, names),
            (packet.interned_data.debug_annotation_names, notes),
        ):
            known.update({one.iid: one.name for one in table})
        texts.update({one.iid: one.str.decode() for one in packet.interned_data.debug_annotation_string_values})
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            assert not packet.track_descriptor.parent_uuid or packet.track_descriptor.parent_uuid in tracks
            continue
        event = packet.track_event
        stack = stacks[event.track_uuid]
        assert event.track_uuid in tracks
        if event.type == event.TYPE_SLICE_BEGIN:
            values = {
                notes[x.name_iid]: texts[x.string_value_iid]
                if x.HasField("string_value_iid")
                else x.int_value
                if x.HasField("int_value")
                else x.double_value
                for x in event.debug_annotations
            }
            stack.append(len(slices))
            flows = (list(event.flow_ids), list(event.terminating_flow_ids))
            slices.append((event.track_uuid, names[event.name_iid], packet.timestamp, values, flows))
        elif event.type == event.TYPE_SLICE_END:
            ended[stack.pop()] = packet.timestamp
        else:
            assert event.type == event.TYPE_COUNTER and event.HasField("double_counter_value")
            assert tracks[event.track_uuid].counter.unit_name in ("bytes", "GB/s", "slots")
    assert not any(stacks.values())
    threads = {uuid: one.thread.thread_name for uuid, one in tracks.items() if one.HasField("thread")}
    assert len({one.process.pid for one in tracks.values() if one.HasField("process")}) == len(
        np.unique(trace.rows["core"])
    )
    engines = set(trace.names["engine"])
    shown = sorted(
        (threads[uuid], name, start, ended[i], values["tile"], values["issued"], values["complete"])
        for i, (uuid, name, start, values, _) in enumerate(slices)
        if threads.get(uuid) in engines
    )
    titles = [f"{a} {b}".rstrip() for a, b in zip(trace.column("opcode"), trace.column("label"), strict=True)]
    rows = trace.rows
    columns = [rows[name].astype(int).tolist() for name in ("start", "free")]
    exact = [rows[name].tolist() for name in ("issue", "end")]
    expected = sorted(zip(trace.column("engine").tolist(), titles, *columns, trace.tiles(), *exact, strict=True))
    assert shown == expected
    left = {flow: i for i, one in enumerate(slices) for flow in one[4][0]}
    for _, _, start, _, (_, arrives) in slices:
        for flow in arrives:
            assert slices[left[flow]][2] <= ended[left[flow]] <= start


@pytest.mark.skipif(
    "HWSIM_TRACE_PROCESSOR" not in os.environ, reason="HWSIM_TRACE_PROCESSOR names no trace_processor_shell"
)
def test_read_by_trace_processor(trace, tmp_path):
    """The program behind ui.perfetto.dev reports no error, and has every instruction with its engine and times."""
    processor = pytest.importorskip("perfetto.trace_processor", reason="perfetto is not installed")
    trace.to_pftrace(tmp_path / "t.pftrace")
    config = processor.TraceProcessorConfig(bin_path=os.environ["HWSIM_TRACE_PROCESSOR"])
    with processor.TraceProcessor(trace=str(tmp_path / "t.pftrace"), config=config) as opened:
        bad = "select name from stats where severity in ('error', 'data_loss') and value > 0"
        assert [one.name for one in opened.query(bad)] == []
        slices = opened.query(
            "select thread.name as engine, slice.name as title, ts, dur from slice "
            "join thread_track on slice.track_id = thread_track.id join thread using (utid)"
        )
        engines = set(trace.names["engine"])
        shown = sorted((x.engine, x.title, x.ts, x.ts + x.dur) for x in slices if x.engine in engines)
        flows = next(iter(opened.query("select count(*) as n from flow"))).n
    titles = [f"{a} {b}".rstrip() for a, b in zip(trace.column("opcode"), trace.column("label"), strict=True)]
    times = [trace.rows[name].astype(int).tolist() for name in ("start", "free")]
    assert shown == sorted(zip(trace.column("engine").tolist(), titles, *times, strict=True))
    assert flows > 0


def test_a_large_trace_is_in_a_file(trace, monkeypatch, tmp_path):
    monkeypatch.setattr("hwsim.machines.trace_rows.IN_MEMORY", 50)
    monkeypatch.setattr("hwsim.machines.recorder.BLOCK", 40)
    monkeypatch.setattr("hwsim.trace.trace.BLOCK", 30)
    device, lowered = program(device="ascend910a", scheme="sgemm-cube", m=400, n=500, k=300, tile=(64, 32, 96))
    other = Trace.of(timing.run(lowered, device, trace=Trace.LIMIT), device)
    assert isinstance(other.rows, np.memmap) and not isinstance(trace.rows, np.memmap)
    assert (other.rows == trace.rows).all()
    for suffix in (".npz", ".csv", ".json", ".pftrace"):
        one, two = (tmp_path / f"{name}{suffix}" for name in "ab")
        trace.write(one)
        other.write(two)
        assert one.read_bytes() == two.read_bytes()


def small(**options):
    return hwsim.run(m=400, n=500, k=300, device="ascend910a", scheme="sgemm-cube", exact=False, **options)


def test_windows_of_core_and_time():
    result = small()
    rows = result.trace.rows
    first, other = np.unique(rows["core"]).tolist()[:2]
    last = int((rows["core"] + rows["cores"]).max()) - 1
    for core in {first, first + 1, other, last}:
        part = result.traced(core=core).rows
        assert len(part) and set(part["core"].tolist()) <= set(np.unique(rows["core"]).tolist())
        assert (part["core"] <= core).all() and (part["core"] + part["cores"] > core).all()
        expected = rows[(rows["core"] <= core) & (rows["core"] + rows["cores"] > core)]
        assert (part == expected).all()
    middle, late = result.cycles // 2, result.cycles // 2 + 500
    part = result.traced(from_cycle=middle, to_cycle=late).rows
    assert (part == rows[(rows["end"] >= middle) & (rows["start"] < late)]).all() and 0 < len(part) < len(rows)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"core": 99}, "trace of core 99: allowed: 0 to 31"),
        ({"from_cycle": 5, "to_cycle": 5}, "allowed: 0 <= from < to"),
        ({"from_cycle": -1}, "allowed: 0 <= from < to"),
    ],
)
def test_bad_windows(given, message):
    with pytest.raises(hwsim.InputError, match=message):
        small().traced(**given)


def test_more_events_than_allowed(monkeypatch):
    result = small()
    count = len(result.trace)
    monkeypatch.setattr(Trace, "LIMIT", count - 1)
    with pytest.raises(hwsim.InputError, match=rf"trace of {count:,} instructions: allowed: {count - 1:,}; take one"):
        result.traced()
    assert len(result.traced(core=0)) < count


def test_parquet(trace, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    trace.write(tmp_path / "t.parquet")
    table = parquet.read_table(tmp_path / "t.parquet")
    assert table.schema.metadata[b"device"] == b"ascend910a"
    for name in trace.rows.dtype.names:
        values = [x or "" for x in table[name].to_pylist()] if name in trace.names else table[name].to_pylist()
        assert values == trace.column(name).tolist()
    assert table["tile"].to_pylist() == trace.tiles()


def test_parquet_without_pyarrow(trace, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(hwsim.UnsupportedError, match=r"pip install 'hwsim\[parquet\]'"):
        trace.write(tmp_path / "t.parquet")
    assert not list(tmp_path.iterdir())


def test_an_error_while_recording_stops_the_engine(monkeypatch):
    taken = []

    def full(self, rows):
        taken.append(len(rows))
        raise hwsim.InputError("cannot write a temporary file")

    monkeypatch.setattr("hwsim.machines.recorder.BLOCK", 40)
    monkeypatch.setattr("hwsim.machines.trace_rows.RowStore.append", full)
    with pytest.raises(hwsim.InputError, match="cannot write a temporary file"):
        small().traced()
    assert len(taken) == 1
    monkeypatch.undo()
    assert len(small().traced()) > 40
