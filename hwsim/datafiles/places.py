"""Where the data files shipped with hwsim lie, and how their text is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hwsim.errors import InputError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


def package_folder(kind: str) -> Traversable:
    """Return the folder of the shipped files of a kind ("devices", "libraries"): of the source tree, or the package."""
    beside = Path(__file__).parents[2] / "configs" / kind
    if (beside / "__init__.py").exists():
        return beside
    from importlib.resources import files

    return files(f"hwsim.configs.{kind}")


def text_of(file: Path | Traversable, kind: str) -> str:
    """Return a file's text. Raises InputError, which calls it a file of that kind ("device"), if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read the {kind} file {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"the {kind} file {file} is not UTF-8 text (byte {error.start})") from error
