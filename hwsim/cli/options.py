"""Command-line flags of a GEMM's options, generated from their declarations (hwsim.request.declarations), and their
parsing.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hwsim.cli.matrices import read_array
from hwsim.gemm.option_types import ARRAY, TRUTH
from hwsim.request.declarations import Declared, declared

DEST = "gemm_option_"
#: Options that a verb says in its own way, or that have no sense on a command line.
APART = ("exact", "timing", "clock_mhz", "launch_overhead")
TITLES = {
    "problem": ("problem", "C[m, n] = A[m, k] B[k, n]"),
    "epilogue": ("epilogue", "D = alpha A B + beta C + bias, rounded to the output format"),
    "order of summation": ("order of summation", None),
    "library": ("library", None),
    "region": ("region", None),
    "machine": ("machine", None),
    "mapping": ("mapping", "how the device's dataflow lays the GEMM out; an option that the family lacks is an error"),
    "scheme": ("options of schemes", "an option that the scheme lacks is an error"),
}


def whole(least: int, most: int | None = None) -> Any:
    """An argparse type: an integer of at least `least`, and at most `most`."""

    def parse(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is not allowed; at least {least}")
        if most is not None and value > most:
            raise argparse.ArgumentTypeError(f"{value} is not allowed; at most {most}")
        return value

    parse.__name__ = "integer"
    return parse


def positive(text: str) -> float:
    """An argparse type: a number above 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not allowed; a number above 0")
    return value


def add_options(parser: argparse.ArgumentParser, kinds: Iterable[str], leave_out: Iterable[str] = ()) -> None:
    """Add one flag for every declared option of these kinds ("problem", "epilogue", "mapping", "scheme", ...)."""
    wanted, apart = tuple(kinds), {*APART, *leave_out}
    groups: dict[str, Any] = {}
    for entry in declared():
        if entry.kind not in wanted or entry.option.name in apart:
            continue
        if entry.kind not in groups:
            title, text = TITLES[entry.kind]
            groups[entry.kind] = parser.add_argument_group(title, text)
        _add(parser, groups[entry.kind], entry)


def _add(parser: argparse.ArgumentParser, group: Any, entry: Declared) -> None:
    option = entry.option
    default = option.default_text or (str(option.default) if option.default not in (None, False) else "")
    owners = "" if entry.owners == (entry.kind,) else f" [{', '.join(entry.owners)}]"
    text = f"{option.help}{f' (default: {default})' if default else ''}{owners}".replace("%", "%%")
    flag = option.flag
    if flag in parser._option_string_actions:  # a plug-in's that is taken already gets a longer one
        flag = f"--{entry.kind}-{flag[2:]}"
    kind: Any = Path if option.type is ARRAY else None
    # `--functional` alone means true
    more: dict[str, Any] = {"nargs": "?", "const": "true"} if option.type is TRUTH else {}
    group.add_argument(flag, dest=DEST + option.name, metavar=option.metavar, help=text, type=kind, **more)


def given_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The given values of `add_options`' flags, as keywords of hwsim.run: text, or arrays read from files."""
    found: dict[str, Any] = {}
    options = {entry.option.name: entry.option for entry in declared()}
    for key, value in vars(arguments).items():
        if key.startswith(DEST) and value is not None:
            name = key.removeprefix(DEST)
            found[name] = read_array(name, value) if isinstance(value, Path) else options[name].read(value)
    return found
