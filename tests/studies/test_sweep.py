"""Sweeps: order of rows, refusals, the journal after a kill, the cache, and studies that are wrong."""

import csv
import functools
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

import hwsim
from hwsim.cli import main
from hwsim.errors import ConfigError, HwsimError, InputError, UnsupportedError
from hwsim.report import table_file
from hwsim.report.text.sweep_text import lead_lines
from hwsim.report.text.words import duration
from hwsim.studies import sweep_pool
from hwsim.studies.diff_operands import random_operands
from hwsim.studies.sweep import SweepTable
from hwsim.studies.sweep_journal import SweepJournal, journal_folder
from hwsim.studies.sweep_study import read_study

ROOT = Path(__file__).parents[2]
STUDY = {"devices": ["h200", "v100"], "m": [64, 128], "n": 64, "k": [64, 96], "options": {"format": ["bf16", "fp16"]}}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HWSIM_CACHE", str(tmp_path / "cache"))


def test_rows_are_those_of_run_in_the_order_of_the_grid():
    table = hwsim.sweep(STUDY, jobs=1)
    assert table.columns[:6] == ("device", "scheme", "m", "n", "k", "format")
    asked = [(row["device"], row["format"], row["m"], row["k"]) for row in table.rows]
    assert asked == [
        (d, f, m, k) for d in ("h200", "v100") for f in ("bf16", "fp16") for m in (64, 128) for k in (64, 96)
    ]
    for row in table.rows:
        try:
            found = hwsim.run(device=row["device"], format=row["format"], m=row["m"], n=64, k=row["k"], exact=False)
        except HwsimError as error:
            assert row["refused"] == str(error) and row["cycles"] is None
            continue
        assert (row["cycles"], row["seconds"], row["tflops"]) == (found.cycles, found.seconds, found.tflops)
        assert row["refused"] is None and row["roofline_bound"] == found.roofline.bound
        assert row["bound"] == found.verdict.bound != row["roofline_bound"]
        m, n, k = (int(side.partition("=")[2]) for side in row["chosen_tile"].split(","))
        assert {"m": m, "n": n, "k": k} == found.options["tile"]
        assert row["chosen_k_group"] == found.options["k_group"] == row["k"]
        assert row["memory_format"] == found.options["input_format"] == row["chosen_format"] == row["format"]
        assert row["timing_evidence"] == found.evidence["timing"] and row["peak_fraction"] == found.peak_fraction
    assert table.refused == 4 and all("bf16" in row["refused"] for row in table.rows if row["refused"])


def test_processes_give_the_same_rows():
    alone = hwsim.sweep(STUDY, jobs=1, cache=False)
    together = hwsim.sweep(STUDY, jobs=2, cache=False)
    assert together.rows == alone.rows and together.computed == 16


def test_the_cache_is_read_by_another_study(monkeypatch):
    first = hwsim.sweep(STUDY, jobs=2)
    monkeypatch.setattr(sweep_pool, "run", None)  # nothing may run
    again = hwsim.sweep(STUDY, jobs=1)
    assert again.rows == first.rows and (again.computed, again.cached) == (0, 16)
    other = hwsim.sweep({"devices": "h200", "shapes": [{"name": "x", "m": 128, "n": 64, "k": 96, "format": "fp16"}]})
    assert other.computed == 0 and other.rows[0]["shape"] == "x"
    assert other.rows[0]["cycles"] == first.rows[7]["cycles"]


def test_what_changes_a_result_changes_its_key():
    hwsim.sweep(STUDY, jobs=1)
    assert hwsim.sweep(STUDY | {"options": {"format": ["bf16", "fp16"], "clock_mhz": 1000}}, jobs=1).computed == 16
    assert hwsim.sweep(STUDY | {"schemes": ["native", "tf32x3"]}, jobs=1).computed == 16
    chip = {"devices": "v100"} | {key: value for key, value in STUDY.items() if key != "devices"}
    assert hwsim.sweep(chip | {"exact": True}, jobs=1).computed == 8


