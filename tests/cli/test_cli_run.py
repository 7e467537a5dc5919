"""`hwsim run`: what it prints and writes, and that neither depends on how it was run."""

import csv
import hashlib
import json
import re

import numpy as np
import pytest

import hwsim
from hwsim.analysis.stall_words import stall_words
from hwsim.schemes import schemes
from hwsim.trace.trace import Trace

SMALL = ("run", "--device", "ascend910a", "--scheme", "sgemm-cube", "--m", 50, "--n", 37, "--k", 67)

KEYS = {
    "schema",
    "device",
    "scheme",
    "options",
    "m",
    "n",
    "k",
    "seed",
    "cycles",
    "seconds",
    "tflops",
    "peak_fraction",
    "phases",
    "error",
    "result_sha256",
    "engines",
    "traffic_bytes",
    "evidence",
    "warnings",
    "hwsim_version",
    "kernel",
    "device_sha256",
}


@pytest.fixture
def pair(tmp_path):
    """A and B as files, with what makes the bits interesting: subnormals, signed zeros, cancellation, large values."""
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2**32, (50 * 67 + 67 * 37,), np.uint32)
    exponents = rng.integers(100, 140, bits.shape, np.uint32)
    x = ((bits & 0x807FFFFF) | exponents << 23).view(np.float32)
    x[:4] = [0.0, -0.0, 1e-45, -1e-40]
    a, b = x[: 50 * 67].reshape(50, 67), x[50 * 67 :].reshape(67, 37)
    a[7], a[8] = 1.0, -a[7]
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    return a, b


def test_json_has_all_keys_and_nothing_else_is_on_stdout(cli):
    done = cli(*SMALL, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.out.count("\n") == 1
    result = done.json
    assert set(result) >= KEYS
    assert result["schema"] == "hwsim.run/1"
    assert (result["m"], result["n"], result["k"], result["seed"]) == (50, 37, 67, 0)
    assert set(result["error"]) == {"relative_frobenius", "max_relative", "baseline", "worst"}
    assert set(result["error"]["baseline"]) == {"relative_frobenius", "max_relative"}
    assert 0 < result["error"]["relative_frobenius"] < 1e-6
    assert isinstance(result["cycles"], int)
    assert sum(phase["cycles"] for phase in result["phases"]) == result["cycles"]
    assert result["tflops"] == pytest.approx(2 * 50 * 37 * 67 / result["seconds"] / 1e12)
    for engine in result["engines"].values():
        assert set(engine) == {"busy_cycles", "stall_cycles"}
    assert result["evidence"] == {"numerics": "assumption", "timing": "assumption"}
    assert len(result["device_sha256"]) == 64


def test_shares_of_phases_add_up_to_the_whole(cli):
    words = ("run", "--device", "ascend910a", "--scheme", "sgemm-cube", "--m", 352, "--n", 352, "--k", 640)
    phases = cli(*words, "--no-exact", "--json").json["phases"]
    lines = [line.split() for line in cli(*words, "--no-exact").out.splitlines()]
    shares = [float(line[line.index("%") - 1]) for line in lines if line and line[0] in {x["name"] for x in phases}]
    assert len(shares) == len(phases) > 2
    assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares))


def test_without_exact_there_are_cycles_alone(cli):
    whole, timed = cli(*SMALL, "--json").json, cli(*SMALL, "--json", "--no-exact").json
    assert set(timed) == set(whole)
    assert timed["error"] is timed["result_sha256"] is timed["seed"] is None
    assert timed["cycles"] == whole["cycles"] > 0


