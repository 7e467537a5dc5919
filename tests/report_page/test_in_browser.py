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
    "tune": _command("tune -q --device h200 --format bf16 --m 512 --n 512 --k 256 --budget 40"),
    "diff": _command("diff -q --device h200 --device v100 --format fp16 --m 64 --n 48 --k 128"),
    "invariance": _command("invariance --device b200 --library cublas --format bf16 --n 4096 --k 4096 --m 1:300:7"),
    "comparison": _comparison,
}


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


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", PAGES)
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
        "elements of C (%)", "row of C", "column of C", "share of the time, all cores and phases (%)",
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
