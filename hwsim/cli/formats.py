"""`hwsim formats`: list the number formats with their limits; show one."""

from __future__ import annotations

import argparse
import json

from hwsim.format_arrays import describe
from hwsim.formats import FORMATS


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output, nothing else there")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions (without one: list)")
    listed = actions.add_parser("list", help="every format with its width and limits", allow_abbrev=False)
    shown = actions.add_parser("show", help="one format: hwsim formats show e4m3", allow_abbrev=False)
    shown.add_argument("name", metavar="NAME", help="name of the format, as hwsim formats list has it")
    for verb in (listed, shown):
        verb.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="one JSON object on standard output"
        )


def execute(arguments: argparse.Namespace) -> int:
    """Print the list, or one format."""
    if arguments.action == "show":
        entries = describe(arguments.name)
        lines = [f"{name:16} {value}" for name, value in entries.items()]
        print(json.dumps({"schema": "hwsim.format/1"} | entries) if arguments.json else "\n".join(lines))
        return 0
    every = [describe(name) for name in FORMATS]
    if arguments.json:
        print(json.dumps({"schema": "hwsim.formats/1", "formats": every}))
        return 0
    print(f"{'name':10} {'bits':>4} {'exponent':>8} {'fraction':>8}  {'largest':>22}  least positive")
    for entry in every:
        fields = f"{entry['bits']:>4} {entry['exponent_bits']:>8} {entry['fraction_bits']:>8}"
        print(f"{entry['name']:10} {fields}  {entry['largest']:>22}  {entry['least_positive']}")
    return 0
