"""tools/portability: what it runs is there, and what it cannot run is said in a line."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOL = ROOT / "tools/portability"


@pytest.mark.parametrize("name", ["arm", "blas"])
def test_the_tests_that_are_named_are_there(name, monkeypatch):
    monkeypatch.syspath_prepend(str(TOOL))
    spec = importlib.util.spec_from_file_location(f"portability_{name}", TOOL / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.TESTS and not [one for one in module.TESTS if not (ROOT / one).exists()]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["arm", "--wheel", "none.whl"], "none.whl: no such file; tools/wheels/build.py makes it"),
        (["pythons", "--python", "no-such-python"], "no-such-python: No such file or directory"),
    ],
)
def test_what_cannot_run_is_one_line(words, said, tmp_path):
    command = [sys.executable, str(TOOL), *words, "--work", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr == f"portability: error: {said}\n"
