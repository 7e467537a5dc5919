"""The page of a comparison as a reader sees it: its first line, the axes of its plots, commands to copy, its data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from browser import Browser

import hwsim
from hwsim.report.page.diff_page import diff_page
from hwsim.studies.diff_result import Difference

pytest.importorskip("plotly")


@pytest.fixture(scope="module")
def difference() -> Difference:
    return hwsim.diff(left="h100", right="b200", format="e4m3", m=96, n=70, k=128)


@pytest.fixture(scope="module")
def page(difference: Difference, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "diff.html"
    diff_page(difference).write(path)
    return path


def test_the_first_line_is_the_reason(chromium: Browser, page: Path) -> None:
    chromium.open(page)
    (lead,) = chromium.texts(".lead")
    assert lead.startswith("h100 keeps 13 fraction bits in e4m3 sums, b200 25: ")


@pytest.mark.parametrize("width", [1280, 420])
def test_plots_say_what_they_show(chromium: Browser, page: Path, difference: Difference, width: int) -> None:
    chromium.open(page, width=width)
    titles = set(chromium.texts(".xtitle, .ytitle"))
    assert titles == {"|left - right| / RMS of C", "elements", "column of C", "row of C"}
    bars = chromium.value('document.querySelectorAll("#plot-1 .bars .point").length')
    assert bars == len(difference.sizes.counts)
    assert any(text.startswith("10") for text in chromium.texts("#plot-1 .xtick text"))


@pytest.mark.parametrize("width", [1280, 420])
def test_commands_are_whole_and_copied_by_a_button(
    chromium: Browser, page: Path, difference: Difference, width: int
) -> None:
    chromium.open(page, width=width)
    steps = [*difference.step.left_steps, *difference.step.right_steps]
    commands = chromium.texts(".code pre")
    assert commands == [step.command for step in steps] and len(chromium.texts(".code button")) == len(commands)
    clipped = '[...document.querySelectorAll(".code pre")].filter(x => x.scrollWidth > x.clientWidth).length'
    assert chromium.value(clipped) == 0
    chromium.value("window.copied = []; copy = text => copied.push(text); null")
    chromium.value('document.querySelectorAll(".code button").forEach(button => button.click())')
    assert chromium.value("copied") == commands


def test_the_data_of_the_page_are_the_commands_json(chromium: Browser, page: Path, difference: Difference) -> None:
    chromium.open(page)
    data = json.loads(chromium.value('document.getElementById("data").textContent'))
    assert data["schema"] == "hwsim.diff/1" and data["reason"]["text"] == str(difference.reason)
    assert data["sizes"]["counts"] == list(difference.sizes.counts)
