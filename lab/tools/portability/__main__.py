"""hwsim where it is not developed: on 64-bit Arm, by other CPythons, beside other BLAS kernels, as three commands.

    python lab/tools/portability arm --wheel dist/hwsim-*-cp311-cp311-manylinux_2_17_aarch64.whl
    python lab/tools/portability pythons --python python3.12 --python python3.13
    python lab/tools/portability blas --core Nehalem --core Haswell

Each runs what hwsim checks of itself there, `pytest` with tests that it names or the command line does, and prints a
line for each run. Exit code 0: everything passed; 1: something failed; 2: cannot run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import arm
import blas
import pythons
from runs import CannotRunError

COMMANDS = {"arm": arm, "pythons": pythons, "blas": blas}


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python lab/tools/portability", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in COMMANDS.items():
        one = commands.add_parser(
            name, description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.add_arguments(one)
        one.add_argument(
            "--work", type=Path, help="folder for what is downloaded and built (default: build/portability)"
        )
        one.add_argument("tests", nargs="*", metavar="TEST", help="tests, instead of those that are named here")
    arguments = parser.parse_args()
    try:
        return int(not COMMANDS[arguments.command].run(arguments))
    except CannotRunError as problem:
        print(f"portability: error: {problem}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
