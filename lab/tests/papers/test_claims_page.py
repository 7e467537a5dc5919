"""`hwsim reproduce --report`: every claim on a page, counts as the summary has them, a plot for each series."""

import json
import re
from html import unescape
from pathlib import Path

import pytest

from hwsim.cli import main
from hwsim_lab.papers import claims, reproduce, reproduce_text
from hwsim_lab.papers.claims_page import claims_page
from hwsim_lab.papers.experiment import Found, Series
from hwsim_lab.papers.reproduce import ClaimOutcome, Reproduction

pytest.importorskip("plotly", reason="plotly: pip install 'hwsim[report]'")


def outcomes() -> tuple[ClaimOutcome, ...]:
    own = claims.read("tf32-tf64").claims[:9]
    verdicts = ("holds", "order", "fails", "holds", "not measured", "holds", "fails", "order", "cannot be asked")
    return tuple(
        ClaimOutcome("tf32-tf64", claim, {"x": [1.5, float("nan")]}, verdict, "why & how" if index == 2 else "")
        for index, (claim, verdict) in enumerate(zip(own, verdicts, strict=True))
    )


SERIES = (
    Series(
        "lines", {"n": [1, 2, 1, 2], "ms": [3.0, float("inf"), 5.0, 6.0], "by": ["a", "a", "b", "b"]}, "n", "ms", "by"
    ),
    Series("bars", {"kernel": ["x", "y"], "ms": [1.0, 2.0]}, "kernel", "ms", log="y"),
    Series("map", {"p": [1, 2], "q": [1, 1], "db": [7.0, None]}, "p", "q", value="db"),
    Series("table alone", {"p": [1]}),
)


def test_the_page_has_every_claim_and_every_series(tmp_path: Path) -> None:
    found = Reproduction(outcomes(), {"tf32-tf64": SERIES})
    path = tmp_path / "claims.html"
    claims_page("Claims", found).write(path)
    page = path.read_text(encoding="utf-8")
    own = unescape(re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL))
    assert all(f">{one.id}<" in own for one in found.outcomes) and "why & how" in own
    text = page.rpartition('id="figures">')[2].partition("</script>")[0]
    figures = list(json.loads(text.replace("<\\/", "</")).values())
    assert len(figures) == 2 + 3
    by_paper = {trace["name"]: sum(trace["x"]) for trace in figures[0]["data"]}
    assert by_paper == {"holds": 3, "order": 2, "fails": 2, "not measured": 1, "cannot be asked": 1}
    rows = [line.split("|")[1:-1] for line in reproduce_text.by_kind(found.outcomes).splitlines()[2:]]
    kinds = figures[1]["data"][0]["y"]
    assert kinds == [row[0].strip() for row in rows][::-1]
    assert figures[1]["data"][0]["x"] == [int(row[1]) for row in rows][::-1]
    lines, bars, heat = figures[2:]
    assert [trace["name"] for trace in lines["data"]] == ["a", "b"] and lines["data"][0]["y"] == [3.0, None]
    assert bars["data"][0]["type"] == "bar" and bars["layout"]["yaxis"]["type"] == "log"
    assert heat["data"][0]["z"] == [7.0, None]
    assert lines["layout"]["xaxis"]["title"]["text"] == "n" and lines["layout"]["yaxis"]["title"]["text"] == "ms"


def test_the_command_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reproduce, "measured", lambda paper, one, scale: Found({}, {}, ()))
    path = tmp_path / "page.html"
    assert main(["reproduce", "tf32-tf64", "table1", "--json", "--report", str(path)]) == 0
    out, err = capsys.readouterr()
    assert len(json.loads(out)["claims"]) and f"wrote {path}" in err and "table1-v100" in path.read_text()
    assert main(["reproduce", "tf32-tf64", "--report", str(tmp_path / "page.pdf")]) == 2
    assert main(["reproduce", "cycles", "--report", str(path)]) == 2
