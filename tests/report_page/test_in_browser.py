"""Pages as a reader sees them: drawn by Chromium, light and dark, wide and narrow."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from browser import CUT, OUTSIDE, Browser

import hwsim
from hwsim.cli import main
from hwsim.report.page.sweep_page import sweep_page
from hwsim.studies.sweep import SweepTable

pytest.importorskip("plotly")

BACKGROUNDS = {False: "rgb(255, 255, 255)", True: "rgb(22, 24, 27)"}  # by: dark
WIDTHS = (1280, 420)
#: Pairs of texts of axes' titles and legends of one plot that lie over each other.
OVERLAPS = """[...document.querySelectorAll(".plot")].flatMap(plot => {
    const texts = [...plot.querySelectorAll(".legendtext, .xtitle, .ytitle, .xtick text, .ytick text")]
        .filter(text => text.getBoundingClientRect().width > 0);
    const boxes = texts.map(text => text.getBoundingClientRect());
    return texts.flatMap((text, i) => texts.slice(i + 1).filter((other, j) => {
        const a = boxes[i], b = boxes[i + 1 + j];
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        return across > 2 && down > 4;
    }).map(other => `${text.textContent} / ${other.textContent}`));
})"""

Written = Callable[[str], Path]


def _run(path: Path) -> None:
    hwsim.run(device="h200", format="bf16", m=256, n=256, k=512, l2="cold").report(path)


def _run_of_an_ascend(path: Path) -> None:
    hwsim.run(device="ascend910a", scheme="sgemm-cube", m=256, n=256, k=512, l2="cold").report(path)


def _command(words: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        assert main([*words.split(), "--report", str(path)]) in (0, 1)

    return write


def _sweep(path: Path) -> None:
    study = {
        "title": "three lengths of the sums",
        "devices": ["h200", "b200", "ascend910a"],
        "m": 64,
        "n": 64,
        "k": [64, 128, 256],
        "options": {"format": ["fp16", "bf16"]},
    }
    sweep_page(hwsim.sweep(study, jobs=1, cache=False)).write(path)


def _variants(path: Path) -> None:
    numbers = {"cores": [66, 132], "instructions.wgmma.m64*.macs_per_cycle": ["0.5x", "1x"]}
    study = {"devices": [{"device": "h200", "set": numbers}], "m": 128, "n": 128, "k": 128}
    sweep_page(hwsim.sweep(study | {"options": {"format": "bf16"}}, jobs=1, cache=False)).write(path)


def _comparison(path: Path) -> None:
    torch = pytest.importorskip("torch")
    import hwsim.torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
    sides = ({"device": name, "format": "fp16"} for name in ("h100", "v100", "mi300x"))
    hwsim.torch.compare(model, torch.randn(8, 256), *sides).write(path)


#: Every kind of page.
PAGES: Mapping[str, Callable[[Path], None]] = {
    "run": _run,
    "run of an Ascend": _run_of_an_ascend,
    "sweep": _sweep,
    "variants": _variants,
    "tune": _command("tune -q --device h200 --format bf16 --m 512 --n 512 --k 256 --budget 40"),
    "diff": _command("diff -q --device h200 --device v100 --format fp16 --m 64 --n 48 --k 128"),
    "invariance": _command("invariance --device b200 --library cublas --format bf16 --n 4096 --k 4096 --m 1:300:7"),
    "comparison": _comparison,
}
WIDE = ("run", "sweep", "diff")  # of which every run of the tests looks at a wide window, too


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The file of a kind of page, made once."""
    folder, made = tmp_path_factory.mktemp("pages"), {}

    def write(kind: str) -> Path:
        if kind not in made:
            path = folder / f"{kind.replace(' ', '-')}.html"
            PAGES[kind](path)
            made[kind] = path
        return made[kind]

    return write


@pytest.mark.parametrize(
    ("kind", "width"),
    [
        pytest.param(kind, width, marks=() if width == min(WIDTHS) or kind in WIDE else pytest.mark.slow)
        for kind in PAGES
        for width in WIDTHS
    ],
)
def test_nothing_is_cut_at_any_width(chromium: Browser, written: Written, kind: str, width: int) -> None:
    chromium.open(written(kind), width=width)
    assert chromium.value("document.documentElement.scrollWidth") == width
    assert chromium.value(OUTSIDE) == []
    assert chromium.value(CUT) == []
    assert chromium.value(OVERLAPS) == []