def test_what_is_timed_says_in_which_format_operands_are(cli):
    """fp32 operands are cast in a kernel of their own; sizes alone are taken to be in the unit's format already."""
    words = ("run", "--device", "h200", "--format", "fp16", "--m", 256, "--n", 256, "--k", 256)
    whole, short = cli(*words, "--json").json, cli(*words, "--json", "--input-format", "fp16").json
    assert (whole["options"]["input_format"], short["options"]["input_format"]) == ("fp32", "fp16")
    assert short["cycles"] < whole["cycles"] and len(short["phases"]) < len(whole["phases"])
    assert short["result_sha256"] == whole["result_sha256"]  # the same rounding, before or in the program
    timed = cli(*words, "--json", "--no-exact").json
    assert (timed["options"], timed["cycles"]) == (short["options"], short["cycles"])
    cast = cli(*words, "--json", "--no-exact", "--input-format", "fp32").json
    assert (cast["options"], cast["cycles"]) == (whole["options"], whole["cycles"])
    assert "fp16 in memory assumed" in " ".join(cli(*words, "--no-exact").out.split())
    refused = cli(*words, "--no-exact", "--input-format", "fp61")
    assert refused.code == 2 and "'fp61' is not a format" in refused.err


def test_without_timing_there_are_bits_alone(cli):
    whole, exact = cli(*SMALL, "--json").json, cli(*SMALL, "--json", "--no-timing").json
    assert set(exact) == set(whole)
    assert exact["cycles"] is exact["seconds"] is exact["tflops"] is exact["peak_fraction"] is None
    assert exact["timing_note"]
    assert exact["phases"] == [] and exact["engines"] == {} and exact["traffic_bytes"] == {}
    assert exact["result_sha256"] == whole["result_sha256"]


def test_the_result_does_not_depend_on_threads(cli):
    one, two = (cli(*SMALL, "--json", "--threads", n).json for n in (1, 2))
    assert one == two


def test_the_seed_chooses_the_matrices(cli):
    shas = [cli(*SMALL, "--json", "--seed", seed).json["result_sha256"] for seed in (0, 0, 1)]
    assert shas[0] == shas[1] != shas[2]


def test_out_holds_the_bits_that_the_api_gives(cli, pair, tmp_path):
    done = cli("run", "--scheme", "sgemm-cube", "--a", "a.npy", "--b", "b.npy", "--out", "c.npy", "--json")
    assert done.code == 0 and "c.npy" in done.err
    c = np.load(tmp_path / "c.npy")
    expected = hwsim.matmul(*pair, device="ascend910a", scheme="sgemm-cube")
    assert c.dtype == np.float32 and c.shape == (50, 37)
    assert (c.view(np.uint32) == expected.view(np.uint32)).all()
    assert hashlib.sha256(c.tobytes()).hexdigest() == done.json["result_sha256"]
    assert done.json["seed"] is None


@pytest.mark.parametrize("change", [np.asfortranarray, lambda x: x.astype(">f4"), lambda x: x.astype(np.float64)])
def test_the_way_a_matrix_is_stored_does_not_matter(cli, pair, change):
    def run():
        return cli("run", "--scheme", "sgemm-cube", "--a", "a.npy", "--b", "b.npy", "--json").json["result_sha256"]

    expected = run()
    for name, x in zip(("a.npy", "b.npy"), pair, strict=True):
        np.save(name, change(x))
    assert run() == expected


def test_large_files_are_mapped_and_give_the_same(cli, pair, monkeypatch):
    words = ("run", "--scheme", "sgemm-cube", "--a", "a.npy", "--b", "b.npy", "--json")
    expected = cli(*words).json
    monkeypatch.setattr("hwsim.cli.matrices.MAP_FROM_BYTES", 1)
    assert cli(*words).json == expected


def test_special_values_are_counted_not_refused(cli):
    a = np.ones((16, 16), np.float32)
    b = a.copy()
    a[0, 0], a[1, 1], b[2, 2] = np.nan, np.inf, -np.inf
    np.save("a.npy", a)
    np.save("b.npy", b)
    done = cli("run", "--scheme", "sgemm-cube", "--a", "a.npy", "--b", "b.npy", "--json")
    assert done.code == 0
    counts = {x["code"]: x["count"] for x in done.json["warnings"]}
    assert counts["nan_input"] == 1 and counts["infinite_input"] == 2
    assert "NaN" not in done.out.replace("1 NaN", "") and "Infinity" not in done.out
    human = cli("run", "--scheme", "sgemm-cube", "--a", "a.npy", "--b", "b.npy")
    assert human.code == 0 and "undefined" in human.out and "1 NaN elements" in human.out


