"""Where hwsim caches results, and the digest of its own sources by which results of another hwsim are told apart."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from hwsim import errors
from hwsim.host.places import package_folder

#: Packages that results do not depend on.
APART = ("cli", "report")
KERNEL_SOURCES = (".pyx", ".pxi", ".pxd", ".c", ".h", ".inc")


def cache_folder(kind: str) -> Path:
    """The folder `kind` in HWSIM_CACHE, or in hwsim in XDG_CACHE_HOME or ~/.cache. It need not exist."""
    named = os.environ.get("HWSIM_CACHE")
    base = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hwsim"
    return base / kind


def digest_of_files(paths: Iterable[Path], root: Path) -> str:
    """SHA-256 of the names below `root` and the contents of files, in order of the names."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _kernels(root: Path) -> tuple[list[Path], Path]:
    """The sources of the kernels in a checkout that was built since they changed, the compiled modules elsewhere; and
    the folder that they are named in.

    By the sources the digest is the same on every machine: the kernels' tests and the golden files hold every build of
    the same sources, each instruction set, compiler and Python, to the same bits.
    """
    checkout, modules = root.parent, list((root / "_kernels").rglob("*.so"))
    if (checkout / "kernels_ext").is_dir() and (checkout / "setup.py").is_file():
        sources = [file for file in (checkout / "kernels_ext").rglob("*") if file.suffix in KERNEL_SOURCES]
        sources.append(checkout / "setup.py")
        if modules and min(map(_changed_ns, modules)) > max(map(_changed_ns, sources)):  # a build links them all
            return sources, checkout
    return modules, root


def _changed_ns(path: Path) -> int:
    return path.stat().st_mtime_ns


@cache
def sources_digest() -> str:
    """SHA-256 of hwsim's modules, kernels and data, but for those that no result depends on (APART)."""
    root = Path(errors.__file__).parent
    apart = [root / name for name in APART]
    product_files = [file for file in root.rglob("*.py") if not any(file.is_relative_to(y) for y in apart)]
    folders = [Path(str(package_folder(kind))) for kind in ("devices", "libraries", "energy")]
    parts = [digest_of_files(product_files, root), digest_of_files(*_kernels(root))]
    parts += [
        digest_of_files((file for file in folder.iterdir() if file.suffix != ".py" and file.is_file()), folder)
        for folder in folders
    ]
    return hashlib.sha256("".join(parts).encode()).hexdigest()
