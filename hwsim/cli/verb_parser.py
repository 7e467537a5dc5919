"""The parser of a verb, and its help in pages: a short one, all options, those of a scheme, those of the mapping.

It knows how help is laid out; which options there are, it does not know.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import Any

COLUMN = 37  # of the texts of the short help


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Texts of options keep their line breaks: each declaration of an option is a line."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return [line for part in text.splitlines() for line in super(HelpFormatter, self)._split_lines(part, width)]


class VerbParser(argparse.ArgumentParser):
    """A parser whose help is short where groups of options are left for `--help-all`.

    scheme_files: schemes that the command line names as FILE.py:NAME; their options are flags too.
    elsewhere: {flag of another verb: what to do instead}, said where such a flag is given.
    """

    def __init__(self, *args: Any, scheme_files: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **{"formatter_class": HelpFormatter, "allow_abbrev": False, **kwargs})
        self.scheme_files = tuple(scheme_files)
        self.long_groups: list[argparse._ArgumentGroup] = []
        self.help_pages: argparse._ArgumentGroup | None = None
        self.elsewhere: dict[str, str] = {}

    def leave_for_all(self, group: argparse._ArgumentGroup) -> None:
        """Leave a group of options out of the short help."""
        self.long_groups.append(group)

    def add_help_pages(self) -> argparse._ArgumentGroup:
        """Add the flag of the page of all options. Returns the group, for flags of further pages."""
        self.usage = self._usage()
        names = ", ".join(str(group.title) for group in self.long_groups)
        group = self.help_pages = self.add_argument_group("more help")
        group.add_argument("--help-all", action=_AllHelp, nargs=0, help=f"all options; also {names}")
        return group

    def format_help(self) -> str:
        """The page of --help: the short one where there is more."""
        return "\n".join(self._short()) + "\n" if self.long_groups else super().format_help()

    def format_usage(self) -> str:
        """The line before an error."""
        return f"usage: {self.usage}; {self.prog} --help lists them\n" if self.usage else super().format_usage()

    def format_all(self) -> str:
        """The page of --help-all."""
        return super().format_help()

    def _usage(self) -> str:
        values = [str(action.metavar or action.dest) for action in self._actions if not action.option_strings]
        return " ".join([self.prog, *values, "[OPTIONS]"])

    def _short(self) -> Iterator[str]:
        yield from (f"usage: {self.usage}", "", self.description or "")
        for group in self._action_groups:
            if group in self.long_groups or group is self.help_pages:
                continue
            lines = list(_lines(group._group_actions))
            if lines:
                said = "" if group.description is None else f": {group.description}"
                yield from ("", f"{group.title}{said}", *lines)
        pages = [] if self.help_pages is None else self.help_pages._group_actions
        yield from (
            "",
            f"more help: {'; '.join(f'{_names(page)[0]}{_value(page)} ({brief_of(page)})' for page in pages)}",
        )
        yield (self.epilog or "").partition("\n\n")[0]


def add_flag(group: Any, *names: str, brief: str, **declared: Any) -> None:
    """Add an argument with its line of the short help, which flags of one text share; `declared` as of argparse."""
    group.add_argument(*names, **declared).brief = brief


def _lines(actions: Sequence[argparse.Action]) -> Iterator[str]:
    """A line for each text of the short help, with the flags that share it."""
    by_text: dict[str, list[argparse.Action]] = {}
    for action in actions:
        if action.help not in (None, argparse.SUPPRESS) and action.dest != "help":
            by_text.setdefault(brief_of(action), []).append(action)
    for text, sharing in by_text.items():
        flags = [flag for action in sharing for flag in _names(action)]
        shown = f"  {', '.join(flags)}{_value(sharing[-1])}"
        yield f"{shown:<{COLUMN - 1}} {text}" if len(shown) < COLUMN else f"{shown}  {text}"


def _names(action: argparse.Action) -> list[str]:
    return list(action.option_strings) or [str(action.metavar or action.dest)]


def _value(action: argparse.Action) -> str:
    """The value of a flag as its line shows it."""
    if not action.option_strings or not action.metavar or action.const == "true":
        return ""
    return f" [{action.metavar}]" if action.nargs == "?" else f" {action.metavar}"


def brief_of(action: argparse.Action) -> str:
    """The line of a flag: its own, or the first clause of its help."""
    clause = re.split(r"; |: |\. ", action.help or "")[0]
    text = getattr(action, "brief", "") or re.sub(r" \([^)]*$", "", clause)
    return str(text).replace("%%", "%")


class _AllHelp(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        print(parser.format_all(), end="")
        parser.exit()
