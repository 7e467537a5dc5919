"""The exceptions that hwsim raises for errors that a user can correct. The command line maps them to exit codes."""

from __future__ import annotations

import difflib
from collections.abc import Collection

# Other names of number formats and distributions, and what hwsim calls them: a suggestion names these where they are
# allowed.
ALIASES = {
    "half": ("fp16",),
    "float16": ("fp16",),
    "bfloat16": ("bf16",),
    "single": ("fp32",),
    "float": ("fp32",),
    "float32": ("fp32",),
    "double": ("fp64",),
    "float64": ("fp64",),
    "fp8": ("e4m3", "e5m2"),
    "float8": ("e4m3", "e5m2"),
    "gauss": ("normal",),
    "gaussian": ("normal",),
    "loguniform": ("log-uniform",),
    "log_uniform": ("log-uniform",),
    "exponents": ("log-uniform",),
    "bits": ("anybits", "finite"),
    "allbits": ("anybits", "finite"),
    "all-bits": ("anybits", "finite"),
    "bit-patterns": ("anybits", "finite"),
    "rows": ("scaled-rows",),
    "bad-rows": ("scaled-rows",),
    "badly-scaled": ("scaled-rows",),
    "badly-scaled-rows": ("scaled-rows",),
    "cancelling": ("cancel",),
    "cancellation": ("cancel",),
    "denormal": ("subnormal",),
    "large": ("huge",),
}


class HwsimError(Exception):
    """Base class of every error that a user can correct; `hwsim` exits with 2 (1 for `MismatchError`).

    Its text has no control characters but line breaks: what a file or a caller said is shown with escapes.
    """

    exit_code = 2

    def __str__(self) -> str:
        return printable(super().__str__())


class InputError(HwsimError, ValueError):
    """An argument, option or file is not valid; the message says which, the value given, and what is allowed."""


class ConfigError(HwsimError):
    """A device or library file is not valid. `problems`: one line per problem, sorted by position; kind: "device",
    "library".
    """

    def __init__(self, problems: list[str], kind: str = "device") -> None:
        self.problems = problems
        self.kind = kind
        super().__init__("\n".join(problems))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[list[str], str]]:
        """For pickle, which would call it with the text."""
        return type(self), (self.problems, self.kind)


class ProgramError(HwsimError):
    """A program breaks a rule of its device: capacity, shape, alignment, ordering, deadlock, leak."""


class DeadlockError(ProgramError):
    """A program's waits and signals do not match: it deadlocks, or leaks. The command line runs only programs that
    hwsim wrote; there it is an internal error.
    """


class UnsupportedError(HwsimError):
    """The device cannot do what was requested; the message says what it can do."""


class NotBuiltError(HwsimError, ImportError):
    """The compiled extension modules are missing: the source tree has not been built."""


class MismatchError(HwsimError):
    """A computed result differs from the reference that it was compared with."""

    exit_code = 1


def printable(text: str) -> str:
    """The text with escapes (\\x1b) in place of what a terminal would not show; line breaks stay."""
    if text.isprintable():
        return text
    return "".join(x if x == "\n" or x.isprintable() else repr(x)[1:-1] for x in text)


MOST_MEANT = 4  # names that a hint lists


def nearest(name: str, allowed: list[str] | tuple[str, ...]) -> str:
    """Return "; did you mean 'x'?" for the closest of `allowed`, or an empty string.

    A common name of a format (`ALIASES`) gives the allowed ones that it stands for, the first part of several names
    (ootomo) these.
    """
    meant = [word for word in ALIASES.get(name.lower(), ()) if word in allowed]
    begun = [word for word in allowed if name and word.startswith(f"{name}-")]
    meant = meant or (begun if 1 < len(begun) <= MOST_MEANT else [])
    if meant and name not in allowed:
        return f"; did you mean {' or '.join(repr(word) for word in meant)}?"
    close = closest(name, allowed)
    return f"; did you mean '{close}'?" if close else ""


def closest(name: str, allowed: Collection[str]) -> str:
    """The word of `allowed` spelt most like `name`, with the same letters if there is one; "" where none is like it."""
    close = difflib.get_close_matches(name, allowed)
    close.sort(key=lambda word: sorted(word) != sorted(name))
    return close[0] if close else ""
