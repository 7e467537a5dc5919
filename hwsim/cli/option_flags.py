"""Flags of a GEMM's options, made from hwsim.request.declarations, and how their text is read. It knows no value."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from hwsim.analysis.inputs import HELP, NORMAL
from hwsim.cli.help_text import add_mapping_help, add_scheme_help
from hwsim.cli.matrices import read_array
from hwsim.cli.verb_parser import VerbParser, add_flag
from hwsim.gemm.option_types import ADDED, ARRAY, TRUTH, OptionType
from hwsim.request.declarations import DISTRIBUTION, Declared, declared_by_name
from hwsim.schemes import scheme_of

DEST = "gemm_option_"
#: Where the parsed arguments hold the declarations of the flags.
DECLARED = "gemm_options_declared"
#: Kinds of options that the short help shows.
BRIEF_KINDS = ("problem", "machine")
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


def argument_type(option_type: OptionType) -> Callable[[str], Any]:
    """An argparse type: a value of an option's type."""

    def parse(text: str) -> Any:
        try:
            return option_type.check(option_type.parse(text))
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}; allowed: {error}") from None

    return parse


def add_distribution(group: Any) -> None:
    """Add --operand-distribution as an axis: it may be repeated."""
    group.add_argument(
        "--operand-distribution",
        action="append",
        type=argument_type(DISTRIBUTION),
        metavar="NAME[:NUMBERS]",
        help=f"of random matrices: {HELP}; may be repeated (default {NORMAL})",
    )


def add_options(
    parser: argparse.ArgumentParser,
    kinds: Iterable[str],
    leave_out: Iterable[str] = (),
    groups: Mapping[str, argparse._ArgumentGroup] | None = None,
) -> dict[str, argparse._ArgumentGroup]:
    """Add one flag for every declared option of these kinds ("problem", "epilogue", "mapping", "scheme", ...).

    groups: of the parser by kind, which are taken instead of new ones. Returns the groups by kind. The parser of a verb
    with options of schemes shows those of BRIEF_KINDS and leaves the others for --help-all.
    """
    wanted, apart = tuple(kinds), {*APART, *leave_out}
    by_kind: dict[str, argparse._ArgumentGroup] = dict(groups or {})
    is_long = "scheme" in wanted and isinstance(parser, VerbParser)
    files = parser.scheme_files if isinstance(parser, VerbParser) else ()
    by_name = declared_by_name(map(scheme_of, files))
    for name, entries in by_name.items():
        kind = entries[0].kind
        if kind not in wanted or name in apart:
            continue
        if entries[0].owners == ("scheme",):  # of the choice of a scheme, not of a scheme
            _add(parser, by_kind.get("problem", parser._optionals), entries)
            continue
        if kind not in by_kind:
            by_kind[kind] = parser.add_argument_group(*TITLES[kind])
            if is_long and kind not in BRIEF_KINDS:
                assert isinstance(parser, VerbParser)
                parser.leave_for_all(by_kind[kind])
        _add(parser, by_kind[kind], entries)
    parser.set_defaults(**{DECLARED: by_name})
    if is_long:
        assert isinstance(parser, VerbParser)
        pages = parser.add_help_pages()
        add_scheme_help(pages)
        if "mapping" in wanted:
            add_mapping_help(pages, apart)
    return by_kind


def _add(parser: argparse.ArgumentParser, group: Any, entries: list[Declared]) -> None:
    """One flag of an option. entries: its declarations, each of which is a line of the help with its owners."""
    first = entries[0]
    flag, types = first.option.flag, {entry.option.type for entry in entries}
    if flag in parser._option_string_actions:  # a plug-in's that is taken already gets a longer one
        flag = f"--{first.kind}-{flag[2:]}"
    metavars = {entry.option.metavar for entry in entries}
    values = metavars if len(metavars) == 1 else [entry.option.type.metavar for entry in entries]
    add_flag(
        group,
        flag,
        brief=first.option.brief,
        dest=DEST + first.option.name,
        metavar="|".join(dict.fromkeys(values)),
        help="\n".join(entry.text for entry in entries).replace("%", "%%"),
        type=Path if types <= {ARRAY, ADDED} else None,
        **_alone(types),
    )


def _alone(types: set[OptionType]) -> dict[str, Any]:
    """What a flag without a value means: true; of C and the bias that there is one, whatever its values."""
    if types == {TRUTH}:
        return {"nargs": "?", "const": "true"}
    return {"nargs": "?", "const": True} if types == {ADDED} else {}


def given_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The given values of `add_options`' flags, as keywords of hwsim.run: text, or arrays read from files."""
    values: dict[str, Any] = {}
    declarations = getattr(arguments, DECLARED)
    for key, value in vars(arguments).items():
        if key.startswith(DEST) and value is not None:
            name = key.removeprefix(DEST)
            if value is True:
                values[name] = True
            else:
                values[name] = read_array(name, value) if isinstance(value, Path) else _read(declarations[name], value)
    return values


def _read(entries: list[Declared], text: str) -> Any:
    """The value of an option's text; the text where owners declare several types, for the owner to read."""
    first, *others = (entry.option for entry in entries)
    return text if any(option.type != first.type for option in others) else first.read(text)
