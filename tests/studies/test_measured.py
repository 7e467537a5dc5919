"""Measured kernels beside simulated ones: reports of both pages, maps, agreement, and files that are wrong."""

import math
from pathlib import Path

import pytest

import hwsim
from hwsim.errors import ConfigError, InputError, UnsupportedError
from hwsim.libraries.recording.kernel_map import read_kernel_map
from hwsim.libraries.recording.ncu_csv import read_ncu_csv
from hwsim.studies.measured import ComparedKernel, MeasuredComparison, MeasuredKernel, compare_measured

RAW = """==PROF== Connected to process 4242 (/home/user/app)
done: 3 GEMMs, "all" right
"ID","Process ID","Kernel Name","gpu__time_duration.sum","sm__throughput.avg"
"","","","us","%"
"0","4242","void gemm<bf16, 128>(Params)","1,198.50","91.2"
==PROF== Disconnected from process 4242
"1","4242","softmax","0.5","3"
"""
DETAILS = """==PROF== Profiling "gemm" - 0: 0%....50%....100% - 8 passes
"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"
"0","gemm","GPU Speed Of Light Throughput","DRAM Frequency","Ghz","2.61"
"0","gemm","GPU Speed Of Light Throughput","Duration","ns","198,500"
"0","gemm","Launch Statistics","Registers Per Thread","register/thread","168"
"1","gemm","Command line profiler metrics","gpu__time_duration.sum","msecond","1.5"
"0","gemm","Another Section","Duration","ns","198,500"
"""
ADDED = """ID,Kernel Name,gpu__time_duration.sum,m,n,k,format,scheme,a_layout,b_layout
,,ns,,,,,,,
0,gemm,2500,"1,024",512,256,bf16,native,rows,columns
1,copy,900,,,,,,,
"""


def written(folder: Path, text: str, name: str = "report.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_page_raw(tmp_path):
    path = written(tmp_path, RAW)
    first, second = read_ncu_csv(path)
    assert (first.name, first.gemm, first.where) == ("void gemm<bf16, 128>(Params)", None, f"{path}:5")
    assert first.seconds == pytest.approx(1198.5e-6) and second.seconds == pytest.approx(0.5e-6)
    assert second.where == f"{path}:7"


def test_page_details(tmp_path):
    kernels = read_ncu_csv(written(tmp_path, DETAILS))
    assert [kernel.seconds for kernel in kernels] == pytest.approx([198.5e-6, 1.5e-3])


def test_added_columns(tmp_path):
    gemm, copy = read_ncu_csv(written(tmp_path, "\ufeff" + ADDED.replace("\n", "\r\n")))
    assert gemm.gemm == {
        "m": 1024, "n": 512, "k": 256, "format": "bf16", "scheme": "native", "a_layout": "rows", "b_layout": "columns",
    }  # fmt: skip
    assert copy.gemm is None


@pytest.mark.parametrize(
    ("text", "old", "new", "line", "message"),
    [
        (RAW, '"","","","us","%"\n', "", 4, "the row of units is expected"),
        (RAW, '"us"', '"cycle"', 4, 'got "cycle"; allowed: ns'),
        (RAW, '"1,198.50"', '"11,98.50"', 5, 'duration: got "11,98.50"'),
        (RAW, '"1,198.50"', '"1.198,50"', 5, "duration: got"),
        (RAW, '"1,198.50"', '"0"', 5, "a number above 0"),
        (RAW, '"1,198.50"', '"n/a"', 5, 'got "n/a"'),
        (RAW, '"softmax"', '""', 7, '"Kernel Name" is empty'),
        (RAW, '"1","4242","softmax","0.5","3"', "step 2 done", 7, "1 fields where the head has 5"),
        (RAW, '"softmax"', '"soft"max"', 7, "not readable as CSV"),
        (RAW, '"sm__throughput.avg"', '"ID"', 3, "column ID stands twice"),
        (DETAILS, '"ns","198,500"', '"Ghz","198,500"', 4, 'got "Ghz"'),
        (ADDED, "512,256", "512,", 3, "m, n, format, scheme, a_layout, b_layout without k"),
        (ADDED, "512,256", "512,2.5", 3, 'k: got "2.5"; allowed: an integer of at least 1'),
        (ADDED, "512,256", "0,256", 3, 'n: got "0"'),
    ],
)
def test_a_wrong_line_is_named(tmp_path, text, old, new, line, message):
    assert text.count(old) >= 1
    path = written(tmp_path, text.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        read_ncu_csv(path)
    assert str(caught.value).startswith(f"{path}:{line}: ") and message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'no head with columns "ID" and "Kernel Name"'),
        ("==PROF== Connected\nnothing\n", "in 3 lines"),
        ("ID,Kernel Name,Grid Size\n", "no column gpu__time_duration.sum"),
        ("ID,Kernel Name,gpu__time_duration.sum\n", "no row of units"),
        ("ID,Kernel Name,Metric Name\n", "without Metric Unit, Metric Value"),
        (DETAILS.replace("Duration", "Elapsed").replace("gpu__time", "gpc__time"), "no metric Duration or"),
    ],
)
def test_what_is_no_report(tmp_path, text, message):
    with pytest.raises(InputError, match=r"report\.csv") as caught:
        read_ncu_csv(written(tmp_path, text))
    assert message in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="cannot read the report"):
        read_ncu_csv(tmp_path / "none.csv")
    (tmp_path / "wide.csv").write_bytes(RAW.encode("utf-16"))
    with pytest.raises(InputError, match="not UTF-8"):
        read_ncu_csv(tmp_path / "wide.csv")


