"""Locations of the data files shipped with hwsim, and reading of their text."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from hwsim.errors import InputError
from hwsim.host.input_files import read_text

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


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
