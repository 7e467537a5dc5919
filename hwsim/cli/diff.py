"""`hwsim diff`: one GEMM in two ways (devices, schemes, schedules): which elements differ, and from which k on."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

from hwsim.analysis.inputs import normal
from hwsim.cli.matrices import read_pair
from hwsim.cli.option_flags import add_options, given_options, whole
from hwsim.cli.progress import progress_bar
from hwsim.cli.report_option import add_report, check_report, report_note
from hwsim.errors import InputError
from hwsim.host.files import check_outputs
from hwsim.host.threads import MOST, worker_count
from hwsim.report.page.diff_page import diff_page
from hwsim.request.declarations import DEFAULT_SCHEME, own_options
from hwsim.studies.diff import Variant
from hwsim.studies.questions import diff

SIZE = 256  # m = n = k of random matrices


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
    group = parser.add_argument_group("problem", "C[m, n] = A[m, k] B[k, n]")
    for name in ("m", "n", "k"):
        group.add_argument(f"--{name}", type=whole(1), metavar=name.upper(), help=f"default {SIZE}")
    group.add_argument("--a", type=Path, metavar="A.npy", help="matrix A, with --b (default: both N(0, 1), fp32)")
    group.add_argument("--b", type=Path, metavar="B.npy", help="matrix B")
    group.add_argument("--seed", type=whole(0), default=0, metavar="N", help="seed of random matrices (default 0)")
    add_options(parser, ("library", "scheme"), ("error_target",))
    group = parser.add_argument_group("what is shown")
    group.add_argument(
        "--element", metavar="ROW,COL", help="look for the first difference in k there (default: the worst element)"
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
    check_outputs({"--report": arguments.report})
    sides = {name: _both(name, getattr(arguments, name)) for name in ("device", "scheme", "schedule", "output")}
    schedules = [schedule(text) for text in sides["schedule"]]
    options = given_options(arguments)
    fmt, library = options.pop("format", None), options.pop("library", None)
    left, right = (
        Variant(
            device=sides["device"][i] or "",
            scheme=sides["scheme"][i] or DEFAULT_SCHEME,
            format=fmt,
            schedule=schedules[i],
            output=sides["output"][i],
            options=options,
            library=library,
        )
        for i in range(2)
    )
    a, b = read_pair(arguments.a, arguments.b)
    if a is None or b is None:
        a, b = normal(arguments.m or SIZE, arguments.n or SIZE, arguments.k or SIZE, arguments.seed)
    else:
        for name, size in (("m", a.shape[0]), ("n", b.shape[1]), ("k", a.shape[1])):
            if getattr(arguments, name) not in (None, size):
                raise InputError(f"--{name} {getattr(arguments, name)}, but the matrices say {size}; leave it out")
    with progress_bar(quiet=arguments.quiet) as progress:
        difference = diff(
            a,
            b,
            left,
            right,
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
        print(json.dumps(_finite(difference.to_dict()), allow_nan=False))
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


def _finite(plain: Any) -> Any:
    """The data with null for numbers that JSON cannot hold."""
    if isinstance(plain, dict):
        return {key: _finite(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [_finite(value) for value in plain]
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain
