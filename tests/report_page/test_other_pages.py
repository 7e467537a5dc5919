"""The pages of the other verbs: sections, and values as the verbs give them."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hwsim
from hwsim.cli import main
from hwsim.cli.report_option import check_report
from hwsim.report.page.comparison_page import comparison_page
from hwsim.report.page.diff_page import diff_page
from hwsim.report.page.invariance_page import known_text, spans_of
from hwsim.report.page.page import Table
from hwsim.report.page.sweep_page import sweep_page
from hwsim.report.page.tune_page import tune_page
from hwsim.report.text.tune_text import alike
from hwsim.report.text.words import count, duration, percent
from hwsim.studies.diff import Variant, diff

pytest.importorskip("plotly")

STUDY = "devices: [h200, ascend910a]\nm: [64, 128]\nn: 64\nk: 64\n"


def written(path: Path) -> tuple[list[str], str, dict[str, dict[str, list[dict[str, object]]]]]:
    """Titles, the page's text without its scripts, and its figures."""
    page = path.read_text(encoding="utf-8")
    text = page.rpartition('id="figures">')[2].partition("</script>")[0]
    figures = json.loads(text.replace("<\\/", "</"))
    own = unescape(re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL))
    return re.findall(r"<h2>(.*?)</h2>", own), own, figures


def data_of(path: Path) -> dict[str, Any]:
    """The page's data, as its button saves them."""
    text = path.read_text(encoding="utf-8").partition('id="data">')[2].partition("</script>")[0]
    data: dict[str, Any] = json.loads(text.replace("<\\/", "</"))
    return data


def test_a_sweeps_page_has_its_points_and_its_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "study.yaml").write_text(STUDY, encoding="utf-8")
    page = tmp_path / "sweep.html"
    assert (
        main(["sweep", str(tmp_path / "study.yaml"), "--no-cache", "--jobs", "1", "--json", "--report", str(page)]) == 0
    )
    out, err = capsys.readouterr()
    rows = json.loads(out)["rows"]
    assert "sweep.html: a page to open" in err
    titles, text, figures = written(page)
    assert titles == ["Summary", "Points", "Table"]
    for row in rows:
        assert f">{count(row['cycles'])}<" in text
    assert data_of(page)["rows"] == rows and not figures


def test_a_sweeps_page_says_why_points_are_refused(tmp_path: Path) -> None:
    table = hwsim.sweep(
        {"devices": ["h200", "ascend910a"], "m": [64, 128], "n": 64, "k": 64, "options": {"format": ["bf16", "fp16"]}},
        jobs=1,
        cache=False,
    )
    refused = {str(row["refused"]) for row in table.rows if row["refused"]}
    sweep_page(table).write(tmp_path / "sweep.html")
    titles, text, _ = written(tmp_path / "sweep.html")
    assert titles == ["Summary", "Points", "Refused", "Table"] and len(refused) == 1
    reason = re.escape(refused.pop())
    assert re.search(rf">2 points</td><td[^>]*>ascend910a</td><td[^>]*>native</td><td[^>]*>{reason}<", text)


