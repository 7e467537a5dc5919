"""`hwsim devices`: list devices, show one and the sources of its numbers, validate a file, begin a new one."""

from __future__ import annotations

import argparse
import json

from hwsim.devices import expanded, load, names
from hwsim.devices.plausible import notes_on
from hwsim.devices.templates import DEFAULT, new_device_file, templates
from hwsim.errors import ConfigError, InputError
from hwsim.report.text.compare_text import chip_row, compare_devices, compare_text
from hwsim.report.text.device_text import device_text, evidence_text, sources_text
from hwsim.report.text.words import table
from hwsim.resolve.device_programs import check_programs


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's actions."""
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions (without one: list)")
    parser.add_argument("--paths", action="store_true", help="where each device's file lies")
    listed = actions.add_parser("list", help="every device: chip, family, cores, peak, formats")
    listed.add_argument("--paths", action="store_true", default=argparse.SUPPRESS, help="where each device's file lies")
    listed.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="one JSON object on standard output"
    )
    show = actions.add_parser("show", help="one device", allow_abbrev=False)
    show.add_argument("device", metavar="NAME", help="device name or YAML file")
    show.add_argument("--paths", action="store_true", default=argparse.SUPPRESS, help="where the device's file lies")
    show.add_argument("--sources", action="store_true", help="every number with its evidence and source")
    show.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help="the expanded device with all sources, as one JSON object",
    )
    check = actions.add_parser("check", help="check a device file; all its problems at once", allow_abbrev=False)
    check.add_argument("device", metavar="FILE", help="YAML file (or name) of a device")
    check.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="one JSON object on standard output"
    )
    compare = actions.add_parser("compare", help="devices beside each other: what differs", allow_abbrev=False)
    compare.add_argument("devices", nargs="+", metavar="NAME", help="two or more device names or YAML files")
    compare.add_argument("--all", action="store_true", help="what is equal, too")
    compare.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="all rows as one JSON object on standard output"
    )
    new = actions.add_parser("new", help="write a device file of your own, from a template", allow_abbrev=False)
    new.add_argument("device", metavar="FILE.yaml", help="the file to write; its name becomes the device's")
    choices = "; ".join(f"{name}: {what}" for name, what in templates().items())
    new.add_argument("--template", metavar="NAME", default=DEFAULT, help=f"{choices} (default {DEFAULT})")
    new.add_argument(
        "--set",
        metavar="SIZE=N",
        action="append",
        default=[],
        help="a size of the template: rows=16 or cols=32 of systolic; may be repeated",
    )
    new.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="one JSON object on standard output"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Run the action."""
    if arguments.action in (None, "list"):
        places = names()
        if arguments.json:
            print(json.dumps({"schema": "hwsim.devices/1", "devices": [{"name": n, "where": w} for n, w in places]}))
        elif arguments.paths:
            print("\n".join(table(places, ("name", "where"), indent="")))
        else:
            rows = [(name, *_chip_row(name)) for name, _ in places]
            print("\n".join(table(rows, ("name", "chip", "family", "cores", "peak", "formats"), indent="")))
        return 0
    if arguments.action == "new":
        path = new_device_file(arguments.device, arguments.template, _sizes(arguments.set))
        if arguments.json:
            print(json.dumps({"schema": "hwsim.device-new/1", "file": str(path), "template": arguments.template}))
        else:
            print(f"wrote {path}; next: hwsim devices check {path}")
        return 0
    if arguments.action == "compare":
        return _compare(arguments)
    device = load(arguments.device)
    if arguments.action == "check":
        check_programs(device)
    if arguments.action == "show":
        if arguments.paths and not arguments.json:
            print(dict(names()).get(arguments.device, arguments.device))
        elif arguments.json:
            print(json.dumps({"schema": "hwsim.device/1", "device": expanded(device), "device_sha256": device.sha256}))
        else:
            print(sources_text(device) if arguments.sources else device_text(device))
    elif arguments.json:
        record = {"schema": "hwsim.device-check/1", "name": device.name, "device_sha256": device.sha256}
        print(json.dumps(record | {"notes": notes_on(device)}))
    else:
        print(f"{arguments.device}: device {device.name} is right; evidence: {evidence_text(device)}")
        print("".join([f"  is it meant? {note}\n" for note in notes_on(device)]), end="")
    return 0


def _sizes(pairs: list[str]) -> dict[str, int]:
    """Sizes from NAME=N. Raises InputError for other text."""
    sizes = {}
    for pair in pairs:
        name, _, number = pair.partition("=")
        if not (name and number.isascii() and number.isdecimal()):
            raise InputError(f"--set {pair}; allowed: NAME=N with an integer, as rows=16")
        sizes[name] = int(number)
    return sizes


def _chip_row(name: str) -> tuple[str, ...]:
    try:
        return chip_row(load(name))
    except ConfigError:
        return (f"the file has mistakes: hwsim devices check {name}", "", "", "", "")


def _compare(arguments: argparse.Namespace) -> int:
    if len(arguments.devices) < 2:
        raise InputError("devices compare: one device; give at least two names or files")
    devices = [load(name) for name in arguments.devices]
    if arguments.json:
        rows = [{"what": name, "values": values} for name, values in compare_devices(devices)]
        print(
            json.dumps(
                {"schema": "hwsim.devices-compare/1", "devices": [device.name for device in devices], "rows": rows}
            )
        )
    else:
        print(compare_text(devices, everything=arguments.all))
    return 0
