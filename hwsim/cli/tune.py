"""`hwsim tune`: search for the best tile, rasterisation and instruction for a device, a scheme and a shape."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from hwsim._version import __version__
from hwsim.cli.option_flags import add_options, given_options, positive, whole
from hwsim.cli.progress import progress_bar
from hwsim.cli.report_option import add_report, check_report, report_files, report_note
from hwsim.cli.verb_parser import VerbParser
from hwsim.dataflows.options import TILE_OPTION
from hwsim.devices import load
from hwsim.errors import InputError
from hwsim.host.files import check_outputs, write_whole
from hwsim.machines.l2_state import DEFAULT, STATES
from hwsim.report.page.tune_page import tune_page
from hwsim.report.text.tune_text import plotting, tune_csv, tune_dict, write_heat
from hwsim.report.text.words import count
from hwsim.request.declarations import DEFAULT_SCHEME
from hwsim.studies.questions import tune
from hwsim.studies.tune import BUDGET
from hwsim.studies.tune_call import OF_LIBRARY, UNTAKEN

#: Options of a run that a search does not take or says in its own way.
LEFT_OUT = ("m", "n", "k", TILE_OPTION.name, *(name for name in UNTAKEN if name not in OF_LIBRARY))
ELSEWHERE = {"--tile": "tune searches tiles; hwsim run --tile times a single one"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    if isinstance(parser, VerbParser):
        parser.elsewhere |= ELSEWHERE
    parser.add_argument("--device", required=True, metavar="NAME", help="device name or YAML file")
    parser.add_argument(
        "--scheme", default=DEFAULT_SCHEME, metavar="NAME", help=f"scheme (default {DEFAULT_SCHEME}); see hwsim schemes"
    )
    for name in ("m", "n", "k"):
        parser.add_argument(f"--{name}", type=whole(1), default=1024, metavar=name.upper(), help="size (default 1024)")
    group = parser.add_argument_group("search")
    group.add_argument(
        "--objective",
        default="time",
        metavar="time|cycles|traffic|energy",
        help="quantity to minimise: the time, the cycles, the bytes of HBM, or the energy by the device file's or "
        "hwsim's assumed energies (default time)",
    )
    group.add_argument(
        "--chooser",
        default="search",
        metavar="search|eq11|tlp",
        help="search, or a formula alone: eq11 (SGEMM-cube), tlp (LE-GEMM's thread parallelism) (default search)",
    )
    group.add_argument("--exhaustive", action="store_true", help="all combinations, not tiles first and then the rest")
    group.add_argument(
        "--budget", type=whole(1), default=BUDGET, metavar="N", help=f"configurations timed at most (default {BUDGET})"
    )
    group.add_argument(
        "--l2", choices=tuple(STATES), default=DEFAULT, help=f"state of L2 before each timed run (default {DEFAULT})"
    )
    group.add_argument("--clock-mhz", type=positive, metavar="MHZ", help="core clock (default: under load)")
    group.add_argument("--power-limit-w", type=positive, metavar="W", help="power of the board (default: the file's)")
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="everything as one JSON object on standard output")
    group.add_argument("--csv", type=Path, metavar="FILE", help="write all configurations as CSV")
    group.add_argument("--plot", type=Path, metavar="FILE.png", help="write the heat map (needs matplotlib)")
    add_report(group, "--device h200")
    group.add_argument("-q", "--quiet", action="store_true", help="no progress bar and no notes on standard error")
    kinds = ("problem", "epilogue", "library", "mapping", "scheme")
    add_options(parser, kinds, LEFT_OUT)


def execute(arguments: argparse.Namespace) -> int:
    """Search, write the files, print the report."""
    if arguments.plot is not None and arguments.plot.suffix.lower() != ".png":
        raise InputError(f"--plot {arguments.plot}: allowed: a name that ends in .png")
    check_report(arguments.report)
    check_outputs({"--csv": arguments.csv, "--plot": arguments.plot, **report_files(arguments.report)})
    if arguments.plot is not None:
        plotting()  # fails before the search
    chip, options = load(arguments.device), given_options(arguments)
    sizes = (arguments.m, arguments.n, arguments.k)
    with progress_bar(quiet=arguments.quiet, stage="timing configurations") as progress:
        landscape = tune(
            chip,
            *sizes,
            scheme=arguments.scheme,
            objective=arguments.objective,
            chooser=arguments.chooser,
            exhaustive=arguments.exhaustive,
            budget=arguments.budget,
            progress=progress,
            l2=arguments.l2,
            clock_mhz=arguments.clock_mhz,
            power_limit_w=arguments.power_limit_w,
            **options,
        )
    named, output = options.get("format"), options.get("output")
    notes = []
    if arguments.csv is not None:
        write_whole(arguments.csv, lambda file: file.write(tune_csv(landscape).encode()))
        notes.append(f"wrote {arguments.csv}: {len(landscape.points)} configurations")
    operands = "" if named is None else f" {named}"
    operands += "" if output is None else f", C in {output},"
    title = f"{arguments.scheme}{operands} on {chip.name}, {' x '.join(map(count, sizes))}"
    if arguments.report is not None:
        tune_page(landscape, title).write(arguments.report)
        notes.append(report_note(arguments.report))
    if arguments.plot is not None:
        write_whole(arguments.plot, lambda file: write_heat(landscape, title, file))
        notes.append(f"wrote {arguments.plot}: heat map")
    if arguments.json:
        record = {
            "schema": "hwsim.tune/1",
            "hwsim_version": __version__,
            "device": chip.name,
            "device_sha256": chip.sha256,
            "scheme": arguments.scheme,
            "options": landscape.scheme_options,
            "call": {**landscape.call, "device": arguments.device, "scheme": arguments.scheme},
        }
        record |= {} if output is None else {"output": output}
        record |= {"l2": landscape.l2}
        record |= {} if landscape.library is None else {"library": asdict(landscape.library)}
        print(json.dumps(record | dict(zip("mnk", sizes, strict=True)) | tune_dict(landscape)))
    else:
        print(landscape)
    if not arguments.quiet:
        for note in notes:
            print(f"hwsim: {note}", file=sys.stderr)
    return 0