def test_a_device_file_that_changes_runs_again(tmp_path):
    file = tmp_path / "own.yaml"
    study = {"devices": str(file), "shapes": [[64, 64, 64]], "options": {"format": "fp16"}}
    cycles = []
    for mhz in (1000, 1500):
        clock = f"{{value: {mhz}, source: OWN, evidence: assumption}}"
        file.write_text(f"schema_version: 1\nname: own\nextends: h200\nclock_mhz: {clock}\n")
        table = hwsim.sweep(study, jobs=1)
        cycles.append((table.computed, table.rows[0]["seconds"], table.rows[0]["refused"]))
    assert [one[0] for one in cycles] == [1, 1], cycles
    assert cycles[0][1] > cycles[1][1] > 0  # seconds at a slower and a faster clock
    file.write_text("schema_version: 1\nname: own\n")
    with pytest.raises(ConfigError):
        hwsim.sweep(study, jobs=1)
    with pytest.raises(InputError, match="did you mean 'native'"):
        hwsim.sweep(STUDY | {"schemes": "nativ"})


WIDTHS = "instructions.*m64nNk16.f32.bf16.bf16.timing.macs_per_cycle"
VARIANTS = {"device": "h200", "set": {WIDTHS: [1024, "1x"], "cores": [66, 132]}}
SHAPE = {"shapes": [[512, 512, 1024]], "options": {"format": "bf16"}}


def test_numbers_of_a_device_are_columns():
    table = hwsim.sweep({"devices": ["b200", VARIANTS], **SHAPE}, jobs=1)
    assert table.columns[:4] == ("device", WIDTHS, "cores", "scheme")
    assert [(row[WIDTHS], row["cores"]) for row in table.rows] == [
        (None, None), (1024, 66), (1024, 132), ("1x", 66), ("1x", 132)
    ]  # fmt: skip
    plain = hwsim.run(device="h200", format="bf16", m=512, n=512, k=1024, exact=False)
    assert table.rows[-1]["cycles"] == plain.cycles
    assert table.rows[1]["cycles"] > table.rows[2]["cycles"] > plain.cycles
    assert all(row["timing_evidence"] == "assumption" for row in table.rows[1:])


def test_numbers_are_part_of_a_points_key():
    first = hwsim.sweep({"devices": [VARIANTS], **SHAPE}, jobs=2)
    assert (first.computed, hwsim.sweep({"devices": [VARIANTS], **SHAPE}, jobs=1).computed) == (4, 0)
    assert hwsim.sweep({"devices": "h200", **SHAPE}, jobs=1).computed == 1
    said = hwsim.sweep({"devices": "h200", **SHAPE}, numbers=VARIANTS["set"], jobs=1)
    assert said.computed == 0 and said.rows == first.rows


def test_numbers_that_a_device_does_not_have_are_refused(tmp_path):
    with pytest.raises(ConfigError) as error:
        hwsim.sweep({"devices": [{"device": "h200", "set": {"core": [1], "cores": ["many"], "clock_mhz": []}}]})
    told = error.value.problems
    assert "devices.0.set.core: h200 has no number 'core'; did you mean 'cores'" in "".join(told)
    assert "devices.0.set.clock_mhz: an empty list" in "".join(told) and "cores = 'many'; allowed: a factor" in "".join(
        told
    )
    table = hwsim.sweep({"devices": [{"device": "h200", "set": {"cores": [66, 10**6]}}], **SHAPE}, jobs=1)
    assert (
        table.rows[0]["refused"] is None
        and "with cores = 1000000; allowed: at most 100,000" in table.rows[1]["refused"]
    )
    library = hwsim.sweep({"devices": [VARIANTS], **SHAPE, "options": {"format": "bf16", "library": "cublas"}}, jobs=1)
    assert library.refused == 4 and "its times are of the chip as it is" in library.rows[0]["refused"]


def test_the_verb_sweeps_numbers_without_a_file(tmp_path, capsys):
    file = tmp_path / "my.yaml"
    assert main(["devices", "new", str(file)]) == 0
    capsys.readouterr()
    words = ["--set", "instructions.mma*.macs_per_cycle=[512,1024]", "--set", "cores=0.5x,1x", "--m", "256", "--json"]
    assert main(["sweep", "--device", str(file), "--format", "bf16", *words, "--no-cache", "--jobs", "1"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["instructions.mma*.macs_per_cycle"], row["cores"]) for row in rows] == [
        (512, "0.5x"), (512, "1x"), (1024, "0.5x"), (1024, "1x")
    ]  # fmt: skip
    assert {row["m"] for row in rows} == {256} and rows[0]["cycles"] > rows[1]["cycles"] > rows[3]["cycles"]
    for wrong, said in (
        (["--set", "cores=2"], "give STUDY.yaml, or --device"),
        (["--device", "h200", "--set", "cores"], "allowed: PATH=VALUE,VALUE"),
        (["--device", "h200", "--set", "core=1"], "did you mean 'cores'"),
        (["study.yaml", "--device", "h200"], "--device: the study file says it"),
    ):
        assert main(["sweep", *wrong]) == 2
        assert said in capsys.readouterr().err


