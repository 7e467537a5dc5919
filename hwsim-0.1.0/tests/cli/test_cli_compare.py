"""hwsim compare: table, JSON, plot, and what is refused."""

import pytest

REPORT = """ID,Kernel Name,gpu__time_duration.sum,m,n,k,format
,,us,,,,
0,a_kernel_with_a_name_that_is_longer_than_a_table_shows,4.0,256,256,128,bf16
1,b,"1,000.0",512,256,128,bf16
2,c,9,,,,
"""


@pytest.fixture
def report(tmp_path):
    (tmp_path / "report.csv").write_text(REPORT, encoding="utf-8")
    return ("compare", "--ncu", "report.csv", "--device", "h200")


def test_table(cli, report, tmp_path):
    (tmp_path / "map.yaml").write_text("c: {m: 128, n: 128, k: 128, format: fp16}\n", encoding="utf-8")
    done = cli(*report)
    lines = done.out.splitlines()
    assert done.code == 0 and lines[0].split() == ["kernel", "shape", "measured", "us", "simulated", "us", "error", "%"]
    assert lines[1].startswith("a_kernel_with_a_name") and "... " in lines[1] and "256x256x128 bf16" in lines[1]
    assert "1,000.00" in lines[2] and "-9" in lines[2].split()[-1]
    assert lines[-1].startswith("no GEMM known") and lines[-1].endswith("1 kernel: c (1)")
    mapped = cli(*report, "--map", "map.yaml").out
    assert "compared     3 kernels on h200" in mapped and "of the logarithms" in mapped and "no GEMM" not in mapped


def test_json(cli, report):
    found = cli(*report, "--json", "--library", "cublas").json
    first = found["kernels"][0]
    assert found["schema"] == "hwsim.compare/1" and found["library"] == "cublas" and found["compared"] == 2
    assert first["error_percent"] == pytest.approx(100 * (first["simulated_us"] / 4.0 - 1))
    assert first["where"] == "report.csv:3" and found["without_gemm"] == {"c": 1} and found["log_correlation"] is None
    errors = [abs(one["error_percent"]) for one in found["kernels"]]
    assert found["mean_absolute_error_percent"] == pytest.approx(sum(errors) / 2)


def test_a_slower_clock_takes_longer(cli, report):
    fast, slow = (cli(*report, "--json", "--clock-mhz", mhz).json["kernels"][0]["simulated_us"] for mhz in (1900, 950))
    assert slow > 1.2 * fast


def test_plot(cli, report, tmp_path):
    pytest.importorskip("matplotlib")
    done = cli(*report, "--plot", "fig.svg")
    assert done.code == 0 and "wrote fig.svg" in done.err
    assert "<svg" in (tmp_path / "fig.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--plot", "fig.gif"), "allowed: a name that ends in .svg, .png, .pdf"),
        (("--map", "none.yaml"), "cannot read the map none.yaml"),
        (("--ncu", "none.csv"), "cannot read the report none.csv"),
        (("--device", "h20o"), "h20o"),
        (("--library", "cublsa"), "no kernel has a simulated time: report.csv:3: kernel a_kernel"),
    ],
)
def test_refused(refused, report, words, message):
    assert message in refused(*report, *words)
