"""A scheme of one's own, as FILE.py:NAME and as an object, in run, tune, diff, sweep and plots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hwsim
from hwsim.cli import main
from hwsim.errors import ConfigError, InputError
from hwsim.schemes import scheme_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_scheme.py"
NAME = f"{EXAMPLE}:SCHEME"
SIZES = ["--m", "32", "--n", "32", "--k", "64"]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HWSIM_CACHE", str(tmp_path / "cache"))


def said(capsys: Any, *words: object) -> str:
    assert main([str(word) for word in words]) in (0, 1), capsys.readouterr().err
    return str(capsys.readouterr().out)


def test_every_verb_takes_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    run = json.loads(said(capsys, "run", "--device", "a100", "--scheme", NAME, "--products", 4, *SIZES, "--json"))
    assert run["scheme"] == "bf16-pair" and run["options"]["products"] == 4
    budget = ("--budget", 2, "--json")
    tuned = json.loads(said(capsys, "tune", "--device", "a100", "--scheme", NAME, "--products", 4, *SIZES, *budget))
    assert tuned["options"]["products"] == 4
    sides = ("--device", "a100", "--scheme", NAME, "--scheme", "bf16x3")
    assert json.loads(said(capsys, "diff", *sides, *SIZES, "--json"))["differing"] > 0


def test_every_plot_takes_the_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs hwsim[plot]")
    out = tmp_path / "error.svg"
    said(capsys, "plot", "error-over-k", "--device", "a100", "--scheme", NAME, "--at", 16, 32, "--out", out, "-q")
    assert "bf16-pair" in out.read_text(encoding="utf-8")
    said(capsys, "plot", "error-over-exponent", "--device", "a100", "--scheme", NAME, "--at", 0, "--out", out, "-q")
    assert "bf16-pair" in out.read_text(encoding="utf-8")
    said(capsys, "plot", "tiles", "--device", "a100", "--scheme", NAME, "--at", 64, "--out", out, "-q")


def test_a_study_takes_a_file_from_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, text = tmp_path / "study", EXAMPLE.read_text(encoding="utf-8")
    folder.mkdir()
    (folder / "mine.py").write_text(text, encoding="utf-8")
    study = folder / "study.yaml"
    study.write_text(
        "devices: [a100]\nschemes: ['mine.py:SCHEME']\nshapes: [[32, 32, 64]]\nexact: true\noptions: {products: [3, 4]}"
    )
    monkeypatch.chdir(tmp_path)
    first, again = hwsim.sweep(study, jobs=1), hwsim.sweep(study, jobs=1)
    assert [row["scheme"] for row in first.rows] == ["bf16-pair"] * 2 and first.refused == 0
    assert first.rows[0]["relative_frobenius"] != first.rows[1]["relative_frobenius"]
    assert (first.computed, again.computed, again.rows) == (2, 0, first.rows)
    (folder / "mine.py").write_text(text.replace('"products", int, 3', '"products", int, 4'), encoding="utf-8")
    assert hwsim.sweep(study, jobs=1).computed == 2  # the file counts by its contents


@pytest.mark.parametrize("jobs", [1, 2])
def test_objects_in_a_study_run_in_processes_and_are_not_cached(jobs: int) -> None:
    scheme = scheme_of(NAME)
    local = hwsim.schemes.Scheme(scheme.name, "", "", scheme.options, lambda *given: scheme.plan(*given))  # no pickle
    study = {"devices": ["a100", "h200"], "schemes": [local(products=4), "bf16x3"], "shapes": [[32, 32, 64]]}
    first, again = (hwsim.sweep(study | {"exact": True}, jobs=jobs) for _ in range(2))
    assert [row["scheme"] for row in first.rows] == ["bf16-pair products=4", "bf16x3"] * 2
    assert first.refused == 0 and first.rows == again.rows
    assert (first.computed, again.computed) == (4, 2)
    alone = hwsim.run(m=32, n=32, k=64, device="a100", scheme=local, products=4)
    assert first.rows[0]["relative_frobenius"] == alone.error["relative_frobenius"]


def test_plots_take_objects() -> None:
    pytest.importorskip("matplotlib", reason="needs hwsim[plot]")
    scheme = scheme_of(NAME)
    figure = hwsim.plots.error_over_exponent("a100", ["bf16x3", scheme(products=4)], exponents=[0, 4], size=16, k=16)
    words = {text.get_text() for axis in figure.axes for text in (axis.title, *axis.texts)}
    words |= {
        text.get_text() for legend in figure.findobj() if hasattr(legend, "get_texts") for text in legend.get_texts()
    }
    assert any("bf16-pair products=4" in word for word in words), words


def test_two_schemes_of_one_label_are_refused() -> None:
    scheme = scheme_of(NAME)
    other = hwsim.schemes.Scheme(scheme.name, "", "", scheme.options, scheme.plan)
    with pytest.raises(InputError, match="two are called 'bf16-pair'"):
        hwsim.sweep({"schemes": [scheme, other]})
    with pytest.raises(ConfigError, match=r"schemes\.0: scheme absent\.py:S: .*FILE\.py:NAME"):
        hwsim.sweep({"schemes": ["absent.py:S"]})


def test_tune_and_diff_take_objects() -> None:
    scheme = scheme_of(NAME)
    by_name = hwsim.tune("a100", 64, 64, 64, scheme=NAME, products=4, budget=2)
    by_object = hwsim.tune("a100", 64, 64, 64, scheme=scheme(products=4), budget=2)
    assert by_name.best == by_object.best
    assert by_name.best.cycles > hwsim.tune("a100", 64, 64, 64, scheme=scheme, budget=2).best.cycles
    a, b = np.random.default_rng(0).standard_normal((2, 32, 32), np.float32)
    left, right = (hwsim.Variant("a100", scheme=way) for way in (scheme(products=4), scheme))
    assert hwsim.diff(a, b, left, right).differing > 0
    assert hwsim.diff(a, b, left, hwsim.Variant("a100", scheme=NAME, options={"products": 4})).differing == 0
