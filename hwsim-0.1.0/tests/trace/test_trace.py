"""Traces: rows as the timing machine gives them, and every file read back."""

import csv
import itertools
import json
from collections import defaultdict

import numpy as np
import pytest

from hwsim.api import program
from hwsim.errors import InputError
from hwsim.machines import timing
from hwsim.trace.trace import TRACE_DTYPE, Trace


@pytest.fixture(scope="module")
def timed():
    device, lowered = program(device="ascend910a", scheme="sgemm-cube", m=400, n=500, k=300, tile=(64, 32, 96))
    return device, timing.run(lowered, device, trace=Trace.LIMIT)


@pytest.fixture(scope="module")
def trace(timed):
    return Trace.of(timed[1], timed[0])


def synthetic(*rows):
    """A trace of one engine: (issue, start, free, end, bytes) in cycles each."""
    array = np.zeros(len(rows), TRACE_DTYPE)
    array["cores"] = 1
    for i, (issue, start, free, end, size) in enumerate(rows):
        for name, value in (("issue", issue), ("start", start), ("free", free), ("end", end), ("bytes", size)):
            array[name][i] = value
    names = {
        "kernel": ("k",),
        "engine": ("E",),
        "opcode": ("copy",),
        "label": ("",),
        "array": ("X",),
        "waited_for": ("",),
    }
    return Trace(array, names, "chip", 1234.5, True)


def read(trace, path):
    trace.to_perfetto(path)
    with path.open() as file:
        return json.load(file)


def tracks(events):
    """Slices by (process, track), as (start, end) in ns, exact."""
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start, length = round(event["ts"] * 1000), round(event["dur"] * 1000)
            found[event["pid"], event["tid"]].append((start, start + length, event))
    return found


def track_names(events):
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}


def test_rows_are_the_timings_rows_in_cycles(timed, trace):
    kept = timed[1].trace
    assert len(trace) == len(kept.rows) == len(trace.rows) > 500
    assert trace.complete
    for ours, theirs in (("issue", "issue"), ("start", "start"), ("free", "free"), ("end", "end")):
        assert (trace.rows[ours] * kept.ticks_per_cycle == kept.rows[theirs]).all()
    for ours, theirs in (
        ("core", "core"),
        ("tile_row", "row"),
        ("tile_col", "col"),
        ("slot", "slot"),
        ("macs", "macs"),
    ):
        assert (trace.rows[ours] == kept.rows[theirs]).all()
    assert trace.rows["end"].max() <= timed[1].cycles
    assert (trace.rows["macs"] * trace.rows["cores"]).sum() == timed[1].macs == 3 * 400 * 500 * 300


def test_names_and_tiles(trace):
    engines, opcodes = trace.column("engine"), trace.column("opcode")
    assert set(engines[opcodes == "mma"]) == {"M"}
    assert "A.free" in trace.column("waited_for") or "B.full" in trace.column("waited_for")
    assert not any(cause.startswith("semaphore:") for cause in trace.names["waited_for"])
    tiles = np.array(trace.tiles())
    moved = trace.column("array") == "A1"
    assert moved.any() and all(tile.startswith("A1[") for tile in tiles[moved])
    assert all(tile.startswith("slot ") for tile in tiles[opcodes == "mma"])
    assert trace.column("core").dtype == np.int32


def test_a_cut_trace_says_so(timed):
    device, lowered = program(device="ascend910a", scheme="sgemm-cube", m=64, n=64, k=64)
    cut = Trace.of(timing.run(lowered, device, trace=10), device)
    assert len(cut) == 10 and not cut.complete
    with pytest.raises(InputError):
        Trace.of(timing.run(lowered, device), device)


def test_perfetto_has_every_row_once(trace, tmp_path):
    document = read(trace, tmp_path / "t.json")
    assert document["displayTimeUnit"] == "ns"
    assert document["otherData"] == {
        "device": "ascend910a",
        "clock_mhz": 1000.0,
        "time": "1 cycle is shown as 1 ns",
        "complete": True,
        "rows": len(trace),
    }
    events = document["traceEvents"]
    names = track_names(events)
    engines = set(trace.names["engine"])
    shown = sorted(
        (names[key], start, end, event["name"].split()[0], event["args"]["complete"], event["args"]["issued"])
        for key, slices in tracks(events).items()
        if names[key] in engines
        for start, end, event in slices
    )
    expected = sorted(
        zip(
            trace.column("engine").tolist(),
            trace.rows["start"].astype(int).tolist(),
            trace.rows["free"].astype(int).tolist(),
            trace.column("opcode").tolist(),
            trace.rows["end"].tolist(),
            trace.rows["issue"].tolist(),
            strict=True,
        )
    )
    assert shown == expected


def test_perfetto_says_what_was_waited_for_and_moved(trace, tmp_path):
    events = read(trace, tmp_path / "t.json")["traceEvents"]
    names, engines = track_names(events), set(trace.names["engine"])
    own = [e for key, slices in tracks(events).items() if names[key] in engines for _, _, e in slices]
    waited = sorted(e["args"]["waited for"] for e in own if "waited for" in e["args"])
    assert waited == sorted(x for x in trace.column("waited_for").tolist() if x)
    assert sum(e["args"].get("bytes", 0) for e in own) == trace.rows["bytes"].sum()
    assert sum(e["args"].get("macs", 0) for e in own) == trace.rows["macs"].sum()
    assert sorted(e["args"]["tile"] for e in own) == sorted(trace.tiles())


