"""Runs the tests that import packages of extras again, where these packages are not.

    python tests/without_extras.py record --than PYTHON FOLDER
    HWSIM_RECORD_IMPORTS=FOLDER pytest
    PYTHON tests/without_extras.py run FOLDER

`record` prepares this environment: from then on FOLDER/tests.txt gets the tests that import a package which the
environment of PYTHON does not have (recorded_imports.py). `run` runs these tests in PYTHON's environment: each has to
be skipped or pass. .ci/run does both; PYTHON is in an environment of hwsim[test] alone there.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

RECORDER = Path(__file__).with_name("recorded_imports.py")
OWN = {"hwsim", "hwsim_lab"}  # whose imports count: a test asks the laboratory for a plot, too
LIST = "from importlib.metadata import packages_distributions\nprint(*packages_distributions())"


def record(python: str, folder: Path) -> None:
    """Write into the folder which packages count, and the recorder into this environment."""
    listed = subprocess.run([python, "-c", LIST], check=True, capture_output=True, text=True).stdout
    there = {*listed.split(), *OWN}
    here = set(packages_distributions())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tests.txt").unlink(missing_ok=True)
    for name, packages in ("packages", here - there), ("installed", {*here, RECORDER.stem} - OWN):
        (folder / f"{name}.txt").write_text("\n".join(sorted(packages)), encoding="utf-8")
    site = Path(sysconfig.get_path("purelib"))
    shutil.copy(RECORDER, site)
    (site / "recorded_imports.pth").write_text(f"import {RECORDER.stem}\n", encoding="utf-8")


class Chosen:
    """A plugin of pytest: of the tests collected, those that are named by node id or by file."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out the others."""
        left_out = [item for item in items if self.names.isdisjoint((item.nodeid, item.nodeid.partition("::")[0]))]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def run(folder: Path) -> int:
    """pytest's exit code for the tests that were recorded. Raises OSError where none was."""
    names = set((folder / "tests.txt").read_text(encoding="utf-8").splitlines())
    files = {name.partition("::")[0] for name in names}
    tests = sorted(file for file in files if Path(file).name.startswith("test_"))  # and not what they import
    return pytest.main(["-q", "-p", "no:cacheprovider", *tests], plugins=[Chosen(names)])


def main() -> int:
    """The exit code of a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("--than", metavar="PYTHON", required=True, help="the interpreter of the environment without")
    for command in (recording, commands.add_parser("run")):
        command.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "run":
        return run(arguments.folder)
    record(arguments.than, arguments.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