@pytest.mark.parametrize("dark", BACKGROUNDS)
def test_plots_are_drawn_in_the_readers_colours(chromium: Browser, written: Written, dark: bool) -> None:
    chromium.open(written("run of an Ascend"), dark=dark)
    backgrounds = chromium.value(
        '[...document.querySelectorAll(".plot .main-svg:first-child")].map(plot => plot.style.background)'
    )
    assert len(backgrounds) >= 6 and set(backgrounds) == {BACKGROUNDS[dark]}
    assert chromium.value("getComputedStyle(document.body).backgroundColor") == BACKGROUNDS[dark]


def test_the_axes_of_a_runs_plots(chromium: Browser, written: Written) -> None:
    chromium.open(written("run of an Ascend"))
    titles = set(chromium.texts(".xtitle, .ytitle"))
    assert titles >= {
        "elements of C (%)", "row of C", "column of C", "share of the time of all cores (%)",
        "time (cycles of the core)", "work per byte of HBM (FLOP/byte)", "rate (TFLOP/s)", "moved, all cores (MiB)",
    }  # fmt: skip
    assert {"M", "MTE1", "MTE2", "GM_L1"} <= set(chromium.texts(".ytick text"))
    ticks = chromium.texts(".xtick text")
    assert {"≤ 1", "100"} <= set(ticks) and "NaN" not in "".join(ticks)


def test_a_button_saves_the_pages_data(chromium: Browser, written: Written) -> None:
    chromium.open(written("sweep"))
    chromium.value("window.saved = []; save = (text, name) => saved.push([text, name]); null")
    chromium.value('document.querySelector("button.data").click()')
    ((text, name),) = chromium.value("saved")
    assert name == "sweep.json"
    data: dict[str, Any] = json.loads(text)
    assert data["schema"] == "hwsim.sweep/1" and len(data["rows"]) == 18


def test_the_axes_of_a_sweep_are_picked(chromium: Browser, written: Written) -> None:
    chromium.open(written("sweep"))
    assert chromium.texts(".xtitle, .ytitle") == ["k, length of the sums", "rate (TFLOP/s)"]
    assert chromium.texts(".xtick text") == ["64", "128", "256"], "the swept k"
    names = ["device: h200", "device: b200", "device: ascend910a", "format: fp16", "format: bf16"]
    assert chromium.texts(".legendtext") == names
    drawn = 'document.querySelector(".explorer .plot").data.filter(trace => trace.x[0] !== null)'
    lines = chromium.value(f"{drawn}.map(trace => [trace.x, trace.y])")
    rows = json.loads(chromium.value('document.getElementById("data").textContent'))["rows"]
    ran = [row for row in rows if row["refused"] is None]
    points = {(x, y) for xs, ys in lines for x, y in zip(xs, ys, strict=True)}
    assert points == {(row["k"], row["tflops"]) for row in ran} and len(lines) == 5
    pick = """(name, value) => {
        const field = document.querySelector(`.explorer select[name=${name}]`);
        field.value = value;
        field.onchange();
    }"""
    chromium.value(f'({pick})("y", "cycles")')
    chromium.value(f'({pick})("facet", "device")')
    assert sorted(chromium.texts(".annotation-text")) == ["device: ascend910a", "device: b200", "device: h200"]
    assert "core clock cycles" in " ".join(chromium.texts(".ytitle"))
    drawn_now = {y for ys in chromium.value(f"{drawn}.map(trace => trace.y)") for y in ys}
    assert drawn_now == {row["cycles"] for row in ran}
    assert chromium.value(CUT) == []


def test_a_legend_names_engines_states_in_the_order_of_the_bars(chromium: Browser, written: Written) -> None:
    chromium.open(written("run"))
    place = (
        "[...document.querySelectorAll('.plot')].find(plot => plot.getAttribute('aria-label').includes('engine is'))"
    )
    names = chromium.value(f"[...{place}.querySelectorAll('.legendtext')].map(text => text.textContent)")
    assert names[0] == "busy" and len(names) > 2
    assert names == chromium.value(f"{place}.data.map(trace => trace.name)")


def test_a_page_leads_with_its_verdict(chromium: Browser, written: Written) -> None:
    for kind, words in (
        ("run", "tensor cores busy "),
        ("tune", "the default"),
        ("diff", "fraction bits"),
        ("invariance", "classes"),
        ("sweep", "fastest"),
        ("variants", "2 of 4 variants are the fastest"),
        ("comparison", "h100 fp16 and v100 fp16: "),
    ):
        chromium.open(written(kind))
        first = chromium.texts("header > *")[:2]
        assert words in first[1], (kind, first)
        assert chromium.value('document.querySelector(".lead").getBoundingClientRect().bottom < innerHeight / 2')


