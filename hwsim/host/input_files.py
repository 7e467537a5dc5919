"""Reading of files that a user names: regular files only, of bounded size, UTF-8. It knows no format."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hwsim.errors import InputError

MOST_TEXT_BYTES = 4 << 20  # a device file has 40 KB
MOST_TABLE_BYTES = 256 << 20  # reports, tables of shapes, records


def read_text(path: Path, what: str, most_bytes: int = MOST_TEXT_BYTES) -> str:
    """The text of a file, without a byte order mark; `what` ("device file") is the word for it in messages.

    Raises InputError where it cannot be read, is no regular file (a folder, a pipe, /dev/zero), has more than
    `most_bytes` or is not UTF-8.
    """
    data = read_bytes(path, what, most_bytes)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"the {what} {path} is not UTF-8 text (byte {error.start})") from error


def read_bytes(path: Path, what: str, most_bytes: int = MOST_TABLE_BYTES) -> bytes:
    """The bytes of a file; see `read_text`."""
    check_regular(path, what)
    try:
        # Without waiting: what was a file may have become a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise InputError(f"cannot read the {what} {path}: {error.strerror or error}") from error
    if len(data) > most_bytes:
        raise InputError(f"the {what} {path} has more than {most_bytes} bytes, the most that is read")
    return data


def check_regular(path: Path, what: str) -> None:
    """Raise InputError unless `path` is a regular file, or a link to one."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise InputError(f"cannot read the {what} {path}: {getattr(error, 'strerror', None) or error}") from error
    if stat.S_ISREG(mode):
        return
    kind = "a folder" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "no regular file"
    raise InputError(f"cannot read the {what} {path}: it is {kind}; give the name of a regular file")