def test_the_first_pattern_counts_and_columns_come_first(tmp_path):
    path = written(tmp_path, "ge.m: {m: 64, n: 64, k: 64, format: fp16}\ngemm: {m: 1, n: 1, k: 1}\n", "map.yaml")
    kernels = [MeasuredKernel("a_gemm_b", 1.0), MeasuredKernel("a_gemm_b", 1.0, {"m": 2, "n": 2, "k": 2})]
    mapped = read_kernel_map(path).applied([*kernels, MeasuredKernel("copy", 1.0)])
    assert [kernel.gemm for kernel in mapped] == [
        {"m": 64, "n": 64, "k": 64, "format": "fp16"},
        {"m": 2, "n": 2, "k": 2, "format": "fp16"},
        None,
    ]


def test_a_wrong_map_tells_all_problems(tmp_path):
    path = written(
        tmp_path, '"gemm(": {m: 1, n: 1, k: 1}\nb: {m: 0, n: 1, k: 1, formt: bf16}\nc: 5\nd: {m: 1}\n', "m.yaml"
    )
    with pytest.raises(ConfigError) as caught:
        read_kernel_map(path)
    text = str(caught.value)
    for line, message in (
        (1, "not a regular expression"),
        (2, "m: got 0"),
        (2, "did you mean 'format'?"),
        (3, "got 5; needs a mapping"),
        (4, "missing key 'n'"),
    ):
        assert any(f"m.yaml:{line}:" in one and message in one for one in text.splitlines()), (line, message)


def test_times_are_those_of_run():
    gemm = {"m": 256, "n": 256, "k": 128, "format": "bf16"}
    rows = [MeasuredKernel("a", 2e-6, gemm), MeasuredKernel("b", 1e-6), MeasuredKernel("b", 1e-6)]
    shares: list[float] = []
    found = compare_measured(rows, device="h200", progress=shares.append)
    own = hwsim.run(device="h200", exact=False, **gemm).seconds
    assert found.kernels[0].simulated_seconds == own and found.kernels[0].error == pytest.approx(own / 2e-6 - 1)
    assert found.without_gemm == {"b": 2} and shares == [1.0]
    library = compare_measured(rows, device="h200", library="cublas", b_layout="columns").kernels[0]
    same = hwsim.run(device="h200", library="cublas", b_layout="columns", exact=False, **gemm)
    assert library.simulated_seconds == same.seconds


def test_what_the_device_cannot_do_is_a_row():
    sizes = {"m": 64, "n": 64, "k": 64}
    rows = [MeasuredKernel(name, 1e-6, {**sizes, "format": name}) for name in ("e4m3", "fp16")]
    refused, timed = compare_measured(rows, device="v100").kernels
    assert refused.simulated_seconds is None and "e4m3" in refused.refused and refused.error is None
    assert timed.simulated_seconds is not None and not timed.refused
    with pytest.raises(UnsupportedError, match=r"no kernel has a simulated time: kernel e4m3: .*e4m3"):
        compare_measured(rows[:1], device="v100")


def test_what_does_not_fit_names_its_line():
    row = MeasuredKernel("a", 1e-6, {"m": 64, "n": 64, "k": 64, "tile": "none"}, "r.csv:7")
    with pytest.raises(InputError, match=r"^r\.csv:7: kernel a: "):
        compare_measured([row], device="h200")
    with pytest.raises(InputError, match="a number above 0"):
        compare_measured([MeasuredKernel("a", math.nan)], device="h200")
    with pytest.raises(InputError, match=r"no n, k; give m, n and k"):
        compare_measured([MeasuredKernel("a", 1e-6, {"m": 1})], device="h200")
    with pytest.raises(InputError, match=r"not known for any of the kernels \(a\).*--map"):
        compare_measured([MeasuredKernel("a", 1e-6)], device="h200")


def test_agreement():
    pairs = [(1e-6, 1.1e-6), (1e-5, 0.8e-5), (1e-4, 1e-4), (1e-3, None)]
    kernels = tuple(ComparedKernel(MeasuredKernel("a", measured, {}), simulated) for measured, simulated in pairs)
    found = MeasuredComparison("d", None, kernels)
    assert found.mean_absolute_error == pytest.approx(0.1) and found.median_absolute_error == pytest.approx(0.1)
    x, y = ([math.log(pair[i]) for pair in pairs[:3]] for i in (0, 1))
    dx, dy = ([v - sum(one) / 3 for v in one] for one in (x, y))
    expected = sum(a * b for a, b in zip(dx, dy, strict=True)) / math.hypot(*dx) / math.hypot(*dy)
    assert found.log_correlation == pytest.approx(expected) and expected < 0.999
    assert MeasuredComparison("d", None, kernels[:2]).log_correlation is None
    nothing = ComparedKernel(MeasuredKernel("a", 1e-6, {}), 0.0)  # no longer than a launch: it has no logarithm
    assert MeasuredComparison("d", None, (*kernels, nothing)).log_correlation == found.log_correlation
