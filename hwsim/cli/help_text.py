"""The pages of help on a scheme and on the mapping, and their flags. It knows declarations and how they are shown."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from hwsim.dataflows.registry import dataflows
from hwsim.devices import load
from hwsim.errors import UnsupportedError
from hwsim.gemm.option_types import Option
from hwsim.report.text.words import facts
from hwsim.request.declarations import Declared, declared
from hwsim.schemes import Scheme, scheme_of

WIDTH = 100
INDENT = " " * 6
EXAMPLES = ("tile", "stages")  # options of the mapping that the short help names


def scheme_text(scheme: Scheme) -> str:
    """A scheme with its own options alone: what each takes, and the default that holds for this scheme."""
    lines = facts(
        [
            ("name", scheme.name),
            ("what", scheme.title),
            ("source", scheme.source),
            ("operands", ", ".join(scheme.input_formats)),
        ]
    )
    return "\n".join(
        [*lines, "options" if scheme.options else "options  none", *_lines(map(_of_scheme, scheme.options))]
    )


def mapping_text(device: str | None, leave_out: Collection[str] = ()) -> str:
    """The options of the mapping: of a device's family, or of all families with their names. leave_out: names of
    options that a verb does not take.

    Raises as hwsim.device for a wrong name, UnsupportedError for a device whose family has no dataflow.
    """
    entries: list[Declared] = [entry for entry in declared() if entry.kind == "mapping"]
    title = "options of the mapping, with the families of devices that have them"
    if device is not None:
        chip, options = load(device), dataflows().options()
        if chip.family not in options:
            raise UnsupportedError(
                f"device {chip.name}: its family {chip.family} has no dataflow, so no options of one"
            )
        entries = [Declared(option, "mapping", ("mapping",)) for option in options[chip.family]]
        title = f"options of the mapping on {chip.name} (family {chip.family})"
    return "\n".join([title, *_lines(entry for entry in entries if entry.option.name not in leave_out)])


def add_scheme_help(group: argparse._ArgumentGroup) -> None:
    """Add the flag of the page on a scheme."""
    group.add_argument("--help-scheme", action=_SchemeHelp, metavar="NAME", help="its options")


def add_mapping_help(group: argparse._ArgumentGroup, leave_out: Collection[str] = ()) -> None:
    """Add the flag of the page on the mapping. leave_out: as of `mapping_text`."""
    shown = [name for name in EXAMPLES if name not in leave_out]
    group.add_argument(
        "--help-mapping",
        action=_MappingHelp,
        nargs="?",
        metavar="DEVICE",
        leave_out=leave_out,
        help=f"{', '.join(shown)}; with a device, its own",
    )


class _SchemeHelp(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        print(scheme_text(scheme_of(values)))
        parser.exit()


class _MappingHelp(argparse.Action):
    def __init__(self, *words: Any, leave_out: Collection[str], **more: Any) -> None:
        super().__init__(*words, **more)
        self.leave_out = leave_out

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        print(mapping_text(values, self.leave_out))
        parser.exit()


def _of_scheme(option: Option) -> Declared:
    return Declared(option, "scheme", ("scheme",))


def _lines(entries: Iterable[Declared]) -> Iterator[str]:
    for entry in entries:
        yield f"  {entry.option.flag} {entry.option.metavar}"
        yield from textwrap.wrap(entry.text, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)
