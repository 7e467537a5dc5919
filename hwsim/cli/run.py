"""`hwsim run`: one GEMM by one scheme on one device."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from hwsim.cli.matrices import read_pair
from hwsim.cli.options import add_problem, positive, program_arguments, whole
from hwsim.cli.progress import progress_bar
from hwsim.errors import InputError, UnsupportedError
from hwsim.result import Result, plain
from hwsim.threads import MOST


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "--device", default="ascend910a", metavar="NAME", help="device name or YAML file (default ascend910a)"
    )
    parser.add_argument("--scheme", default="native", metavar="NAME", help="scheme (default native); see hwsim schemes")
    parser.add_argument(
        "--error-target",
        type=positive,
        metavar="E",
        help="with --scheme auto: the fastest scheme with a predicted error of at most E, relative, Frobenius norm",
    )
    parser.add_argument("--a", type=Path, metavar="A.npy", help="matrix A, with --b (default: both N(0, 1), fp32)")
    parser.add_argument("--b", type=Path, metavar="B.npy", help="matrix B")
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="seed of random matrices (default 0)")
    add_problem(parser)
    group = parser.add_argument_group("what is done")
    group.add_argument(
        "--no-exact", action="store_true", help="no bits and no error: cycles alone, sizes of any magnitude"
    )
    group.add_argument("--no-timing", action="store_true", help="no cycles: bits and error alone")
    group.add_argument(
        "--clock-mhz", type=positive, metavar="MHZ", help="core clock for the cycles' time (default: the device file's)"
    )
    group.add_argument(
        "--launch-overhead", action="store_true", help="seconds take in the device's launch overhead of every kernel"
    )
    group.add_argument(
        "--threads",
        type=whole(1, MOST),
        metavar="N",
        help="host threads for the bits (default: all; the bits do not depend on it)",
    )
    group = parser.add_argument_group("output")
    group.add_argument(
        "--out", type=Path, metavar="C.npy", help="write the product; the file appears whole or not at all"
    )
    group.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="write a trace: .json (open it in ui.perfetto.dev), .csv or .npz (NumPy columns)",
    )
    group.add_argument(
        "--what-if",
        action="store_true",
        help="also what to speed up (cycles if one part took no time), and the roofline",
    )
    group.add_argument("--json", action="store_true", help="one JSON object on standard output, nothing else there")
    group.add_argument("-q", "--quiet", action="store_true", help="no progress bar and no notes on standard error")


def execute(arguments: argparse.Namespace) -> int:
    """Run, write the files, print the report."""
    from hwsim.api import AUTO, run
    from hwsim.devices import load

    _check_files(arguments)
    a, b = read_pair(arguments.a, arguments.b)
    chip = load(arguments.device)
    is_short = arguments.no_exact and arguments.scheme != AUTO
    with progress_bar(quiet=arguments.quiet or is_short) as progress:
        result = run(
            a,
            b,
            device=chip,
            scheme=arguments.scheme,
            error_target=arguments.error_target,
            exact=not arguments.no_exact,
            timing=not arguments.no_timing,
            clock_mhz=arguments.clock_mhz,
            launch_overhead=arguments.launch_overhead,
            threads=arguments.threads,
            seed=arguments.seed,
            progress=progress,
            **program_arguments(arguments),
        )
        if arguments.what_if and result.cycles is None:
            raise UnsupportedError(f"--what-if: there are no cycles: {result.timing_note}")
        if arguments.json:
            text = _json(result, arguments.what_if)
        else:
            from hwsim.report.run_text import run_text

            at_clock = (
                chip if arguments.clock_mhz is None else chip.model_copy(update={"clock_mhz": arguments.clock_mhz})
            )
            text = run_text(result, at_clock, _inputs(arguments))
            if arguments.what_if:
                from hwsim.report.whatif_text import roofline_text, what_if_text

                assert result.what_if is not None and result.roofline is not None
                text += f"\n\n{what_if_text(result.what_if)}\n\n{roofline_text(result.roofline)}"
    notes = []
    if arguments.trace is not None:
        notes.append(_write_trace(arguments.trace, result))
    if arguments.out is not None:
        from hwsim.files import write_whole

        assert result.c is not None
        product = result.c
        write_whole(arguments.out, lambda file: np.save(file, product, allow_pickle=False))
        notes.append(f"wrote {arguments.out}: C, {result.m} x {result.n} {product.dtype}")
    print(text)
    if not arguments.quiet:
        for note in notes:
            print(f"hwsim: {note}", file=sys.stderr)
    return 0


def _check_files(arguments: argparse.Namespace) -> None:
    """Refuse what could not be written, before the work."""
    from hwsim.files import check_outputs

    if arguments.out is not None and arguments.no_exact:
        raise InputError("--out needs the bits: leave out --no-exact")
    if arguments.trace is not None:
        from hwsim.trace.trace import check_suffix

        if arguments.no_timing:
            raise InputError("--trace needs cycles: leave out --no-timing")
        check_suffix(arguments.trace)
    check_outputs({"--out": arguments.out, "--trace": arguments.trace})


def _json(result: Result, with_what_if: bool) -> str:
    if not with_what_if:
        return result.to_json()
    import dataclasses
    import json

    assert result.what_if is not None and result.roofline is not None
    more = {
        "what_if": [dataclasses.asdict(part) for part in result.what_if],
        "roofline": dataclasses.asdict(result.roofline),
    }
    return json.dumps(plain(result.to_dict() | more), allow_nan=False)


def _inputs(arguments: argparse.Namespace) -> str:
    if arguments.a is not None:
        return f"A from {arguments.a}, B from {arguments.b}"
    return "no operands" if arguments.no_exact else f"A and B random N(0, 1), seed {arguments.seed}"


def _write_trace(path: Path, result: Any) -> str:
    trace = result.trace
    if trace is None:
        raise UnsupportedError(f"--trace: there are no cycles to trace: {result.timing_note}")
    trace.write(path)
    cut = "" if trace.complete else f", cut at the first {len(trace):,} instructions"
    return f"wrote {path}: trace of {len(trace):,} instructions{cut}"
