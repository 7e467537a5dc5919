"""The page of a run, without a browser: what it holds, and that it loads nothing."""

from __future__ import annotations

import json
import re
import sys
from html import unescape
from pathlib import Path

import numpy as np
import pytest

import hwsim
from hwsim.analysis.error_map import CELLS, error_map
from hwsim.analysis.errors import LinearEpilogue
from hwsim.analysis.verdict import lost_words
from hwsim.cli import main
from hwsim.report.page import page as page_module
from hwsim.report.page.critical_path import critical_path
from hwsim.report.page.page import Code, Facts, Page, PageSection, Plot, Table, Text
from hwsim.report.page.run_page import engine_label, kernel_works, run_page
from hwsim.report.page.units import unit_of
from hwsim.report.text.words import count, duration, percent
from hwsim.result import Result
from hwsim.trace.rows import TRACE_DTYPE

TITLES = (
    "Summary", "Error", "Time", "Phases", "Engines and stalls", "What to speed up", "Timeline", "Critical path",
    "Roofline", "Traffic", "Dataflow", "Decisions", "Numbers", "Record",
)  # fmt: skip
#: What a browser would follow by itself; links that a reader may click are not among it.
LOADS = re.compile(r"<(?:script|img|iframe|link|source|object)[^>]*\s(?:src|href|data)=|@import|url\(\s*['\"]?http")


@pytest.fixture(scope="module")
def result() -> Result:
    return hwsim.run(device="ascend910a", scheme="sgemm-cube", m=200, n=136, k=256, l2="cold")


@pytest.fixture(scope="module")
def page(result: Result, tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("plotly")
    path = tmp_path_factory.mktemp("page") / "run.html"
    result.report(path)
    return path.read_text(encoding="utf-8")


def own_part(page: str) -> str:
    """The page without plotly's JavaScript, as plain text of HTML."""
    return unescape(re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL))


def data_text(page: str) -> str:
    return page.partition('id="data">')[2].partition("</script>")[0].replace("<\\/", "</")


def figures_of(page: str) -> dict[str, dict[str, object]]:
    text = page.rpartition('id="figures">')[2].partition("</script>")[0]
    found: dict[str, dict[str, object]] = json.loads(text.replace("<\\/", "</"))
    return found


def test_each_section_is_there_and_nothing_is_loaded(page: str) -> None:
    titles = re.findall(r"<h2>(.*?)</h2>", page)
    assert tuple(titles) == TITLES
    assert not LOADS.search(re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL))
    assert not re.search(r"<script[^>]*\ssrc=", page)


def test_the_values_are_those_of_the_result(page: str, result: Result) -> None:
    text, plain = own_part(page), result.to_dict()
    assert f"{count(plain['cycles'])} cycles" in text
    assert f"{plain['tflops']:,.2f} TFLOP/s" in text
    assert f"{plain['error']['relative_frobenius']:.3e}" in text
    assert plain["result_sha256"] in text and plain["device_sha256"] in text
    for phase in plain["phases"]:
        assert f">{phase['name']}</td>" in text and f">{count(phase['cycles'])}<" in text
    data = json.loads(data_text(page))
    assert data.pop("page") in text and data == json.loads(json.dumps(plain))


def test_the_plots_have_the_numbers_of_the_result(page: str, result: Result) -> None:
    figures = list(figures_of(page).values())
    by_title = {figure["layout"]["xaxis"]["title"]["text"]: figure["data"] for figure in figures}  # type: ignore[index]
    of_time = [x for x in figures if x["layout"]["xaxis"]["title"]["text"] == "share of the time of all cores (%)"]
    by_rows = {figure["layout"]["yaxis"]["title"]["text"]: figure["data"] for figure in of_time}  # type: ignore[index]
    busy = by_rows["engine"][0]
    assert busy["name"] == "busy"
    engines = {engine_label(name): entry for name, entry in result.engines.items()}
    for name, share in zip(busy["y"], busy["x"], strict=True):
        total = hwsim.device(result.device).cores * result.cycles  # type: ignore[operator]
        assert share == pytest.approx(100 * engines[name]["busy_cycles"] / total)
    (went,) = by_rows["where the time goes"]
    assert went["y"][-1] == "the matrix units work" and went["x"][-1] == pytest.approx(100 * (result.verdict.busy or 0))
    assert {lost_words(cause) for cause, share in result.verdict.lost.items() if share >= 0.001} <= set(went["y"])
    (moved,) = by_title["moved, all cores (MiB)"]
    assert dict(zip(moved["y"], moved["customdata"], strict=True)) == {
        name: count(size) for name, size in result.traffic_bytes.items() if size
    }
    (saved,) = by_title["saved (% of the cycles)"]
    gains = {gain.part: gain for gain in result.what_if or []}
    assert saved["x"] == sorted(saved["x"]) and saved["y"][-1] == next(iter(gains))
    assert all(x == pytest.approx(100 * gains[name].saved) for name, x in zip(saved["y"], saved["x"], strict=True))


