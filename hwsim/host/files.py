"""Atomic file output: a file is written completely or not at all. All of hwsim's output goes through here."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError

OPEN_FILES = Path("/proc/self/fd")  # Linux: this process's open files, by descriptor


def check_writable(path: Path) -> None:
    """Raise InputError if `path` cannot be written; called before the work whose result goes there."""
    folder = path.parent
    try:
        if "\0" in str(path):
            raise ValueError("its name has a NUL")
        path.resolve()
        if path.is_dir():
            raise InputError(f"cannot write {path}: it is a folder; give the name of a file")
        if not folder.is_dir():
            raise InputError(f"cannot write {path}: there is no folder {folder}")
        if not os.access(path if _is_special(path) else folder, os.W_OK):
            raise InputError(f"cannot write {path}: no permission to write in {folder}")
    except InputError:
        raise
    except (OSError, ValueError, RuntimeError) as error:  # a name too long; links in a circle
        raise InputError(f"cannot write {path}: {_reason(error)}") from error


def check_outputs(outputs: Mapping[str, Path | None]) -> None:
    """Call `check_writable` for the file of each output option of a command ({"--out": ...}; None: not given).

    Raises InputError also where two options name the same file, because one would overwrite the other. Pipes and
    devices may be named twice.
    """
    seen: dict[object, str] = {}
    for option, path in outputs.items():
        if path is None:
            continue
        check_writable(path)
        if _is_special(path):
            continue
        at = path.stat() if path.exists() else None
        file: object = path.resolve() if at is None else (at.st_dev, at.st_ino)
        if file in seen:
            raise InputError(f"{seen[file]} and {option} both write {path}; give each a file of its own")
        seen[file] = option


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Context manager for a binary file that replaces `path` when the block succeeds; on an error `path` is unchanged.

    The data goes to a temporary file in the same folder, which is then renamed. Anything but a regular file (a pipe, a
    device) is written directly; a symbolic link stays one. Raises InputError for any error of the file system.
    """
    check_writable(path)
    try:
        if _is_special(path):
            with path.open("wb") as file:
                yield file
            return
        with _renamed(path.resolve()) as file:
            yield file
    except OSError as error:
        left = "; what was there is as it was" if path.is_file() else "; nothing was left there"
        raise InputError(f"cannot write {path}: {_reason(error)}{left}") from error


def write_whole(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Call `write` with a file that becomes `path` (see `whole_file`)."""
    with whole_file(path) as file:
        write(file)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8 (see `whole_file`)."""
    write_whole(path, lambda file: file.write(text.encode()))


def write_npz(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write named arrays as a compressed .npz (see `whole_file`). The bytes are reproducible: they depend on the arrays
    alone.
    """
    packed = io.BytesIO()  # zipfile, left with a file that failed, fails once more when it is collected
    np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
    write_whole(path, lambda file: file.write(packed.getbuffer()))


def npz_member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """The array `name` of a .npz that is being written, as a binary file for its .npy form. Its date is fixed, so that
    the bytes depend on the arrays alone.
    """
    info = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    return archive.open(info, "w", force_zip64=True)


class ScratchFile:
    """A temporary file without a name, for what is too large for memory; it is gone with the last array of it."""

    def __init__(self) -> None:
        try:
            self.file = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as this)
        except OSError as error:
            raise InputError(f"cannot make a temporary file: {_reason(error)}; set TMPDIR to another folder") from error

    def append(self, array: NDArray[Any]) -> None:
        """Write an array behind what is there. Raises InputError."""
        try:
            self.file.write(np.ascontiguousarray(array).view(np.uint8).data)
            self.file.flush()
        except OSError as error:
            folder = tempfile.gettempdir()
            raise InputError(
                f"cannot write a temporary file in {folder}: {_reason(error)}; set TMPDIR to another folder"
            ) from error

    def array(self, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        """What was written, as (count,) of `dtype`, read-only; the system reads what is looked at."""
        return np.memmap(self.file, dtype, "r", shape=(count,))


def make_folder(path: Path) -> None:
    """Create a folder and its parents where they do not exist. Raises InputError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot make the folder {path}: {_reason(error)}") from error


@contextmanager
def _renamed(target: Path) -> Iterator[IO[bytes]]:
    """A file that becomes `target`. Where the system can, it has no name until it is whole: a kill leaves nothing."""
    descriptor = _nameless(target.parent)
    if descriptor is None:
        descriptor, temporary = _temporary(target.parent)
        is_named = True
    else:
        temporary, is_named = _unused_name(target.parent), False
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # a full disk may show only now
            if not is_named:
                folder = os.open(target.parent, os.O_RDONLY)
                try:  # with a folder's descriptor Python takes linkat, which follows the link in /proc
                    os.link(OPEN_FILES / str(file.fileno()), temporary, src_dir_fd=folder, follow_symlinks=True)
                finally:
                    os.close(folder)
        if target.exists():
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _temporary(folder: Path) -> tuple[int, Path]:
    """Create a temporary file in `folder`, with the permissions that the umask gives (mkstemp's are 0600).

    Its name does not contain the target's name, which may already have the maximum length.
    """
    while True:
        path = _unused_name(folder)
        with contextlib.suppress(FileExistsError):
            return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666), path


def _unused_name(folder: Path) -> Path:
    return folder / f".hwsim-{secrets.token_hex(8)}.part"


def _nameless(folder: Path) -> int | None:
    """A descriptor of a new file without a name in `folder`; None where the system or the file system has none."""
    if not hasattr(os, "O_TMPFILE") or not OPEN_FILES.is_dir():
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    except OSError:  # the named file will say what is wrong, where something is
        return None


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
