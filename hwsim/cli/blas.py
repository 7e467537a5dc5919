"""`hwsim blas`: a program whose BLAS products run on a simulated device."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from hwsim.backend.by_name import NAMES as ENGINES
from hwsim.errors import InputError
from hwsim.frameworks.blas.launcher import run_program
from hwsim.host.files import check_outputs, write_text
from hwsim.request.declarations import DEFAULT_DEVICE, DEFAULT_SCHEME

#: What a preloaded library cannot see, whatever the program calls: said in every report.
NOT_SEEN = "calls inside one library: products that LAPACK's cholesky, lstsq, qr and solve call themselves"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.usage = "hwsim blas [options] -- PROGRAM ..."
    parser.add_argument("--device", default=DEFAULT_DEVICE, metavar="NAME", help="device name or YAML file")
    parser.add_argument("--scheme", default=DEFAULT_SCHEME, metavar="NAME", help="scheme of every product")
    parser.add_argument("--format", metavar="FORMAT", help="operand format of schemes that take native formats")
    parser.add_argument("--library", metavar="NAME", help="GEMM library whose kernels are taken")
    parser.add_argument(
        "--routines",
        metavar="NAME,NAME",
        default="",
        help="routines that run on the device, as sgemm,d* (default: all whose products keep their type)",
    )
    parser.add_argument("--threads", type=int, metavar="N", help="host threads; no influence on the result")
    parser.add_argument("--engine", choices=ENGINES, help="what computes the bits; no influence on the result")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report as one JSON object")
    parser.add_argument("-q", "--quiet", action="store_true", help="no report on standard error")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="the program and its arguments, after --")


def execute(arguments: argparse.Namespace) -> int:
    """Run the program; its exit code."""
    command = arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program
    if not command:
        raise InputError("blas: give a program: hwsim blas --device h200 --format tf32 -- python script.py")
    check_outputs({"--json": arguments.json})
    options: dict[str, Any] = {
        name: getattr(arguments, name)
        for name in ("device", "scheme", "format", "library", "threads", "engine")
        if getattr(arguments, name) is not None
    }
    code, record = run_program(command, options, [name for name in arguments.routines.split(",") if name])
    if arguments.json is not None:
        write_text(
            arguments.json,
            json.dumps(
                {"schema": "hwsim.frameworks.blas/1", "exit_code": code, "not_seen": NOT_SEEN} | record.to_dict()
            )
            + "\n",
        )
    if not arguments.quiet:
        print(
            f"hwsim blas: {arguments.scheme} on {arguments.device}\n{record.text()}\nnot seen: {NOT_SEEN}",
            file=sys.stderr,
        )
    return code
