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
