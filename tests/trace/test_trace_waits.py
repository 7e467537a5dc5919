"""The waits of a trace, summed: as the engines' stalls, and as counted row by row."""

import json
from collections import defaultdict

import pytest
from command_line import cli  # noqa: F401

import hwsim

ON_ONE_CORE = [
    {"device": "h200", "format": "fp16", "m": 64, "n": 8, "k": 2048, "tile": (64, 8, 64)},
    {"device": "mi300x", "format": "fp16", "m": 16, "n": 16, "k": 1024},
    {"device": "ascend910a", "format": "fp16", "input_format": "fp16", "m": 16, "n": 16, "k": 512, "split_k": 1},
]


@pytest.mark.parametrize("call", ON_ONE_CORE[:2], ids=lambda call: call["device"])  # the 910A clears C on 16 cores
def test_the_sums_are_the_engines_stalls(call):
    result = hwsim.run(exact=False, **call)
    assert [row["cores"] - row["idle_cores"] for row in result.occupancy] == [1]
    waited = defaultdict(float)
    for wait in result.traced(core=0).waits():
        waited[wait.engine] += wait.cycles
    stalls = {}
    for name, engine in result.engines.items():
        semaphores = sum(cycles for cause, cycles in engine.stall_cycles.items() if cause.startswith("semaphore:"))
        if semaphores:
            stalls[name] = pytest.approx(semaphores)
    assert stalls and dict(waited) == stalls


@pytest.mark.parametrize("call", [*ON_ONE_CORE, {"device": "a100", "scheme": "bf16x9", "m": 300, "n": 200, "k": 256}])
def test_the_waits_are_counted_row_by_row(call):
    trace = hwsim.run(exact=False, **call).trace
    free, found = {}, defaultdict(list)
    for row in sorted(trace.rows.tolist(), key=lambda row: row[trace.rows.dtype.names.index("start")]):
        at = dict(zip(trace.rows.dtype.names, row, strict=True))
        place = at["core"], at["engine"]
        ready = max(at["issue"], free.get(place, 0.0))
        if at["start"] > ready:
            cause = [*trace.names["waited_for"], ""][at["waited_for"]]
            found[trace.names["engine"][at["engine"]], cause].append((at["start"] - ready, at["number"], ready))
        free[place] = at["free"]
    waits = trace.waits()
    assert {(wait.engine, wait.waited_for): wait.count for wait in waits} == {key: len(x) for key, x in found.items()}
    for wait in waits:
        cycles = found[wait.engine, wait.waited_for]
        assert wait.cycles == pytest.approx(sum(one for one, *_ in cycles))
        assert (wait.longest_cycles, wait.number, wait.from_cycle) in cycles
        assert wait.longest_cycles == max(one for one, *_ in cycles)
    assert [wait.cycles for wait in waits] == sorted((wait.cycles for wait in waits), reverse=True)


def test_the_command_names_the_largest(cli, tmp_path):  # noqa: F811
    run = ["run", "--device", "mi300x", "--format", "fp16", "--m", 16, "--n", 16, "--k", 1024, "--no-exact", "--json"]
    done = cli(*run, "--trace", tmp_path / "x.csv")
    most = hwsim.run(exact=False, **ON_ONE_CORE[1]).trace.waits()[0]
    assert f"; most waited: {most.engine} for {most.waited_for}, {most.cycles:,.0f} cycles in 1 wait" in done.err
    assert json.loads(done.out)["cycles"]
