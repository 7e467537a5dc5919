"""hwsim beside times that others measured: joined tables, named halves, and the command on a small made-up table."""

import csv
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import hwsim
from hwsim.errors import InputError
from hwsim.machines.load import with_other_arrays

TOOLS = Path(__file__).parents[2] / "tools" / "measure"
SHAPES = ((128, 4096, 4096), (1025, 2048, 1024), (4096, 4096, 128), (2048, 2048, 2048), (64, 64, 64))
HAS_PACKAGE = all(importlib.util.find_spec(name) for name in ("aiconfigurator_core", "pyarrow"))


@pytest.fixture
def tool(monkeypatch):
    """The module of the command."""
    monkeypatch.syspath_prepend(str(TOOLS))
    yield __import__("independent")
    for name in {path.stem for path in TOOLS.glob("*.py")} & set(sys.modules):
        del sys.modules[name]


@pytest.fixture
def tables(tmp_path, tool):
    """A folder with made-up tables of an H200: two frameworks, one of them in two versions."""
    for framework, version, factor in (("one", "1.2.0", 1.0), ("one", "1.10.0rc3", 2.0), ("two", "0.5", 4.0)):
        folder = tmp_path / "h200_sxm" / "gemm" / framework / version
        folder.mkdir(parents=True)
        with (folder / "gemm_perf.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["gemm_dtype", "m", "n", "k", "latency"])
            for m, n, k in (*SHAPES, tool.SMALLEST):
                writer.writerow(["bfloat16", m, n, k, 1e-3 * factor])
                writer.writerow(["fp8", m, n, k, 7e-3])
            if framework == "two":
                writer.writerow(["bfloat16", 512, 512, 65536, 1e-3])  # the other has no such row
                writer.writerow(["bfloat16", *SHAPES[0], 8e-3])  # measured twice
    return tmp_path


def joined(tool, folder):
    found = tool.tables_of(folder, "h200")
    return tool.joined({label: tool.rows_of(path, "bfloat16") for label, path in found.items()})


def test_the_newest_version_of_each_framework_counts(tool, tables) -> None:
    assert list(tool.tables_of(tables, "h200")) == ["one 1.10.0rc3", "two 0.5"]
    order = ["0.5.6.post2", "0.5.14", "1.2.0", "1.10.0rc3", "1.10.0rc20", "1.10.0"]
    versions = [tool._version(Path(name) / "gemm_perf.csv") for name in order]
    assert versions == sorted(versions)
    with pytest.raises(InputError, match=r"no table a100_sxm/gemm/FRAMEWORK/VERSION/gemm_perf\.parquet for a100"):
        tool.tables_of(tables, "a100")


def test_a_shape_has_the_median_of_the_frameworks_that_all_have_it(tool, tables) -> None:
    rows = joined(tool, tables)
    assert set(rows) == {*SHAPES, tool.SMALLEST}
    assert rows[SHAPES[0]].by_framework == {"one 1.10.0rc3": pytest.approx(2.0), "two 0.5": pytest.approx(6.0)}
    assert rows[SHAPES[0]].us == pytest.approx(4.0)
    assert rows[SHAPES[1]].us == pytest.approx(3.0)
    assert tool.floor([rows[SHAPES[1]]]) == {"one 1.10.0rc3 / two 0.5": pytest.approx(0.5)}


def test_a_sample_keeps_to_the_sizes_and_to_its_seed(tool) -> None:
    rng = np.random.default_rng(0)
    every = {tuple(x): tool.Measured(tuple(x), {"one": 1.0}) for x in rng.integers(1, 9000, (2000, 3)).tolist()}
    drawn = tool.sample(every, 50, 7)
    assert len(drawn) == 50 and drawn == tool.sample(every, 50, 7) != tool.sample(every, 50, 8)
    assert all(tool.LEAST_MACS <= tool.macs(x.sizes) <= tool.MOST_MACS for x in drawn)
    halves = [x.half for x in every.values()]
    assert set(halves) == {"fit", "held"} and 0.45 < halves.count("fit") / len(halves) < 0.55


def test_halves_and_regions_are_facts_of_the_shape(tool) -> None:
    def one(*sizes):
        return tool.Measured(sizes, {"any": 1.0})

    assert one(128, 128, 65536).half == "fit" and one(80, 4096, 4096).half == "held"  # as written down once
    assert [one(*x).region for x in ((160, 9, 9), (161, 9, 256), (1025, 9, 257), (1024, 9, 257), (1033, 9, 257))] == [
        "m <= 160", "k <= 256", "m past a tile", "rest", "rest"
    ]  # fmt: skip


def test_durations_are_by_the_measured_time(tool) -> None:
    times = (0.5, 14.9, 15.0, 49.0, 50.0, 150.0, 9e3)
    found = [tool.Measured((1, 1, 1), {"any": us}).duration for us in times]
    assert found == ["to 15 us"] * 2 + ["15 to 50 us"] * 2 + ["50 to 150 us"] + ["from 150 us"] * 2


def test_the_command_compares_and_says_where_it_cannot(tool, tables, capsys) -> None:
    given = ["--tables", str(tables), "--chips", "h200"]
    assert tool.main([*given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["h200"]
    assert found["tables"] == ["one 1.10.0rc3", "two 0.5"] and found["launch_us"] == pytest.approx(3.0)
    assert {row["way"] for row in found["rows"]} == {"estimate", "cublas"}
    assert len(found["rows"]) == 2 * 4  # the fifth shape is below the least size
    assert all(row["simulated_us"] > found["launch_us"] for row in found["rows"])
    for row in found["rows"]:
        assert row["error"] == pytest.approx(row["simulated_us"] / row["measured_us"] - 1, abs=1e-3)
    whole = [x for x in found["summaries"] if x["group"] == "all"]
    assert [x["shapes"] for x in whole] == [4, 4] and all(x["median"] <= x["p90"] for x in whole)
    by_time = [x["shapes"] for x in found["summaries"] if x["way"] == "estimate" and x["group"] in tool.DURATIONS]
    assert by_time == [4]
    assert tool.main([*given, "--worst", "1"]) == 0
    assert "frameworks among themselves: one 1.10.0rc3 / two 0.5 5" in capsys.readouterr().out
    assert tool.main([*given[:-1], "h200,v100"]) == 2
    assert "got 'v100'; allowed: h200" in capsys.readouterr().err


def test_weights_of_another_layer_are_not_in_l2(tool) -> None:
    """L2 holds these weights once, but not those of all layers in turn; smaller ones it does hold."""
    chip = hwsim.device("h200")
    for (m, n, k), is_held in (((128, 4096, 4096), False), ((128, 2048, 2048), True)):
        weights = n * k * 2
        assert weights < chip.l2.capacity_bytes
        assert (tool.COPIES * weights < chip.l2.capacity_bytes) == is_held
        found = tool.simulated("h200", "bf16", (m, n, k), "estimate")
        alone = [held_us(chip, *sizes, k, split_k) for sizes in ((m, n), (n, m)) for split_k in ("auto", 1)]
        if is_held:
            assert found == min(alone)
        else:
            assert found > min(alone) and found * 1e-6 > weights / chip.hbm.bytes_per_second


def held_us(chip, m, n, k, split_k):
    """Microseconds of one kernel where L2 has held everything since the run before."""
    call = {"m": m, "n": n, "k": k, "format": "bf16", "output": "bf16", "b_layout": "columns"}
    times = hwsim.run(**call, device=chip, exact=False, split_k=split_k).times
    loaded, timed = with_other_arrays(times.program, chip, times.unit, ())
    return timed.cycles / loaded.clock_mhz


def test_the_kernel_computes_c_or_its_transpose(tool) -> None:
    """Either way round it is one time: the smaller of the two, whichever of them it is."""
    chip = hwsim.device("h200")
    for m, n, is_turned_faster in ((264, 4096, True), (136, 4096, False)):
        as_it_is, turned = (min(held_us(chip, *sizes, 512, x) for x in ("auto", 1)) for sizes in ((m, n), (n, m)))
        least = min(as_it_is, turned)
        assert (turned < 0.95 * as_it_is, as_it_is < 0.95 * turned) == (is_turned_faster, not is_turned_faster)
        for sizes in ((m, n), (n, m)):
            assert tool.simulated("h200", "bf16", (*sizes, 512), "estimate") == least


@pytest.mark.skipif(not HAS_PACKAGE, reason="aiconfigurator-core and pyarrow: pip install './lab[independent]'")
def test_the_packages_tables_are_read(tool) -> None:
    folder = tool.package_folder()
    for chip in tool.SYSTEMS:
        found = tool.tables_of(folder, chip)
        path = next(iter(found.values()))
        assert len({sizes for sizes, _ in tool.rows_of(path, "bfloat16")}) > 5000, chip
