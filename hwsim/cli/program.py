"""`hwsim program`: the program of a scheme on a device, as text."""

from __future__ import annotations

import argparse

from hwsim.api import program
from hwsim.cli.option_flags import add_options, given_options
from hwsim.report.text.program_text import program_text
from hwsim.request.declarations import OPERAND_DISTRIBUTION


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("device", metavar="DEVICE", help="device name or YAML file")
    parser.add_argument("scheme", metavar="SCHEME", help="scheme; see hwsim schemes")
    kinds = ("problem", "epilogue", "order of summation", "library", "mapping", "scheme")
    add_options(parser, kinds, ("seed", OPERAND_DISTRIBUTION, "c", "bias"))


def execute(arguments: argparse.Namespace) -> int:
    """Make the program, check it, print it."""
    device, lowered = program(device=arguments.device, scheme=arguments.scheme, **given_options(arguments))
    print(program_text(lowered, device))
    return 0
