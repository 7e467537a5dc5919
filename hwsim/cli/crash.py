"""Crash reports: a file with the command, the versions and the traceback of an internal error."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import tempfile
import traceback
from collections.abc import Sequence

from hwsim._version import __version__


def report(error: BaseException, words: Sequence[str]) -> str:
    """Write the file into the temporary folder and return what to tell the user."""
    summary = f"internal error: {type(error).__name__}: {error}"
    text = "\n".join(
        [
            f"command: hwsim {shlex.join(words)}",
            f"hwsim {__version__}, Python {sys.version.split()[0]}, {platform.platform()}",
            "",
            *traceback.format_exception(error),
        ]
    )
    try:
        descriptor, path = tempfile.mkstemp(prefix="hwsim-error-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        return f"{summary}\nThis is a mistake in hwsim. Please report it, with this:\n{text}"
    return f"{summary}\nThis is a mistake in hwsim. Please report it, with the file {path}"
