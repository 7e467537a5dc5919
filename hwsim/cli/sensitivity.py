"""`hwsim sensitivity`: change of the time when each assumed number of a device varies over its range."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from hwsim.api import program
from hwsim.cli.option_flags import add_options, given_options
from hwsim.cli.progress import progress_bar
from hwsim.devices.device import Device
from hwsim.machines import timing
from hwsim.machines.load import under_load
from hwsim.program.ir import Program
from hwsim.report.text.sensitivity_text import sensitivity_text
from hwsim.request.declarations import DEFAULT_SCHEME, OPERAND_DISTRIBUTION
from hwsim.resolve.mapping_choice import facts_of
from hwsim.studies.sensitivity import SPREAD, sensitivity


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("--device", required=True, metavar="NAME", help="device name or YAML file")
    parser.add_argument(
        "--scheme", default=DEFAULT_SCHEME, metavar="NAME", help=f"scheme (default {DEFAULT_SCHEME}); see hwsim schemes"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output, nothing else there")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar on standard error")
    kinds = ("problem", "epilogue", "order of summation", "library", "mapping", "scheme")
    add_options(parser, kinds, ("seed", OPERAND_DISTRIBUTION, "c", "bias"))


def execute(arguments: argparse.Namespace) -> int:
    """Vary the numbers and print the changes."""
    options = given_options(arguments)
    if options.get("input_format") is None:
        options["input_format"] = options.get("format")  # the rule of hwsim run --no-exact
    chip, lowered = program(device=arguments.device, scheme=arguments.scheme, **options)
    assert lowered.gemm is not None
    m, n, k = lowered.gemm.problem.sizes
    shown = facts_of(lowered.gemm, chip)
    loaded, timed = under_load(lowered, chip, str(shown["unit"]))
    cycles, seconds = timed.cycles, timing.seconds(timed, loaded)
    with progress_bar(quiet=arguments.quiet, stage="varying numbers of the device") as progress:
        program_on = None if options.get("library") else _program_on(arguments.scheme, options)
        influences = sensitivity(lowered, chip, program_on=program_on, progress=progress)
    if arguments.json:
        record = {
            "schema": "hwsim.sensitivity/1",
            "device": chip.name,
            "scheme": arguments.scheme,
            "m": m,
            "n": n,
            "k": k,
            "input_format": lowered.gemm.problem.input_format,
            "call": {"device": arguments.device, "scheme": arguments.scheme, "exact": False, **options},
        }
        record |= {"facts": shown, "cycles": cycles, "seconds": seconds, "spread": SPREAD}
        print(
            json.dumps(
                record
                | {
                    "numbers": [
                        asdict(influence) | {"changes": influence.changes, "moved": influence.moved}
                        for influence in influences
                    ]
                },
                default=str,
            )
        )
        return 0
    words = f"C[{m:,} x {n:,}] = A[{m:,} x {k:,}] B[{k:,} x {n:,}]; {arguments.scheme} on {chip.name}, "
    words += f"{lowered.gemm.problem.input_format} in memory"
    print(sensitivity_text(influences, words, cycles, seconds))
    return 0


def _program_on(scheme: str, options: Mapping[str, Any]) -> Callable[[Device], Program]:
    """The call's program on another device. A library's kernel is fixed."""
    return lambda device: program(device=device, scheme=scheme, **options)[1]
