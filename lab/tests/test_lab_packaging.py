"""The laboratory as a distribution: hwsim's version, entry points that are verbs, packages and data that are there."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path

import pytest

import hwsim
from hwsim.cli.verbs import LAB as TOLD
from hwsim.cli.verbs import Verb, actions, known

LAB = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((LAB / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
VERBS = PROJECT["entry-points"]["hwsim.verbs"]


def test_it_has_hwsims_version_and_needs_that() -> None:
    assert PROJECT["version"] == hwsim.__version__
    assert PROJECT["dependencies"] == [f"hwsim=={hwsim.__version__}"]
    root = tomllib.loads((LAB.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert PROJECT["requires-python"] == root["requires-python"]


@pytest.mark.parametrize("name", VERBS)
def test_entry_points_are_verbs(name: str) -> None:
    module, _, attribute = VERBS[name].partition(":")
    verb = getattr(importlib.import_module(module), attribute)
    assert isinstance(verb, Verb) and verb.example.split()[: name.count(".") + 1] == name.split(".")
    assert bool(verb.task) == ("." not in name)
    found = importlib.import_module(verb.module)
    assert callable(found.configure) and callable(found.execute)


def test_hwsim_names_the_same_verbs_where_they_are_not_installed() -> None:
    assert sorted(TOLD) == sorted(VERBS)


def test_they_are_installed() -> None:
    """pip install -e ./lab, as README has it."""
    assert {"reproduce", "bench"} <= known().keys()
    assert {"campaign", "questions"} <= actions("golden").keys()


def test_every_folder_is_a_package_and_its_data_are_listed() -> None:
    files = [path for path in (LAB / "hwsim_lab").rglob("*") if path.is_file() and path.suffix not in (".pyc", ".md")]
    assert len(files) > 100
    data = PYPROJECT["tool"]["setuptools"]["package-data"]
    for path in files:
        assert (path.parent / "__init__.py").is_file(), path
        package = ".".join(path.parent.relative_to(LAB).parts)
        assert path.suffix == ".py" or any(path.match(pattern) for pattern in data.get(package, ())), path