def test_exact_points_have_errors():
    study = {"shapes": [[32, 16, 48]], "schemes": ["sgemm-cube"], "seeds": [0, 1], "exact": True}
    table = hwsim.sweep(study, jobs=2)
    assert [row["seed"] for row in table.rows] == [0, 1]
    for row in table.rows:
        found = hwsim.run(scheme="sgemm-cube", m=32, n=16, k=48, seed=row["seed"])
        assert row["relative_frobenius"] == found.error["relative_frobenius"] > 0
        assert row["max_relative"] == found.error["max_relative"]
    assert table.rows[0]["max_relative"] != table.rows[1]["max_relative"]


def test_a_line_cut_short_is_run_again_and_the_rest_is_not():
    first = hwsim.sweep(STUDY, jobs=1)
    (longest,) = [path for path in journal_folder().iterdir() if '"chosen_format": "bf16"' in path.read_text()]
    data = longest.read_bytes()
    longest.write_bytes(data[:-40])
    again = hwsim.sweep(STUDY, jobs=1)
    assert again.computed == 1 and again.rows == first.rows
    assert hwsim.sweep(STUDY, jobs=1).computed == 0  # what came after the cut line is whole


@pytest.mark.parametrize("row", [None, 7, [], {}, "cycles", "number"], ids=str)
def test_an_altered_row_is_not_taken(row):
    """One line says so, and its point is computed again; then nothing is left to say."""
    first = hwsim.sweep(STUDY, jobs=1)
    path = next(path for path in journal_folder().iterdir() if '"chosen_format": "bf16"' in path.read_text())
    lines = [json.loads(line) for line in path.read_text().splitlines() if line]
    whole = dict(lines[3]["row"])
    lines[3]["row"] = row if not isinstance(row, str) else whole | {"cycles": whole["cycles"] + 1}
    if row == "number":  # and a line that is none
        lines.append(5)
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    with pytest.warns(UserWarning, match=r"jsonl: 1 row is not as written, and left out") as said:
        again = hwsim.sweep(STUDY, jobs=1)
    assert len(said) == 1 and again.computed == 1 and again.rows == first.rows
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert hwsim.sweep(STUDY, jobs=1).computed == 0


def test_a_stop_leaves_the_finished_points(monkeypatch):
    run, calls = sweep_pool.run, []

    def stopped(**arguments):
        calls.append(1)
        if len(calls) > 5:
            raise KeyboardInterrupt
        return run(**arguments)

    monkeypatch.setattr(sweep_pool, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        hwsim.sweep(STUDY, jobs=1)
    monkeypatch.setattr(sweep_pool, "run", run)
    assert hwsim.sweep(STUDY, jobs=1).computed == 16 - 5


@pytest.mark.skipif(sys.platform != "linux", reason="signals and /proc of Linux")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_kill_leaves_a_journal_to_go_on_from(tmp_path, number):
    """A sweep that is interrupted or killed half-way, then run again: no row twice, none missing."""
    sides = list(range(64, 64 + 4 * 1600, 4))  # seconds, so that the signal comes before the end
    study = {"devices": "h200", "shapes": [[side, side, side] for side in sides], "options": {"format": "fp16"}}
    (tmp_path / "study.yaml").write_text(json.dumps(study))
    command = [sys.executable, "-m", "hwsim", "sweep", "study.yaml", "--jobs", "2", "--out", "table.csv"]
    environment = os.environ | {"PYTHONPATH": str(Path(hwsim.__file__).parents[1])}
    heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL, preexec_fn=heard)
    journal = SweepJournal(journal_folder())
    device = hwsim.device("h200").sha256
    limit = time.monotonic() + 60
    while len(journal.read(device)) < 20 and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.02)
    process.send_signal(number)
    assert process.wait(60) in (-number, 130)
    assert not (tmp_path / "table.csv").exists()
    time.sleep(1.0)  # workers notice that the parent has gone
    done = len(journal.read(device))
    assert 20 <= done < len(sides)
    part = study | {"shapes": study["shapes"][:10]}
    table = hwsim.sweep(part, jobs=1)  # a process that the signal stopped may have left some of them
    assert table.cached + table.computed == 10 and hwsim.sweep(part, jobs=1).computed == 0
    lines = [line for path in journal_folder().iterdir() for line in path.read_text().splitlines() if line]
    keys = [json.loads(line)["key"] for line in lines]
    assert len(keys) == len(set(keys)) == done + table.computed


