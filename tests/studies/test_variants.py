"""Variants of a sweep: totals over shapes, the front, and their part of the page."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

import hwsim
from hwsim.cli import main
from hwsim.errors import ConfigError
from hwsim.report.page.variants_part import design_name
from hwsim.report.text.words import cell_text
from hwsim.studies.variants import costs_of, front_of, variants_of

PARAMETERS = ("device", "cores", "scheme", "m", "n", "k")


def row(cores: int, m: int, seconds: float | None, joules: float, mm2: float, refused: str | None = None) -> dict:
    return {
        "device": "mine",
        "cores": cores,
        "scheme": "native",
        "m": m,
        "n": 1,
        "k": 1,
        "refused": refused,
        "cycles": None if seconds is None else int(seconds * 1e3),
        "seconds": seconds,
        "joules": joules,
        "area_mm2": mm2,
    }


ROWS = [
    *(row(8, 1, 4.0, 1.0, 10.0), row(8, 2, 4.0, 1.0, 10.0)),  # small
    *(row(16, 1, 2.0, 2.0, 20.0), row(16, 2, 2.0, 2.0, 20.0)),  # fast
    *(row(24, 1, 2.0, 2.5, 20.0), row(24, 2, 2.0, 2.0, 20.0)),  # beaten by 16 in energy alone
    *(row(32, 1, 1.0, 1.0, 30.0), row(32, 2, None, 1.0, 30.0, "too large")),
]


def test_totals_are_over_shapes_and_the_front_is_what_nothing_beats() -> None:
    variants = variants_of(ROWS, PARAMETERS)
    assert [variant.asked for variant in variants] == [{"cores": cores} for cores in (8, 16, 24, 32)]
    assert variants[0].totals == {"cycles": 8000, "seconds": 8.0, "joules": 2.0, "area_mm2": 10.0}
    assert [variant.is_on_front for variant in variants] == [True, True, False, False]
    assert variants[3].refused == "too large" and not variants[3].totals
    assert costs_of(variants) == ["seconds", "joules", "area_mm2"]
    assert [variant.asked["cores"] for variant in front_of(variants, "seconds", "area_mm2")] == [16, 24, 8]


def test_the_front_is_as_a_search_of_all_pairs_says() -> None:
    rows = [
        row(8 + i, 1, seconds, joules, mm2)
        for i, (seconds, joules, mm2) in enumerate(product((1.0, 2.0, 3.0), repeat=3))
    ]
    on_front = {v.asked["cores"] for v in variants_of(rows, PARAMETERS) if v.is_on_front}
    costs = {r["cores"]: (r["seconds"], r["joules"], r["area_mm2"]) for r in rows}
    beaten = {
        a
        for a in costs
        for b in costs
        if costs[b] != costs[a] and all(x <= y for x, y in zip(costs[b], costs[a], strict=True))
    }
    assert on_front == set(costs) - beaten == {8}


def test_a_cost_that_is_not_known_of_all_is_left_out() -> None:
    rows = [row(8, 1, 4.0, 1.0, 10.0), row(16, 1, 2.0, 2.0, 10.0) | {"joules": None}]
    variants = variants_of(rows, PARAMETERS)
    assert costs_of(variants) == ["seconds"] and [variant.is_on_front for variant in variants] == [False, True]


def test_a_sweeps_page_compares_its_variants(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("plotly")
    chip, page = tmp_path / "mine.yaml", tmp_path / "page.html"
    assert main(["devices", "new", str(chip)]) == 0
    costs = "energy: {mac_pj: {bf16: 0.5}, hbm_pj_per_byte: 32, static_watts: 5}\narea: {core_mm2: 2}\n"
    chip.write_text(chip.read_text() + costs)
    capsys.readouterr()
    words = ["--device", str(chip), "--format", "bf16", "--m", "512", "--set", "cores=8,16,1.5"]
    assert main(["sweep", *words, "--no-cache", "--jobs", "1", "--json", "--report", str(page)]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    text = page.read_text(encoding="utf-8")
    assert "2 of 3 variants are on the front of time, energy and area; 1 do not run" in text
    assert "smallest: cores 8: " in text and f"{16:g} mm2" in text
    assert "mine with cores = 1.5; allowed: an integer" in text
    figures = json.loads(text.rpartition('id="figures">')[2].partition("</script>")[0].replace("<\\/", "</"))
    drawn = {trace["name"]: trace for trace in figures["plot-1"]["data"]}
    front = drawn["on the front of time, energy and area"]
    assert sorted(front["x"]) == sorted(1e6 * r["seconds"] for r in rows if r["seconds"] is not None)
    assert figures["plot-1"]["layout"]["xaxis"]["title"]["text"] == "time (us)"
    assert drawn["beaten by another"]["x"] == []


def test_a_sweep_that_compares_no_designs_has_no_variants(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    from hwsim.report.page.sweep_page import sweep_page

    table = hwsim.sweep({"devices": ["h200", "b200"], "shapes": [[64, 64, 64]]}, jobs=1, cache=False)
    assert "Variants" not in [section.title for section in sweep_page(table).sections]


def test_large_values_are_short_in_verdict_and_table() -> None:
    rows = [row(8, 1, 4.0, 1.0, 10.0) | {"hbm.bytes_per_second": 4e12}, row(8, 1, 2.0, 1.0, 10.0)]
    rows = [{"hbm.bytes_per_second": 2e12} | one for one in rows]
    names = [design_name(variant) for variant in variants_of(rows, (*PARAMETERS, "hbm.bytes_per_second"))]
    assert names == ["hbm.bytes_per_second 4 T", "hbm.bytes_per_second 2 T"]
    shown = {4e12: "4 T", 2.5e9: "2.5 G", 524288: "524,288", 4096.0: "4,096", 0.25: "0.25", 1e30: "1e+30", "2x": "2x"}
    assert {value: cell_text(value) for value in shown} == shown
    assert cell_text(float("inf")) == "inf" and cell_text(True) == "True"


def test_numbers_that_belong_together_are_one_alternative(tmp_path: Path) -> None:
    """K of an instruction with the terms of its unit: no other combination of them runs."""
    chip = tmp_path / "mine.yaml"
    assert main(["devices", "new", str(chip)]) == 0
    pairs = [{"instructions.mma*.k": terms, "dot_units.tree.terms": terms} for terms in (8, 32)]
    study = {"devices": {"device": str(chip), "set": [pairs[0] | {"cores": [2, 4]}, pairs[1]]}}
    table = hwsim.sweep(study | {"m": 64, "n": 64, "k": 64, "options": {"format": "bf16"}}, jobs=1, cache=False)
    asked = [tuple(row.get(name) for name in (*pairs[0], "cores")) for row in table.rows]
    assert asked == [(8, 8, 2), (8, 8, 4), (32, 32, None)] and not any(row["refused"] for row in table.rows)


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        (
            {"device": "b200", "format": ["bf16", "fp16"]},
            "devices.format: format = .*: one value stands here; lists of values go under options: or in",
        ),
        (
            {"device": "b200", "tile": [[128, 128, 64], [64, 64, 64]]},
            "devices.tile: tile = .*: one value stands here; lists of values go under options: or in",
        ),
        ({"device": "b200", "set": [{"cores": 2}, 3]}, "devices.set.1: needs a mapping of numbers"),
        ({"device": "b200", "set": []}, "devices.set: an empty list"),
    ],
)
def test_lists_in_the_wrong_place_are_refused(devices: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        hwsim.sweep({"devices": devices, "m": 64, "n": 64, "k": 64}, jobs=1, cache=False)