def test_tile_in_either_form_and_blocking(cli):
    words = (*SMALL, "--json", "--n-fused", 3, "--buffering", "single")
    short = cli(*words, "--tile", "32,16,48").json
    assert short["options"]["tile"] == {"m": 32, "k": 16, "n": 48}
    assert short["options"]["n_fused"] == 3 and short["options"]["buffering"] == "single"
    assert cli(*words, "--tile", "n=48,m=32,k=16").json == short


def test_scheme_options_by_name(cli):
    for words, name, value in (
        (("--scaling-exponent", "6"), "scaling_exponent", 6),
        (("--accumulation", "elementwise"), "accumulation", "elementwise"),
        (("--tile", "32,32,32", "--k-group", "64"), "k_group", 64),
    ):
        done = cli(*SMALL, "--json", *words)
        assert done.code == 0, done.err
        assert done.json["options"][name] == value


def test_every_option_of_every_scheme_has_a_flag(cli):
    text = cli("run", "--help-all").out
    for scheme in schemes().values():
        for option in scheme.options:
            assert f"--{option.name.replace('_', '-')} " in text


def test_native_runs_with_a_format(cli):
    done = cli("run", "--scheme", "native", "--format", "fp16", "--m", 33, "--n", 16, "--k", 3, "--json")
    assert done.code == 0 and done.json["options"]["format"] == "fp16"


def test_the_report_says_whose_results_the_bits_were_compared_with(cli):
    for device, said in (
        ("t4", "numerics: paper (a publication says so: no result of these instructions was compared here)"),
        ("a100", "numerics: silicon-by-others (compared with results of this chip that others recorded)"),
    ):
        out = cli("run", "--device", device, "--format", "fp16", "--m", 16, "--n", 16, "--k", 16).out
        assert said in " ".join(out.split())
    assert (
        "numerics: silicon\n" in cli("run", "--device", "h200", "--format", "fp16", "--m", 16, "--n", 16, "--k", 16).out
    )


def test_the_human_report_says_the_same(cli):
    result, text = cli(*SMALL, "--json").json, cli(*SMALL).out
    assert f"{result['cycles']:,} cycles" in text
    assert result["result_sha256"] in text and result["device_sha256"] in text
    assert "32 cores at 1,000 MHz" in text
    assert f"{result['error']['relative_frobenius']:.3e}" in text
    assert f"{result['error']['baseline']['max_relative']:.3e}" in text
    assert "numerics: assumption (no source fixes" in text and "timing: assumption (some rates" in text
    for phase in result["phases"]:
        assert f"{phase['name']} " in text and f"{phase['cycles']:,}" in text
    for link, size in result["traffic_bytes"].items():
        assert link in text and f"{size:,} bytes" in text
    for engine in ("M", "MTE1", "MTE2", "MTE3", "V"):
        busy = result["engines"][engine]["busy_cycles"]
        total = hwsim.device(result["device"]).cores * result["cycles"]
        assert f"{100 * busy / total:.1f} %  busy" in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_the_largest_stall_of_an_engine_comes_first(cli):
    result, lines = cli(*SMALL, "--json").json, cli(*SMALL).out.splitlines()
    line = next(line for line in lines if line.split()[:1] == ["M"])
    stalls = result["engines"]["M"]["stall_cycles"]
    assert stall_words(max(stalls, key=stalls.get)) in line


@pytest.mark.parametrize("suffix", [".pftrace", ".json", ".csv", ".npz"])
def test_trace_files(cli, tmp_path, suffix):
    done = cli(*SMALL, "--no-exact", "--trace", f"t{suffix}")
    assert done.code == 0, done.err
    assert f"wrote t{suffix}" in done.err
    assert (tmp_path / f"t{suffix}").stat().st_size > 1000
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"t{suffix}"]
    if suffix == ".json":
        assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


def test_a_part_of_a_trace(cli, tmp_path):
    words = (*SMALL, "--no-exact", "-q", "--trace")
    assert cli(*words, "t.csv").code == 0
    assert cli(*words, "p.csv", "--trace-core", 0, "--trace-from", 500, "--trace-to", 900).code == 0
    whole, part = (list(csv.DictReader((tmp_path / name).open())) for name in ("t.csv", "p.csv"))
    assert 0 < len(part) < len(whole)
    assert part == [
        row for row in whole if row["core"] == "0" and float(row["end"]) >= 500 and float(row["start"]) < 900
    ]