@pytest.mark.parametrize(
    ("study", "said"),
    [
        ({"devces": ["h200"]}, "unknown key 'devces'; allowed: title, devices"),
        ({"devces": ["h200"]}, "did you mean 'devices'?"),
        ({"options": {"formt": "fp16"}}, "options.formt: unknown key 'formt'"),
        ({"options": {"formt": "fp16"}}, "did you mean 'format'?"),
        ({"options": {"seed": 1}}, "options.seed: unknown key"),
        ({"options": {"clock_mhz": -1}}, "clock_mhz"),
        ({"shapes": [[1, 2]]}, "shapes.0: needs three sizes"),
        ({"shapes": [{"m": 1, "n": 2}]}, "shapes.0: missing k"),
        ({"shapes": [[1, 2, 3]], "m": [4]}, "not both"),
        ({"m": [0]}, "m.0: got 0; needs an integer of at least 1"),
        ({"seeds": []}, "seeds: an empty list"),
        ({"devices": [{"format": "fp16"}]}, "devices.0: missing key 'device'"),
        ({"exact": "yes"}, "exact: got 'yes'; needs true or false"),
    ],
)
def test_a_wrong_study_is_refused(study, said):
    with pytest.raises(ConfigError) as caught:
        read_study(study)
    assert said in str(caught.value)


def test_problems_have_their_places(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text("devices: [h200]\nschems: native\nm: [x]\n")
    with pytest.raises(ConfigError) as caught:
        read_study(file)
    places = [line.removeprefix(str(file)).split(": ")[0] for line in caught.value.problems]
    assert places == [":2:1", ":3:5"]
    with pytest.raises(InputError, match="cannot read the study"):
        read_study(tmp_path / "none.yaml")


def test_tables_as_files(tmp_path, monkeypatch):
    table = hwsim.sweep(STUDY, out=tmp_path / "t.csv", jobs=1)
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["cycles"] for row in rows] == ["" if x["cycles"] is None else str(x["cycles"]) for x in table.rows]
    hwsim.sweep(STUDY, out=tmp_path / "t.jsonl", jobs=1)
    assert [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()] == list(table.rows)
    with pytest.raises(InputError, match=r"ends in \.csv, \.jsonl, \.parquet; got \.txt"):
        hwsim.sweep(STUDY, out=tmp_path / "t.txt")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UnsupportedError, match=r"hwsim\[parquet\]"):
        hwsim.sweep(STUDY, out=tmp_path / "t.parquet")


def test_a_parquet_table(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"a": 1, "b": None, "c": [1, 2]}, {"a": 2.5, "b": "x", "c": None}]
    table_file.write_table(tmp_path / "t.parquet", ("a", "b", "c"), rows)
    found = parquet.read_table(tmp_path / "t.parquet").to_pylist()
    assert found == [{"a": 1.0, "b": None, "c": "[1, 2]"}, {"a": 2.5, "b": "x", "c": None}]


def test_the_shipped_study_is_ten_chips_and_nine_products_a_step():
    study = read_study(ROOT / "examples" / "sweeps" / "training_step_7b.yaml")
    assert len(study.devices) == 10 and len(study.shapes) == 12 and len(list(study.points())) == 120
    macs = {name: shape["m"] * shape["n"] * shape["k"] for name, shape in study.shapes}
    forward = [macs[name] for name in macs if "forward" in name]
    assert sum(macs.values()) == 3 * sum(forward)  # both gradients are as much work as the forward product


def test_a_size_of_a_template_is_no_number_of_its_devices(tmp_path, capsys):
    chip = tmp_path / "array.yaml"
    assert main(["devices", "new", str(chip), "--template", "systolic", "--set", "rows=32"]) == 0
    assert main(["sweep", "--device", str(chip), "--format", "bf16", "--set", "rows=16,32"]) == 2
    said = capsys.readouterr().err
    assert "has no number 'rows'; it is a size of template systolic" in said and "--device repeated" in said
    assert "hwsim devices new FILE.yaml --template systolic --set rows=N" in said
    assert main(["sweep", "--device", "h200", "--set", "rows=16,32"]) == 2
    assert "template" not in capsys.readouterr().err


