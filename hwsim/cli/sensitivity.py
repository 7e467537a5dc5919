"""`hwsim sensitivity`: how the cycles move when each assumed number of a device goes over its range."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from hwsim.cli.options import BLOCKING, FORMAT, add_problem, program_arguments
from hwsim.cli.progress import progress_bar
from hwsim.errors import InputError

SIZE = 1024


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("--device", required=True, metavar="NAME", help="device name or YAML file")
    parser.add_argument("--scheme", default="native", metavar="NAME", help="scheme (default native); see hwsim schemes")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output, nothing else there")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar on standard error")
    add_problem(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Vary the numbers, print what moved."""
    from hwsim.devices import load
    from hwsim.gemm.problem import Problem
    from hwsim.report.sensitivity_text import sensitivity_text
    from hwsim.request import lower
    from hwsim.resolve.bits import prepare
    from hwsim.resolve.predict import under_load
    from hwsim.schemes import scheme_of
    from hwsim.studies.sensitivity import SPREAD, sensitivity

    given, chip = program_arguments(arguments), load(arguments.device)
    m, n, k = sizes = tuple(int(given.pop(name, SIZE)) for name in "mnk")
    if min(sizes) < 1:
        raise InputError(f"m, n, k = {m}, {n}, {k}; allowed: integers of at least 1")
    blocking = {name: given.pop(name, None) for name in BLOCKING}
    named = given.pop(FORMAT, None)  # operands are in it already, as of hwsim run --no-exact
    problem = Problem(named or "fp32", m, n, k)
    ready = prepare(chip, scheme_of(arguments.scheme), problem, format=named, scheme_options=given)
    lowered = lower(chip, ready, (m, n, k), blocking)
    with progress_bar(quiet=arguments.quiet) as progress:
        found = sensitivity(lowered, chip, progress=progress)
    cycles = found[0].cycles if found else under_load(lowered, chip, str(lowered.facts.get("unit", "")))[1].cycles
    if arguments.json:
        known = {
            "schema": "hwsim.sensitivity/1",
            "device": chip.name,
            "scheme": arguments.scheme,
            "m": m,
            "n": n,
            "k": k,
        }
        known |= {"facts": lowered.facts, "cycles": cycles, "spread": SPREAD}
        print(json.dumps(known | {"numbers": [asdict(one) | {"moved": one.moved} for one in found]}))
        return 0
    words = f"C[{m:,} x {n:,}] = A[{m:,} x {k:,}] B[{k:,} x {n:,}]; {arguments.scheme} on {chip.name}"
    print(sensitivity_text(found, words, cycles))
    return 0
