"""The entry points that installed packages register for hwsim's groups: devices, schemes, dataflows, verbs.

It knows how Python finds them; it knows no group and loads nothing.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from functools import lru_cache
from importlib.metadata import EntryPoint


def entry_points(*, group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group. The metadata of every installed distribution is read for them, which takes
    milliseconds, so once for a group and a state of the import path.
    """
    return _entry_points(group, _import_path())


@lru_cache(maxsize=8)
def _entry_points(group: str, _path: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    return tuple(importlib.metadata.entry_points(group=group))


def _import_path() -> tuple[tuple[str, int], ...]:
    """The folders that Python imports from, each with the time of its last change: an installation changes one."""
    times = []
    for folder in sys.path:
        try:
            times.append((folder, os.stat(folder or ".").st_mtime_ns))  # noqa: PTH116 (quick)
        except OSError:
            times.append((folder, 0))
    return tuple(times)