def test_a_table_prints_what_tells_its_rows_apart():
    study = {"title": "two chips", "devices": ["h200", "ascend910a"], "m": 64, "n": 64, "k": [64, 128]}
    table = hwsim.sweep(study | {"options": {"format": "bf16"}}, jobs=1, cache=False)
    lines = str(table).splitlines()
    assert lines[0].startswith("best    fastest at k 64: device h200: ")
    assert lines[1].startswith("        fastest at k 128: device h200: ")
    assert "points  4 points, 4 computed, 0 from the cache, 2 refused; two chips" in lines
    assert "In every row that ran: scheme native, m 64, n 64," in str(table)
    head = next(line.split() for line in lines if "device" in line and "cycles" in line)
    rows = [line.split() for line in lines if line.startswith(("  h200", "  ascend910a"))]
    assert "m" not in head and head[:2] == ["device", "k"]
    assert [row[:2] for row in rows] == [[row["device"], str(row["k"])] for row in table.rows]
    assert rows[0][head.index("cycles")] == f"{table.rows[0]['cycles']:,}" and rows[2][-1] == "refused"
    assert "2 points  native on ascend910a: device ascend910a has no native 'bf16'" in str(table)
    assert repr(table) == "<SweepTable two chips: 4 points, 4 computed, 0 from the cache, 2 refused>"
    many = replace(table, rows=table.rows[:1] * 50)
    assert "  10 more rows: --out FILE.csv (in Python out=) writes all of them" in str(many).splitlines()


def test_options_of_one_scheme_hold_for_it_alone():
    entries = ["native", {"scheme": "native", "format": ["bf16", "tf32"]}, {"scheme": "bf16x3", "m": 64}]
    with pytest.raises(ConfigError, match=r"schemes\.2\.m: unknown key 'm'"):
        hwsim.sweep({"devices": "h200", "schemes": entries})
    study = {"devices": "h200", "schemes": [*entries[:2], "bf16x3"], "m": 64, "n": 64, "k": 64}
    table = hwsim.sweep(study, jobs=1, cache=False)
    assert [(row["scheme"], row["format"]) for row in table.rows] == [
        ("native", None),
        ("native", "bf16"),
        ("native", "tf32"),
        ("bf16x3", None),
    ]
    wanted = [hwsim.run(device="h200", m=64, n=64, k=64, exact=False, format=form).cycles for form in ("bf16", "tf32")]
    assert [row["cycles"] for row in table.rows[1:3]] == wanted and table.refused == 0
    with pytest.raises(ConfigError, match=r"schemes\.0: missing key 'scheme'"):
        hwsim.sweep({"devices": "h200", "schemes": [{"format": "bf16"}]})


def test_the_distribution_of_operands_is_an_axis():
    study = {"devices": "h100", "shapes": [[16, 16, 67]], "exact": True, "seeds": [0, 3]}
    table = hwsim.sweep(study | {"options": {"operand_distribution": ["normal", "uniform", "positive"]}}, jobs=1)
    assert "operand_distribution" in table.parameters and len({row["relative_frobenius"] for row in table.rows}) == 6
    for row in table.rows:
        a, b = random_operands(16, 16, 67, seed=row["seed"], distribution=row["operand_distribution"])
        assert row["relative_frobenius"] == hwsim.run(a, b, device="h100").error["relative_frobenius"]


def test_a_value_that_no_declaration_of_an_option_takes_is_refused_with_its_line(tmp_path):
    study = tmp_path / "study.yaml"
    study.write_text("devices: h100\noptions: {distribution: [normal, cyclic], format: bf16}\n")
    with pytest.raises(ConfigError) as refused:
        read_study(study)
    first, *others = str(refused.value).splitlines()
    assert first.endswith(
        "2:26: options.distribution.0: distribution = 'normal'; allowed: cyclic, block; "
        "'normal' is a value of operand_distribution"
    )
    assert not [line for line in others if "distribution" in line]


def test_the_bound_of_a_row_is_the_verdicts():
    """A row of C is on the side of the roofline where compute bounds, and runs at a thousandth of the peak."""
    sizes = {"m": 1, "n": 1024, "k": 1024}
    (row,) = hwsim.sweep({"devices": "h100", "options": {"format": "fp16"}, **sizes}, jobs=1, cache=False).rows
    found = hwsim.run(device="h100", format="fp16", exact=False, **sizes)
    assert row["bound"] == found.verdict.bound != found.roofline.bound == "compute" and row["peak_fraction"] < 0.01


def test_a_study_of_few_points_has_progress_before_its_end():
    assert [sweep_pool.batch_size(count, 2) for count in (1, 30, 64, 1000)] == [1, 3, 8, 16]


