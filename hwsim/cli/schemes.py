"""`hwsim schemes`: list schemes, show one and its options, list those that run on a device."""

from __future__ import annotations

import argparse
import json
from typing import Any

from hwsim.api import program
from hwsim.cli.help_text import scheme_text
from hwsim.devices import load
from hwsim.errors import HwsimError
from hwsim.machines import timing
from hwsim.report.text.words import table
from hwsim.request.operands import problem_of_scheme
from hwsim.resolve.prepare import prepare
from hwsim.schemes import Scheme, scheme_of, schemes

TRIED = 64  # edge of the small problem that tells whether a device has a program for a scheme


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's actions and options."""
    parser.add_argument("--device", metavar="NAME", help="say which schemes run on this device, and why others do not")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions (without one: list)")
    listed = actions.add_parser("list", help="every scheme", allow_abbrev=False)
    listed.add_argument("--device", metavar="NAME", default=argparse.SUPPRESS, help="say which run on this device")
    listed.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="one JSON object on standard output"
    )
    show = actions.add_parser("show", help="one scheme with its options", allow_abbrev=False)
    show.add_argument("scheme", metavar="NAME")
    show.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="one JSON object on standard output"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Run the action."""
    if arguments.action == "show":
        scheme = scheme_of(arguments.scheme)
        print(json.dumps({"schema": "hwsim.scheme/1"} | _record(scheme)) if arguments.json else scheme_text(scheme))
        return 0
    by_name = schemes()
    records: list[dict[str, Any]] = [_record(scheme) for scheme in by_name.values()]
    if arguments.device is not None:
        device = load(arguments.device)
        for record in records:
            record["why_not"], record["why_no_program"] = _why_not(by_name[record["name"]], device)
            record["runs"] = record["why_not"] is None
    if arguments.json:
        print(json.dumps({"schema": "hwsim.schemes/1", "device": arguments.device, "schemes": records}))
    elif arguments.device is None:
        print("\n".join(table([(record["name"], record["title"]) for record in records], indent="")))
    else:
        print("\n".join(table([(record["name"], *_said(record)) for record in records], indent="")))
    return 0


def _why_not(scheme: Scheme, device: Any) -> tuple[str | None, str | None]:
    """The reasons why the device cannot give the scheme's bits, and its cycles; None where it can."""
    try:
        prepare(device, scheme, problem_of_scheme(scheme, TRIED, TRIED, TRIED))
    except HwsimError as error:
        return str(error), str(error)
    try:
        _, lowered = program(m=TRIED, n=TRIED, k=TRIED, device=device, scheme=scheme)
    except HwsimError as error:
        return None, str(error)
    return None, timing.missing(device, lowered)


def _said(record: dict[str, Any]) -> tuple[str, str]:
    if not record["runs"]:
        return "does not run", str(record["why_not"])
    no_program = record["why_no_program"]
    return "runs", "" if no_program is None else f"bits only: {no_program}"


def _record(scheme: Scheme) -> dict[str, Any]:
    return {
        "name": scheme.name,
        "title": scheme.title,
        "source": scheme.source,
        "input_formats": list(scheme.input_formats),
        "options": [
            {
                "name": option.name,
                "type": option.type.annotation,
                "default": option.default,
                "choices": list(option.choices) or None,
                "least": option.least,
                "help": option.help,
            }
            for option in scheme.options
        ],
    }
