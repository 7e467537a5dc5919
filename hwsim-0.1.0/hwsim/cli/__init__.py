"""Entry point of the command line; everything else is imported inside its handler of interrupts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's) and return its exit code (hwsim.cli.command says which)."""
    try:
        code: int = import_module("hwsim.cli.command").main(argv)
        return code
    except KeyboardInterrupt:
        print("hwsim: interrupted", file=sys.stderr)
        return INTERRUPTED


__all__ = ["INTERRUPTED", "main"]
