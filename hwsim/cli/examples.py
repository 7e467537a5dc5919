"""`hwsim examples`: list the examples that come with hwsim, and copy one to change it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from hwsim.host.example_files import copy_example, examples
from hwsim.report.text.words import table


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's actions and options."""
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions (without one: list)")
    listing = actions.add_parser("list", help="all examples", allow_abbrev=False)
    copy = actions.add_parser("copy", help="copy an example, a file or a folder", allow_abbrev=False)
    copy.add_argument("example", metavar="NAME", help="the example's name; hwsim examples lists them")
    copy.add_argument("folder", nargs="?", type=Path, default=Path(), metavar="DIR", help="where to (default: here)")
    for action in (listing, copy):
        action.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="one JSON object on standard output"
        )


def execute(arguments: argparse.Namespace) -> int:
    """Run the action."""
    if arguments.action == "copy":
        path = copy_example(arguments.example, arguments.folder)
        if arguments.json:
            print(json.dumps({"schema": "hwsim.example/1", "name": arguments.example, "path": str(path)}))
        else:
            print(path)
            print(f"hwsim: wrote {path}{_next(path)}", file=sys.stderr)
        return 0
    listed = list(examples().values())
    if arguments.json:
        records = [{"name": example.name, "shows": example.shows} for example in listed]
        print(json.dumps({"schema": "hwsim.examples/1", "examples": records}))
    else:
        print("\n".join(table([(example.name, example.shows) for example in listed], indent="")))
    return 0


def _next(path: Path) -> str:
    if path.is_file():
        return f"; to run it: python {path}"
    return f"; {path / 'README.md'} says how to run it" if (path / "README.md").is_file() else ""