def lead_of(*rows, k=64):
    """The best points of errors by device, scheme and seed."""
    named = [
        {"device": device, "scheme": "native", "m": 8, "n": 8, "k": k, "seed": seed, "relative_frobenius": error}
        for device, seed, error in rows
    ]
    return [row | {"memory_format": "fp32", "chosen_format": "fp16", "refused": None} for row in named]


def test_the_most_accurate_point_is_named_for_each_shape_and_where_there_is_one():
    short = lead_of(("left", 0, 1e-6), ("left", 1, 5e-6), ("right", 0, 2e-6), ("right", 1, 2.1e-6))
    alike = lead_of(("left", 0, 2.900e-4), ("right", 0, 2.901e-4), k=128)
    columns = tuple(dict.fromkeys(name for row in short for name in row))
    lines = lead_lines(SweepTable("", columns, (*short, *alike), 6, 0))
    assert lines[0] == "most accurate at k 64: device right: 2.050e-06"  # by the mean over the seeds
    assert lines[1] == "most accurate at k 128: none, all 2 points are within 1 % of 2.900e-04"
    assert lines[2].startswith("errors contain the rounding of operands from fp32 to fp16, and times the cast; input_")
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("memory", "chosen", "is_rounded"),
    [("e4m3", "e4m3fnuz", True), ("e4m3fnuz", "e4m3", True), ("int8", "fp16", False), ("int16", "fp16", True)],
)
def test_errors_contain_a_rounding_where_the_format_lacks_numbers(memory, chosen, is_rounded):
    """e4m3 goes up to 448 and e4m3fnuz to 240, whose exponents are as many."""
    rows = tuple(row | {"memory_format": memory, "chosen_format": chosen} for row in lead_of(("left", 0, 1e-6)))
    lines = lead_lines(SweepTable("", tuple(rows[0]), rows, 1, 0))
    said = f"errors contain the rounding of operands from {memory} to {chosen}"
    assert any(line.startswith(said) for line in lines) == is_rounded


def test_a_tile_may_be_text_as_in_a_run():
    study = {"devices": "h100", "shapes": [[64, 64, 64]]}
    tiles = [{"format": "fp16", "tile": tile} for tile in ("64,64,64", {"m": 64, "n": 64, "k": 64})]
    text, keyed = (hwsim.sweep(study | {"options": options}, jobs=1).rows[0] for options in tiles)
    assert text["cycles"] == keyed["cycles"] > 0
    with pytest.raises(ConfigError, match="tile = '64,x,64'; allowed: integers with commas"):
        hwsim.sweep(study | {"options": {"format": "fp16", "tile": "64,x,64"}})


def test_a_sweep_without_a_point_that_ran_is_an_error_with_the_reason(tmp_path, capsys):
    table = tmp_path / "table.csv"
    words = ["--device", "v100", "--m", "64", "--n", "64", "--out", str(table), "-q", "--no-cache"]
    assert main(["sweep", *words, "--format", "e4m3"]) == 2
    assert "no point ran. 1 point of native on v100: device v100 has no native 'e4m3'" in capsys.readouterr().err
    assert table.exists()  # the reasons of all points
    assert main(["sweep", *words, "--format", "e4m3", "--format", "fp16"]) == 0


def test_a_terminal_gets_a_table_and_a_pipe_csv(capsys, monkeypatch):
    words = [
        "sweep",
        "--device",
        "h100",
        "--m",
        "16",
        "32",
        "--n",
        "16",
        "--k",
        "16",
        "-q",
        "--no-cache",
        "--jobs",
        "1",
    ]
    assert main(words) == 0
    piped = capsys.readouterr().out
    rows = list(csv.DictReader(piped.splitlines()))
    assert len(rows) == 2 and piped.count("\n") == 3
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert (
        shown.startswith("best ")
        and f" {duration(float(rows[0]['seconds']))} " in shown
        and rows[0]["seconds"] not in shown
    )


