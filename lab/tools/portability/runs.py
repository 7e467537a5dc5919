"""Commands of one environment, run one after another, with a line for each. It knows commands and exit codes."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DEFAULT_WORK = ROOT / "build/portability"


class CannotRunError(Exception):
    """What is missing, as a sentence."""


def work_folder(given: Path | None) -> Path:
    """The folder for downloads and builds, made where it is not there."""
    folder = (given or DEFAULT_WORK).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def called(command: Sequence[str], env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> str:
    """Standard output of a command that prepares something. Raises CannotRunError with the end of what it said."""
    try:
        done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise CannotRunError(f"{command[0]}: {error.strerror}") from None
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise CannotRunError(f"{shlex.join(command)}: exit code {done.returncode}\n{last}")
    return done.stdout


def passes(label: str, command: Sequence[str], env: Mapping[str, str], cwd: Path = ROOT) -> bool:
    """Whether a command ends with 0; prints the last line of its output and its time, all of it where it fails."""
    start = time.perf_counter()
    print(f"{label}: {shlex.join(command[-6:])}", flush=True)
    done = subprocess.run(
        command, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    said = done.stdout.rstrip()
    print(said if done.returncode else said.rpartition("\n")[2])
    print(f"{label}: exit code {done.returncode}, {time.perf_counter() - start:.0f} s", flush=True)
    return done.returncode == 0


def clean_environment(**more: str) -> dict[str, str]:
    """The variables of this process without those that choose another Python, other kernels or other settings."""
    own = ("PYTHON", "HWSIM_", "OPENBLAS", "PYTEST")
    return {name: value for name, value in os.environ.items() if not name.startswith(own)} | more
