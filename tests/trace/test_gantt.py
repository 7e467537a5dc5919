"""The text Gantt: each cell's shade is the share of its time that the engine was busy."""

import numpy as np

from hwsim.report.text.gantt import gantt_text
from hwsim.trace.rows import TRACE_DTYPE, TraceRows


def trace(spans):
    """A trace of engines E0, E1, ...: for each (start, free, end) in cycles."""
    flat = [(engine, *span) for engine, own in enumerate(spans) for span in own]
    rows = np.zeros(len(flat), TRACE_DTYPE)
    rows["cores"], rows["array"] = 1, -1
    for i, (engine, start, free, end) in enumerate(flat):
        rows["engine"][i], rows["issue"][i], rows["start"][i] = engine, start, start
        rows["free"][i], rows["end"][i] = free, end
    rows.sort(order="free", kind="stable")
    names = {"kernel": ("k",), "engine": tuple(f"E{i}" for i in range(len(spans)))}
    return TraceRows(rows, names, "chip", 1000.0, True)


def charts(text):
    found = {}
    for block in text.split("\n\n")[1:]:
        title, *lines = block.splitlines()
        found[title.split(":")[0]] = {line.split()[0]: line.split("|") for line in lines}
    return found


def test_shades_and_shares():
    spans = [[(0, 40, 40)], [(0, 1, 80), (10, 12, 12), (20, 23, 23), (30, 34, 34)]]
    found = charts(gantt_text(trace(spans), 2 + 10 + 20))
    assert set(found) == {"whole"}
    assert found["whole"]["E0"][1] == "#" * 10 + " " * 10  # 20 cells of 4 cycles
    assert found["whole"]["E1"][1] == ". -  = --" + " " * 11
    assert found["whole"]["E0"][2].strip() == "50.0 %"
    assert found["whole"]["E1"][2].strip() == "12.5 %"


def test_steady_is_the_middle():
    first = [(10 * i, 10 * i + 1, 10 * i + 1) for i in range(50)]
    later = [(500 + 10 * i, 510 + 10 * i, 510 + 10 * i) for i in range(50)]
    found = charts(gantt_text(trace([first + later]), 12 + 40))
    assert set(found) == {"whole", "first tiles", "steady"}
    assert float(found["first tiles"]["E0"][2].split()[0]) < 15
    steady = found["steady"]["E0"][1]
    assert steady.endswith("#" * 18) and steady.count("#") < 25


def test_no_rows():
    assert "no instruction" in gantt_text(trace([]), 80)