def test_rows_say_what_crossed_dram_and_what_a_library_is_unsure_of():
    sizes = {"m": 112, "n": 6144, "k": 10240}
    options = {"format": "fp16", "output": "fp16", "l2": ["series", "cold"]}
    table = hwsim.sweep({"devices": ["mi300x", "ascend910a"], **sizes, "options": options}, jobs=1, cache=False)
    for row in table.rows:
        asked = {name: row[name] for name in ("device", "l2", "format", "output")}
        moved = hwsim.run(**asked, **sizes, exact=False).traffic_bytes if row["refused"] is None else {}
        crossed = moved.get("HBM read", 0) + moved.get("HBM write", 0)
        assert row["hbm_bytes"] == (crossed if row["refused"] is None else None)
    assert [row["hbm_bytes"] for row in table.rows][:2] == [
        0,
        2 * (112 * 10240 + 10240 * 6144),
    ]  # C stays in its last cache
    guess = {"devices": ["l40s"], **sizes, "options": {"format": "fp16", "library": ["cublas"]}}
    (row,) = hwsim.sweep(guess, jobs=1, cache=False).rows
    said = hwsim.run(device="l40s", format="fp16", library="cublas", **sizes, exact=False).warnings
    estimated = [warning["message"] for warning in said if warning["code"] == "library_choice_estimated"]
    assert estimated and row["timing_note"] == estimated[0]
    both = hwsim.sweep(guess | {"devices": ["l40s", "h100"]}, jobs=1, cache=False)
    lines = str(both).splitlines()
    assert any(line.split()[0] == "1" for line in lines[lines.index("notes") + 1 :][:1])
    assert not any(estimated[0][:40] in line for line in lines[: lines.index("notes")])


def test_the_verb_takes_distributions_without_a_file(capsys):
    words = ["--device", "h100", "--m", "16", "--n", "16", "--k", "16", "-q", "--no-cache", "--jobs", "1"]
    both = ["--operand-distribution", "normal", "--operand-distribution", "positive"]
    assert main(["sweep", *words, *both]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["operand_distribution"] for row in rows] == ["normal", "positive"]


def test_a_row_says_what_its_times_are_of_and_can_be_repeated():
    study = {
        "devices": ["h200", {"device": "h200", "power_limit_w": 400}],
        "shapes": [{"m": 128, "n": 128, "k": 2112}, {"m": 128, "n": 128, "k": 2112, "batch": 3}],
        "options": {"format": "fp16", "split_k": [10, "auto"], "l2": ["cold", "warm"], "launch_overhead": True},
    }
    for row in hwsim.sweep(study, jobs=1, cache=False).rows:
        limit = {"power_limit_w": row["power_limit_w"]} if row["power_limit_w"] else {}
        again = hwsim.run(
            **{name: row[name] for name in ("device", "scheme", "m", "n", "k", "batch")},
            **limit,
            format=row["chosen_format"],
            input_format=row["memory_format"],
            split_k=row["chosen_split_k"],
            l2=row["timed_l2"],
            launch_overhead=row["timed_launch_overhead"],
            exact=False,
        )
        assert (again.cycles, again.seconds) == (row["cycles"], row["seconds"])
        assert again.state["clock_mhz"] == row["timed_clock_mhz"]
        assert again.state["power_limit_w"] == row["timed_power_limit_w"] == (row["power_limit_w"] or 700)
        if row["split_k"] == 10:
            assert row["chosen_split_k"] == 9


@pytest.mark.parametrize("exact", [True, False])
def test_rows_of_two_problems_are_named_with_what_makes_them_one(exact, capsys):
    native = {"scheme": "native", "format": "fp64"}
    study = {"devices": "a100", "schemes": [native, "ozaki-int8"], "shapes": [[16, 16, 32]], "exact": exact}
    table = hwsim.sweep(study, jobs=1, cache=False)
    wide, narrow = (("ozaki-int8", "native (fp64)"), ("native (fp64)", "ozaki-int8"))[not exact]
    (warning,) = table.warnings
    assert f"in fp32 for {narrow}" in warning and f"in fp64 for {wide}" in warning and "{input_format: fp64}" in warning
    assert warning in lead_lines(table) and table.to_dict()["warnings"] == [warning]
    one = hwsim.sweep(study | {"options": {"input_format": "fp64"}}, jobs=1, cache=False)
    assert not one.warnings and {row["memory_format"] for row in one.rows} == {"fp64"}
    shorter = [{"scheme": "native", "format": ["bf16", "fp16"]}, "bf16x9"]  # formats that were asked for, and one only
    assert not hwsim.sweep(study | {"schemes": shorter}, jobs=1, cache=False).warnings


