"""The libraries that hwsim knows, by name: its own, and those of installed packages.

A package registers a provider (hwsim.libraries.protocol) under its name in the entry-point group `hwsim.libraries`. The
module knows names and files' ends; no rule of a library.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from hwsim.errors import ConfigError, UnsupportedError, nearest
from hwsim.host.plugins import entry_points
from hwsim.libraries.cublas.provider import CUBLAS
from hwsim.libraries.cudnn.provider import CUDNN
from hwsim.libraries.model import names as tables
from hwsim.libraries.protocol import LibraryProvider, LibraryRequest, LibraryRules
from hwsim.libraries.published.kernels import CUTLASS, DEEPGEMM
from hwsim.libraries.published.triton_tiles import BATCH_INVARIANT
from hwsim.libraries.pytorch.router import ROUTER

GROUP = "hwsim.libraries"
OWN: tuple[LibraryProvider, ...] = (CUBLAS, CUDNN, ROUTER, DEEPGEMM, CUTLASS, BATCH_INVARIANT)


def known_libraries() -> list[str]:
    """The names of all libraries, sorted."""
    return sorted({*(library.name for library in OWN), *(point.name for point in entry_points(group=GROUP))})


def library_files() -> tuple[str, ...]:
    """Ends of the names of files of answers that hwsim's libraries read."""
    return tuple(end for library in OWN for end in library.files)


def rules_of(name: str | Path, request: LibraryRequest) -> LibraryRules:
    """The rules of a library, or of a file of its answers, on a device. Raises UnsupportedError for an unknown name."""
    text = str(name)
    for library in OWN:
        if library.files and text.endswith(library.files):
            return library.from_file(Path(name), request)
    return provider(text).on(request)


def provider(name: str) -> LibraryProvider:
    """The library of that name. Raises UnsupportedError where there is none, ConfigError where a package has no such
    object.
    """
    for library in OWN:
        if library.name == name:
            return library
    for point in entry_points(group=GROUP):
        if point.name == name:
            return _loaded(point)
    names = known_libraries()
    if name in tables():
        raise UnsupportedError(
            f"{name} is a table of kernels (hwsim libraries show {name}), no library for library=; there is "
            f"{', '.join(names)}{nearest(name, names)}"
        )
    files = f", and files of answers ({', '.join(library_files())})"
    raise UnsupportedError(f"no library {name!r}; there is {', '.join(names)}{files}{nearest(name, names)}")


def _loaded(point: EntryPoint) -> LibraryProvider:
    loaded: Any = point.load()
    if not callable(getattr(loaded, "on", None)) or getattr(loaded, "name", None) != point.name:
        allowed = f"a library provider named {point.name!r}"
        text = f"entry point {point.value} in {GROUP}: got {loaded!r}; allowed: {allowed}"
        raise ConfigError([text], kind="library")
    return loaded  # type: ignore[no-any-return]
