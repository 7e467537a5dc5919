"""What an installed hwsim has: every package of the tree is listed, and so are the files that are not Python."""

import re
import tomllib
from pathlib import Path

from hwsim.libraries.cublas.versions import versions

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]


def folder(package):
    """Folder of a package, as package-dir says."""
    return ROOT / SETUPTOOLS["package-dir"].get(package, package.replace(".", "/"))


def test_every_package_is_listed():
    there = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "hwsim").rglob("__init__.py")}
    listed = set(SETUPTOOLS["packages"])
    assert {"hwsim.golden", "hwsim.cli", "hwsim.numerics"} <= there
    assert there == {name for name in listed if name not in SETUPTOOLS["package-dir"]}
    assert all((folder(name) / "__init__.py").exists() for name in listed)


def test_data_files_are_listed():
    data = SETUPTOOLS["package-data"]
    sources = ("hwsim.kernel_sources.cuda", "hwsim.kernel_sources.include", "hwsim.kernel_sources.src")
    for package in ("hwsim.golden.record_sources", "hwsim.configs.devices", "hwsim.configs", *sources):
        assert all(list(folder(package).glob(pattern)) for pattern in data[package])
    assert {"generate.py", "recorder.cuh"} <= {path.name for path in folder("hwsim.golden.record_sources").glob("*")}
    for grafted in ("configs", "docs", "examples", "kernels_ext", "tests", "lab"):
        assert f"graft {grafted}" in (ROOT / "MANIFEST.in").read_text(encoding="utf-8")


def test_no_file_of_the_laboratory_is_installed():
    """Neither as a package nor as data; lab/tools/wheels/check.py looks into a wheel that was built."""
    assert SETUPTOOLS["include-package-data"] is False
    assert all(name == "hwsim" or name.startswith("hwsim.") for name in SETUPTOOLS["packages"])
    shipped = {
        path
        for package in SETUPTOOLS["packages"]
        for pattern in ("*.py", *SETUPTOOLS["package-data"].get(package, ()))
        for path in folder(package).glob(pattern)
    }
    assert len(shipped) > 300
    assert {path.relative_to(ROOT).parts[0] for path in shipped} == {"hwsim", "configs", "kernels_ext"}


def test_data_of_each_library_version_is_installed():
    patterns = SETUPTOOLS["package-data"]["hwsim.configs.libraries"]
    shipped = {path.name for pattern in patterns for path in folder("hwsim.configs.libraries").glob(pattern)}
    for version in versions():
        assert {version.path, version.layers, version.times, version.factors, version.shares} <= shipped
    assert sum((folder("hwsim.configs.libraries") / name).stat().st_size for name in shipped) < 8e6


def test_the_oldest_dependencies_are_the_lower_bounds():
    """lab/constraints/oldest.txt pins what pyproject.toml allows; a marker gives later Pythons another release."""
    text = (ROOT / "lab/constraints/oldest.txt").read_text(encoding="utf-8")
    pinned = dict(re.findall(r'^([\w-]+)==([\d.]+)(?:; python_version < "3.13")?$', text, re.MULTILINE))
    project = PYPROJECT["project"]
    requirements = [
        *project["dependencies"],
        *(one for part in project["optional-dependencies"].values() for one in part),
    ]
    bounds = dict(match.groups() for one in requirements if (match := re.fullmatch(r"([\w-]+)>=([\d.]+)", one)))
    assert {"numpy", "pyyaml", "pydantic", "ml_dtypes", "tqdm", "pytest", "hypothesis"} <= set(pinned) <= set(bounds)

    def numbers(version):
        return [int(part) for part in version.split(".")]

    for name, version in pinned.items():
        least = numbers(bounds[name])
        assert numbers(version)[: len(least)] == least and not any(numbers(version)[len(least) :]), name
