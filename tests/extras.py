"""Turns skips for want of an extra into failures, where HWSIM_REQUIRE_EXTRAS names extras that must be there.

HWSIM_REQUIRE_EXTRAS=test,all: a test that is skipped with a reason that names one of these extras (hwsim[plot]) or one
of their packages (could not import 'matplotlib') fails. Other reasons (no GPU, no HWSIM_GOLDEN_DIR) stay skips.

`python tests/extras.py dev docs` prints what hwsim with these extras requires, a line each: .ci/run installs it before
hwsim is built.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

VARIABLE = "HWSIM_REQUIRE_EXTRAS"
PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)(?:\[([\w, -]+)\])?")
NAMED = re.compile(r"\b(?:hwsim|lab)\[([\w, -]+)\]")  # extras of hwsim and of its laboratory


def declared() -> dict[str, list[str]]:
    """{extra: requirements} of pyproject.toml."""
    found: dict[str, list[str]] = _project()["optional-dependencies"]
    return found


def _project() -> dict[str, Any]:
    return dict(tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"])


def requirements(extras: Iterable[str], known: Mapping[str, list[str]]) -> tuple[set[str], list[str]]:
    """(all extras, requirements of other packages) that some extras need, theirs and those of the extras in them.

    Raises ValueError for one that is not declared.
    """
    named: set[str] = set()
    found: list[str] = []
    open_ones = list(extras)
    while open_ones:
        extra = open_ones.pop()
        if extra in named:
            continue
        if extra not in known:
            raise ValueError(f"{VARIABLE}: no extra {extra!r}; allowed: {', '.join(known)}")
        named.add(extra)
        for requirement in known[extra]:
            match = _matched(requirement)
            if match[1] == "hwsim":
                open_ones += split(match[2] or "")
            else:
                found.append(requirement)
    return named, found


def contents(extras: Iterable[str], known: Mapping[str, list[str]]) -> tuple[set[str], set[str]]:
    """(all extras, names of packages) that some extras need; as `requirements`."""
    named, found = requirements(extras, known)
    return named, {_matched(requirement)[1] for requirement in found}


def _matched(requirement: str) -> re.Match[str]:
    match = REQUIREMENT.match(requirement)
    assert match is not None, requirement
    return match


def split(text: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def missing(reason: str, extras: set[str], packages: set[str]) -> str | None:
    """The extra or package of these that the reason of a skip names, or None. A reason that names extras is
    judged by them alone.
    """
    named = [extra for text in NAMED.findall(reason) for extra in split(text)]
    if named:
        return next((f"hwsim[{extra}]" for extra in named if extra in extras), None)
    return next((name for name in sorted(packages) if _is_in(name, reason)), None)


def _is_in(package: str, reason: str) -> bool:
    """Whether a package's name is a word of the reason; - and _ are the same."""
    name = re.sub(r"[-_.]", "[-_.]", package)
    return re.search(rf"(?<![\w-]){name}(?![\w-])", reason, re.IGNORECASE) is not None


if __name__ == "__main__":
    print("\n".join(sorted({*_project()["dependencies"], *requirements(sys.argv[1:], declared())[1]})))
