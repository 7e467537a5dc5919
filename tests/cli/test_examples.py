"""`hwsim examples`: what there is, copies that run, and the files that a wheel ships."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hwsim.host.example_files import copy_example, examples
from hwsim.host.places import examples_folder

ROOT = Path(__file__).parents[2]


def test_the_list_has_a_line_for_each(cli: Any) -> None:
    done = cli("examples")
    assert done.code == 0 and len(done.out.splitlines()) == len(examples())
    assert "own_scheme" in done.out and "FP32 from three or four products" in done.out
    records = cli("examples", "--json").json["examples"]
    assert {record["name"] for record in records} >= {"own_scheme", "custom_device", "own_library", "notebooks"}
    assert all(record["shows"] for record in records)


def test_a_copy_is_the_example(cli: Any, tmp_path: Path) -> None:
    done = cli("examples", "copy", "own_scheme", "here")
    assert done.code == 0 and done.out == "here/own_scheme.py\n" and "python here/own_scheme.py" in done.err
    copied = tmp_path / "here" / "own_scheme.py"
    assert copied.read_bytes() == (examples_folder() / "own_scheme.py").read_bytes()
    assert cli("run", "--device", "a100", "--scheme", f"{copied}:SCHEME", "--m", 16, "--n", 16, "--k", 16).code == 0
    assert cli("examples", "copy", "own_library", "--json").json["path"] == "own_library"
    assert (tmp_path / "own_library" / "pyproject.toml").is_file()


def test_a_copied_device_runs_without_the_source_tree(tmp_path: Path) -> None:
    path = copy_example("custom_device", tmp_path)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, path.name], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "fraction bits kept" in done.stdout


def test_copies_that_cannot_be_are_refused(cli: Any) -> None:
    assert "did you mean 'own_scheme'" in cli("examples", "copy", "own_schem").err
    assert cli("examples", "copy", "own_scheme").code == 0
    done = cli("examples", "copy", "own_scheme")
    assert done.code == 2 and "own_scheme.py is there already" in done.err


def test_a_wheel_has_the_examples(tmp_path: Path) -> None:
    """Its Python files and data as `pip wheel` builds them; the compiled parts are not needed here."""
    pytest.importorskip("Cython")
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    there = {path.relative_to(tmp_path / "hwsim") for path in (tmp_path / "hwsim" / "examples").rglob("*.*")}
    tracked = subprocess.run(["git", "ls-files", "examples"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("no git checkout")
    assert {str(path) for path in there if path.suffix} == {
        name for name in tracked.stdout.split() if (ROOT / name).is_file()
    }