def test_gantt(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "72")
    words = ("run", "--scheme", "sgemm-cube", "--m", 256, "--n", 256, "--k", 512, "--no-exact", "-q")
    plain, drawn = cli(*words).out, cli(*words, "--gantt").out
    assert drawn.startswith(plain.rstrip())
    chart = drawn[len(plain.rstrip()) :]
    names = [line.split(":")[0] for line in chart.splitlines() if ": cycles" in line]
    assert names == ["whole", "first tiles", "steady"]
    cells = [line for line in chart.splitlines() if "|" in line]
    assert {line.split()[0] for line in cells} == {"V", "M", "MTE1", "MTE2", "MTE3"} and len(cells) == 15
    assert max(map(len, cells)) <= 72
    assert "kernel gemm, the longest of split_a, split_b, zero, gemm, combine; core 0" in chart
    part = ("--trace-from", 1000, "--trace-to", 1500)
    assert cli(*words, "--gantt", "--trace", "part.csv", *part).out == drawn
    monkeypatch.setattr(Trace, "LIMIT", len((tmp_path / "part.csv").read_text().splitlines()))
    cut = cli(*words, "--gantt", *part).out  # the kernel begins within the part
    assert re.search(r"^part: cycles 1,\d\d\d to 1,500,", cut, re.MULTILINE) and "whole:" not in cut
    only = cli(*words, "--gantt", "--trace-core", 99)
    assert only.code == 2 and "trace of core 99" in only.err


def test_quiet_says_nothing_on_stderr(cli):
    assert cli(*SMALL, "--no-exact", "--trace", "t.csv", "-q").err == ""


@pytest.mark.parametrize(
    ("sizes", "cycles", "time"),
    [
        (
            (64, 64, 64),
            r"[\d,]+ cycles of the program",
            r"[\d.]+ [nu]s with fitted times .*without launches and host",
        ),
        ((2, 2, 16), r"[\d,]+ cycles of the program", r"[\d.]+ [nu]s with fitted times"),  # hardly more than a launch
        (  # no tile
            (1, 256, 256),
            r"none: the library's kernel gemv: the sm90 dataflow carries no written-out sum",
            r"[\d.]+ [un]s with fitted times",
        ),
    ],
)
def test_a_librarys_time_is_named_for_what_it_is(cli, sizes, cycles, time):
    words = ("run", "--device", "h200", "--library", "cublas", "--format", "tf32", "--no-exact")
    words += tuple(word for name, size in zip("mnk", sizes, strict=True) for word in (f"--{name}", size))
    done, result = cli(*words), cli(*words, "--json").json
    assert done.code == 0 and result["evidence"]["timing"]
    lines = re.sub(r"\n {2,}", " ", done.out)
    assert re.search(f"^cycles +{cycles}$", lines, re.MULTILINE) and re.search(f"^time +{time}", lines, re.MULTILINE)
    rate = "none: the kernels take no longer than a launch" if result["tflops"] is None else r"[\d.]+ TFLOP/s"
    assert re.search(f"^rate +{rate}", lines, re.MULTILINE) and (result["tflops"] is None) == (result["seconds"] == 0)


def test_a_device_without_timing_data_says_why(cli, tmp_path):
    device = cli("devices", "show", "ascend910a", "--json").json["device"]
    del device["hbm"]
    (tmp_path / "chip.yaml").write_text(json.dumps(device))  # JSON is YAML
    words = ("run", "--device", "chip.yaml", "--scheme", "sgemm-cube", "--m", 32, "--n", 32, "--k", 32)
    result = cli(*words, "--json").json
    assert result["cycles"] is None and "no timing data: no hbm" in result["timing_note"]
    assert result["result_sha256"]
    assert "cycles  none: device ascend910a has no timing data" in cli(*words).out
    refused = cli(*words, "--trace", "t.json")
    assert (refused.code, refused.out) == (2, "") and "no hbm" in refused.err
    assert not (tmp_path / "t.json").exists()


