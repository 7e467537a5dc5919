"""What lab/tools/measure appends to lab/hwsim_lab/configs/measured: the tables' own columns, rows that the reader takes
back.
"""

import csv
import json
import sys
from pathlib import Path

import pytest
import yaml

from hwsim_lab.papers import measured

TOOLS = Path(__file__).parents[2] / "tools" / "measure"


@pytest.fixture
def tool(monkeypatch):
    """A module of lab/tools/measure by its name."""
    monkeypatch.syspath_prepend(str(TOOLS))

    def load(name):
        return __import__(name)

    yield load
    for name in {path.stem for path in TOOLS.glob("*.py")} & set(sys.modules):
        del sys.modules[name]


def table(folder, name):
    with (folder / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_tools_columns_are_the_tables(tool):
    tables = tool("tidy").COLUMNS
    assert {path.stem for path in measured.FOLDER.glob("*.csv")} == set(tables)
    for name, columns in tables.items():
        with measured.path(f"{name}.csv").open(newline="") as file:
            assert tuple(next(csv.reader(file))) == columns, name


def test_a_row_appended_is_read(tool, tmp_path):
    tidy = tool("tidy")
    started = [
        {
            "name": "first<a, b>",
            "grid": [2, 66, 1],
            "block": [384, 1, 1],
            "shared_bytes": 9,
            "registers": 168,
            "us": 7.5,
        },
        {"name": "Memset (Device)", "grid": None, "block": None, "shared_bytes": None, "registers": None, "us": 0.8},
    ]
    row = {
        "set": "new", "date": "2027-01-01", "device": "h200", **tidy.gemm("e4m3", True, (64, 128, 256)),
        "output": "bf16", "accumulate": "fast", "a_layout": "rows", "batch": 1, "role": "blind", "state": "rested",
        "operands": "random", "us": 12.25, "replays": 7, **tidy.launched(started),
    }  # fmt: skip
    for _ in range(2):
        tidy.append(tmp_path, "gemm_times", [row])
        tidy.append(tmp_path, "kernels", list(tidy.new_kernels(tmp_path, started)))
    one, other = measured.gemm_times(tmp_path / "gemm_times.csv")
    assert one == other and (one.shape, one.b_layout, one.us, one.replays) == ("64x128x256", "columns", 12.25, 7)
    assert (one.kernels, one.grids, one.kernel_us) == (("first<a, b>", "Memset (Device)"), ("2x66x1", ""), (7.5, 0.8))
    assert [x["name"] for x in table(tmp_path, "kernels")] == ["first<a, b>"]


def test_other_columns_are_refused(tool, tmp_path):
    tidy = tool("tidy")
    (tmp_path / "kernels.csv").write_text("name,threads\n")
    with pytest.raises(SystemExit, match="columns name, threads; needed: name, block"):
        tidy.append(tmp_path, "kernels", [])
    with pytest.raises(ValueError, match="watts"):
        tidy.append(tmp_path, "microbenchmarks", [{"watts": 3}])


def test_results_are_taken_apart(tool):
    results = {"a": {"mhz": 3, "nvml": {"reasons": ["power cap"], "w": 1.5}, "lines": [7.0, 8]}}
    assert [tuple(row.values()) for row in tool("tidy").observations(results)] == [
        ("a", "mhz", 3), ("a", "nvml.reasons.power cap", 1), ("a", "nvml.w", 1.5), ("a", "lines.0", 7.0),
        ("a", "lines.1", 8),
    ]  # fmt: skip
    with pytest.raises(SystemExit, match="b: did not come back"):
        list(tool("tidy").observations({"b": {"error": "did not come back"}}))


def test_a_group_of_microbenchmarks_becomes_rows_when_all_cases_have_numbers(tool, tmp_path, capsys):
    measure = tool("measure")
    data = {"what": "w", "date": "2027-01-01", "method": "m", "device": {"sms": 132}, "results": {"a": {"error": "no"}}}
    (tmp_path / "sync.json").write_text(json.dumps(data))
    measure.keep(tmp_path, "sync", "h200")
    assert "sync: no rows; a: no" in capsys.readouterr().out and not (tmp_path / "microbenchmarks.csv").exists()
    data["results"] = {"a": {"cycles": 4.5}}
    (tmp_path / "sync.json").write_text(json.dumps(data))
    measure.keep(tmp_path, "sync", "h200")
    assert [tuple(x.values()) for x in table(tmp_path, "microbenchmarks")] == [
        ("sync", "2027-01-01", "h200", "a", "cycles", "4.5")
    ]
    assert yaml.safe_load((tmp_path / "sets.yaml").read_text())["sync"]["hardware"] == {"sms": 132}
    assert tool("tidy").is_described(tmp_path, "sync") and not (tmp_path / "sync.json").exists()


def ncu_table(path, metrics, kernels):
    """Nsight Compute's CSV: (name, grid, values) of each kernel."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("ID", "Kernel Name", "Grid Size", "Metric Name", "Metric Value"))
        for number, (name, grid, values) in enumerate(kernels):
            writer.writerows((number, name, grid, *pair) for pair in zip(metrics, values, strict=True))


def test_counters_are_rows(tool, tmp_path, monkeypatch):
    counters = tool("counters")
    values = (2000, 500, 400, "1.5e9", 10, 20, 30, 40)
    ncu_table(tmp_path / "ncu.csv", counters.METRICS, [("gemm_x", "(2, 66, 1)", values)] * 2)
    (tmp_path / "list.json").write_text('["fp16 64x64x64"]')
    words = ["--csv", tmp_path / "ncu.csv", "--list", tmp_path / "list.json", "--out", tmp_path]
    monkeypatch.setattr(sys, "argv", ["counters.py", *map(str, words), "--set", "c", "--device", "h200"])
    counters.main()
    (row,) = table(tmp_path, "gemm_counters")
    assert (row["us"], row["sm_mhz"], row["l2_read_bytes"], row["grids"]) == ("2.0", "1500.0", "320", "2x66x1")
    assert (row["set"], row["b_layout"], row["m"]) == ("c", "rows", "64")


def test_clusters_are_rows(tool, tmp_path, monkeypatch):
    clusters = tool("clusters")
    head = ",".join(tool("tidy").COLUMNS["gemm_times"])
    launch, other = (
        f"s,,h200,tf32,fp32,,rows,rows,{n},{n},{n},1,{r},rested,random,2.0,,,,,,,,,"
        for n, r in ((16, "launch"), (64, "blind"))
    )
    (tmp_path / "times.csv").write_text(f"{head}\n{launch}\n{other}\n")
    name = "sm90_tilesize64x128x32_warpgroupsize1x1x1_execute_segment_k_on_kernel__5x"
    mark = ("arange", "(1, 1, 1)", (1, 1, 1, 0))
    kernels = [mark, (name, "(4, 18, 1)", (2, 4, 15, 1_000_000)), mark, (name, "(4, 18, 1)", (1, 1, 0, 500_000))]
    ncu_table(tmp_path / "ncu.csv", clusters.METRICS, kernels)
    words = ["--csv", tmp_path / "ncu.csv", "--times", tmp_path / "times.csv", "--out", tmp_path, "--device", "h200"]
    monkeypatch.setattr(sys, "argv", ["clusters.py", *map(str, words)])
    clusters.main()
    found = [
        (x["b_layout"], x["m"], x["cluster_x"], x["cluster_y"], x["segment_k"], x["l2_read_mb"])
        for x in table(tmp_path, "clusters")
    ]
    assert found == [("rows", "64", "2", "4", "1", "32.0"), ("columns", "64", "1", "1", "1", "16.0")]
    (active,) = table(tmp_path, "microbenchmarks")
    assert (active["case"], active["quantity"], active["value"]) == ("clusters of 8", "active", "15")
