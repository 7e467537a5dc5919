"""`hwsim selftest`: whether this installation computes the bits and cycles that it should."""

from __future__ import annotations

import argparse
import json

from hwsim._version import __version__
from hwsim.cli.progress import progress_bar
from hwsim.golden.selftest import selftest


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.description = (
        "Compares bit patterns that are installed with hwsim (every dot unit of every device, and captures of silicon) "
        "and whole GEMMs with what this installation computes. Needs no source tree and no network. "
        "Example: HWSIM_KERNEL=baseline hwsim selftest"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar on standard error")


def execute(arguments: argparse.Namespace) -> int:
    """Compare and print; 1 where something differs."""
    with progress_bar(quiet=arguments.quiet or arguments.json) as progress:
        outcome = selftest(progress=progress)
    if arguments.json:
        print(json.dumps({"schema": "hwsim.selftest/1", "hwsim_version": __version__} | outcome.to_json()))
    else:
        print(outcome.to_text())
    return int(not outcome.same)
