"""Turns skips for want of an extra into failures, where HWSIM_REQUIRE_EXTRAS names extras that must be there.

HWSIM_REQUIRE_EXTRAS=test,all: a test that is skipped with a reason that names one of these extras (hwsim[plot]) or one
of their packages (could not import 'matplotlib') fails. Other reasons (no GPU, no HWSIM_GOLDEN_DIR) stay skips.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

VARIABLE = "HWSIM_REQUIRE_EXTRAS"
PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)(?:\[([\w, -]+)\])?")
NAMED = re.compile(r"\bhwsim\[([\w, -]+)\]")


def declared() -> dict[str, list[str]]:
    """{extra: requirements} of pyproject.toml."""
    found: dict[str, list[str]] = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    return found


def contents(extras: Iterable[str], known: Mapping[str, list[str]]) -> tuple[set[str], set[str]]:
    """(all extras, names of packages) that some extras need, theirs and those of the extras in them. Raises ValueError
    for one that is not declared.
    """
    named, packages, open_ones = set(), set(), list(extras)
    while open_ones:
        extra = open_ones.pop()
        if extra in named:
            continue
        if extra not in known:
            raise ValueError(f"{VARIABLE}: no extra {extra!r}; allowed: {', '.join(known)}")
        named.add(extra)
        for requirement in known[extra]:
            match = REQUIREMENT.match(requirement)
            assert match is not None, requirement
            if match[1] == "hwsim":
                open_ones += split(match[2] or "")
            else:
                packages.add(match[1])
    return named, packages


def split(text: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def missing(reason: str, extras: set[str], packages: set[str]) -> str | None:
    """The extra or package of these that the reason of a skip names, or None. A reason that names extras of hwsim is
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
