"""The entry points that installed packages register for hwsim's groups: devices, schemes, dataflows, verbs.

It knows how Python finds and loads them; it knows no group.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import SelectableGroups

T = TypeVar("T")


def entry_points(*, group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group. The metadata of every installed distribution is read for them, which takes
    milliseconds, so once for all groups and a state of the import path.
    """
    return _entry_points(group, _import_path())


def loaded(points: Iterable[EntryPoint], read: Callable[[EntryPoint], T], what: str) -> dict[str, T]:
    """What entry points give, by name and in the order of names.

    read: loads one. Where it fails, a warning names `what` (as "verb"), the entry point and the error, and that one is
    left out. So is a second one of a name.
    """
    objects: dict[str, T] = {}
    by_name: dict[str, str] = {}
    for point in sorted(points, key=lambda point: point.name):
        first = by_name.setdefault(point.name, point.value)
        if point.name in objects and first == point.value:  # the same one, found in two folders
            continue
        try:
            if point.name in objects:
                raise ValueError(f"{first} has this name too")
            objects[point.name] = read(point)
        except Exception as error:  # a plug-in may fail in any way, and must not hide the others
            warnings.warn(f"{what} {point.name} ({point.value}) is left out: {error}", stacklevel=3)
    return objects


def object_of(kind: type[T]) -> Callable[[EntryPoint], T]:
    """Loads an entry point whose object is of `kind`. Raises TypeError for another."""

    def read(point: EntryPoint) -> T:
        plugin = point.load()
        if not isinstance(plugin, kind):
            raise TypeError(f"gives {type(plugin).__name__}; needs a {kind.__module__}.{kind.__qualname__}")
        return plugin

    return read


@lru_cache(maxsize=8)
def _entry_points(group: str, path: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    return tuple(_of_all_groups(path).select(group=group))


@lru_cache(maxsize=1)
def _of_all_groups(_path: tuple[tuple[str, int], ...]) -> SelectableGroups:
    return importlib.metadata.entry_points()


def _import_path() -> tuple[tuple[str, int], ...]:
    """The folders that Python imports from, each with the time of its last change: an installation changes one."""
    times = []
    for folder in sys.path:
        try:
            times.append((folder, os.stat(folder or ".").st_mtime_ns))  # noqa: PTH116 (quick)
        except OSError:
            times.append((folder, 0))
    return tuple(times)