def test_marks_of_the_roofline_are_both_seen(chromium: Browser, written: Written) -> None:
    """Where the achieved rate is the attainable one, too: one mark is a ring around the other."""
    chromium.open(written("run of an Ascend"))
    plot = "[...document.querySelectorAll('.plot')].find(x => x.getAttribute('aria-label') === 'roofline diagram')"
    names = chromium.value(f"{plot}.data.map(trace => trace.name)")
    assert names[-2] == "attainable" and names[-1].startswith("achieved, ")
    ring, filled = chromium.value(f"{plot}.data.slice(-2).map(trace => trace.marker)")
    assert ring["symbol"].endswith("-open") and ring["size"] - 2 * ring["line"]["width"] > filled["size"]
    shown = chromium.value(f"[...{plot}.querySelectorAll('.textpoint')].map(text => text.textContent)")
    data = json.loads(chromium.value('document.getElementById("data").textContent'))
    assert f"{data['tflops'] * 3:,.4g}" in shown, "the rate of three products, as the matrix units compute them"


def test_the_time_is_divided_as_the_verdict_says(chromium: Browser, written: Written) -> None:
    chromium.open(written("run"))
    data = json.loads(chromium.value('document.getElementById("data").textContent'))["verdict"]
    plot = "[...document.querySelectorAll('.plot')].find(x => x.getAttribute('aria-label').includes('by cause'))"
    bars = dict(chromium.value(f"{plot}.data[0].y.map((name, i) => [name, {plot}.data[0].x[i]])"))
    lost = {row["words"]: 100 * row["share"] for row in data["lost"]}
    assert bars["the matrix units work"] == pytest.approx(100 * data["busy"])
    assert all(bars[name] == pytest.approx(lost[name]) for name in bars.keys() - {"the matrix units work"})
    assert chromium.texts(".lead")[0] == data["text"]


def test_a_landscape_has_a_scale_and_axes_with_units(chromium: Browser, written: Written) -> None:
    chromium.open(written("tune"))
    assert set(chromium.texts(".xtitle, .ytitle")) == {"n of the tile (elements)", "m of the tile (elements)"}
    assert chromium.texts(".cbtitle, .hcbtitle, [class*=cb] text.cbtitle, .colorbar text")[-1] == "% of the best"
    heads = chromium.texts("#configurations th")
    assert {"time", "clock (MHz)", "rate (TFLOP/s)", "HBM traffic"} <= set(heads)
    assert len(heads) == len(set(heads)), "a column that is there twice"
    points = json.loads(chromium.value('document.getElementById("data").textContent'))["points"]
    seconds = [point["seconds"] for point in points if point["seconds"] is not None]
    assert seconds == sorted(seconds)


def test_a_command_is_copied(chromium: Browser, written: Written) -> None:
    chromium.open(written("diff"))
    chromium.value("window.copied = []; copy = async text => copied.push(text); null")
    chromium.value('document.querySelector(".code button").click()')
    (text,) = chromium.value("copied")
    assert text.startswith("hwsim explain ") and text == chromium.texts(".code pre")[0]


def test_what_sticks_out_is_seen(chromium: Browser, tmp_path: Path) -> None:
    """The measures of the tests above find a text that is too wide, and one beside its plot."""
    wide = '<div style="width:900px">too wide</div>'
    plot = '<div class="plot" style="width:100px"><svg class="main-svg"><text x="90" y="20">beyond</text></svg></div>'
    (tmp_path / "page.html").write_text(f"<body>{wide}{plot}</body>", encoding="utf-8")
    chromium.open(tmp_path / "page.html", width=420)
    assert any("too wide" in name for name in chromium.value(OUTSIDE))
    assert chromium.value(CUT) == ["beyond"]


def test_equal_lines_are_all_seen_and_named(chromium: Browser, tmp_path: Path) -> None:
    """Rings and dashes lie around what was drawn first; lines that are not equal have neither."""
    rates = {"left": 1.0, "right": 1.0, "other": 3.0}
    rows = tuple(
        {"device": name, "k": k, "tflops": rate * k, "refused": None} for name, rate in rates.items() for k in (64, 128)
    )
    sweep_page(SweepTable("", ("device", "k", "tflops", "refused"), rows, 6, 0)).write(tmp_path / "equal.html")
    chromium.open(tmp_path / "equal.html")
    drawn = 'document.querySelector(".explorer .plot").data.filter(trace => trace.x[0] !== null)'
    looks = chromium.value(f"{drawn}.map(trace => [trace.line.dash, trace.marker.size, trace.marker.symbol])")
    plain, ring = ["solid", [8, 8], ["circle"] * 2], ["10px,10px", [13, 13], ["circle-open"] * 2]
    assert looks == [plain, ring, plain]
    note = "The same points, drawn as rings and dashes around each other: right = left."
    assert chromium.texts(".equal") == [note]
    pick = 'document.querySelector(".explorer select[name=facet]")'
    chromium.value(f'{pick}.value = "device"; {pick}.onchange()')
    assert chromium.texts(".equal") == [""]  # each has a plot of its own


