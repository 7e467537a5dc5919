"""Options that several verbs share: the problem, the blocking, and what the schemes declare."""

from __future__ import annotations

import argparse
import math
from typing import Any

from hwsim.errors import InputError
from hwsim.schemes import schemes

DEST = "scheme_option_"
FORMAT = "format"  # an option of its own in the API, for whatever scheme has it


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


def slices(text: str) -> int | str:
    """An argparse type: a number of slices of K, or "auto"."""
    return text if text == "auto" else int(whole(1)(text))


def positive(text: str) -> float:
    """An argparse type: a number above 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not allowed; a number above 0")
    return value


def add_problem(parser: argparse.ArgumentParser) -> None:
    """--m --n --k, and everything that shapes the program."""
    group = parser.add_argument_group("problem", "C[m, n] = A[m, k] B[k, n]")
    for name, what in (("m", "rows of A and C"), ("n", "columns of B and C"), ("k", "columns of A, rows of B")):
        group.add_argument(
            f"--{name}", type=int, metavar=name.upper(), help=f"{what} (default 1024, or as the matrices say)"
        )
    group = parser.add_argument_group("blocking")
    group.add_argument(
        "--tile",
        metavar="B_M,B_K,B_N",
        type=tile,
        default=None,
        help="block sizes in the family's order (davinci: m,k,n), or m=176,k=64,n=176 (default: chosen)",
    )
    group.add_argument(
        "--n-fused", type=int, metavar="N", help="blocks of A kept in L1 (davinci; default: as many as fit)"
    )
    group.add_argument("--buffering", metavar="single|double", help="buffers per stage (davinci; default: double)")
    group.add_argument("--stages", type=whole(1), metavar="N", help="stages of shared memory (GPUs; default: chosen)")
    group.add_argument(
        "--split-k",
        type=slices,
        metavar="N|auto",
        help="slices of K, merged by a kernel of their own; auto: by estimate (GPUs; default: 1)",
    )
    group.add_argument(
        "--swizzle", type=whole(1), metavar="N", help="tiles in a band of columns gone through together (GPUs)"
    )
    group.add_argument(
        "--instruction",
        metavar="NAME",
        help="matrix instruction, with the bits of the device's own (GPUs; default: that, or the library's for slices)",
    )
    group.add_argument(
        "--cta-group",
        type=whole(1),
        metavar="N",
        help="2: pairs of SMs multiply together, sharing B (B200; default: 1)",
    )
    for side in "AB":
        group.add_argument(
            f"--{side.lower()}-layout",
            choices=("rows", "columns"),
            help=f"{side} in memory: row by row, or column by column (not the 910A; default: rows)",
        )
    add_scheme_options(parser)


def tile(text: str) -> tuple[int, ...] | dict[str, int]:
    """`176,64,176` or `m=176,k=64,n=176`."""
    parts = text.split(",")
    try:
        if "=" in text:
            pairs = [part.split("=") for part in parts]
            return {key.strip(): int(value) for key, value in pairs}
        return tuple(int(part) for part in parts)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}; allowed: integers with commas, as 176,64,176 or m=176,k=64,n=176"
        ) from None


def add_scheme_options(parser: argparse.ArgumentParser) -> None:
    """One flag for every option that some scheme declares."""
    group = parser.add_argument_group("options of schemes", "an option that the scheme lacks is an error")
    found: dict[str, list[tuple[str, Any]]] = {}
    for scheme in schemes().values():
        for option in scheme.options:
            found.setdefault(option.name, []).append((scheme.name, option))
    for name, owners in found.items():
        option = owners[0][1]
        default = "" if option.default is None else f" (default {option.default})"
        kind = "|".join(option.choices) or ("N" if option.type is int else name.upper())
        text = f"{option.help}{default} [{', '.join(scheme for scheme, _ in owners)}]"
        group.add_argument(flag(parser, name), dest=DEST + name, metavar=kind, help=text.replace("%", "%%"))


def flag(parser: argparse.ArgumentParser, name: str) -> str:
    """The flag for a scheme's option; a plug-in's that is taken already gets a longer one."""
    wanted = f"--{name.replace('_', '-')}"
    return wanted if wanted not in parser._option_string_actions else f"--scheme-{wanted[2:]}"


def program_arguments(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was given of `add_problem`'s options, as arguments for hwsim.run and hwsim.api.program."""
    given = {name: getattr(arguments, name) for name in ("m", "n", "k", *BLOCKING)}
    given |= {key.removeprefix(DEST): value for key, value in vars(arguments).items() if key.startswith(DEST)}
    given = {name: value for name, value in given.items() if value is not None}
    known = set(given) & set(RESERVED)
    if known:
        raise InputError(f"a scheme plug-in names an option like an argument of hwsim.run: {', '.join(sorted(known))}")
    return given


BLOCKING = (
    "tile",
    "n_fused",
    "buffering",
    "stages",
    "split_k",
    "swizzle",
    "instruction",
    "cta_group",
    "a_layout",
    "b_layout",
)
RESERVED = (
    "a",
    "b",
    "device",
    "scheme",
    "error_target",
    "exact",
    "timing",
    "clock_mhz",
    "launch_overhead",
    "threads",
    "seed",
    "progress",
)
