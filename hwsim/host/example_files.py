"""The examples that come with hwsim: what there is, and copies of them. It knows files, not what they show.

An example is a Python file or a folder of `places.examples_folder`.
"""

from __future__ import annotations

import ast
import shutil
from dataclasses import dataclass
from pathlib import Path

from hwsim.errors import InputError, nearest
from hwsim.host.places import examples_folder

README = "README.md"
#: What building and running leave behind.
LEFT_OUT = ("__pycache__", "*.pyc", "*.egg-info", "build", ".ipynb_checkpoints")


@dataclass(frozen=True, slots=True)
class Example:
    """An example: its name, its file or folder, and a line on what it shows."""

    name: str
    path: Path
    shows: str


def examples() -> dict[str, Example]:
    """All examples by name, in alphabetical order."""
    paths = [path for path in sorted(examples_folder().iterdir()) if path.suffix == ".py" or path.is_dir()]
    shown = [path for path in paths if path.name not in LEFT_OUT and not path.name.startswith((".", "_"))]
    return {path.stem: Example(path.stem, path, _shows(path)) for path in shown}


def copy_example(name: str, folder: Path) -> Path:
    """Copy an example into a folder, which is made where it is missing; returns the copy.

    Raises InputError for an unknown name and where the copy is there already, OSError where it cannot be written.
    """
    by_name = examples()
    key = name.removesuffix(".py").rstrip("/")
    if key not in by_name:
        raise InputError(f"no example {name!r}; there are {', '.join(by_name)}{nearest(key, list(by_name))}")
    source = by_name[key].path
    target = folder / source.name
    if target.exists():
        raise InputError(f"{target} is there already; give another folder, or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(*LEFT_OUT))
    else:
        shutil.copyfile(source, target)
    return target


def _shows(path: Path) -> str:
    """The heading of a folder's README, else the first sentence of the first Python file, else the names of files."""
    readme = path / README
    if readme.is_file():
        return readme.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
    files = [path] if path.is_file() else sorted(path.glob("*.py"))
    if files:
        text = ast.get_docstring(ast.parse(files[0].read_text(encoding="utf-8"))) or ""
        return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    return ", ".join(sorted(file.name for file in path.iterdir() if file.is_file()))