def test_the_title_has_format_and_time(page: str, result: Result) -> None:
    assert result.seconds is not None
    title = f"sgemm-cube fp32 on ascend910a, 200 x 136 x 256: {duration(result.seconds)}"
    assert f"<h1>{title}</h1>" in page
    first = [unescape(line) for line in re.findall(r'<p class="lead">(.*?)</p>', page)]
    assert first == [*result.verdict.sentences, str(result.verdict.advice[0])]
    bf16 = hwsim.run(device="h200", m=64, n=64, k=64, format="bf16", exact=False)
    assert run_page(bf16).title.startswith("native bf16 on h200, 64 x 64 x 64: ")
    of_library = run_page(hwsim.run(device="h200", m=64, n=64, k=64, format="bf16", exact=False, library="cublas"))
    assert of_library.title.startswith("native bf16 by cublas on h200, ")


def test_kernels_around_the_products_are_named_for_their_work(page: str, result: Result) -> None:
    works = kernel_works(result.times.program)
    assert works == {
        "split_a": "converts, splits, quantises or packs operands",
        "split_b": "converts, splits, quantises or packs operands",
        "pack_b": "converts, splits, quantises or packs operands",
        "zero": "fills memory with zeros",
        "gemm": "matrix products",
        "combine": "joins sums",
    }
    share = sum(phase["cycles"] for phase in result.phases if phase["name"] in ("split_a", "split_b", "pack_b")) / (
        result.cycles or 0
    )
    assert f"{percent(share)} of the cycles go to kernels that prepare the operands, fp32 in memory" in page


def test_the_record_in_the_page_runs_again(page: str, result: Result) -> None:
    records = [unescape(x) for x in re.findall(r"<pre>(.*?)</pre>", page, flags=re.DOTALL)]
    assert records[0] == "hwsim run --gemm gemm.json --l2 cold --seed 0"
    again = hwsim.run(gemm=json.loads(records[1]), l2="cold")
    assert again.result_sha256 == result.result_sha256 and again.cycles == result.cycles


def test_axes_say_what_they_show_and_colours_are_the_palettes(page: str) -> None:
    figures = figures_of(page)
    assert len(figures) >= 6
    for name, figure in figures.items():
        layout = figure["layout"]
        assert isinstance(layout, dict)
        for axis in ("xaxis", "yaxis"):
            assert layout[axis]["title"]["text"], f"{name} has no {axis} title"
    histogram = next(iter(figures.values()))["data"]
    assert isinstance(histogram, list) and sum(histogram[0]["y"]) == pytest.approx(100)


def test_numbers_have_units_evidence_and_sources(page: str) -> None:
    text = own_part(page)
    assert re.search(r">clock_mhz</td><td[^>]*>1,000</td><td[^>]*>MHz</td><td[^>]*>paper</td><td[^>]*>S1", text)
    assert "instructions.mmad.m16n16k16.f32.f16.f16.m<" in text
    assert "instructions.mmad.m16n16k32.s32.s8.s8.m<" not in text, "an instruction that the run does not use"
    assert unit_of("hbm.bytes_per_second") == "bytes/s" and unit_of("sustained_clock_mhz.fp16") == "MHz"
    assert unit_of("cores") == ""


def test_an_instruction_of_another_width_has_its_numbers() -> None:
    pytest.importorskip("plotly")
    result = hwsim.run(device="h200", m=64, n=64, k=64, format="fp16", exact=False)
    text = run_page(result).html()
    assert "instructions.wgmma" in text and ">dot_units." in text and "--no-exact" in text


