"""The applications run, keep what they claim, and say so by their exit code."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import hwsim

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "applications"
APPLICATIONS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "common")


def test_all_are_there() -> None:
    assert APPLICATIONS == [
        "bert_ffn",
        "ising_chain",
        "kmeans",
        "knn",
        "pca",
        "quantum_circuit",
        "spherical_harmonics",
    ]


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))


def kept(output: str) -> None:
    lines = output.splitlines()
    assert [line for line in lines if line.startswith("FAILS")] == []
    assert len([line for line in lines if line.startswith("holds")]) >= 3
    for label in ("fp64", "fp32", "fp16", "bf16x9"):
        assert any(line.startswith(label + " ") for line in lines)


@pytest.mark.parametrize("name", APPLICATIONS)
def test_runs_and_keeps_its_claims(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = importlib.import_module(name).APPLICATION.main(["--quick"])
    output = capsys.readouterr().out
    assert code == 0, output
    kept(output)


def test_as_a_program() -> None:
    command = [sys.executable, str(FOLDER / "kmeans.py"), "--quick"]
    environment = os.environ | {"PYTHONPATH": str(Path(hwsim.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    kept(done.stdout)


def test_a_claim_that_fails_gives_1(capsys: pytest.CaptureFixture[str]) -> None:
    import kmeans

    few = replace(kmeans.APPLICATION, cases=("fp64",), claims=lambda rows: [("two and two is five", False)])
    assert few.main(["--quick"]) == 1
    assert "FAILS: two and two is five" in capsys.readouterr().out
    assert replace(few, claims=lambda rows: [("it is four", True)]).main(["--quick"]) == 0


def test_a_figure_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    import kmeans

    few = replace(kmeans.APPLICATION, cases=("fp64", "fp16"), claims=lambda rows: [])
    assert few.main(["--quick", "--plot", str(tmp_path / "k.png")]) == 0
    assert (tmp_path / "k.png").read_bytes().startswith(b"\x89PNG")
