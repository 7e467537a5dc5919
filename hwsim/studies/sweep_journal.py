"""The journal of sweeps: results of points, appended as they come, one file for each device. It is the cache too.

A line is one JSON object, {"key", "row", "sha256"}. A line that a kill cut short is passed over, and so is, with a
warning, one that is no longer as it was written: their points run again.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hwsim.devices import load
from hwsim.errors import InputError
from hwsim.host.cache import cache_folder, sources_digest
from hwsim.host.files import make_folder
from hwsim.host.input_files import read_bytes
from hwsim.schemes import is_scheme_file, scheme_file_digest
from hwsim.studies.sweep_study import SweepPoint


def journal_folder() -> Path:
    """The folder of the journals of this hwsim: of another, with other sources, there is another."""
    return cache_folder("sweep") / sources_digest()[:16]


def device_digest(name: str) -> str:
    """SHA-256 of a device's expanded file. Raises as hwsim.device."""
    return load(name).sha256


def key_of(point: SweepPoint, exact: bool, device: str) -> str:
    """The key of a point's result: device (a SHA-256) and its other numbers, scheme, options, whether there are bits.

    A library's and a scheme's file count by their contents. The version of hwsim is the folder's.
    """
    options = dict(point.options)
    library = options.get("library")
    if isinstance(library, str) and Path(library).is_file():
        options["library"] = hashlib.sha256(read_bytes(Path(library), "library file")).hexdigest()
    scheme = [point.scheme, scheme_file_digest(point.scheme)] if is_scheme_file(point.scheme) else point.scheme
    identity = [
        device,
        point.device,
        scheme,
        sorted(options.items()),
        exact,
        *([point.numbers] if point.numbers else []),
    ]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()


class SweepJournal:
    """Reads and appends rows. One that is None is not written: results of a sweep without a cache are not stored.

    lost: why rows are not stored any more; empty where they are. The sweep goes on without its journal.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.files: dict[str, int] = {}
        self.lost = ""
        if folder is not None:
            try:
                make_folder(folder)
            except InputError as error:
                self.give_up(str(error))

    def give_up(self, reason: str) -> None:
        """Store nothing from here on."""
        self.folder, self.lost = None, reason

    def warn(self) -> None:
        """Say why rows were not stored, where they were not."""
        if self.lost:
            text = (
                "results of this sweep are not stored; HWSIM_CACHE names another folder, --no-cache (cache=False) none"
            )
            warnings.warn(f"{self.lost}: {text}", stacklevel=2)

    def path(self, device: str) -> Path | None:
        """The file of a device, by its SHA-256."""
        return None if self.folder is None else self.folder / f"{device[:32]}.jsonl"

    def read(self, device: str) -> dict[str, dict[str, Any]]:
        """The rows of a device, by key. Warns once of lines that are not as they were written, and leaves them out."""
        path = self.path(device)
        if path is None or not path.exists():
            return {}
        rows_by_key: dict[str, dict[str, Any]] = {}
        altered: set[str] = set()
        try:
            lines = path.read_bytes().split(b"\n")
        except OSError as error:
            raise InputError(f"cannot read the journal {path}: {error.strerror}; see HWSIM_CACHE") from error
        for line in lines:
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):  # cut short by a kill
                continue
            key = entry.get("key") if isinstance(entry, dict) else None
            if not isinstance(key, str):
                continue
            row = entry.get("row")
            if isinstance(row, dict) and entry == _line(key, row):
                rows_by_key[key] = row
            else:
                altered.add(key)
        if count := len(altered - set(rows_by_key)):
            rows = f"{count} row{'s are' if count > 1 else ' is'}"
            warnings.warn(f"{path}: {rows} not as written, and left out; their points are computed again", stacklevel=2)
        return rows_by_key

    def append(self, device: str, key: str, row: Mapping[str, Any]) -> None:
        """Append one row; the write is one call, so that processes can share a file."""
        path = self.path(device)
        if path is None:
            return
        text = json.dumps(_line(key, row)).encode()
        try:
            if device not in self.files:
                self.files[device] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
                text = b"\n" + text  # after a line that was cut short
            os.write(self.files[device], text + b"\n")
        except OSError as error:
            self.give_up(f"cannot write the journal {path}: {error.strerror}")

    def close(self) -> None:
        """Close the files."""
        for descriptor in self.files.values():
            os.close(descriptor)
        self.files.clear()


def _line(key: Any, row: Any) -> dict[str, Any]:
    """A line of the file: key and row, with the SHA-256 of both."""
    content = json.dumps([key, row], sort_keys=True).encode()
    return {"key": key, "row": row, "sha256": hashlib.sha256(content).hexdigest()}