def test_rows_of_two_problems_have_no_most_accurate_one():
    schemes = [{"scheme": "native", "format": "fp64"}, "ozaki-int8", "ozaki-fp16"]
    study = {"devices": "h100", "schemes": schemes, "shapes": [[16, 16, 67]], "exact": True}
    named = []
    for options in ({}, {"options": {"input_format": "fp64"}}):
        table = hwsim.sweep(study | options, jobs=1, cache=False)
        lines = lead_lines(table)
        assert any(line.startswith("fastest") for line in lines)
        named.append(any(line.startswith("most accurate") for line in lines))
        assert named[-1] != bool(table.warnings)
    assert named == [False, True]


@pytest.mark.parametrize(("other", "format"), [("ozaki-int8", "fp64"), ("ape-int16", "int16")])
def test_no_scheme_of_another_input_format_is_ranked_beside_it(other, format):
    """bf16x9 takes operands of fp32 alone, so no row could have been of the other row's problem without rounding."""
    study = {"devices": "h100", "schemes": ["bf16x9", other], "shapes": [[16, 16, 67]], "exact": True}
    table = hwsim.sweep(study, jobs=1, cache=False)
    (warning,) = table.warnings
    assert f"in fp32 for bf16x9; in {format} for {other}" in warning
    lines = lead_lines(table)
    assert warning in lines and not any(line.startswith("most accurate") for line in lines)
    asked = hwsim.sweep(study | {"options": {"input_format": ["fp32", "fp64"]}}, jobs=1, cache=False)
    accurate = [line for line in lead_lines(asked) if line.startswith("most accurate")]
    assert not asked.warnings and len(accurate) == 2  # one of each problem
    assert [line.split(":")[0] for line in accurate] == [
        f"most accurate at memory_format {format}" for format in ("fp32", "fp64")
    ]


def test_formats_that_cycles_alone_lie_in_are_one_problem_where_they_were_asked_for():
    native, wide = ({"scheme": "native", "format": form} for form in ("bf16", "fp64"))
    study = {"devices": "b200", "shapes": [[16, 16, 64]]}
    for schemes in ([native, "bf16x9"], [wide, "bf16x9"], [native, "mxfp8", "nvfp4"]):
        table = hwsim.sweep(study | {"schemes": schemes}, jobs=1, cache=False)
        assert not table.warnings and len({row["memory_format"] for row in table.rows}) == len(schemes)
    same = hwsim.sweep(study | {"schemes": [native, "mxfp8"], "exact": True}, jobs=1, cache=False)
    assert not same.warnings and {row["memory_format"] for row in same.rows} == {"fp32"}


def test_operands_with_bits_are_drawn_in_the_format_of_the_scheme_whatever_the_unit_s_is():
    schemes = [{"scheme": "native", "format": "fp32"}, "ozaki-int8"]
    study = {"devices": "h100", "schemes": schemes, "shapes": [[16, 16, 67]], "exact": True}
    (warning,) = hwsim.sweep(study, jobs=1, cache=False).warnings
    assert "in fp32 for native (fp32); in fp64 for ozaki-int8" in warning


def test_a_wider_format_rounds_nothing():
    native = {"scheme": "native", "format": ["fp64", "bf16"]}
    study = {"devices": "h100", "schemes": native, "shapes": [[16, 16, 32]], "exact": True}
    rounded = [line for line in lead_lines(hwsim.sweep(study, jobs=1, cache=False)) if "errors contain" in line]
    assert len(rounded) == 1 and "from fp32 to bf16" in rounded[0]


def test_the_verb_warns_of_rows_of_two_problems(capsys, tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text("devices: a100\nschemes: [{scheme: native, format: fp64}, ozaki-int8]\nshapes: [[16, 16, 32]]\n")
    assert main(["sweep", str(file), "--no-cache", "--jobs", "1"]) == 0
    assert "hwsim: warning: rows are of different problems" in capsys.readouterr().err


def test_the_best_is_named_for_each_distribution_and_by_what_makes_it_so():
    both = ["normal", "log-uniform:-20:20"]
    study = {"devices": "h100", "schemes": ["bf16x9", "bf16x3"], "shapes": [[16, 16, 67]], "exact": True}
    table = hwsim.sweep(study | {"options": {"operand_distribution": both}}, jobs=1, cache=False)
    lines = lead_lines(table)
    (fastest,) = [line for line in lines if line.startswith("fastest")]
    assert "scheme " in fastest and "operand_distribution" not in fastest  # all of them take as long
    accurate = [line for line in lines if line.startswith("most accurate")]
    assert [line.split(":", 1)[0] for line in accurate] == [
        "most accurate at operand_distribution normal",
        "most accurate at operand_distribution log-uniform",
    ]
