"""lab/tools/sanitize: parts and calls of the suite that add up, tests that cannot work there, and what is a report."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("xdist", reason="the extra test is missing: xdist")
FOLDER = Path(__file__).parents[1] / "tools" / "sanitize"
TESTS = """
import os, time
import pytest

@pytest.mark.parametrize("x", range(6))
def test_good(x): ...

def test_bad(): assert os.path.exists({mended!r})

def test_crash(): os.path.exists({mended!r}) or os._exit(1)

@pytest.mark.skip(reason="not here")
def test_skipped(): ...
"""


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"sanitize_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(FOLDER), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = ["-m", "pytest", "-q", "-p", "sanitized_suite", "-p", "xdist.plugin", "-p", "no:cacheprovider", *options]
    return subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)


def test_calls_and_parts_add_up(tmp_path: Path) -> None:
    """A log takes parts, a call without time and a process that died; what failed is run again, and nothing else."""
    mended = tmp_path / "mended"
    (tmp_path / "test_it.py").write_text(TESTS.format(mended=str(mended)))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    log = tmp_path / "log.jsonl"
    none = run(tmp_path, "--log", str(log), "--minutes", "1e-9", "-n", "0")
    assert none.returncode == 2 and "sanitize: 9 tests in this part, 0 done before, 9 left" in none.stdout, none.stdout
    one = run(tmp_path, "--log", str(log), "--part", "1/2", "-n", "1")
    assert one.returncode == 1 and "sanitize: 5 tests in this part, 0 done before, 0 left" in one.stdout, one.stdout
    with log.open("a") as file:
        file.write('{"test": "test_it.py::te')  # a call that was killed as it wrote
    whole = run(tmp_path, "--log", str(log), "-n", "1")
    assert whole.returncode == 1 and "9 tests in this part, 4 done before, 0 left" in whole.stdout, whole.stdout
    assert "has 2 failed, 6 passed, 1 skipped" in whole.stdout and "failed: test_it.py::test_crash" in whole.stdout
    mended.touch()
    last = run(tmp_path, "--log", str(log), "-n", "0")
    assert last.returncode == 0 and "9 tests in this part, 7 done before, 0 left" in last.stdout, last.stdout
    rows = [json.loads(line) for line in log.read_text().splitlines()[1:] if line.endswith("}")]
    names = [row["test"].partition("::")[2] for row in rows]
    again = ["test_bad"] * 3 + ["test_crash"] * 2
    assert sorted(names) == sorted([*(f"test_good[{x}]" for x in range(6)), "test_skipped", *again])


@pytest.fixture(scope="module")
def suite() -> ModuleType:
    return module("sanitized_suite")


def test_logs_that_are_none(suite: ModuleType, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    for text, said in (("[1]\n{}\n", "no log of"), ('{"sources": "0"}\n', "of other sources"), ("x}\n", "no log of")):
        log.write_text(text)
        with pytest.raises(pytest.UsageError, match=said):
            suite.Log(log)
        assert log.read_text() == text


@pytest.mark.parametrize("text", ["", "3", "0/2", "3/2", "1/0", "a/b", "-1/2"])
def test_parts_that_are_none(suite: ModuleType, text: str) -> None:
    with pytest.raises(pytest.UsageError, match="--part"):
        suite.part(text)


def test_each_reason_is_of_a_test_that_there_is(suite: ModuleType) -> None:
    reasons, main = suite.unfit(), module("__main__")
    chosen = {name.removeprefix("--deselect="): "runs, or does not, in a part" for name in (*main.BRIEF, *main.QUICK)}
    for test, why in (reasons | chosen).items():
        file, _, name = test.partition("::")
        tree = ast.parse((FOLDER.parents[2] / file).read_text(encoding="utf-8"))
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert (not name or name.partition("[")[0] in defined) and why, test
    assert suite.reason_for("tests/x.py::test_a[1]", {"tests/x.py::test_a": "y"}) == "y"
    assert suite.reason_for("tests/x.py::test_a[1]", {"tests/x.py::test_a[2]": "y", "tests/x.py::test": "z"}) is None
    assert suite.reason_for("tests/x.py::test_a[1]", {"tests/x.py": "y"}) == "y"


def test_reports_and_warnings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    main = module("__main__")
    monkeypatch.setattr(main, "REPORTED", tmp_path)
    (tmp_path / "report.1").write_text("==1==WARNING: AddressSanitizer failed to allocate 0x9 bytes\n")
    assert main.reports() == []
    (tmp_path / "report.2").write_text("==2==ERROR: AddressSanitizer: heap-use-after-free\n")
    (tmp_path / "report.3").write_text("x.c:1:2: runtime error: signed integer overflow\n")
    assert len(main.reports()) == 2