def test_seeds_are_bars_about_a_mean_and_no_axis_of_their_own(chromium: Browser, tmp_path: Path) -> None:
    rows = tuple(
        {"device": "left", "k": k, "seed": seed, "tflops": 1.0, "relative_frobenius": k * (2.0 + seed), "refused": None}
        for k in (64, 128, 256)
        for seed in range(3)
    )
    columns = ("device", "k", "seed", "tflops", "relative_frobenius", "refused")
    sweep_page(SweepTable("", columns, rows, 9, 0)).write(tmp_path / "seeds.html")
    chromium.open(tmp_path / "seeds.html")
    assert chromium.texts(".xtitle, .ytitle") == ["k, length of the sums", "relative error (Frobenius norm)"]
    drawn = 'document.querySelector(".explorer .plot").data.filter(trace => trace.x[0] !== null)'
    (line,) = chromium.value(
        f"{drawn}.map(trace => [trace.x, trace.y, trace.error_y.array, trace.error_y.arrayminus, trace.text])"
    )
    sizes = [64, 128, 256]
    assert line[:4] == [sizes, [3 * k for k in sizes], sizes, sizes]  # the seeds' errors are 2 k, 3 k and 4 k
    assert "mean of 3: 128 to 256" in line[4][0] and "seed" not in line[4][0]
    note = "Each point is the mean over seed (3 runs), with a bar from the least to the largest."
    assert chromium.texts(".equal") == [note]
    pick = 'document.querySelector(".explorer select[name=x]")'
    chromium.value(f'{pick}.value = "seed"; {pick}.onchange()')
    missing = "Not drawn: 3 points at 0 or below, which a logarithmic axis does not show."
    assert chromium.texts(".equal") == [missing]
    assert chromium.value(f"{drawn}.length") == 3  # a line for each k


def test_cubes_are_lines_over_their_size(chromium: Browser, tmp_path: Path) -> None:
    rows = tuple(
        {"device": name, "m": n, "n": n, "k": n, "tflops": rate * n, "refused": None}
        for name, rate in (("left", 1.0), ("right", 2.0))
        for n in (64, 128, 256)
    )
    sweep_page(SweepTable("", ("device", "m", "n", "k", "tflops", "refused"), rows, 6, 0)).write(
        tmp_path / "cubes.html"
    )
    chromium.open(tmp_path / "cubes.html")
    drawn = 'document.querySelector(".explorer .plot").data.filter(trace => trace.x[0] !== null)'
    assert chromium.value(f"{drawn}.map(trace => trace.x)") == [[64, 128, 256]] * 2
    assert chromium.texts(".annotation-text") == [] and chromium.texts(".legendtext") == [
        "device: left",
        "device: right",
    ]


def test_points_over_names_are_not_joined_and_those_over_numbers_are(chromium: Browser, tmp_path: Path) -> None:
    rows = tuple(
        {"device": name, "scheme": scheme, "tflops": rate, "refused": None}
        for name, rate in (("left", 1.0), ("right", 2.0))
        for scheme in ("native", "bf16x9")
    )
    sweep_page(SweepTable("", ("device", "scheme", "tflops", "refused"), rows, 4, 0)).write(tmp_path / "names.html")
    chromium.open(tmp_path / "names.html")
    drawn = 'document.querySelector(".explorer .plot").data.filter(trace => trace.x[0] !== null)'
    assert chromium.value(f"{drawn}.map(trace => [trace.mode, trace.x])") == [["markers", ["left", "right"]]] * 2
    numbers = tuple({"device": "left", "k": k, "tflops": 1.0 * k, "refused": None} for k in (64, 128))
    sweep_page(SweepTable("", ("device", "k", "tflops", "refused"), numbers, 2, 0)).write(tmp_path / "k.html")
    chromium.open(tmp_path / "k.html")
    assert chromium.value(f"{drawn}.map(trace => trace.mode)") == ["lines+markers"]
