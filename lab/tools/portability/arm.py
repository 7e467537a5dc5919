"""A wheel for 64-bit Arm under qemu's emulation of a process: its self-test, golden sets, tests of the kernels.

apt's client downloads qemu-user-static for this machine and Debian's arm64 Python with all that it depends on, with
package lists of its own; dpkg unpacks them. pip downloads the packages of hwsim and its tests for that Python.
Nothing is installed. The bits are compared with those that are in the repository, which other processors computed.
--wheel: as lab/tools/wheels/build.py makes it, for Debian's CPython (3.11 in Debian 12). Needs Debian on x86-64.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from runs import CannotRunError, called, clean_environment, passes, work_folder

QEMU = "usr/bin/qemu-aarch64-static"
DEBIAN = ("python3", "libstdc++6")  # NumPy needs the latter
PACKAGES = ("numpy", "pyyaml", "pydantic", "ml_dtypes", "tqdm", "pytest", "hypothesis", "gmpy2")
PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_27_aarch64", "manylinux_2_28_aarch64")
GOLDEN = "tests/golden"
#: Tests of the kernels that start no process (a child would not be emulated), by lanes, lengths, bounds, conversions.
TESTS = (
    "tests/kernels/test_convert.py",
    "tests/kernels/test_dot_bounds.py",
    "tests/kernels/test_dot_promote.py",
    "tests/kernels/test_dot_two_level.py",
    "tests/kernels/test_dot_zero_signs.py",
    "tests/kernels/test_environment.py",
    "tests/kernels/test_lanes.py",
)
#: Settings of apt's client for another architecture, with lists and archives in a folder of their own.
APT = """APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Sandbox::User "";
Debug::NoLocking "1";
Dir::State::lists "{folder}/lists";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}";
Dir::Cache::archives "{folder}/archives";
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("--wheel", type=Path, required=True, metavar="FILE.whl", help="hwsim for manylinux on aarch64")
    parser.add_argument("--no-golden", action="store_true", help="leave out the golden sets")


def run(arguments: argparse.Namespace) -> bool:
    """Unpack, install the wheel, run; whether everything passed. Raises CannotRunError."""
    work = work_folder(arguments.work)
    if not arguments.wheel.is_file():
        raise CannotRunError(f"{arguments.wheel}: no such file; lab/tools/wheels/build.py makes it")
    qemu = unpacked(work / "qemu", "amd64", ("qemu-user-static",), with_dependencies=False) / QEMU
    root = unpacked(work / "arm64", "arm64", DEBIAN, with_dependencies=True)
    python = next(iter(sorted((root / "usr/bin").glob("python3.[0-9]*[0-9]"))), None)
    if python is None:
        raise CannotRunError(f"Debian's python3 is not in {root / 'usr/bin'}")
    site = work / "site"
    install(site, python.name.removeprefix("python"), arguments.wheel)
    emulated = [str(qemu), "-L", str(root), str(python), "-P"]
    env = clean_environment(PYTHONPATH=str(site), PYTHONDONTWRITEBYTECODE="1", OPENBLAS_NUM_THREADS="1")
    print(called([*emulated, "-m", "hwsim", "info"], env, work).rstrip(), flush=True)
    results = [passes("self-test", [*emulated, "-m", "hwsim", "selftest"], env, work)]
    if not arguments.no_golden:
        results.append(passes("golden sets", [*emulated, "-m", "hwsim", "golden", "verify", GOLDEN], env))
    pytest = [*emulated, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(arguments.tests or TESTS)]
    return all([*results, passes("tests", pytest, env)])


def unpacked(folder: Path, architecture: str, packages: tuple[str, ...], *, with_dependencies: bool) -> Path:
    """The folder into which Debian's packages were unpacked; what is there stays."""
    root, archives = folder / "root", folder / "archives"
    if (root / ".complete").exists():
        return root
    for each in (folder / "lists/partial", archives / "partial", root):
        each.mkdir(parents=True, exist_ok=True)
    (folder / "status").write_text("")  # nothing is installed, so that apt's client takes all dependencies
    settings = folder / "apt.conf"
    settings.write_text(APT.format(architecture=architecture, folder=folder))
    env = clean_environment(APT_CONFIG=str(settings))
    print(f"apt: {', '.join(packages)} for {architecture}", flush=True)
    called(["apt-get", "-q", "update"], env, folder)
    if with_dependencies:
        called(["apt-get", "-q", "-y", "--download-only", "--no-install-recommends", "install", *packages], env, folder)
    else:
        called(["apt-get", "-q", "download", *packages], env, archives)
    for archive in sorted(archives.glob("*.deb")):
        called(["dpkg-deb", "-x", str(archive), str(root)], env, folder)
    (root / ".complete").write_text("")
    return root


def install(site: Path, version: str, wheel: Path) -> None:
    """Packages for that Python on aarch64, then the wheel, into a folder. Raises CannotRunError for another wheel."""
    tag = f"cp{version.replace('.', '')}"
    if not re.search(rf"-{tag}-{tag}-manylinux_[^-]*_aarch64\.whl$", wheel.name):
        raise CannotRunError(f"{wheel.name}: allowed: a wheel {tag}-{tag}-manylinux_..._aarch64, for Debian's Python")
    target = [f"--platform={one}" for one in PLATFORMS]
    target += ["--implementation=cp", f"--python-version={version}", "--only-binary=:all:", f"--target={site}"]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--upgrade", *target]
    if not (site / "gmpy2").is_dir():
        print(f"pip: {', '.join(PACKAGES)} for {version} on aarch64", flush=True)
        called([*pip, *PACKAGES])
    called([*pip, "--no-deps", "--no-index", str(wheel)])
