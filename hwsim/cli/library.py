"""`hwsim library record`: a library's own answers on this machine's GPU as a file for `library=`, and a comparison."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from hwsim.cli.option_flags import whole
from hwsim.cli.progress import progress_bar
from hwsim.devices import load
from hwsim.errors import InputError, UnsupportedError
from hwsim.libraries.cublas.calls import ACCUMULATES, LAYOUTS
from hwsim.libraries.cublas.versions import calls_taken
from hwsim.libraries.recording.machine import this_machine
from hwsim.libraries.recording.report import recording_dict, recording_text
from hwsim.libraries.recording.session import check_out, record
from hwsim.libraries.recording.shapes import wanted

DEFAULT_FORMAT = "bf16"
DEFAULT_SAMPLE = 24
DEFAULT_M = "1:8192"
BIASES = {"no": (False,), "yes": (True,), "both": (False, True)}
#: Options of the GEMMs of --gemm and --weight; a file of shapes says them itself.
OF_FORMS = ("format", "output", "accumulate", "bias", "a_layout", "b_layout")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    text = "ask cuBLASLt on this machine's GPU for GEMMs, write its answers, and compare a sample with hwsim"
    sub = actions.add_parser(
        "record",
        help=text,
        description=f"{text[0].upper()}{text[1:]}. Exit codes: 0 all of the sample is equal in every bit, or nothing "
        "was run; 1 some differ; 2 it cannot run.",
        allow_abbrev=False,
    )
    sub.add_argument("--device", required=True, metavar="NAME", help="hwsim's device, or device file, of this GPU")
    sub.add_argument("--out", required=True, type=Path, metavar="FILE.npz", help="the file that library= takes")
    group = sub.add_argument_group("GEMMs, of which at least one is needed")
    columns = "m, n, k, format[, output, accumulate, bias, a_layout, b_layout]"
    group.add_argument("--shapes", type=Path, metavar="FILE.csv", help=f"a GEMM per line, with columns {columns}")
    group.add_argument("--gemm", nargs="+", action="extend", default=[], metavar="MxNxK", help="single GEMMs")
    group.add_argument(
        "--weight", nargs="+", action="extend", default=[], metavar="NxK", help="weights of layers, over all of --m"
    )
    group.add_argument("--m", metavar="A:B", help=f"numbers of rows for --weight (default {DEFAULT_M})")
    group = sub.add_argument_group("how --gemm and --weight are called")
    formats = calls_taken().outputs
    group.add_argument(
        "--format",
        nargs="+",
        choices=tuple(formats),
        metavar="NAME",
        help=f"of the operands (default {DEFAULT_FORMAT}): {', '.join(formats)}",
    )
    outputs = tuple(sorted({name for some in formats.values() for name in some}))
    group.add_argument("--output", choices=outputs, metavar="NAME", help="of the result (default: as PyTorch's call)")
    group.add_argument("--accumulate", choices=ACCUMULATES, help="of e4m3 (default fast)")
    group.add_argument(
        "--bias", nargs="?", const="yes", choices=tuple(BIASES), help="with a bias (default no; alone: yes)"
    )
    group.add_argument("--a-layout", choices=LAYOUTS, help="storage order of A (default rows)")
    group.add_argument("--b-layout", choices=LAYOUTS, help="default columns: a linear layer's weight, (n, k) by rows")
    group = sub.add_argument_group("sample")
    group.add_argument(
        "--sample", type=whole(1), metavar="N", help=f"GEMMs that are run and compared (default {DEFAULT_SAMPLE})"
    )
    group.add_argument("--seed", type=whole(0), default=1, metavar="N", help="of sample and operands (default 1)")
    group.add_argument("--no-run", action="store_true", help="ask and write alone; needs no PyTorch")
    sub.add_argument("--json", action="store_true", help="one JSON object on standard output, nothing else there")
    sub.add_argument("-q", "--quiet", action="store_true", help="no progress bar and no notes on standard error")


def execute(arguments: argparse.Namespace) -> int:
    """Record, compare, print."""
    check_out(arguments.out)
    if arguments.no_run and arguments.sample is not None:
        raise InputError("--sample is for what is run; leave it out beside --no-run")
    gemms = wanted(
        file=arguments.shapes,
        gemms=arguments.gemm,
        weights=arguments.weight,
        m=_rows(arguments),
        forms=_forms(arguments),
    )
    device = load(arguments.device)
    machine = this_machine(runs=not arguments.no_run)
    with progress_bar(quiet=arguments.quiet or arguments.json) as progress:
        recording = record(
            arguments.out,
            gemms,
            device=device,
            machine=machine,
            count=DEFAULT_SAMPLE if arguments.sample is None else arguments.sample,
            seed=arguments.seed,
            progress=progress,
        )
    if arguments.json:
        print(json.dumps({"schema": "hwsim.library-record/1"} | recording_dict(recording), allow_nan=False))
    else:
        print(recording_text(recording))
    if not arguments.quiet:
        for note in recording.notes:
            print(f"hwsim: {note}", file=sys.stderr)
    if machine.runner is not None and not recording.run:
        why = recording.rows[0].problem if recording.rows else "cuBLASLt refuses all of them"
        raise UnsupportedError(
            f"no GEMM of the sample was run ({why}); {recording.path} is written, but nothing compared"
        )
    return int(recording.equal < len(recording.run))


def _rows(arguments: argparse.Namespace) -> str:
    if arguments.m is not None and not arguments.weight:
        raise InputError("--m is for --weight; a single GEMM's m stands in --gemm MxNxK")
    return arguments.m or DEFAULT_M


def _forms(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Keywords of `form_of`, one mapping per format and bias."""
    options = {name: value for name in OF_FORMS if (value := getattr(arguments, name)) is not None}
    if options and not (arguments.gemm or arguments.weight):
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in options)
        raise InputError(f"{flags}: for --gemm and --weight; the file of --shapes has columns for them")
    formats, biases = options.pop("format", [DEFAULT_FORMAT]), BIASES[options.pop("bias", "no")]
    return [{**options, "format": format, "bias": bias} for format in formats for bias in biases]
