"""`hwsim which`: the devices with a matrix instruction of certain formats and arithmetic."""

from __future__ import annotations

import argparse
import json

from hwsim.devices.which import MODELS, ROUNDINGS, Matching, which
from hwsim.report.text.words import table

ABSENT = "-"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("--bits", metavar="FORMAT", help="format of A and B")
    parser.add_argument("--bits-b", metavar="FORMAT", help="format of B, where it differs from A's")
    parser.add_argument("--accumulate", metavar="FORMAT", help="format of the accumulator C")
    parser.add_argument("--result", metavar="FORMAT", help="format of the result D")
    parser.add_argument("--model", metavar="NAME", help=f"model of the dot unit: {', '.join(MODELS)}")
    parser.add_argument("--rounding", metavar="NAME", help=f"rounding of the unit's result: {', '.join(ROUNDINGS)}")
    parser.add_argument("--terms", type=int, metavar="N", help="products that the unit adds at once")
    parser.add_argument(
        "--least-fraction-bits", type=int, metavar="N", help="fraction bits kept while adding, at least so many"
    )
    parser.add_argument("--scale-input-d", action="store_true", help="the instruction scales its accumulator")
    parser.add_argument("--scales", metavar="FORMAT", help="format of its block scales: ue8m0, ue4m3")
    parser.add_argument("--timing", action="store_true", help="its rate is known")
    parser.add_argument("--device", action="append", metavar="NAME", help="only this device; may be repeated")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def execute(arguments: argparse.Namespace) -> int:
    """Run the verb."""
    instructions = which(
        bits=arguments.bits,
        bits_b=arguments.bits_b,
        accumulate=arguments.accumulate,
        result=arguments.result,
        model=arguments.model,
        rounding=arguments.rounding,
        terms=arguments.terms,
        least_fraction_bits=arguments.least_fraction_bits,
        scale_input_d=arguments.scale_input_d,
        timing=arguments.timing,
        scales=arguments.scales,
        devices=arguments.device,
    )
    if arguments.json:
        print(
            json.dumps({"schema": "hwsim.which/1", "instructions": [matching.to_dict() for matching in instructions]})
        )
    elif not instructions:
        conditions = {name: getattr(arguments, name) for name in ("bits", "accumulate", "result", "model", "scales")}
        print("no device has such an instruction; leave a condition out")
        alone = which(devices=arguments.device)
        for name, field in (
            ("bits", "a"),
            ("accumulate", "c"),
            ("result", "d"),
            ("model", "model"),
            ("scales", "scales"),
        ):
            if conditions[name] is not None:
                has = sorted({value for matching in alone if (value := getattr(matching, field))})
                print(f"--{name}: there are {', '.join(has)}" if has else f"--{name}: none of them has any")
    else:
        titles = ("device", "instruction", "A x B + C -> D", "adds", "evidence of its bits", "rate")
        print("\n".join(table([_row(matching) for matching in instructions], titles, indent="")))
        devices = len({matching.device for matching in instructions})
        print(f"{len(instructions)} instructions of {devices} devices")
    return 0


def _row(matching: Matching) -> tuple[str, ...]:
    parts = [matching.model, f"{matching.terms} terms" if matching.terms else "", matching.rounding or ""]
    parts += [f"{matching.fraction_bits} fraction bits" if matching.fraction_bits else ""]
    parts += [f"scale-input-d up to 2^-{matching.scale_input_d}" if matching.scale_input_d else ""]
    formats = f"{matching.a} x {matching.b} + {matching.c} -> {matching.d}"
    adds = ", ".join(part for part in parts if part)
    return (
        matching.device,
        matching.instruction,
        formats,
        adds,
        matching.evidence,
        "known" if matching.is_timed else ABSENT,
    )
