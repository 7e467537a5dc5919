"""Warnings that a process gives once, however often their reason comes. The module knows texts alone."""

from __future__ import annotations

import warnings

#: What was said.
SAID: set[str] = set()


def warn_once(text: str, stacklevel: int = 2) -> None:
    """Warn, if this text was not said before. stacklevel: as of warnings.warn, from the caller on."""
    if text not in SAID:
        SAID.add(text)
        warnings.warn(text, stacklevel=stacklevel + 1)
