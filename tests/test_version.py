"""The version stands in hwsim/_version.py; everything else says the same. Each version says what it did to the bits."""

from __future__ import annotations

import math
import re
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
import yaml

import hwsim

ROOT = Path(__file__).parents[1]
CHANGES = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8") if (ROOT / "CHANGELOG.md").exists() else ""
VERSION = r"\d+\.\d+(?:\.\d+)?(?:rc\d+)?"
HEADING = re.compile(rf"^## ({VERSION})(, not released| \(\d{{4}}-\d{{2}}-\d{{2}}\))$")
only_in_a_checkout = pytest.mark.skipif(not CHANGES, reason="a source distribution has no CHANGELOG.md")


def sections() -> dict[str, list[str]]:
    """{version: its headings} of CHANGELOG.md, newest first. Fails on a heading of another form."""
    found: dict[str, list[str]] = {}
    for line in CHANGES.splitlines():
        if line.startswith("## "):
            match = HEADING.match(line)
            assert match is not None, f"{line}: allowed: '## X.Y.ZrcN, not released' and '## X.Y.Z (YYYY-MM-DD)'"
            assert match[1] not in found, line
            found[match[1]] = []
        elif line.startswith("### "):
            found[next(reversed(found))].append(line.removeprefix("### "))
    return found


def order(name: str) -> tuple[tuple[int, ...], float]:
    """A sort key: candidates come before the release."""
    release, _, candidate = name.partition("rc")
    return tuple(map(int, release.split("."))), int(candidate) if candidate else math.inf


def test_candidates_come_before_the_release() -> None:
    assert sorted(["1.0", "1.0rc2", "0.1.0", "1.0rc10"], key=order) == ["0.1.0", "1.0rc2", "1.0rc10", "1.0"]


def test_the_version_is_in_one_place() -> None:
    text = (ROOT / "hwsim" / "_version.py").read_text(encoding="utf-8")
    assert re.findall(rf'^__version__ = "({VERSION})"$', text, re.MULTILINE) == [hwsim.__version__]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"] and "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "hwsim._version.__version__"}


def test_what_is_installed_says_the_same() -> None:
    try:
        assert version("hwsim") == hwsim.__version__
    except PackageNotFoundError:
        pytest.skip("hwsim runs from its source tree")


@only_in_a_checkout
def test_citation_and_changes_say_the_same() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == hwsim.__version__
    assert next(iter(sections())) == hwsim.__version__, "CHANGELOG.md: the first section is of this version"


@only_in_a_checkout
def test_each_version_says_what_it_did_to_the_bits() -> None:
    found = sections()
    assert found and [name for name, headings in found.items() if "Numerics" not in headings] == []
    released = [name for name in found if f"## {name}, not released" not in CHANGES]
    assert len(found) - len(released) <= 1, "one version at most is not released"
    ordered = sorted(found, key=order, reverse=True)
    assert list(found) == ordered


def test_pages_do_not_say_another_version() -> None:
    """A page that shows hwsim's version (hwsim 1.2.3, hwsim-1.2.3, hwsim==1.2.3) shows this one."""
    shown = re.compile(rf"\bhwsim(?: |-|==|/)({VERSION})\b")
    for page in (*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"):
        for found in shown.findall(page.read_text(encoding="utf-8")):
            assert found == hwsim.__version__, page.name
