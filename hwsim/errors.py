"""The errors that hwsim raises for what a user can mend. The command line maps them to exit codes."""

from __future__ import annotations

import difflib


class HwsimError(Exception):
    """Base of every error a user can mend; `hwsim` exits with 2 (1 for `MismatchError`)."""

    exit_code = 2


class InputError(HwsimError, ValueError):
    """An argument, option or file does not fit: says where, what was got, what is allowed."""


class ConfigError(HwsimError):
    """A data file is wrong. `problems` holds one line per problem, sorted by position; kind: "device", "library"."""

    def __init__(self, problems: list[str], kind: str = "device") -> None:
        self.problems = problems
        self.kind = kind
        super().__init__("\n".join(problems))


class ProgramError(HwsimError):
    """A program breaks a rule of its device: capacity, shape, alignment, ordering, deadlock, leak."""


class UnsupportedError(HwsimError):
    """The device cannot do what was asked for; says what it can do."""


class NotBuiltError(HwsimError, ImportError):
    """The compiled parts are not there: sources that were not built."""


class MismatchError(HwsimError):
    """A result differs from what it was checked against."""

    exit_code = 1


def nearest(name: str, allowed: list[str] | tuple[str, ...]) -> str:
    """Return "; did you mean 'x'?" for the closest of `allowed`, or an empty string.

    Among the close ones, one with the same letters (fp61, fp16) comes first.
    """
    close = difflib.get_close_matches(name, allowed)
    close.sort(key=lambda word: sorted(word) != sorted(name))
    return f"; did you mean '{close[0]}'?" if close else ""
