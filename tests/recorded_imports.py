"""Notes which test imports one of some packages, in the test's process and in those that it starts.

`tests/without_extras.py record` copies this module into an environment, where each interpreter loads it at its start.
HWSIM_RECORD_IMPORTS names a folder: packages.txt there has names of packages, installed.txt those of all others that
are installed but hwsim's own; what those import does not count. tests.txt gets a line for each test (its node id) or,
for what is imported while tests are collected, for each test file. A name counts also as that of a module of hwsim:
hwsim.torch needs torch. An import statement counts each time it is executed, whether or not the package is loaded
already. A process without the test's environment variables is not seen, nor is importlib.import_module. Where
HWSIM_RECORD_IMPORTS is not set, nothing happens.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Mapping, Sequence
from typing import Any

FOLDER = os.environ.get("HWSIM_RECORD_IMPORTS")


def record(folder: str) -> None:
    """Replace the import statement's function by one that notes into the folder."""
    packages, installed = (_names(os.path.join(folder, name)) for name in ("packages.txt", "installed.txt"))  # noqa: PTH118
    helpers: set[str] = set()  # modules beside the tests that import a package when they are imported
    noted: set[str] = set()
    imported = builtins.__import__

    def counts(name: str, names: Sequence[str] | None) -> bool:
        first, _, rest = name.partition(".")
        if first == "hwsim":
            return rest.partition(".")[0] in packages or (not rest and not packages.isdisjoint(names or ()))
        return first in packages or first in helpers

    def note(importing: Mapping[str, Any]) -> None:
        if importing.get("__name__", "").partition(".")[0] in installed:
            return
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
        if not test:
            test = os.path.relpath(importing.get("__file__") or os.devnull)  # pytest runs in the repository's root
            if not test.startswith(("tests/", "lab/tests/")):
                return
            helpers.add(importing["__name__"])
        if test not in noted:
            noted.add(test)
            line = os.open(os.path.join(folder, "tests.txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)  # noqa: PTH118
            os.write(line, f"{test}\n".encode())
            os.close(line)

    def recording(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        module = imported(name, globals, locals, fromlist, level)
        if level == 0 and counts(name, fromlist):  # asked afterwards: a helper has become one while it was imported
            note(globals or {})
        return module

    builtins.__import__ = recording


def _names(path: str) -> frozenset[str]:
    with open(path, encoding="utf-8") as file:  # noqa: PTH123  each process of a test would import pathlib first
        return frozenset(file.read().split())


if FOLDER:
    record(FOLDER)
