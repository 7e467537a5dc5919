"""Safe reading of .npz archives that may be damaged or malicious: one error type for every defect, bounded memory.

It knows the container and its arrays, not what they mean. Python objects are never loaded.
"""

from __future__ import annotations

import hashlib
import io
import math
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError

#: Most bytes that the arrays of one archive may have when unpacked.
LIMIT = 1 << 30
SUFFIX = ".npy"
HEADER_BYTES = 1 << 14  # of one array; NumPy's own have 128


class Archive:
    """An opened .npz: `files`, the names of its arrays in order, and `archive[name]`, a writable array.

    Any defect of an array raises InputError with the names of the archive and the array.
    """

    def __init__(self, path: Path, members: zipfile.ZipFile) -> None:
        self.path, self._zip = path, members
        if not all(entry.filename for entry in members.infolist()):
            raise InputError(f"{path}: damaged: it has an array without a name")
        entries = [entry for entry in members.infolist() if not entry.is_dir()]
        self._entries = {entry.filename.removesuffix(SUFFIX): entry for entry in entries}
        self.files = list(self._entries)
        if len(self._entries) < len(entries):
            seen: set[str] = set()
            name = next(entry.filename for entry in entries if entry.filename in seen or seen.add(entry.filename))  # type: ignore[func-returns-value]
            raise InputError(f"{path}: two arrays are called {name.removesuffix(SUFFIX)}")
        total = sum(entry.file_size for entry in entries)
        if total > LIMIT:
            raise InputError(f"{path}: {total:,} bytes when unpacked; at most {LIMIT:,} are read")

    def __getitem__(self, name: str) -> NDArray[Any]:
        """One array. Raises InputError where there is none of this name."""
        entry = self._entries.get(name)
        if entry is None:
            raise InputError(f"{self.path}: has no array {name}; it has {_some(self.files)}")
        try:
            return self._read(entry)
        except MemoryError:
            raise
        except Exception as error:  # zipfile, zlib and NumPy's header each fail in ways of their own
            raise InputError(f"{self.path}: array {name} is damaged: {error or type(error).__name__}") from None

    def _read(self, entry: zipfile.ZipInfo) -> NDArray[Any]:
        data = bytearray()
        with self._zip.open(entry) as file:  # gives no more than entry.file_size, and checks the sum at the end
            while chunk := file.read(1 << 20):
                data += chunk
        header = io.BytesIO(data[:HEADER_BYTES])
        version = np.lib.format.read_magic(header)
        reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
        if reader is None:
            raise ValueError(f"version {version} of the array format is not read; allowed: (1, 0), (2, 0)")
        shape, by_columns, dtype = reader(header)
        if dtype.hasobject:
            raise ValueError("holds Python objects, which are never loaded")
        size, there = math.prod(shape) * dtype.itemsize, len(data) - header.tell()
        if size != there or any(size < 0 for size in shape) or dtype.itemsize == 0:
            raise ValueError(f"its header says {shape} of {dtype}, {size:,} bytes; {there:,} are there")
        flat = np.frombuffer(data, dtype, offset=header.tell()) if size else np.empty(0, dtype)
        array = flat.reshape(shape, order="F" if by_columns else "C")
        return array.astype(dtype.newbyteorder("="), copy=not array.flags.aligned or not dtype.isnative)


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open the archive `path`. Raises InputError for a file that is no .npz, is damaged, or exceeds LIMIT bytes
    unpacked.
    """
    if not path.is_file():
        raise InputError(f"{path}: {'not an ordinary file' if path.exists() else 'no such file'}")
    try:
        members = zipfile.ZipFile(path)
    except (OSError, ValueError, NotImplementedError, struct.error, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: not an .npz archive: {getattr(error, 'strerror', None) or error}") from None
    with members:
        yield Archive(path, members)


def text_of(archive: Archive, name: str) -> str:
    """The UTF-8 text whose bytes an array holds. Raises InputError."""
    try:
        return archive[name].tobytes().decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{archive.path}: {name} is no UTF-8 text (byte {error.start})") from None


def _some(names: list[str]) -> str:
    return f"{', '.join(names[:8])}{', ...' if len(names) > 8 else ''}" or "none"


def digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of arrays: names, dtypes, shapes and bytes, in order of the names."""
    sha256 = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        sha256.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        sha256.update(np.ascontiguousarray(array).tobytes())
    return sha256.hexdigest()
