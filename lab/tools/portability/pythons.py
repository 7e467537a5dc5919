"""The tests by other CPythons: for each a fresh environment, the wheel that it builds of this checkout, its packages.

--python: an interpreter with venv and headers (repeatable). A wheel and an environment that are there are used again
unless --again is given. --extras: as pip takes them. --alone: one build of the kernels (HWSIM_ALONE), which takes a
third of the time to compile: kernels do not depend on the interpreter, what Cython writes does.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from pathlib import Path

from runs import ROOT, CannotRunError, called, clean_environment, passes, work_folder

ABOUT = "import json, sys; print(json.dumps([sys.implementation.cache_tag, sys.version.split()[0]]))"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("--python", action="append", required=True, metavar="COMMAND", help="interpreter (repeatable)")
    parser.add_argument("--extras", default="dev", help="of hwsim, with commas (default: dev)")
    parser.add_argument("--alone", metavar="BUILD", help="build the kernels for this instruction set alone")
    parser.add_argument("--again", action="store_true", help="build and install anew")
    parser.add_argument("--processes", default="auto", metavar="N", help="of pytest-xdist (default: auto)")


def run(arguments: argparse.Namespace) -> bool:
    """Run the tests (default: all) by each interpreter; whether all passed. Raises CannotRunError."""
    work = work_folder(arguments.work)
    results = []
    for command in arguments.python:
        tag, version = json.loads(called([command, "-c", ABOUT]))
        folder = work / f"{tag}{arguments.alone or ''}"
        if arguments.again and folder.exists():
            shutil.rmtree(folder)
        python = prepared(folder, command, arguments.extras, arguments.alone)
        path = f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        env = clean_environment(PATH=path, PYTHONSAFEPATH="1")  # no process takes the checkout's own package
        results.append(passes(f"CPython {version}, self-test", [str(python.parent / "hwsim"), "selftest"], env, folder))
        pytest = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", arguments.processes]
        results.append(passes(f"CPython {version}, tests", [*pytest, *arguments.tests], env))
    return all(results)


def prepared(folder: Path, command: str, extras: str, alone: str | None) -> Path:
    """The interpreter of an environment with the wheel, its extras and the laboratory."""
    python = folder / "venv/bin/python"
    if (folder / ".complete").exists():
        return python
    folder.mkdir(parents=True, exist_ok=True)
    env = clean_environment(PIP_DISABLE_PIP_VERSION_CHECK="1", **({"HWSIM_ALONE": alone} if alone else {}))
    print(f"{folder.name}: environment, wheel, packages", flush=True)
    called([command, "-m", "venv", "--clear", str(folder / "venv")], env)
    pip = [str(python), "-m", "pip"]
    if not (wheels := sorted(folder.glob("*.whl"))):
        # From the source distribution: the checkout's build folders belong to another interpreter.
        called([*pip, "install", "-q", "build"], env)
        called([str(python), "-m", "build", "-q", "--sdist", "--outdir", str(folder), str(ROOT)], env)
        (sdist,) = folder.glob("*.tar.gz")
        called([*pip, "wheel", "-q", "--no-deps", "--wheel-dir", str(folder), str(sdist)], env)
        wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise CannotRunError(f"{folder}: {len(wheels)} wheels; --again makes a new one")
    called([*pip, "install", "-q", f"{wheels[0]}[{extras}]"], env)
    called([*pip, "install", "-q", "--no-deps", str(ROOT / "lab")], env)
    (folder / ".complete").write_text("")
    return python