def test_perfetto_processes_are_the_kinds_of_cores(trace, tmp_path):
    events = read(trace, tmp_path / "t.json")["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    assert len(names) == len(np.unique(trace.rows["core"]))
    assert all("1 ns shown is 1 cycle" in name and "1000 MHz" in name for name in names.values())
    assert {e["pid"] for e in events} == set(names)
    numbers = [(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"]
    assert len({tid for _, tid in numbers}) == len(numbers), "a track's number belongs to one process"
    assert 0 not in names and not {tid for _, tid in numbers} & set(names)


def no_overlap(events):
    for slices in tracks(events).values():
        slices = sorted(slices, key=lambda x: x[:2])
        for (_, end, one), (start, _, other) in itertools.pairwise(slices):
            assert end <= start, (one, other)


def test_perfetto_events_of_one_track_do_not_overlap(trace, tmp_path):
    no_overlap(read(trace, tmp_path / "t.json")["traceEvents"])


def test_what_completes_late_is_in_flight_on_tracks_of_its_own(tmp_path):
    # Three transfers, each occupying the engine for 10 cycles and complete 25 later; then one much later.
    rows = [(0, 10 * i, 10 * i + 10, 10 * i + 35, 64) for i in range(3)] + [(0, 200, 210.5, 235.75, 64)]
    events = read(synthetic(*rows), tmp_path / "t.json")["traceEvents"]
    no_overlap(events)
    names = track_names(events)
    assert sorted(names.values()) == ["E", "E in flight 1", "E in flight 2", "E in flight 3", "kernel"]
    flights = {names[key]: [x[:2] for x in slices] for key, slices in tracks(events).items() if "flight" in names[key]}
    assert flights == {
        "E in flight 1": [(10, 35), (210, 235)],
        "E in flight 2": [(20, 45)],
        "E in flight 3": [(30, 55)],
    }


def test_times_below_a_cycle_do_not_make_neighbours_overlap(tmp_path):
    edges = np.cumsum(np.tile([0.25, 0.5, 1.0, 1.75, 0.0009765625], 40))
    rows = [(0, start, end, end, 0) for start, end in itertools.pairwise(edges)]
    trace = synthetic(*rows)
    events = read(trace, tmp_path / "t.json")["traceEvents"]
    no_overlap(events)
    assert sum(e["ph"] == "X" for e in events) == len(trace) + 1


def test_bytes_in_flight(tmp_path):
    events = read(synthetic((0, 0, 10, 35, 64), (0, 10, 20, 45, 100), (0, 45, 50, 60, 7)), tmp_path / "t.json")[
        "traceEvents"
    ]
    levels = [(round(e["ts"] * 1000), e["args"]["bytes"]) for e in events if e["name"] == "bytes in flight"]
    assert levels == [(0, 64), (10, 164), (35, 100), (45, 7), (60, 0)]


def test_an_empty_trace_is_a_valid_file(tmp_path):
    empty = synthetic()
    assert read(empty, tmp_path / "t.json")["traceEvents"] == []
    empty.to_csv(tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text().count("\n") == 1


def test_csv_reads_back(trace, tmp_path):
    trace.to_csv(tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(trace)
    for name in ("issue", "start", "free", "end"):
        assert [float(row[name]) for row in rows] == trace.rows[name].tolist()
    for name in ("bytes", "macs", "core", "cores", "instr"):
        assert [int(row[name]) for row in rows] == trace.rows[name].tolist()
    for name in ("engine", "opcode", "label", "kernel", "waited_for"):
        assert [row[name] for row in rows] == trace.column(name).tolist()
    assert [row["tile"] for row in rows] == trace.tiles()


def test_npz_reads_back(trace, tmp_path):
    trace.to_npz(tmp_path / "t.npz")
    with np.load(tmp_path / "t.npz") as kept:
        for name in TRACE_DTYPE.names:
            assert (kept[name] == trace.rows[name]).all() and kept[name].dtype == TRACE_DTYPE[name]
        for name, values in trace.names.items():
            assert tuple(kept[f"names_{name}"].tolist()) == values
        assert (kept["device"], kept["clock_mhz"], kept["complete"]) == ("ascend910a", 1000, True)


def test_the_suffix_chooses_the_writer(trace, tmp_path):
    trace.write(tmp_path / "t.CSV")
    assert (tmp_path / "t.CSV").read_text().startswith("kernel,core,")
    with pytest.raises(InputError, match=r"\.json \(Perfetto and Chrome\)"):
        trace.write(tmp_path / "t.txt")
    assert [x.name for x in tmp_path.iterdir()] == ["t.CSV"]


def test_a_results_trace_is_made_when_asked_for():
    import hwsim

    result = hwsim.run(m=32, n=32, k=32, device="ascend910a", scheme="native", exact=False)
    assert result.trace.complete and result.trace.rows["end"].max() <= result.cycles
    assert hwsim.run(m=32, n=32, k=32, device="ascend910a", exact=False, timing=False).trace is None
