"""Finds and reads the files of GPU families by name. It knows the search path and the files' form, and no kernel.

Order: the package's folder; `families` in each folder of $HWSIM_CONFIG_PATH; ./configs/families; the user's config
folder. A family of hwsim's own has its name for itself.
"""

from __future__ import annotations

import functools
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from hwsim.datafiles.json_form import Schema, file_schema
from hwsim.datafiles.reading import record_of
from hwsim.datafiles.yaml_text import FileProblem, Node, parse
from hwsim.dataflows.tiled.family import Family
from hwsim.errors import ConfigError, InputError, nearest
from hwsim.host import places
from hwsim.libraries.model import names as library_names

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

KIND = "family"
SCHEMA_VERSION = 1
SUFFIX = ".yaml"


def read(file: Path | Traversable) -> Family:
    """The family of a file, read once for its text. Raises ConfigError with every problem, InputError for a file that
    cannot be read.
    """
    return _read(str(file), places.text_of(file, KIND))


@functools.cache
def shipped() -> dict[str, Family]:
    """hwsim's own families by name."""
    return {name: read(file) for name, file in _files(places.package_folder("families"))}


def find(name: str) -> Family | None:
    """The family called `name`, or None. Raises ConfigError and InputError for a file of that name with problems."""
    if name in shipped():
        return shipped()[name]
    file = next((file for stem, file in _others() if stem == name), None)
    return None if file is None else read(file)


def known() -> Mapping[str, Family]:
    """All families by name, hwsim's own first; read anew when a file changes. A broken file, or one with the name of a
    family of hwsim's own, causes a warning and is left out.
    """
    return _known(tuple([(str(file), *_state(file)) for _, file in _others()]))


@functools.lru_cache(maxsize=4)
def _known(_files: tuple[tuple[str, int, int], ...]) -> Mapping[str, Family]:
    families = dict(shipped())
    for name, file in _others():
        if name in families:
            if name in shipped():
                said = f"hwsim has a family {name}; give the file and its devices' family another name"
                warnings.warn(f"family file {file} is left out: {said}", stacklevel=3)
            continue
        try:
            families[name] = read(file)
        except (ConfigError, InputError) as error:
            warnings.warn(f"family file {file} is left out: {error}", stacklevel=3)
    return MappingProxyType(families)


def _state(file: Path) -> tuple[int, int]:
    """Time of the last change and size of a file; zeros where it is gone."""
    try:
        state = file.stat()
    except OSError:
        return 0, 0
    return state.st_mtime_ns, state.st_size


def json_schema() -> Schema:
    """The JSON Schema of a family file (configs/schema/family.schema.json)."""
    return file_schema(Family, KIND)


@functools.lru_cache(maxsize=64)
def _read(where: str, text: str) -> Family:
    tree, problems = parse(text, where)
    return record_of(tree, problems, Family, SCHEMA_VERSION, KIND, functools.partial(_names, where)).record


def _names(where: str, tree: Node) -> Iterator[FileProblem]:
    """Problems: a name that is not the file's, a library that hwsim has not."""
    fields = tree.value if isinstance(tree.value, dict) else {}
    name, library, stem = fields.get("name"), fields.get("library"), Path(where).stem
    if name is not None and isinstance(name.value, str) and name.value != stem:
        yield FileProblem(name.mark, "name", f"got '{name.value}'; the file's name says {stem}")
    libraries = library_names()
    if library is not None and isinstance(library.value, str) and library.value not in libraries:
        text = f"no library '{library.value}'; known: {', '.join(libraries)}{nearest(library.value, libraries)}"
        yield FileProblem(library.mark, "library", text)


def _others() -> Iterator[tuple[str, Path]]:
    """Names and files in the folders of the search path that are not the package's own. Quick where there are none."""
    for folder in _folders(os.getcwd(), *map(os.environ.get, places.SEARCH_VARIABLES)):  # noqa: PTH109 (quick)
        if os.path.isdir(folder):  # noqa: PTH112 (quick)
            yield from ((name, file) for name, file in _files(Path(folder)) if isinstance(file, Path))


@functools.lru_cache(maxsize=4)
def _folders(_here: str, *_variables: str | None) -> list[str]:
    """The folders of the search path but for the package's own, which ./configs/families is in the source tree."""
    package = places.package_folder("families")
    shipped_folder = package.resolve() if isinstance(package, Path) else None
    return [folder for folder in places.searched("families") if Path(folder).resolve() != shipped_folder]


def _files(folder: Traversable) -> list[tuple[str, Traversable]]:
    """Names and files of a folder, short words first and numbers by value: sm90, sm100, cdna."""
    if not folder.is_dir():
        return []
    files = [(file.name.removesuffix(SUFFIX), file) for file in folder.iterdir() if file.name.endswith(SUFFIX)]
    return sorted(files, key=lambda item: [part.zfill(9) for part in re.split(r"(\d+)", item[0])])