def test_a_searchs_page_has_its_landscape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "tune.html"
    sizes = ["--m", "256", "--n", "256", "--k", "256"]
    assert (
        main(
            ["tune", "--device", "h200", "--format", "fp16", *sizes, "--budget", "12", "--json", "--report", str(page)]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    titles, text, figures = written(page)
    assert titles == ["Summary", "Landscape", "Configurations", "Words"]
    assert re.search(rf">best</td><td[^>]*>{found['best']['tile_m']}\sx\s{found['best']['tile_n']}\sx\s", text)
    cells = [x for row in figures["plot-1"]["data"][0]["z"] for x in row if x is not None]  # type: ignore[attr-defined]
    assert max(cells) == 100 and len(cells) > 1
    assert data_of(page)["points"] == found["points"]
    shown = text.partition("<main>")[2].partition("</main>")[0]
    assert duration(found["best"]["seconds"]) in shown and "e-06" not in shown and "tile_m" not in shown
    assert re.search(
        r'<p class="lead">(the (best of .* takes|default is)|none of the first \d+ configurations is better than)',
        text,
    )


@pytest.mark.parametrize(("sizes", "is_cut"), [((256, 256, 256), False), ((64, 64, 4096), True)])
def test_a_searchs_page_explains_its_words_and_groups_equal_rows(sizes: tuple[int, int, int], is_cut: bool) -> None:
    landscape = hwsim.tune("h200", **dict(zip("mnk", sizes, strict=True)), format="fp16", budget=30)
    sections = {section.title: section.parts for section in tune_page(landscape, "a search").sections}
    tables = {title: part for title, parts in sections.items() for part in parts if isinstance(part, Table)}
    explained = dict(tables["Words"].rows)  # type: ignore[arg-type]
    assert {row[0] for row in tables["Summary"].rows} <= explained.keys() and all(explained.values())
    assert ("same bits" in explained) == is_cut
    assert {"stages", "swizzle", "slices of K", "instruction", "time", "of best"} <= explained.keys()
    rows, groups = tables["Configurations"].rows, alike(landscape)
    assert len(rows) == len(groups) < len(landscape.ranked)
    shares = [row[tables["Configurations"].head.index("of best")] for row in rows]  # as the map has them
    best = groups[0][0].seconds or 0
    assert shares == [percent(best / (group[0].seconds or 1)) for group in groups] and shares[0] == "100.0 %"
    times = tables["Configurations"].head.index("time")
    assert [row[times] for row in rows] == [duration(group[0].seconds or 0) for group in groups]


def test_a_differences_page_maps_the_elements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "diff.html"
    ways = ["--device", "a100", "--device", "h200", "--format", "fp16", "--m", "96", "--n", "130", "--k", "64"]
    code = main(["diff", *ways, "--json", "--report", str(page)])
    found = json.loads(capsys.readouterr().out)
    assert code == 1 and found["differing"] > 0 and "where" not in found
    titles, text, figures = written(page)
    assert titles == ["Summary", "Sizes", "Map", "First k", "Elements"]
    assert f"{count(found['differing'])} of {count(96 * 130)}" in text and found["worst"]["left_code"] in text
    assert f"{found['step']['k_first']} to {found['step']['k_end'] - 1}" in text
    assert len(figures["plot-2"]["data"][0]["z"]) == 48  # type: ignore[arg-type]  # two rows a block
    sizes = found["sizes"]
    assert figures["plot-1"]["data"][0]["y"] == sizes["counts"] and sum(sizes["counts"]) + sizes["equal"] == 96 * 130
    assert f'<p class="lead">{found["reason"]["text"]}</p>' in text


def test_the_blocks_of_a_difference_count_each_element_once() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((70, 64), np.float32), rng.standard_normal((64, 65), np.float32)
    found = diff(a, b, Variant("a100", format="fp16"), Variant("h200", format="fp16"))
    assert found.where.spans == (2, 2) and found.where.counts.shape == (35, 33)
    assert int(found.where.counts.sum()) == found.differing > 0 and int(found.where.sizes.sum()) == 70 * 65
    same = diff(a, b, Variant("h200", format="fp16"), Variant("h200", format="fp16"))
    assert [x.title for x in diff_page(same).sections if x.parts] == ["Summary"]


def test_the_page_of_batch_sizes_has_every_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "classes.html"
    call = [
        "--device",
        "h200",
        "--library",
        "cublas",
        "--format",
        "bf16",
        "--n",
        "4096",
        "--k",
        "4096",
        "--m",
        "1:300:7",
    ]
    assert main(["invariance", *call, "--json", "--report", str(page)]) == 0
    classes = json.loads(capsys.readouterr().out)["classes"]
    titles, text, figures = written(page)
    assert titles == ["What to do", "Classes over m", "Classes"]
    assert len(figures["plot-1"]["data"]) == len(classes)
    drawn = {x for trace in figures["plot-1"]["data"] for x in trace["x"] if x is not None}  # type: ignore[attr-defined]
    assert drawn == {x for one in classes for run in one["m"] for x in run}
    assert all(x["kernel"] in text for one in classes for x in one["kernels"])
    assert data_of(page)["classes"] == classes and "1 slices" not in text


def test_the_caveat_of_an_estimate_leads_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "classes.html"
    call = [
        "--device",
        "b200",
        "--library",
        "cublas",
        "--format",
        "bf16",
        "--n",
        "4096",
        "--k",
        "4096",
        "--m",
        "1:300:7",
    ]
    assert main(["invariance", *call, "--json", "--report", str(page)]) == 0
    answer = json.loads(capsys.readouterr().out)
    _, text, _ = written(page)
    lead = " ".join(re.findall(r'<p class="lead">(.*?)</p>', text))
    assert answer["note"] in re.sub("</?code>", "`", lead) and f"{len(answer['classes'])} classes" in lead
    spans = spans_of(answer["classes"])
    assert all(f'<td class="text" data-head="m">{span}</td>' in text for span in spans)
    for entry in answer["classes"]:
        assert known_text(entry["known"], entry["least_confidence"]) in text
    assert {known_text(True, 1.0), known_text(True, 0.26), known_text(True, 0.56)} == {
        "the order of summation, and the kernel for sure",
        "the order of summation, and the kernel uncertainly",
        "the order of summation, and the kernel hardly: it is more likely another one",
    }
    assert known_text(False, 1.0) == "the kernel, and not its order of summation"


def test_the_page_of_a_comparison_leads_with_what_differs() -> None:
    pair = {"left": "h100", "right": "b200", "distance": 1e-3, "largest": 2e-3, "differing": 0.25, "divergence": 1e-6}
    pair |= {"largest_divergence": 2e-6, "flips": 3, "positions": 1000}
    same = dict.fromkeys(pair, 0) | {"left": "h100", "right": "h200", "positions": 1000}
    sides = [
        {"name": name, "settings": f"{name} native", "remarks": ["a remark"], "is_predicted": name != "b200"}
        for name in ("h100", "b200", "h200")
    ]
    page = comparison_page({"sides": sides, "pairs": [pair, same]})
    assert page.title == "Outputs of a model on h100, b200, h200"
    assert page.lead == [
        "h100 and b200 (b200: not predicted for this chip's library): 25.0 % of the elements differ, by "
        "at most 2.0e-03 of the largest value; 3 of 1,000 top-1 flips",
        "h100 and h200: equal in every bit",
        *(f"{name}: a remark" for name in ("h100", "b200", "h200")),
    ]


@pytest.mark.parametrize("verb", ["run", "sweep", "tune", "diff", "invariance"])
def test_each_verb_names_the_option_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help-all" if verb in ("run", "tune", "diff") else "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "--report FILE.html" in said and "--report page.html" in said


def test_another_suffix_is_refused_before_the_work(tmp_path: Path) -> None:
    assert check_report(None) is None
    with pytest.raises(hwsim.InputError, match=r"allowed: a name that has the suffix \.html"):
        check_report(tmp_path / "page.png")


def test_spans_join_what_was_asked_for_one_after_the_other() -> None:
    classes = [{"m": [(1, 1), (8, 8), (29, 29)]}, {"m": [(15, 15), (22, 22)]}, {"m": [(36, 40)]}]
    assert spans_of(classes) == ["1 to 8, 29", "15 to 22", "36 to 40"]
    many = [{"m": [(m, m) for m in range(1, 40, 2)]}, {"m": [(m, m) for m in range(2, 41, 2)]}]
    assert spans_of(many)[0] == ", ".join(str(m) for m in range(1, 40, 2))


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0.0 %"), (1e-9, "< 0.05 %"), (0.25, "25.0 %"), (1 - 1e-9, "> 99.9 %"), (1.0, "100.0 %")]
)
def test_a_share_that_is_not_nothing_is_not_shown_as_nothing(share: float, text: str) -> None:
    assert percent(share) == text
