"""`hwsim reproduce`: what runs, what is cached, what is written."""

from __future__ import annotations

import ast
import csv
import json
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hwsim.cli import main
from hwsim.devices import registry
from hwsim.errors import InputError
from hwsim.host import cache
from hwsim_lab.papers import claims, published_units, reproduce, reproduce_text
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series

PAPER = "tf32-tf64"
OWN = claims.read(PAPER).claims


def measurable() -> list[claims.Claim]:
    return [claim for claim in OWN if claim.holds is not None]


class Counted:
    """Experiments of two claims each that count how often they are run."""

    def __init__(self, stop_at: str = "") -> None:
        self.ran: list[tuple[str, Scale]] = []
        self.stop_at = stop_at

    def experiment(self, name: str, ids: tuple[str, ...]) -> Experiment:
        def measure(scale: Scale) -> Found:
            if name == self.stop_at:
                raise KeyboardInterrupt
            self.ran.append((name, scale))
            values = {id: {key: [1.0, 2.0] for key in claims.read(PAPER).claim(id).measured} for id in ids}
            series = Series("errors", {"n": [1, 2], "error": [0.5, 0.25]}, x="n", y="error", log="xy")
            return Found(values, {ids[0]: "as | it is\nhere"}, (series,) if name == "first" else ())

        return Experiment(name, ids, measure, {"quick": 50.0, "full": 3600.0})

    def package(self) -> SimpleNamespace:
        ids = [claim.id for claim in measurable() if not (claim.paper or claim.sizes)][:4]
        return SimpleNamespace(
            EXPERIMENTS=(self.experiment("first", tuple(ids[:2])), self.experiment("second", tuple(ids[2:4]))),
            __file__=str(Path(reproduce.__file__).parent / "tf32_tf64" / "__init__.py"),
        )


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Counted:
    counted = Counted()
    monkeypatch.setenv("HWSIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(reproduce.PACKAGES, PAPER, counted.package())
    monkeypatch.setattr(claims.Claim, "verdict", lambda claim, measured: "fails")
    return counted


def test_what_was_run_is_not_run_again(runs: Counted) -> None:
    assert reproduce.seconds_left([PAPER], None, "quick") == 100
    found = reproduce.reproduce([PAPER])
    assert runs.ran == [("first", "quick"), ("second", "quick")]
    assert reproduce.seconds_left([PAPER], None, "quick") == 0
    assert reproduce.reproduce([PAPER]) == found and len(runs.ran) == 2
    reproduce.reproduce([PAPER], scale="full")
    assert runs.ran[2:] == [("first", "full"), ("second", "full")]


def test_a_stopped_run_goes_on_where_it_was(runs: Counted) -> None:
    runs.stop_at = "second"
    with pytest.raises(KeyboardInterrupt):
        reproduce.reproduce([PAPER])
    runs.stop_at = ""
    reproduce.reproduce([PAPER])
    assert runs.ran == [("first", "quick"), ("second", "quick")]


def test_another_hwsim_runs_anew(runs: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    reproduce.reproduce([PAPER])
    monkeypatch.setattr(reproduce, "_digest", lambda: "0" * 64)
    reproduce.reproduce([PAPER])
    assert len(runs.ran) == 4


def test_every_claim_has_an_outcome(runs: Counted) -> None:
    outcomes = reproduce.reproduce([PAPER]).outcomes
    assert [one.claim for one in outcomes] == list(OWN)
    by_verdict: dict[str, int] = {}
    for one in outcomes:
        by_verdict[one.verdict] = by_verdict.get(one.verdict, 0) + 1
    cannot = sum(claim.holds is None for claim in OWN)
    assert by_verdict == {"fails": 4, "not measured": len(OWN) - cannot - 4, "cannot be asked": cannot}
    assert all(one.note for one in outcomes if one.verdict in ("not measured", "cannot be asked"))


def test_an_experiment_that_leaves_a_claim_out(runs: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Experiment("half", (measurable()[0].id, measurable()[1].id), lambda scale: Found({}), {"quick": 1, "full": 1})
    with pytest.raises(InputError, match="experiment half: its claims and those measured differ"):
        reproduce.measured(PAPER, one, "quick")


def test_files(runs: Counted, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["reproduce", PAPER, "--out", str(out)]) == 0  # whatever the verdicts
    text = capsys.readouterr()
    assert "about 2 minutes on 2 cores" in text.err and "| tf32-tf64 | 0 | 0 | 4 |" in text.out
    rows: list[dict[str, Any]] = json.loads((out / "claims.json").read_text())
    assert len(rows) == len(OWN) and {"id", "paper", "item", "stated", "measured", "verdict"} <= set(rows[0])
    assert rows[0]["id"] == f"{PAPER}/{OWN[0].id}"
    page = (out / f"{PAPER}.md").read_text()
    assert all(f"| {claim.id} |" in page for claim in OWN) and "as \\| it is here" in page
    with (out / "data" / f"{PAPER}-errors.csv").open() as file:
        assert list(csv.reader(file)) == [["n", "error"], ["1", "0.5"], ["2", "0.25"]]


def test_json_is_clean(runs: Counted, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", PAPER, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "hwsim.claims/1" and len(found["claims"]) == len(OWN)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["all", "--size", "3"], "--size is not for claims"),
        ([PAPER, "--size", "3", "--scale", "quick"], "--size is not for claims"),
        ([PAPER, "fig99"], "has no item 'fig99'"),
        (["cycles", "--scale", "full"], "--scale is for claims"),
        ([PAPER, "--out", "/dev/null/x"], "cannot"),
    ],
)
def test_refused(runs: Counted, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", *arguments]) == 2
    assert message in capsys.readouterr().err and not runs.ran


def test_numbers_that_are_not_finite_come_back(runs: Counted) -> None:
    ids = (measurable()[0].id,)
    values = {ids[0]: {"x": float("inf"), "s": [1.0, float("nan")]}}
    one = Experiment("special", ids, lambda scale: Found(values), {"quick": 1, "full": 1})
    for _ in range(2):
        found = reproduce.measured(PAPER, one, "quick").measured[ids[0]]
        assert found["x"] == float("inf") and str(found["s"]) == "[1.0, nan]"


def test_a_summary_over_papers(runs: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = SimpleNamespace(EXPERIMENTS=(), __file__=str(Path(reproduce.__file__).parent / "le_gemm" / "__init__.py"))
    monkeypatch.setitem(reproduce.PACKAGES, "le-gemm", empty)
    text = reproduce_text.summary(reproduce.reproduce([PAPER, "le-gemm"]).outcomes)
    assert text.count("\n") == 5 and text.splitlines()[-1].startswith("| all |")
    outcomes = reproduce.reproduce([PAPER, "le-gemm"]).outcomes
    rows = [line.split("|")[1:-1] for line in reproduce_text.by_kind(outcomes).splitlines()[2:]]
    assert {row[0].strip() for row in rows} == {one.claim.kind for one in outcomes}
    assert sum(int(row[-1]) for row in rows) == len(outcomes)
    assert all(sum(map(int, row[1:-1])) == int(row[-1]) for row in rows)


def test_a_page_shows_its_figures_as_bars_lines_and_maps(tmp_path: Path) -> None:
    """Names on x are bars, a third column makes a map; cells that were not measured stay empty."""
    pytest.importorskip("matplotlib", reason="matplotlib: pip install 'hwsim[plot]'")
    series = (
        Series("bars", {"kernel": ["a", "b", "a", "b"], "ms": [1, 2, 3, 4], "by": [1, 1, 2, 2]}, "kernel", "ms", "by"),
        Series("map", {"x": [1, 2, 1], "y": [1, 1, 2], "db": [0.5, None, 3.0]}, "x", "y", value="db"),
        Series("lines", {"n": [1, 2], "ms": [3.0, 4.0]}, "n", "ms", log="xy"),
    )
    found = reproduce.Reproduction((), {"le-gemm": series})
    paths = reproduce_text.write(tmp_path, found)
    images = [path for path in paths if path.suffix == ".png"]
    assert [path.stem for path in images] == ["le-gemm-bars", "le-gemm-map", "le-gemm-lines"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in images)
    assert all(f"](plots/{path.name})" in (tmp_path / "le-gemm.md").read_text() for path in images)


# --- what results are cached by --------------------------------------------------------------------------------------


def imported(path: Path) -> set[str]:
    """The modules of hwsim and its laboratory that a module's import statements may load."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
    return {name for name in found if name.startswith(("hwsim.", "hwsim_lab."))}


def digested(paper: str, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files by which results of a paper are cached."""
    found: list[Path] = []

    def kept(paths: Any, root: Path) -> str:
        own = list(paths)
        found.extend(own)
        return ""

    monkeypatch.setattr(cache, "digest_of_files", kept)
    reproduce._paper_digest.__wrapped__(paper)
    return found


@pytest.mark.parametrize("paper", claims.PAPERS)
def test_results_are_cached_by_every_module_that_measures(paper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = digested(paper, monkeypatch)
    root = Path(reproduce.__file__).parents[2]
    known = {".".join(path.relative_to(root).with_suffix("").parts) for path in files if path.suffix == ".py"}
    package = Path(str(reproduce.PACKAGES[paper].__file__)).parent
    left = [".".join(path.relative_to(root).with_suffix("").parts) for path in package.rglob("*.py")]
    seen: set[str] = set()
    while left:
        name = left.pop()
        path = root / f"{name.replace('.', '/')}.py"
        if name in seen or not name.startswith("hwsim_lab.papers.") or not path.is_file():
            continue
        seen.add(name)
        assert name in known, f"{name} takes part in measuring {paper}"
        left += imported(path)
    assert {"hwsim_lab.papers.cells", "hwsim_lab.papers.experiment"} <= seen
    assert published_units.FILE in {path.name for path in files}


def test_results_are_cached_by_the_numbers_that_the_paper_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some experiments read them; how a claim is worded moves nothing."""
    paper = claims.read(PAPER)
    before = reproduce._paper_digest.__wrapped__(PAPER)

    def changed(**fields: Any) -> str:
        first = next(one for one in paper.claims if one.paper)
        others = tuple(one.model_copy(update=fields) if one is first else one for one in paper.claims)
        monkeypatch.setattr(claims, "read", lambda name: paper.model_copy(update={"claims": others}))
        return reproduce._paper_digest.__wrapped__(PAPER)

    assert changed(stated="in other words") == before
    assert changed(paper={"other": 1.0}) != before


def test_results_are_cached_by_device_files_that_are_found_before_the_shipped_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, (one, *_) = tmp_path / "a100.yaml", reproduce.experiments(PAPER)
    own = Path(str(registry.package_folder())) / "a100.yaml"
    before = reproduce.cached_path(PAPER, one, "quick")
    for text, is_same in ((own.read_text(), True), (own.read_text() + "# another\n", False)):
        path.write_text(text)
        monkeypatch.setenv("HWSIM_CONFIG_PATH", str(tmp_path))
        assert (reproduce.cached_path(PAPER, one, "quick") == before) == is_same
        monkeypatch.delenv("HWSIM_CONFIG_PATH")
        assert reproduce.cached_path(PAPER, one, "quick") == before
        path.unlink()
    path.write_text(own.read_text() + "# another\n")
    monkeypatch.setenv("HWSIM_CONFIG_PATH", str(tmp_path))
    changed = reproduce.cached_path(PAPER, one, "quick")
    path.write_text(own.read_text() + "# one more\n")  # the folder is as it was
    assert reproduce.cached_path(PAPER, one, "quick") not in (before, changed)


def test_results_are_cached_by_a_plug_in_s_device_of_any_values(monkeypatch: pytest.MonkeyPatch) -> None:
    (one, *_) = reproduce.experiments(PAPER)
    found = []
    for cores in (108, 107):
        monkeypatch.setattr(registry, "replaced", lambda n=cores: {"a100": MappingProxyType({"cores": np.int64(n)})})
        found.append(reproduce.cached_path(PAPER, one, "quick"))
    assert found[0] != found[1]
