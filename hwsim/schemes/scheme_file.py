"""A scheme in a Python file of the user, named FILE.py:NAME.

It knows how such a file is read; it knows nothing of what a scheme plans.
"""

from __future__ import annotations

import hashlib
import sys
from functools import lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from hwsim.errors import InputError, nearest
from hwsim.schemes.scheme import Scheme

SUFFIX = ".py"


def is_scheme_file(name: str) -> bool:
    """Whether the name of a scheme names a file: FILE.py:NAME, or FILE.py where the name was forgotten."""
    return f"{SUFFIX}:" in name or name.endswith(SUFFIX)


def scheme_in_file(name: str) -> Scheme:
    """The `Scheme` called NAME in FILE.py, for the text FILE.py:NAME. The file is executed, once for each state of it.

    Raises InputError where there is no such file, where it fails, or where it has no scheme of that name.
    """
    path, scheme_name = _parts(name)
    digest = hashlib.sha256(_contents(name, path)).hexdigest()
    module = _module(str(path.resolve()), digest)
    schemes = {key: value for key, value in vars(module).items() if isinstance(value, Scheme)}
    if scheme_name not in schemes:
        there = f"it has {', '.join(schemes)}" if schemes else "it has none; a scheme is a hwsim.schemes.Scheme"
        raise InputError(
            f"scheme {name}: no scheme {scheme_name!r} in the file; {there}{nearest(scheme_name, list(schemes))}"
        )
    return schemes[scheme_name]


def scheme_file_digest(name: str) -> str:
    """SHA-256 of the file of FILE.py:NAME. Raises InputError where there is none."""
    path, _ = _parts(name)
    return hashlib.sha256(_contents(name, path)).hexdigest()


def _parts(name: str) -> tuple[Path, str]:
    path, colon, scheme_name = name.rpartition(":")
    if not colon or not path.endswith(SUFFIX) or not scheme_name:
        raise InputError(f"scheme {name}: allowed: FILE.py:NAME, with the name of the Scheme in the file")
    return Path(path), scheme_name


def _contents(name: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"scheme {name}: {path}: {error.strerror or error}; allowed: FILE.py:NAME") from None


@lru_cache(maxsize=64)
def _module(path: str, digest: str) -> ModuleType:
    """The module of a file, executed with its folder on the path of imports, as `python FILE.py` does."""
    name = f"hwsim_scheme_file_{digest[:16]}"
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    folder = str(Path(path).parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a file of the user may fail in any way
        del sys.modules[name]
        raise InputError(f"scheme file {path}: {type(error).__name__}: {error}{_line(error, path)}") from error
    finally:
        sys.path.remove(folder)
    return module


def _line(error: BaseException, path: str) -> str:
    """The line of the file where it failed, as `, line 3`."""
    line, trace = getattr(error, "lineno", None), error.__traceback__
    while trace is not None:
        line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == path else line
        trace = trace.tb_next
    return "" if line is None else f", line {line}"
