"""The codes of an element of C in a trace: the rows that made it, in memory and in files."""

import numpy as np
import pytest

import hwsim
from hwsim.trace.element_rows import ELEMENT_DTYPE

PLACES = [(0, 0), (37, 21)]
RUNS = [
    {"device": "h200", "scheme": "tf32x3"},
    {"device": "b200", "scheme": "bf16x9"},
    {"device": "ascend910a", "scheme": "sgemm-cube"},
    {"device": "ascend910b3", "scheme": "sgemm-cube"},
    {"device": "h200", "scheme": "sgemm-cube", "split_k": 2},
    {"device": "mi300x", "scheme": "native", "format": "fp16"},
]


def run(m=45, n=33, k=70, **given):
    draw = np.random.default_rng(2)
    a, b = draw.standard_normal((m, k), np.float32), draw.standard_normal((k, n), np.float32)
    return hwsim.run(a, b, functional=True, threads=1, **given)


@pytest.mark.parametrize("given", RUNS, ids=lambda given: "-".join(map(str, given.values())))
def test_rows_of_an_element_are_its_instructions(given):
    result = run(values=PLACES, **given)
    trace = result.trace
    for place in PLACES:
        steps, element = result.values[place], trace.elements[place]
        executed = {step.executed for step in steps}
        assert len(element.rows) == len(executed) and (np.diff(element.rows) > 0).all()
        rows = trace.rows[element.rows]
        by_row = zip(rows, element.entries, strict=True)
        for row, entry in by_row:
            step = steps[entry["step"]]
            kernel, core, instr, _ = step.executed
            assert (row["kernel"], row["instr"]) == (kernel, instr) and row["core"] <= core < row["core"] + row["cores"]
            assert trace.names["kernel"][kernel] == step.kernel
            assert (trace.names["opcode"][row["opcode"]], trace.names["engine"][row["engine"]]) == (
                step.opcode,
                step.engine,
            )
            same = [one for one in steps if one.executed == step.executed]
            assert same[0] is step and entry["after"] == same[-1].after.code
            assert element.formats[entry["after_format"]] == same[-1].after.format
            assert (entry["before_format"] < 0) == (step.before is None)
            assert step.before is None or entry["before"] == step.before.code
            if row["core"] == core and row["array"] < 0:  # the tile that this core itself wrote
                _, at_row, at_col = step.place.replace(",", "").replace("(", "").replace(")", "").rsplit(" ", 2)
                assert row["tile_row"] <= int(at_row) and row["tile_col"] <= int(at_col)
        # An engine of a core executes in the order of the steps.
        order = np.argsort(rows["number"])
        for which in {tuple(row) for row in rows[["kernel", "core", "engine"]].tolist()}:
            of_engine = [i for i in order if tuple(rows[["kernel", "core", "engine"]][i].tolist()) == which]
            assert (np.diff(element.entries["step"][of_engine]) > 0).all()
        assert element.entries["after"][order][-1] == result.c[place].view(f"u{result.c.itemsize}")


def test_files_have_the_codes(tmp_path):
    result = run(device="h200", scheme="tf32x3", values=PLACES)
    trace = result.trace
    trace.write(tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz") as found:
        for place, element in trace.elements.items():
            end = "_".join(map(str, place))
            dense = element.dense(0, len(trace))
            for name in ELEMENT_DTYPE.names:
                assert np.array_equal(found[f"{name}_{end}"], dense[name])
            made = found[f"step_{end}"] >= 0
            assert made.sum() == len(element.rows) and (np.nonzero(made)[0] == element.rows).all()
            last = found[f"after_{end}"][made][np.argsort(found["number"][made])][-1]
            assert last == result.c[place].view(np.uint32)
            assert found[f"names_formats_{end}"].tolist() == list(element.formats)


def test_parquet_has_the_codes(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    result = run(device="h200", scheme="tf32x3", values=PLACES)
    trace = result.trace
    trace.write(tmp_path / "run.parquet")
    table = parquet.read_table(tmp_path / "run.parquet")
    for place, element in trace.elements.items():
        end = "_".join(map(str, place))
        for name in ("before", "after"):
            column = table[f"{name}_{end}"].to_pylist()
            forms = table[f"{name}_format_{end}"].to_pylist()
            for row, entry in zip(element.rows.tolist(), element.entries, strict=True):
                number = int(entry[f"{name}_format"])
                wanted = (None, None) if number < 0 else (int(entry[name]), element.formats[number])
                assert (column[row], forms[row]) == wanted
            assert sum(x is not None for x in column) == (element.entries[f"{name}_format"] >= 0).sum()
        assert [x for x in table[f"step_{end}"].to_pylist() if x is not None] == element.entries["step"].tolist()


def test_parts_of_a_trace_have_their_rows(monkeypatch, tmp_path):
    trace = run(device="h200", scheme="tf32x3", values=PLACES).trace
    parts = list(trace.blocks(20))
    assert len(parts) > 2
    for place, element in trace.elements.items():
        joined = np.concatenate([part.elements[place].dense(0, len(part)) for part in parts])
        assert np.array_equal(joined, element.dense(0, len(trace)))


def test_other_traces_have_no_elements():
    result = run(device="h200", scheme="tf32x3", values=PLACES)
    assert not result.traced(from_cycle=100).elements
    assert result.traced(to_cycle=result.cycles / 2).elements[PLACES[0]].rows.size < len(result.values[PLACES[0]])
    assert not run(device="h200", scheme="tf32x3").trace.elements
