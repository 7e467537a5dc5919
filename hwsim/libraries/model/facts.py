"""The shipped files on calls of libraries: versions whose choices are known, sums of kernels, and frameworks' calls.

Each is read once, when it is asked for. It knows files and their schemas; not what follows from them.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from hwsim.datafiles.reading import FileRecord, Model, record_of
from hwsim.datafiles.yaml_text import parse
from hwsim.host import places
from hwsim.libraries.model.convolution_model import ConvolutionKernels
from hwsim.libraries.model.framework_model import Framework
from hwsim.libraries.model.loader import FURTHER, SUFFIX
from hwsim.libraries.model.sums_model import LibrarySums
from hwsim.libraries.model.version_model import LibraryVersion

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

SCHEMA_VERSION = 1  # of each kind of file
VERSION_END = FURTHER[0]


@cache
def versions() -> tuple[FileRecord[LibraryVersion], ...]:
    """All version files, the newest of each library first. Raises ConfigError where one is not valid."""
    files = [file for file in places.package_folder("libraries").iterdir() if file.name.endswith(VERSION_END)]
    records = [_read(file, LibraryVersion) for file in files]
    return tuple(sorted(records, key=lambda file: (file.record.library, _number(file.record.version)), reverse=True))


@cache
def sums_in(name: str) -> LibrarySums:
    """The sums in a file of that name beside the library files. Raises ConfigError where the file is not valid,
    InputError where it cannot be read.
    """
    return _read(places.package_folder("libraries") / name, LibrarySums).record


@cache
def convolution_kernels(name: str) -> ConvolutionKernels:
    """Kernels of convolutions, by a file's name beside the library files; errors as of `sums_in`."""
    return _read(places.package_folder("libraries") / name, ConvolutionKernels).record


@cache
def framework_file(name: str, version: str) -> FileRecord[Framework]:
    """A framework's calls, with the evidence of each. Raises ConfigError where the file is not valid, InputError where
    it cannot be read.
    """
    return _read(places.package_folder("frameworks") / f"{name}-{version}{SUFFIX}", Framework)


def framework_of(name: str, version: str) -> Framework:
    """The calls alone; errors as of `framework_file`."""
    return framework_file(name, version).record


def _read(file: Traversable, model: type[Model]) -> FileRecord[Model]:
    return record_of(*parse(places.text_of(file, "library"), str(file)), model, SCHEMA_VERSION, "library")


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))