def test_clock_and_launches(cli, tmp_path):
    words = ("run", "--m", 64, "--n", 64, "--k", 64, "--no-exact")
    plain, slow = cli(*words, "--json").json, cli(*words, "--clock-mhz", 500, "--json").json
    assert slow["seconds"] == slow["cycles"] / 500e6 > plain["seconds"] and slow["options"]["clock_mhz"] == 500
    assert "at 500 MHz" in cli(*words, "--clock-mhz", 500).out
    assert cli(*words, "--clock-mhz", 0).code == 2
    device = cli("devices", "show", "ascend910a", "--json").json["device"]
    (tmp_path / "chip.yaml").write_text(
        json.dumps(device | {"launch_overhead_us": {"value": 3.0, "source": "NONE; a test", "evidence": "assumption"}})
    )
    done = cli(*words, "--device", "chip.yaml", "--launch-overhead", "--json").json
    assert done["seconds"] == pytest.approx(plain["seconds"] + 3e-6 * len(plain["phases"]))
    assert "launches included" in cli(*words, "--device", "chip.yaml", "--launch-overhead").out


def test_blocking_of_other_families_is_refused(cli):
    done = cli("run", "--m", 64, "--n", 64, "--k", 64, "--stages", 3)
    assert done.code == 2 and "stages = 3: programs of family davinci have tile, n_fused, buffering" in done.err
    cut = cli("run", "--device", "a100", "--format", "fp16", "--m", 64, "--n", 64, "--k", 256, "--split-k", 2, "--json")
    assert cut.json["schedule"]["split_k"] == 2 and cut.json["options"]["split_k"] == 2


def test_what_to_speed_up(cli, refused):
    words = ["run", "--device", "a100", "--m", "256", "--n", "256", "--k", "256", "--format", "fp16", "--no-exact"]
    done = cli(*words, "--what-if")
    assert done.code == 0 and "what to speed up" in done.out and "roofline" in done.out
    data = cli(*words, "--what-if", "--json").json
    assert min(part["cycles"] for part in data["what_if"]) < data["cycles"] and data["roofline"]["attainable"] > 0
    assert "--what-if" in refused(
        "run", "--device", "a2", "--m", 16, "--n", 16, "--k", 16, "--format", "fp16", "--what-if"
    )


@pytest.mark.parametrize(
    "options, first",
    [
        (
            ("--device", "h100", "--format", "bf16", "--m", 8192, "--n", 64, "--k", 8192, "--no-exact"),
            "memory bound: DRAM ",
        ),
        (
            ("--device", "h100", "--format", "bf16", "--m", 512, "--n", 64, "--k", 64),
            "bound by passes without products: ",
        ),
        (("--device", "h100", "--m", 64, "--n", 64, "--k", 64, "--no-timing"), "no verdict on the time: not asked for"),
    ],
)
def test_the_verdict_comes_first_of_what_comes_out(cli, options, first):
    """In text, after what was asked; in JSON with the same words; the advice names options that `run` takes."""
    lines = cli("run", *options).out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("verdict "))
    assert {line.split()[0] for line in lines[:at] if line[0] != " "} <= {"problem", "formats", "scheme", "device"}
    assert lines[at].split(None, 1)[1].startswith(first)
    verdict = json.loads(cli("run", *options, "--json").out)["verdict"]
    text = " ".join(line.strip() for line in lines[at : at + 4]).removeprefix("verdict ").strip()
    assert text.startswith(verdict["text"])
    if verdict["advice"]:
        assert cli("run", *options, *verdict["advice"][0]["option"].split()).code == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--format", "bf16"), "A and B in fp32, C in fp32"),
        (("--format", "bf16", "--input-format", "bf16", "--output", "bf16"), "A and B in bf16, C in bf16"),
        (("--format", "e4m3", "--format-b", "e5m2", "--no-exact"), "A in e4m3, B in e5m2, C in fp32"),
    ],
)
def test_the_report_says_the_formats_of_a_b_and_c(cli, options, said):
    report = cli("run", "--device", "h200", "--m", 64, "--n", 64, "--k", 64, *options).out
    assert f"\nformats   {said} (--output FORMAT for another)\n" in report
