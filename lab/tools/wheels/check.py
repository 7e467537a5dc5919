"""Install wheels in fresh environments without a compiler and run hwsim there.

    python lab/tools/wheels/check.py dist/*.whl
    python lab/tools/wheels/check.py --python python3.12 dist/hwsim-1.0rc1-cp312-*.whl

For each wheel: a new environment; its dependencies are downloaded first, so that the time of `pip install` is that of
installing alone and not of the network; then, in an empty folder and with nothing but the environment in PATH, `hwsim
selftest` with each build of the kernels that this machine runs, and the commands of RUNS. --seconds: most that `pip
install` may take. --installable: leave out wheels for other platforms and interpreters. Exit code 0 when everything was
as it should be, 1 otherwise, 2 where a wheel is not there or all were left out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

SECONDS = 10.0
COMPILERS = ("cc", "gcc", "clang", "zig", "ld")
UNSUPPORTED = "is not a supported wheel on this platform"  # as pip says it
RUNS = (
    ("run", "--json"),
    ("run", "--device", "ascend910a", "--scheme", "sgemm-cube", "--json"),
    ("run", "--device", "h200", "--library", "cublas", "--format", "bf16", "--m", "64", "--json"),
    ("devices", "show", "h200"),
    ("examples", "--json"),
)
INSIDE = re.compile(r"hwsim(-[^/]+\.dist-info)?/")  # the names of a wheel's files begin so: none is the laboratory's
LAB = "comes with the laboratory; install it from a checkout: pip install ./lab"


class CheckError(Exception):
    """Something that is not as it should be; the message says what."""


def called(command: list[str], cwd: Path, env: dict[str, str]) -> str:
    """Standard output of a command. Raises CheckError where it fails."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        raise CheckError(
            f"{shlex.join(command)}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.stdout


def environment(work: Path) -> dict[str, str]:
    """The variables of a machine with this environment and nothing else: no compiler, no checkout."""
    tools = work / "venv" / "bin"
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HWSIM", "CC"))}
    variables |= {"PATH": str(tools), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_CACHE_DIR": "1"}
    found = [name for name in COMPILERS if shutil.which(name, path=str(tools))]
    if found:
        raise CheckError(f"the fresh environment has a compiler: {', '.join(found)}")
    return variables


def is_installable(wheel: Path, python: str) -> bool:
    """Whether an interpreter's pip takes a wheel with these tags; says so where it does not."""
    command = [python, "-m", "pip", "install", "-q", "--dry-run", "--no-deps", "--no-index", "--ignore-installed"]
    done = subprocess.run([*command, str(wheel)], capture_output=True, text=True)
    if done.returncode and UNSUPPORTED in done.stderr:
        print(f"{wheel.name}: left out, not for {python} here", flush=True)
        return False
    return True


def check(wheel: Path, python: str, most_seconds: float) -> None:
    """Install a wheel and run it; prints what was done. Raises CheckError."""
    if foreign := [name for name in zipfile.ZipFile(wheel).namelist() if not INSIDE.match(name)]:
        raise CheckError(f"holds files that are not hwsim's: {', '.join(foreign[:5])}")
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        empty = work / "empty"
        empty.mkdir()
        called([python, "-m", "venv", str(work / "venv")], work, dict(os.environ))
        env = environment(work)
        pip = [str(work / "venv/bin/python"), "-m", "pip"]
        called(
            [*pip, "download", "-q", "--only-binary", ":all:", "--dest", str(work / "local"), str(wheel)], empty, env
        )
        start = time.perf_counter()
        called([*pip, "install", "-q", "--no-index", "--find-links", str(work / "local"), str(wheel)], empty, env)
        seconds = time.perf_counter() - start
        print(f"{wheel.name}: installed in {seconds:.1f} s", flush=True)
        hwsim = str(work / "venv/bin/hwsim")
        info = json.loads(called([hwsim, "info", "--json"], empty, env))
        for kernel in info["kernels"]:
            found = json.loads(called([hwsim, "selftest", "--json"], empty, env | {"HWSIM_KERNEL": kernel}))
            if found["kernel"] != kernel or not found["results"]:
                raise CheckError(f"hwsim selftest: asked for kernel {kernel}, got {found['kernel']}")
            print(
                f"  selftest, {kernel}: {found['results']} results and {len(found['runs'])} runs, all equal", flush=True
            )
        for arguments in RUNS:
            start = time.perf_counter()
            called([hwsim, *arguments], empty, env)
            print(f"  hwsim {' '.join(arguments)}: {time.perf_counter() - start:.1f} s", flush=True)
        done = subprocess.run([hwsim, "reproduce", "all"], cwd=empty, env=env, capture_output=True, text=True)
        if done.returncode != 2 or LAB not in done.stderr:
            raise CheckError(f"hwsim reproduce without the laboratory: exit code {done.returncode}, {done.stderr!r}")
        if list(empty.iterdir()):
            raise CheckError(f"hwsim wrote files that nobody asked for: {sorted(empty.iterdir())}")
        if seconds > most_seconds:
            raise CheckError(f"pip install took {seconds:.1f} s; at most {most_seconds:g} s are allowed (--seconds)")


def main() -> int:
    """Check the wheels of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL")
    parser.add_argument("--python", default=sys.executable, metavar="COMMAND", help="interpreter (default: this one)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"most for pip install (default {SECONDS:g})")
    parser.add_argument("--installable", action="store_true", help="leave out what this interpreter cannot install")
    arguments = parser.parse_args()
    for wheel in arguments.wheels:
        if not wheel.is_file():
            print(f"check.py: error: {wheel}: no such file", file=sys.stderr)
            return 2
    wheels = [one for one in arguments.wheels if not arguments.installable or is_installable(one, arguments.python)]
    if not wheels:
        print(f"check.py: error: {arguments.python} can install none of these wheels", file=sys.stderr)
        return 2
    failed = 0
    for wheel in wheels:
        try:
            check(wheel.resolve(), arguments.python, arguments.seconds)
        except (CheckError, OSError) as error:
            print(f"check.py: error: {wheel.name}: {error}", file=sys.stderr)
            failed += 1
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
