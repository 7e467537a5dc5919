"""`hwsim diff`: one GEMM in two ways (devices, schemes, schedules): which elements differ, and from which k on."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from hwsim.analysis.inputs import HELP, NORMAL
from hwsim.cli.matrices import read_pair
from hwsim.cli.option_flags import add_options, argument_type, given_options, whole
from hwsim.cli.progress import progress_bar
from hwsim.cli.report_option import add_report, check_report, report_files, report_note
from hwsim.errors import InputError
from hwsim.host.files import check_outputs
from hwsim.host.threads import MOST, worker_count
from hwsim.report.page.diff_page import diff_page
from hwsim.request.declarations import DEFAULT_SCHEME, DISTRIBUTION, PROBLEM, SPARSITY, own_options
from hwsim.request.option_records import LibraryOptions
from hwsim.result import plain
from hwsim.studies.diff_sides import Variant
from hwsim.studies.questions import DIFF_SIZE, diff

NO_LIBRARY = "none"  # --library of a side without one


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    group = parser.add_argument_group("the two ways", "each once for both, or twice: left, then right")
    group.add_argument("--device", action="append", metavar="NAME", help="device name or YAML file; at least once")
    group.add_argument("--scheme", action="append", metavar="NAME", help="scheme (default native)")
    group.add_argument(
        "--schedule",
        action="append",
        metavar="WHAT",
        help="schedule: split_k=3,promotion_k=128, or a JSON object, or default; epilogue.KEY for the epilogue's",
    )
    group.add_argument("--output", action="append", metavar="FORMAT", help="format of the results")
    group.add_argument(
        "--library",
        action="append",
        metavar="NAME",
        help="library whose kernel computes it, as of hwsim run; none: hwsim's own order of summation",
    )
    group = parser.add_argument_group("problem", "C[m, n] = A[m, k] B[k, n]")
    for name in ("m", "n", "k"):
        group.add_argument(f"--{name}", type=whole(1), metavar=name.upper(), help=f"default {DIFF_SIZE}")
    group.add_argument(
        "--a", type=Path, metavar="A.npy", help="matrix A, with --b (default: both random, drawn in the format)"
    )
    group.add_argument("--b", type=Path, metavar="B.npy", help="matrix B")
    group.add_argument("--input-format", metavar="FORMAT", help="format of matrices that are codes: unsigned integers")
    group.add_argument("--seed", type=whole(0), default=0, metavar="N", help="seed of random matrices (default 0)")
    group.add_argument(
        "--distribution",
        "--operand-distribution",
        type=argument_type(DISTRIBUTION),
        metavar="NAME[:NUMBERS]",
        default=NORMAL,
        help=f"of random matrices: {HELP} (default {NORMAL})",
    )
    of_verb = [option.name for option in PROBLEM if option.name != SPARSITY]  # sizes and operands are declared above
    add_options(
        parser, ("problem", "library", "scheme"), ("error_target", "library", *of_verb), groups={"problem": group}
    )
    group = parser.add_argument_group("what is shown")
    group.add_argument(
        "--element",
        metavar="ROW,COL",
        help="look for the first difference in k there (default: the element with the largest)",
    )
    group.add_argument("--first", type=whole(0), default=10, metavar="N", help="differing elements listed (default 10)")
    group.add_argument("--threads", type=whole(1, MOST), metavar="N", help="host threads (default: all)")
    add_report(group, "--device h200 --device b200 --format fp16")
    group.add_argument("--json", action="store_true", help="one JSON object on standard output")
    group.add_argument("-q", "--quiet", action="store_true", help="no progress bar on standard error")


def execute(arguments: argparse.Namespace) -> int:
    """Compute both, compare, print; 1 when an element differs."""
    if not arguments.device:
        raise InputError("--device is needed, once or twice")
    check_report(arguments.report)
    check_outputs(report_files(arguments.report))
    names = ("device", "scheme", "schedule", "output", "library")
    sides = {name: _both(name, getattr(arguments, name)) for name in names}
    schedules = [schedule(text) for text in sides["schedule"]]
    options = given_options(arguments)
    fmt = options.pop("format", None)
    left, right = (
        Variant(
            device=sides["device"][i] or "",
            scheme=sides["scheme"][i] or DEFAULT_SCHEME,
            format=fmt,
            schedule=schedules[i],
            output=sides["output"][i],
            options=options if library else without_library(options),
            library=library,
        )
        for i, library in enumerate(None if name == NO_LIBRARY else name for name in sides["library"])
    )
    a, b = read_pair(arguments.a, arguments.b)
    if a is not None and b is not None:
        for name, size in (("m", a.shape[0]), ("n", b.shape[1]), ("k", a.shape[1])):
            if getattr(arguments, name) not in (None, size):
                raise InputError(f"--{name} {getattr(arguments, name)}, but the matrices say {size}; leave it out")
    with progress_bar(quiet=arguments.quiet, stage="computing both ways") as progress:
        difference = diff(
            a,
            b,
            left,
            right,
            m=arguments.m,
            n=arguments.n,
            k=arguments.k,
            seed=arguments.seed,
            distribution=arguments.distribution,
            input_format=arguments.input_format,
            element=_element(arguments.element),
            first=arguments.first,
            threads=worker_count(arguments.threads),
            progress=progress,
        )
    if arguments.report is not None:
        diff_page(difference).write(arguments.report)
        if not arguments.quiet:
            print(f"hwsim: {report_note(arguments.report)}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(plain(difference.to_dict()), allow_nan=False))
    else:
        print(difference.to_text())
    return int(difference.differing > 0)


def _both(name: str, values: list[str] | None) -> tuple[str | None, str | None]:
    """The option for the left and the right side."""
    if not values:
        return None, None
    if len(values) > 2:
        raise InputError(f"--{name} was given {len(values)} times; allowed: once for both sides, or twice")
    return values[0], values[-1]


def without_library(options: dict[str, Any]) -> dict[str, Any]:
    """The options without those of a library's call."""
    return {name: value for name, value in options.items() if name not in LibraryOptions.__slots__}


def schedule(text: str | None) -> dict[str, Any] | None:
    """Parse the mapping form of a schedule, None for the default. Raises InputError for invalid text."""
    entries: dict[str, Any] = own_options()["schedule"].read(text) if text is not None else {}
    return entries or None


def _element(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    try:
        row, column = (int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--element {text}: allowed: ROW,COL, two integers from 0") from None
    return row, column