def test_without_cycles_the_sections_of_time_are_left_out(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    hwsim.run(device="ascend910a", m=32, n=32, k=32, timing=False).report(tmp_path / "bits.html")
    titles = re.findall(r"<h2>(.*?)</h2>", (tmp_path / "bits.html").read_text(encoding="utf-8"))
    assert titles == ["Summary", "Error", "Decisions", "Numbers", "Record"]


def test_an_error_map_has_the_errors_that_are_there() -> None:
    a, b = np.eye(130, dtype=np.float32), np.ones((130, 70), np.float32)
    c = a @ b
    c[129, 69] = np.nextafter(np.float32(1), np.float32(2))
    c[0, 0] = np.inf
    found = error_map(a, b, c, LinearEpilogue())
    assert found is not None and found.undefined == 1 and found.spans == (3, 2)
    assert found.blocks.shape == (44, 35) and max(found.blocks.shape) <= CELLS
    assert sorted(found.ulps)[-2:] == [0.0, 1.0]
    assert np.flatnonzero(found.blocks).tolist() == [found.blocks.size - 1]
    assert found.blocks[-1, -1] == pytest.approx(2.0**-23 / 2**0.5)  # root mean square of one in a block of 1 x 2


def test_errors_of_halves_are_in_units_of_halves() -> None:
    one = np.ones((1, 1), np.float32)
    found = error_map(one, one, np.array([[1 + 2**-10]], np.float16), LinearEpilogue())
    assert found is not None and found.ulps.tolist() == [1.0]
    assert error_map(one, one, np.ones((1, 1), np.int32), LinearEpilogue()) is None


def test_the_critical_path_adds_up_to_the_time(result: Result) -> None:
    trace = result.trace
    assert trace is not None
    rows = trace.rows[trace.rows["kernel"] == trace.names["kernel"].index("gemm")]
    rows = rows[rows["core"] == rows["core"][0]]
    steps = critical_path(rows)
    starts = [float(rows["start"][step.index]) for step in steps]
    assert starts == sorted(starts) and len({step.index for step in steps}) == len(steps)
    assert all(step.cycles >= 0 for step in steps)
    assert sum(step.cycles for step in steps) == pytest.approx(float(rows["end"].max()) - starts[0])


def test_an_instruction_whose_signal_came_last_waited_for_the_signal() -> None:
    """By hand: a copy ends at 30 and signals a product, whose engine was free at 12: the path goes by the copy.

    engine 0: a product from 0 to 12, then the product that waits; engine 1: the copy, from 2 to 30.
    """
    rows = np.zeros(3, TRACE_DTYPE)
    rows["number"], rows["engine"] = [0, 1, 2], [0, 1, 0]
    rows["issue"], rows["start"] = [0.0, 2.0, 1.0], [0.0, 2.0, 30.0]
    rows["free"], rows["end"] = [12.0, 30.0, 40.0], [12.0, 30.0, 45.0]
    rows["signaller"] = [-1, -1, 1]
    assert [(step.index, step.cycles) for step in critical_path(rows)[-2:]] == [(1, 28.0), (2, 15.0)]
    rows["start"][2], rows["free"][2], rows["end"][2], rows["free"][0] = 35.0, 45.0, 50.0, 35.0
    assert [step.index for step in critical_path(rows)[-2:]] == [0, 2]  # now its engine was what it waited for


def test_texts_of_users_are_no_html(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "plot_library", lambda: "")
    bad = "</script><b>&"
    look = {"data": [{"name": bad}], "layout": {}}
    parts = [Text(bad), Facts([(bad, bad)]), Table((bad,), [(bad,)]), Code(bad, bad), Plot(look, 100, bad)]
    page = Page(bad, [PageSection(bad, bad, parts), PageSection("nothing", "", [])]).html()
    assert "<b>" not in page.replace("<\\/script><b>&", "") and "nothing" not in page
    assert figures_of(page)["plot-1"]["data"] == [{"name": bad}]


def test_the_command_writes_a_page_whole_or_not_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("plotly")
    small = ["run", "--device", "ascend910a", "--m", "32", "--n", "32", "--k", "32", "--json"]
    assert main([*small, "--report", str(tmp_path / "run.html")]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["m"] == 32 and "run.html: a page to open in a browser" in err
    files = ["run.html", "run.json"]
    assert sorted(x.name for x in tmp_path.iterdir()) == files
    assert main([*small, "--report", str(tmp_path / "run.pdf")]) == 2
    assert "allowed: a name that has the suffix .html" in capsys.readouterr().err
    assert main([*small, "--report", str(tmp_path / "none" / "run.html")]) == 2
    assert main([*small, "--report", str(tmp_path / "one.html"), "--out", str(tmp_path / "one.html")]) == 2
    record = ["--save-gemm", str(tmp_path / "one.json")]
    assert main([*small, "--report", str(tmp_path / "one.html"), *record]) == 2
    assert "--save-gemm and the data of --report both write" in capsys.readouterr().err
    assert sorted(x.name for x in tmp_path.iterdir()) == files


def test_the_data_stand_beside_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("plotly")
    page, beside = tmp_path / "run.html", tmp_path / "run.json"
    small = ["run", "--device", "ascend910a", "--m", "32", "--n", "32", "--k", "32", "--json", "--report", str(page)]
    beside.write_text('{"mine": 1}')
    assert main(small) == 2 and beside.read_text() == '{"mine": 1}' and not page.exists()
    assert "run.json, which is there and is no data of a page" in capsys.readouterr().err
    beside.unlink()
    for _ in range(2):  # its own data are replaced
        assert main(small) == 0
    out, err = capsys.readouterr()
    title = "native fp16 on ascend910a, 32 x 32 x 32: "
    data = json.loads(beside.read_text())
    assert next(iter(data)) == "page" and data.pop("page").startswith(title)
    assert data == json.loads(out.splitlines()[-1]) and "its data beside it, run.json" in err


def test_without_plotly_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(hwsim.UnsupportedError, match=r"pip install 'hwsim\[report\]'"):
        page_module.check_page(tmp_path / "run.html")


def test_the_page_has_the_numbers_that_were_changed() -> None:
    pytest.importorskip("plotly")
    result = hwsim.run(device="h200", m=64, n=64, k=64, format="bf16", exact=False)
    assert "with other numbers of the device" not in run_page(result).html()
    changed = result.with_numbers({"l2.latency_ns": "0.5x"})
    assert changed is not None
    text = run_page(result, changed=changed).html()
    assert "with other numbers of the device: the mapping is " in text
    assert all(f"{cycles:,}</td>" in text for cycles in changed.cycles)
