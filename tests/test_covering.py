"""covering.py: which cases of a test the default run takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TESTS = """
import ntpath, posixpath
import pytest

@pytest.mark.covering("x", ("x", "y"))
@pytest.mark.parametrize(("x", "y", "z"), [(1, "a", 5), (1, "a", 6), (1, "b", 5), (2, "a", 6), (2, "a", 5)])
def test_some(x, y, z): pass

@pytest.mark.covering("machine")
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("machine", [ntpath.join, posixpath.join])
def test_functions(machine, size): pass

@pytest.mark.parametrize("x", [1, 1])
def test_all(x): pass
"""


def collected(folder: Path, text: str, *words: str) -> tuple[list[str], str]:
    """The tests that a run would take, and all of what it said."""
    (folder / "test_it.py").write_text(text, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -m 'not slow'\nmarkers =\n  slow:\n  covering:\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "covering", "--collect-only"]
    found = subprocess.run(
        [*command, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    said = found.stdout + found.stderr
    return [line.partition("::")[2] for line in said.splitlines() if line.startswith("test_it.py::")], said


def test_every_value_is_taken_and_the_other_cases_are_slow(tmp_path: Path) -> None:
    default, _ = collected(tmp_path, TESTS)
    slow, _ = collected(tmp_path, TESTS, "-m", "slow")
    every, _ = collected(tmp_path, TESTS, "-m", "")
    assert sorted(default + slow) == sorted(every) and len(every) == 11
    some = [name.removeprefix("test_some[") for name in default if name.startswith("test_some")]
    assert sorted(name[:3] for name in some) == ["1-a", "1-b", "2-a"]
    assert sorted(name[:-2] for name in default if "functions" in name) == [f"test_functions[join{i}-" for i in (0, 1)]
    assert default[-2:] == ["test_all[1_0]", "test_all[1_1]"]


def test_a_mark_that_names_no_argument_is_an_error(tmp_path: Path) -> None:
    _, said = collected(tmp_path, TESTS.replace('"machine")\n@', '"engine")\n@'))
    assert "marked covering of 'engine', which it does not have" in said
    _, said = collected(tmp_path, "import pytest\n@pytest.mark.covering('x')\ndef test_none(): pass\n")
    assert "marked covering, but has no parameters" in said
