"""lab/tools/mutate: sites of small texts, and that its lists name lines that there are."""

import ast
import importlib.util
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "lab" / "tools" / "mutate"
C = """/* a < b */
#include <stdio.h>
#define HALF(x) ((x) / 2)
int f(int *p, int n) {
    int sum = 0; /* not + deleted */
    for (int i = 0; i < n; i++)
        if (p[i] != '=' && p[i] >= 3)
            sum += p[i];
    s->total = -sum;
    return sum;
}
"""
PYTHON = """'''A module < of text.'''
def f(x: int = 3) -> bool:
    '''Not x + 1.'''
    if x is not None and x < 4:
        raise ValueError(f"{x + 1}")
    x += 2
    return min(x, 5) in (1, 2)
"""


@pytest.fixture(autouse=True)
def tools(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for name in ("sites", "trees"):
        sys.modules.pop(name, None)


def changes(sites, text):
    return {site.lines(text) for site in sites(text)}


def test_sites_of_c():
    from sites import c_sites

    found = changes(c_sites, C)
    lines = {old for old, _ in found}
    assert not any("stdio" in line or line.startswith("/*") for line in lines)
    assert ("#define HALF(x) ((x) / 2)", "#define HALF(x) ((x) * 2)") in found
    assert ("if (p[i] != '=' && p[i] >= 3)", "if (p[i] != '=' || p[i] >= 3)") in found
    assert ("if (p[i] != '=' && p[i] >= 3)", "if (!(p[i] != '=' && p[i] >= 3))") in found
    assert {("sum += p[i];", "sum -= p[i];"), ("sum += p[i];", ";"), ("s->total = -sum;", ";")} <= found
    assert {new for old, new in found if old.startswith("int sum")} == {"int sum = 1; /* not + deleted */"}


def test_sites_of_python():
    from sites import python_sites

    found = changes(python_sites, PYTHON)
    defaults = {new for old, new in found if old.startswith("def")}
    assert defaults == {"def f(x: int = 4) -> bool:", "def f(x: int = 2) -> bool:"}
    condition = {new for old, new in found if old.startswith("if")}
    assert {"if x is not None or x < 4:", "if x is not None and x <= 4:"} <= condition
    assert {("x += 2", "pass"), ("x += 2", "x += 1")} <= found
    assert ("return min(x, 5) in (1, 2)", "return min(x, 5) not in (1, 2)") in found
    assert ("return min(x, 5) in (1, 2)", "return max(x, 5) in (1, 2)") in found
    assert not any(old.startswith(("raise", "'''")) for old, _ in found)
    for site in python_sites(PYTHON):
        assert site.apply(PYTHON) != PYTHON
        ast.parse(site.apply(PYTHON))


def test_known_survivors_and_planted_faults_are_of_lines_that_there_are():
    known = yaml.safe_load((FOLDER / "known.yaml").read_text())
    planted = yaml.safe_load((FOLDER / "planted.yaml").read_text())
    assert known and planted
    for row in known + planted:
        lines = [line.strip() for line in (ROOT / row["file"]).read_text().splitlines()]
        assert row["old"] in lines, row
        assert row["old"] not in row["new"]
    assert all(row["reason"] for row in known)
    for test in (test for row in planted for test in row.get("tests", ())):
        path, _, name = test.partition("::")
        assert not name or f"def {name}(" in (ROOT / path).read_text(), test
        assert (ROOT / path).is_file(), test


def main_module():
    spec = importlib.util.spec_from_file_location("mutate_main", FOLDER / "__main__.py")
    main = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(main)
    return main


def test_planted_changes_run_the_tests_that_they_name(tmp_path, monkeypatch):
    """A file that no sample is drawn from needs tests of its own; others have all tests of the file without them."""
    main = main_module()
    row = {"file": "hwsim/studies/workload.py", "old": "return tuple(by_sizes.values())", "new": "return ()"}
    other = {"file": "hwsim/machines/cost.py", "old": "window_bytes=moved // spread,", "new": "window_bytes=moved,"}
    listed = tmp_path / "planted.yaml"
    monkeypatch.setattr(main, "PLANTED", listed)
    listed.write_text(yaml.safe_dump([{**row, "tests": ["tests/studies/test_workload.py"]}, other]))
    assert [one["stages"] for one in main.planted("python")] == [(("tests/studies/test_workload.py",),), main.MACHINES]
    assert main.planted("c") == []
    listed.write_text(yaml.safe_dump([row]))
    with pytest.raises(SystemExit, match=r"workload\.py has no tests of its own; give the row `tests`"):
        main.planted("python")


def outcomes(sample, outcome):
    """The trials of a sample by one process, as pairs of stages passed and mutant; outcome(stages, mutant) is a row."""
    while (taken := sample.take()) is not None:
        done, _, mutant = taken
        yield done, mutant
        sample.ended(taken, outcome(done, mutant))


def test_every_mutant_goes_through_its_first_stage_before_one_goes_through_a_second():
    main = main_module()

    def outcome(done, mutant):
        if mutant == "b":
            return {"outcome": "same object"}
        return {"outcome": "killed"} if done == 2 or mutant == "c" else {"outcome": "passed", "stages": done + 1}

    found = list(outcomes(main.Sample("abcdef", 3, [(1, -1, "old")], 60), outcome))
    assert found == [
        (0, "a"),
        (0, "b"),
        (0, "c"),
        (0, "d"),
        (1, "old"),
        (1, "a"),
        (1, "d"),
        (2, "old"),
        (2, "a"),
        (2, "d"),
    ]
    assert list(outcomes(main.Sample("ab", 3, [], 0), outcome)) == []
