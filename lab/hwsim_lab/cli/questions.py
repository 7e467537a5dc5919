"""`hwsim golden questions`: the open questions to hardware, and their operands as a golden file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from hwsim.errors import InputError, nearest
from hwsim.host.files import check_writable
from hwsim.report.text.words import table
from hwsim_lab.golden.questions import QUESTIONS, write_questions


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the action."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="questions (default: all)")
    parser.add_argument("--out", type=Path, metavar="FILE.npz", help="write their operands as a golden file")


def execute(arguments: argparse.Namespace) -> int:
    """List the questions, and write their operands where a file is named."""
    known = QUESTIONS()
    for name in arguments.names:
        if name not in known:
            raise InputError(f"no question {name!r}; there are {', '.join(known)}{nearest(name, tuple(known))}")
    chosen = [known[name] for name in arguments.names] or list(known.values())
    results = None
    if arguments.out is not None:
        check_writable(arguments.out)
        results = write_questions(arguments.out, chosen)
    if arguments.json:
        rows = [
            {
                "name": x.name,
                "text": x.text,
                "hardware": x.hardware,
                "instruction": x.instruction.name,
                "recordable": x.recordable,
                "sets": {name: len(dots) for name, dots in x.sets.items()},
                "answers": list(x.candidates),
            }
            for x in chosen
        ]
        path = None if arguments.out is None else str(arguments.out)
        print(json.dumps({"schema": "hwsim.golden-questions/1", "questions": rows, "path": path, "results": results}))
        return 0
    for question in chosen:
        how = "hwsim golden record --operands" if question.recordable else "the vendor's tools"
        print(f"{question.name}: {question.text}")
        print(f"  {question.hardware}, {question.instruction.name}, by {how}")
        print(
            "\n".join(
                table([(name, f"{len(dots)} dot products") for name, dots in question.sets.items()], indent="    ")
            )
        )
    if results is not None:
        print(f"{results:,} results to record, operands in {arguments.out}")
    return 0
