"""Writing a file whole or not at all. It knows files, not what is written into them."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from hwsim.errors import InputError


def check_writable(path: Path) -> None:
    """Raise InputError if `path` cannot become a file: to be asked before work whose result goes there."""
    folder = path.parent
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder; give the name of a file")
    if not folder.is_dir():
        raise InputError(f"cannot write {path}: there is no folder {folder}")
    if not os.access(path if _is_special(path) else folder, os.W_OK):
        raise InputError(f"cannot write {path}: no permission to write in {folder}")


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that appears as `path` when the block ends well; else nothing is left and `path` is as before.

    It is written under a temporary name in the same folder, then renamed. What is not an ordinary file (a pipe,
    a device) is written directly; a link stays a link. Raises InputError for whatever the file system refuses.
    """
    check_writable(path)
    try:
        if _is_special(path):
            with path.open("wb") as file:
                yield file
            return
        with _renamed(path.resolve()) as file:
            yield file
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; nothing was left there") from error


def write_whole(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Call `write` with a file that becomes `path` (see `whole_file`)."""
    with whole_file(path) as file:
        write(file)


@contextmanager
def _renamed(target: Path) -> Iterator[IO[bytes]]:
    temporary = target.with_name(f".{target.name[:200]}.{os.getpid()}.part")
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # a full disk may show only now
        if target.exists():
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()
