"""The list of a folder's golden archives with their SHA-256: `SHA256SUMS`, as `sha256sum` writes and checks it.

A folder that has one is complete and unchanged, or is refused. It knows files, nothing of what is in them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from hwsim.errors import InputError
from hwsim.host.files import write_text
from hwsim.host.input_files import read_text

NAME = "SHA256SUMS"
LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")


def check_sums(paths: Iterable[Path]) -> None:
    """Check the archives under these folders, and these files, by the `SHA256SUMS` of their folder or one above it.

    Nothing is checked where there is none. Raises InputError naming every archive that is missing, changed or not
    listed.
    """
    for path in paths:
        folder = _listed_above(path)
        if folder is None:
            continue
        listed, there = read_sums(folder), _archives(folder)
        wanted = {file for file in {*listed, *there} if (folder / file).is_relative_to(path.absolute())}
        problems = [
            f"{name}: {text}"
            for name in sorted(wanted)
            if (text := _problem(listed.get(name), folder / name if name in there else None))
        ]
        if problems:
            shown = "; ".join(problems[:8]) + (f"; and {len(problems) - 8} more" if len(problems) > 8 else "")
            raise InputError(
                f"{folder / NAME}: {shown}. Restore these files; if the change is meant: hwsim golden sums {folder}"
            )


def read_sums(folder: Path) -> dict[str, str]:
    """The list of a folder: SHA-256 by path below the folder. Raises InputError for a file that is no such list."""
    file = folder / NAME
    digests: dict[str, str] = {}
    for number, line in enumerate(read_text(file, "list of golden files").splitlines(), 1):
        entry = LINE.fullmatch(line)
        if entry is None or entry[2] in digests:
            raise InputError(
                f"{file}:{number}: needs 64 hex digits, two spaces and a path, each path once; got {line!r}"
            )
        digests[entry[2]] = entry[1]
    return digests


def write_sums(folder: Path) -> int:
    """Write the list of all archives below a folder. Returns their number. Raises InputError where there is none."""
    names = _archives(folder)
    if not names:
        raise InputError(f"{folder}: no folder with .npz files")
    write_text(folder / NAME, "".join(f"{_sha256(folder / name)}  {name}\n" for name in sorted(names)))
    return len(names)


def renew_sums(folder: Path) -> None:
    """Write the list that covers a folder again, where there is one."""
    above = _listed_above(folder)
    if above is not None:
        write_sums(above)


def _listed_above(path: Path) -> Path | None:
    start = path if path.is_dir() else path.parent
    here = start.absolute()
    return next((folder for folder in (here, *here.parents) if (folder / NAME).is_file()), None)


def _archives(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*.npz") if file.is_file()}


def _problem(listed: str | None, file: Path | None) -> str:
    if file is None:
        return "missing"
    if listed is None:
        return "not listed"
    return "" if _sha256(file) == listed else "changed"


def _sha256(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror or error}") from error
