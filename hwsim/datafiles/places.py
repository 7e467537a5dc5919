"""Where the data files shipped with hwsim lie, and how their text is read."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from hwsim.errors import InputError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


@cache
def package_folder(kind: str) -> Traversable:
    """Return the folder of the files of a kind ("devices", "libraries") of this hwsim: in its package or source tree.

    Not whatever `hwsim.configs` is found first: beside a source tree that may be another hwsim's, installed.
    """
    package = Path(__file__).parents[1]
    for folder in (package / "configs" / kind, package.parent / "configs" / kind):
        if folder.is_dir():
            return folder
    return files(f"hwsim.configs.{kind}")  # not in a file system


def text_of(file: Path | Traversable, kind: str) -> str:
    """Return a file's text. Raises InputError, which calls it a file of that kind ("device"), if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read the {kind} file {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"the {kind} file {file} is not UTF-8 text (byte {error.start})") from error
