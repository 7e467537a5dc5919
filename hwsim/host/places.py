"""Locations of the data files shipped with hwsim, and reading of their text."""

from __future__ import annotations

import os
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from hwsim.errors import InputError
from hwsim.host.input_files import read_text

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


SEARCH_VARIABLES = ("HWSIM_CONFIG_PATH", "XDG_CONFIG_HOME", "HOME")  # of the environment, read by `searched`


@cache  # a path that is kept keeps its parts in CPython's table of strings, which grows where they come and go
def package_folder(kind: str) -> Traversable:
    """The folder of this hwsim's files of a kind ("devices", "libraries"): in its package or source tree.

    It does not use whatever `hwsim.configs` Python finds first, which may belong to another, installed hwsim.
    """
    package = Path(__file__).parents[1]
    for folder in (package / "configs" / kind, package.parent / "configs" / kind):
        if folder.is_dir():
            return folder
    return files(f"hwsim.configs.{kind}")  # not in a file system


@cache
def kernel_sources() -> Traversable:
    """The folder of the C and CUDA sources of the kernels: in this hwsim's package or source tree."""
    package = Path(__file__).parents[1]
    for folder in (package / "kernel_sources", package.parent / "kernels_ext"):
        if folder.is_dir():
            return folder
    return files("hwsim.kernel_sources")  # not in a file system


@cache
def examples_folder() -> Path:
    """The folder of this hwsim's examples: in its package or source tree. Raises InputError where there is none."""
    package = Path(__file__).parents[1]
    for folder in (package / "examples", package.parent / "examples"):
        if (folder / "own_scheme.py").is_file():
            return folder
    raise InputError(f"no examples in {package}: this installation of hwsim is not whole; install the wheel again")


def searched(kind: str) -> list[str]:
    """The folders of a user's files of a kind, in order, whether they exist or not.

    $HWSIM_CONFIG_PATH lists folders of device files; files of another kind lie in a folder of its name in each.
    """
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")  # noqa: PTH111, PTH118
    parts = [part for part in os.environ.get("HWSIM_CONFIG_PATH", "").split(os.pathsep) if part]
    if kind != "devices":
        parts = [os.path.join(part, kind) for part in parts]  # noqa: PTH118
    return [*parts, f"configs/{kind}", os.path.join(home, "hwsim", kind)]  # noqa: PTH118


def text_of(file: Path | Traversable, kind: str) -> str:
    """The text of a file. Raises InputError if it cannot be read; kind ("device") is the word for it in the message."""
    if isinstance(file, Path):
        return read_text(file, f"{kind} file")
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read the {kind} file {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"the {kind} file {file} is not UTF-8 text (byte {error.start})") from error
