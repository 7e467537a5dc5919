"""lab/docs/faults.md: each fault names a test that is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROW = re.compile(
    r"^\| (?P<fault>.+) \| (?P<by>.+) \| (?P<commit>[0-9a-f]{7,}) "
    r"\| `(?P<test>(?:lab/)?tests/[\w/]+\.py::test_\w+)` \|$"
)


def rows():
    """The rows of the tables of faults, apart from their headings."""
    text = (ROOT / "lab/docs/faults.md").read_text(encoding="utf-8").partition("\n## Open")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [line for line in lines if not line.startswith(("| fault |", "| --- |"))]


def functions(path):
    """Names of the functions of a module that pytest collects."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_row_is_one():
    found = rows()
    assert len(found) > 60
    assert [line for line in found if not ROW.match(line)] == []
    assert len({ROW.match(line)["fault"] for line in found}) == len(found)


@pytest.mark.parametrize("path", sorted({ROW.match(x)["test"].partition("::")[0] for x in rows() if ROW.match(x)}))
def test_the_tests_are_there(path):
    named = {ROW.match(x)["test"].partition("::")[2] for x in rows() if ROW.match(x)["test"].startswith(f"{path}::")}
    assert named <= functions(path)
