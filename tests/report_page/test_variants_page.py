"""The page of variants in a browser: its verdict, axes, front and table, at two widths."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import Browser

import hwsim
from hwsim.cli import main
from hwsim.report.page.page import Plot
from hwsim.report.page.sweep_page import sweep_page
from hwsim.studies.sweep import SweepTable
from hwsim.studies.variants import variants_of

pytest.importorskip("plotly")

COSTS = """
energy: {mac_pj: {bf16: 0.5}, hbm_pj_per_byte: 32, static_watts: 5}
area: {core_mm2: 2, mac_mm2: {MATRIX: 0.001}}
"""
NUMBERS = {"cores": [8, 16, 1.5], "instructions.mma*.macs_per_cycle": ["0.5x", "1x"]}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> SweepTable:
    chip = tmp_path_factory.mktemp("chips") / "mine.yaml"
    assert main(["devices", "new", str(chip)]) == 0
    chip.write_text(chip.read_text() + COSTS)
    study = {
        "title": "mine",
        "devices": [{"device": str(chip), "set": NUMBERS}],
        "shapes": [[512, 512, 512], [1024, 64, 512]],
        "options": {"format": "bf16"},
    }
    return hwsim.sweep(study, jobs=1, cache=False)


@pytest.fixture(scope="module")
def page(table: SweepTable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "variants.html"
    sweep_page(table).write(path)
    return path


@pytest.mark.parametrize("width", [1280, 420])
def test_the_page_fits_and_its_axes_have_units(chromium: Browser, page: Path, width: int) -> None:
    chromium.open(page, width=width)
    assert chromium.value("document.documentElement.scrollWidth") <= width
    titles = chromium.texts("#Variants .xtitle, #Variants .ytitle, #variants .xtitle, #variants .ytitle")
    assert titles[:4] == ["time (us)", "energy (uJ)", "time (us)", "area (mm2)"]


def test_the_verdict_the_front_and_the_table_agree(chromium: Browser, page: Path, table: SweepTable) -> None:
    variants = variants_of(table.rows, table.parameters)
    front = [variant for variant in variants if variant.is_on_front]
    assert len(variants) == 6 and 1 < len(front) < 5
    chromium.open(page)
    lead = "\n".join(chromium.texts(".lead"))
    assert lead.startswith(f"{len(front)} of 6 variants are on the front of time, energy and area; 2 do not run")
    fastest = min(front, key=lambda variant: variant.totals["seconds"])
    assert f"fastest: cores {fastest.asked['cores']}, mma*.macs_per_cycle" in lead
    rows = chromium.texts("#variants tbody tr")
    assert len(rows) == 6 and sum("yes" in row for row in rows) == len(front)
    assert sum("with cores = 1.5; allowed: an integer" in row for row in rows) == 2
    drawn = chromium.value('document.querySelector("#variants .plot").data.map(trace => [trace.name, trace.x.length])')
    assert [len(front), len(variants) - 2 - len(front)] == [drawn[2][1], drawn[1][1]]


def test_equal_variants_are_one_point_with_all_names() -> None:
    costs = {1: (2e-6, 3e-6), 2: (2e-6, 3e-6), 4: (1e-6, 5e-6)}
    rows = tuple(
        {"device": "mine", "cores": cores, "seconds": seconds, "joules": joules, "refused": None}
        for cores, (seconds, joules) in costs.items()
    )
    columns = ("device", "cores", "seconds", "joules", "refused")
    page = sweep_page(SweepTable("", columns, rows, 3, 0, ("cores",)))
    assert "least energy: cores 1: 2 us, 3 uJ; 1 other variant takes as much" in page.lead
    (plot,) = (part for section in page.sections for part in section.parts if isinstance(part, Plot))
    front = plot.figure["data"][2]
    assert sorted(zip(front["text"], front["hovertext"], strict=True)) == [
        ("", "cores 4<br>1 us<br>5 uJ"),
        ("2 equal", "cores 1<br>cores 2<br>2 us<br>3 uJ"),
    ]


def sweep_of(costs: dict[int, tuple[float, float]]) -> SweepTable:
    rows = tuple(
        {"device": "mine", "cores": cores, "seconds": seconds, "joules": joules, "refused": None}
        for cores, (seconds, joules) in costs.items()
    )
    return SweepTable("", ("device", "cores", "seconds", "joules", "refused"), rows, 3, 0, ("cores",))


@pytest.mark.parametrize(("slowest", "is_wide"), [(99e-6, False), (100e-6, True)])
def test_the_axis_of_a_wide_range_is_logarithmic(slowest: float, is_wide: bool) -> None:
    page = sweep_page(sweep_of({1: (10e-6, 3e-6), 2: (slowest, 2e-6)}))
    (plot,) = (part for section in page.sections for part in section.parts if isinstance(part, Plot))
    axes = plot.figure["layout"]
    assert (axes["xaxis"].get("type") == "log") == is_wide and axes["yaxis"].get("type") is None
    assert axes["xaxis"].get("rangemode") == (None if is_wide else "tozero")


#: Of equal variants: three places in one corner, two that stand alone, one of them at the right end.
CROWDED = [(1.0, 1.0), (1.02, 1.01), (1.04, 1.0), (2.0, 3.0), (9.0, 5.0)]


@pytest.mark.parametrize("width", [1280, 420])
def test_texts_of_points_lie_on_nothing_and_within_the_page(chromium: Browser, tmp_path: Path, width: int) -> None:
    places = [place for place in CROWDED for _ in range(2)]
    costs = {cores: (x * 1e-6, y * 1e-6) for cores, (x, y) in enumerate(places, 1)}
    sweep_page(sweep_of(costs)).write(tmp_path / "page.html")
    chromium.open(tmp_path / "page.html", width=width)
    texts = chromium.value(
        """[...document.querySelectorAll("#variants .scatterlayer text")].map(text => {
            const box = text.getBoundingClientRect();
            return [text.textContent, box.left, box.top, box.right, box.bottom];
        }).filter(box => box[0])"""
    )
    assert 2 <= len(texts) < len(CROWDED) and {text[0] for text in texts} == {"2 equal"}
    for at, (_, left, top, right, bottom) in enumerate(texts):
        assert left >= 0 and right <= width
        assert all(
            right <= other[1] or other[3] <= left or bottom <= other[2] or other[4] <= top for other in texts[:at]
        )
