"""`hwsim explain`: one output element of a matrix instruction, stage by stage."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from hwsim.cli.operands import FORMS, Operands, read_list, read_one
from hwsim.devices import dot_spec, load
from hwsim.errors import InputError
from hwsim.golden.format import GoldenSet
from hwsim.golden.verify import all_sets
from hwsim.numerics.dot_operands import DotOperands
from hwsim.report.explain import explain, number
from hwsim.report.text.explain_text import explain_text

NEGATIVE = re.compile(r"-(\d|\.\d|inf|nan)")  # the beginning of a list such as -1,2


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("device", nargs="?", metavar="DEVICE", help="device name or YAML file")
    parser.add_argument("instruction", nargs="?", metavar="INSTRUCTION", help="instruction; see hwsim devices show")
    add_operands(parser, "a row of A: ", "a column of B: ")
    parser.add_argument(
        "--from",
        dest="source",
        nargs=5,
        metavar=("GOLDEN.npz", "KEY", "CASE", "ROW", "COLUMN"),
        help="explain this element of a golden file (KEY: INSTRUCTION/SET), and compare with what it holds; "
        "DEVICE: instead of the one that the file names",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def add_operands(parser: argparse.ArgumentParser, a: str = "", b: str = "") -> None:
    """Add the options --a, --b, --c and the scales."""
    parser._negative_number_matcher = NEGATIVE  # argparse has no other way to say which words are no options
    parser.add_argument("--a", metavar="A", help=f"{a}{FORMS}")
    parser.add_argument("--b", metavar="B", help=f"{b}the same forms")
    parser.add_argument("--c", metavar="C", help="the accumulator (default: +0)")
    parser.add_argument("--scale-a", metavar="S", help="block scales of A, one per block of k")
    parser.add_argument("--scale-b", metavar="S", help="block scales of B")
    parser.add_argument(
        "--scale-d", type=int, metavar="N", help="C is multiplied by 2^-N (tcgen05's scale-input-d; default 0)"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Explain, print; 1 when a captured result differs."""
    name, instruction, operands, captured = _from_file(arguments) if arguments.source else _from_options(arguments)
    notes = operands.pop("notes", [])
    record = explain(load(name), instruction, DotOperands(**operands))
    record["notes"] = notes + record["notes"]
    differs = captured is not None and int(record["result"]["code"], 16) != captured
    if captured is not None:
        record["captured"] = number(record["formats"]["d"], captured)
    if arguments.json:
        print(json.dumps(record))
    else:
        print(explain_text(record))
        if captured is not None:
            print(f"captured     {record['captured']['code']}: {'DIFFERS' if differs else 'the same'}")
    return int(differs)


def _from_options(arguments: argparse.Namespace) -> tuple[str, str, dict[str, Any], None]:
    if arguments.device is None or arguments.instruction is None:
        raise InputError("DEVICE and INSTRUCTION are needed (or --from GOLDEN.npz KEY CASE ROW COLUMN)")
    if arguments.a is None or arguments.b is None:
        raise InputError(f"--a and --b are needed: a row of A and a column of B; allowed: {FORMS}")
    operands = one_element(arguments, load(arguments.device))
    return arguments.device, arguments.instruction, operands, None


def one_element(arguments: argparse.Namespace, device: Any) -> dict[str, Any]:
    """Arguments of `explain` from the options, with notes on numbers that were rounded."""
    spec = dot_spec(device, arguments.instruction)
    operands_by_option: dict[str, Operands] = {
        "a": read_list("--a", arguments.a, spec.a),
        "b": read_list("--b", arguments.b, spec.b),
        "c": read_one("--c", arguments.c or "0", spec.c),
    }
    for option in ("scale_a", "scale_b"):
        text = getattr(arguments, option)
        if text is not None:
            if spec.scale_format is None:
                raise InputError(f"{arguments.instruction} takes no block scales")
            operands_by_option[option] = read_list(f"--{option.replace('_', '-')}", text, spec.scale_format)
    notes = [note for operands in operands_by_option.values() for note in operands.notes]
    codes: dict[str, Any] = {option: operands.codes for option, operands in operands_by_option.items()}
    return codes | {"c": codes["c"][0], "scale_d": arguments.scale_d or 0, "notes": notes}


def _from_file(arguments: argparse.Namespace) -> tuple[str, str, dict[str, Any], int | None]:
    path, key, *place = arguments.source
    brought = ("instruction", "a", "b", "c", "scale_a", "scale_b", "scale_d")
    if any(getattr(arguments, name) is not None for name in brought):
        raise InputError("--from brings the instruction and its operands: leave out INSTRUCTION, --a, --b, --c, scales")
    try:
        case, row, column = map(int, place)
    except ValueError:
        raise InputError(f"--from: CASE, ROW and COLUMN are integers from 0; got {' '.join(place)}") from None
    named = ""
    golden: GoldenSet | None = None
    for _, meta, golden_set in all_sets([Path(path)], device=arguments.device or "", only=key):
        if golden_set.key == key:
            named, golden = meta.device, golden_set
    if golden is None:
        raise InputError(f"{path} has no set {key!r} with results; hwsim golden verify {path} lists its sets")
    if not all(0 <= i < n for i, n in zip((case, row, column), golden.c.shape, strict=True)):
        raise InputError(
            f"{key} has {' x '.join(map(str, golden.c.shape))} cases, rows and columns; got {case}, {row}, {column}"
        )
    return (
        arguments.device or named,
        golden.instruction,
        golden.element(case, row, column),
        int(golden.d[case, row, column]) if golden.d is not None else None,
    )
