"""Finds device files by name. It knows the search path, not what is in a file.

Order: a path; the folders of $HWSIM_CONFIG_PATH; ./configs/devices; the user's config folder; plug-ins (entry points of
the group "hwsim.devices"); the package. Of a name found twice the first is used, with a warning unless the files are
the same.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwsim.devices import spelling
from hwsim.errors import InputError, UnsupportedError
from hwsim.host import places
from hwsim.host.plugins import entry_points, loaded

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from importlib.resources.abc import Traversable

GROUP = "hwsim.devices"
SUFFIXES = (".yaml", ".yml")

Content = str | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeviceEntry:
    """A device that can be loaded: its name, where it was found, and how to read it (text or a mapping)."""

    name: str
    where: str
    read: Callable[[], Content]


def is_path(device: str | Path) -> bool:
    """Whether `device` is a file rather than a name."""
    return isinstance(device, Path) or device.endswith(SUFFIXES) or "/" in device or os.sep in device


def names() -> list[tuple[str, str]]:
    """(name, where) of every available device, sorted; shadowed ones are left out."""
    return sorted((entry.name, entry.where) for entry in _first().values())


def shipped() -> list[str]:
    """The names, sorted, that refer to device files shipped with hwsim, or to identical copies."""
    chosen = _first()
    return sorted(entry.name for entry in _files(package_folder()) if _same(chosen[entry.name], entry))


def replaced() -> dict[str, Content]:
    """What stands in the place of device files shipped with hwsim, by name: usually nothing."""
    chosen, shipped = _first(), list(_files(package_folder()))
    others = [entry for entry in shipped if chosen[entry.name].where != entry.where]
    return {entry.name: chosen[entry.name].read() for entry in others if not _same(chosen[entry.name], entry)}


def are_from_package(wanted: Iterable[str]) -> bool:
    """Whether all these names refer to device files shipped with hwsim. Quick; no file is read."""
    return _are_from_package(tuple(wanted), state())


@lru_cache(maxsize=8)
def _are_from_package(wanted: tuple[str, ...], _state: tuple[object, ...]) -> bool:
    chosen, shipped = _first(), {entry.name: entry.where for entry in _files(package_folder())}
    return all(name in shipped and chosen[name].where == shipped[name] for name in wanted)


def read(device: str | Path) -> tuple[Content, str]:
    """The text (or a plug-in's mapping) of a device, and where it was found. A name may be a vendor's spelling of it.

    Raises UnsupportedError for an unknown name, InputError for a file that cannot be read.
    """
    if isinstance(device, Path) or is_path(device):
        return _text(Path(device)), str(device)
    entries = _first(device)
    if device not in entries:
        device_names = sorted(entries)
        spelt = spelling.device_of(device, device_names)
        if spelt is None:
            near = spelling.suggestion(device, device_names)
            raise UnsupportedError(f"no device '{device}'; known: {', '.join(device_names) or 'none'}{near}")
        return read(spelt)
    entry = entries[device]
    return entry.read(), entry.where


def state() -> tuple[object, ...]:
    """The state of the search path, for cache validation: folders and their file names, not the files' texts. Cheap."""
    times: list[object] = [os.getcwd()]  # noqa: PTH109 (a path object costs as much as the rest)
    for folder in (*_listed(), str(package_folder())):
        try:
            status = os.stat(folder)  # noqa: PTH116 (so here)
            times += (folder, status.st_mtime_ns, status.st_ino)
        except OSError:
            times += (folder, 0)
    return tuple(times)


def search_path() -> list[str]:
    """The places where device names are looked up, in order, whether they exist or not."""
    return [*map(str, _folders()), f"plugins (entry points {GROUP})", str(package_folder())]


def package_folder() -> Traversable:
    """The folder of the device files shipped with hwsim."""
    return places.package_folder("devices")


def _first(only: str | None = None) -> dict[str, DeviceEntry]:
    """The entry that each name refers to. `only`: warn about duplicates of this name alone, or (None) about none."""
    chosen: dict[str, DeviceEntry] = {}
    for entry in _entries():
        first = chosen.setdefault(entry.name, entry)
        if entry.name == only and first.where != entry.where and not _same(first, entry):
            warnings.warn(f"device '{entry.name}' is taken from {first.where}, not {entry.where}", stacklevel=4)
    return chosen


def _same(left: DeviceEntry, right: DeviceEntry) -> bool:
    """Whether two entries are identical, as ./configs/devices of a checkout and the package are."""
    try:
        return left.read() == right.read()
    except InputError:
        return False


def _entries() -> Iterator[DeviceEntry]:
    for folder in _folders():
        yield from _files(folder)
    yield from _plugins()
    yield from _files(package_folder())


def _folders() -> list[Path]:
    return [folder for folder in map(_path, _listed()) if not _is_package_folder(folder)]


#: Paths of folders, which are kept: Path interns the parts of its text, and parts that nobody holds afterwards fill
#: CPython's table of interned strings, look by look, until it is made anew at twice its size.
_path = lru_cache(maxsize=64)(Path)


def _listed() -> list[str]:
    """The folders that are searched before the package's, which may be among them."""
    return places.searched("devices")


def _is_package_folder(folder: Path) -> bool:
    """Whether the folder is the package's own: in the source tree ./configs/devices is, and it is no duplicate."""
    return folder.resolve() == _package()


@cache
def _package() -> Path | None:
    """The package's own folder, where it is one of a file system."""
    package = package_folder()
    return package.resolve() if isinstance(package, Path) else None


def _files(folder: Traversable) -> Iterator[DeviceEntry]:
    if folder.is_dir():
        for file in sorted(folder.iterdir(), key=lambda item: item.name):
            if file.name.endswith(SUFFIXES):
                name = file.name.rsplit(".", 1)[0]
                yield DeviceEntry(name, _shown(file), partial(_text, file))


def _plugins() -> Iterator[DeviceEntry]:
    yield from loaded(entry_points(group=GROUP), _plugin, "device plug-in").values()


def _plugin(point: EntryPoint) -> DeviceEntry:
    plugin = point.load()
    plugin = plugin() if callable(plugin) else plugin
    if isinstance(plugin, Mapping):
        return DeviceEntry(point.name, f"plugin {point.value}", lambda: plugin)
    if isinstance(plugin, str | Path):
        return DeviceEntry(point.name, str(plugin), partial(_text, Path(plugin)))
    raise TypeError(f"gives {type(plugin).__name__}; needs a mapping, a path, or a callable of one")


def _text(file: Path | Traversable) -> str:
    return places.text_of(file, "device")


def _shown(file: Traversable) -> str:
    """The path relative to the current folder where that is shorter."""
    text = str(file)
    folder = os.getcwd() + os.sep  # noqa: PTH109 (as above)
    return text.removeprefix(folder)
