"""`hwsim run`: one GEMM by one scheme on one device."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hwsim.analysis.changed_numbers import ChangedNumbers
from hwsim.analysis.inputs import words_of_draw
from hwsim.api import run
from hwsim.cli.expected import differing, expected
from hwsim.cli.matrices import read_pair
from hwsim.cli.option_flags import TITLES, add_options, given_options, positive, whole
from hwsim.cli.progress import ProgressBar, is_beside_output, progress_bar
from hwsim.cli.report_option import add_report, check_report, report_files, report_note
from hwsim.cli.saved_run import SavedRun, read_saved
from hwsim.cli.trace_options import check_trace, gantt_asked_for, most_waited, trace_asked_for
from hwsim.cli.verb_parser import add_flag
from hwsim.compute.call import ProductCall
from hwsim.compute.times import why_no_cycles
from hwsim.errors import InputError, MismatchError, UnsupportedError
from hwsim.host.files import check_outputs, write_whole
from hwsim.report.page.run_page import run_page
from hwsim.report.text.run_text import problem_text, run_text
from hwsim.report.text.values_text import values_text
from hwsim.report.text.whatif_text import changed_text, roofline_text, what_if_text
from hwsim.request.declarations import (
    AUTO,
    CLOCK_BRIEF,
    DEFAULT_DEVICE,
    DEFAULT_SCHEME,
    OPERAND_DISTRIBUTION,
)
from hwsim.result import Result, plain
from hwsim.trace.trace import FORMATS

BETWEEN_CHANGES = re.compile(r",(?=[^,]*=)")  # the comma of PATH=2x,PATH=2x
DRAWN = ("seed", OPERAND_DISTRIBUTION)  # options that ask for random operands
NEED_CYCLES = ("what_if", "trace", "gantt")  # options whose output is of cycles


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    groups = {name: parser.add_argument_group(*TITLES[name]) for name in ("problem", "machine")}
    output = parser.add_argument_group("output")
    _add_problem(groups["problem"])
    _add_machine(groups["machine"])
    _add_output(output)
    kinds = ("problem", "epilogue", "order of summation", "library", "region", "mapping", "scheme", "machine")
    add_options(parser, kinds, groups=groups)


def _add_problem(group: argparse._ArgumentGroup) -> None:
    add_flag(
        group,
        "--device",
        brief=f"device or YAML file ({DEFAULT_DEVICE})",
        metavar="NAME",
        help=f"device name or YAML file (default {DEFAULT_DEVICE})",
    )
    add_flag(
        group,
        "--scheme",
        brief=f"scheme ({DEFAULT_SCHEME}), auto, or FILE.py:NAME",
        metavar="NAME",
        help=f"scheme (default {DEFAULT_SCHEME}), or auto, or FILE.py:NAME; see hwsim schemes",
    )
    add_flag(
        group,
        "--gemm",
        brief="repeat the GEMM of a saved record",
        type=Path,
        metavar="FILE.json",
        help="run the GEMM of this record again (see --save-gemm), with its device, scheme, clock and options",
    )
    for name, text in (
        ("a", "matrix A, with --b (default: both N(0, 1), fp32); or a stack of matrices"),
        ("b", "B, as --a"),
    ):
        add_flag(
            group,
            f"--{name}",
            brief="matrices (both N(0, 1), fp32)",
            type=Path,
            metavar=f"{name.upper()}.npy",
            help=text,
        )


def _add_machine(group: argparse._ArgumentGroup) -> None:
    for flag, text in (
        (
            "--no-exact",
            "no bits and no error: cycles alone, sizes of any magnitude. Operands in memory are in --input-format, "
            "else in --format, so that nothing is cast, else in fp32 and cast",
        ),
        ("--no-timing", "no cycles: bits and error only"),
    ):
        add_flag(group, flag, brief="cycles alone; bits alone", action="store_true", help=text)
    add_flag(
        group,
        "--clock-mhz",
        brief=CLOCK_BRIEF,
        type=positive,
        metavar="MHZ",
        help="core clock of the run, whatever the load (default: under load); L2 before the run stays as --l2 says",
    )
    add_flag(
        group,
        "--launch-overhead",
        brief="seconds with the launches of kernels",
        action="store_true",
        help="seconds take in the device's launch overhead of every kernel",
    )


def _add_output(group: argparse._ArgumentGroup) -> None:
    add_flag(
        group,
        "--out",
        brief="write the product",
        type=Path,
        metavar="C.npy",
        help="write the product; the file appears whole or not at all",
    )
    add_flag(
        group,
        "--trace",
        brief="write a trace (.pftrace, .json, .csv)",
        type=Path,
        metavar="FILE",
        help="write a trace; the suffix says how: "
        + ", ".join(f"{suffix} ({what})" for suffix, what in FORMATS.items())
        + ". Example: --trace run.pftrace --trace-core 0 --trace-to 50000; open it in ui.perfetto.dev",
    )
    parts = (
        ("core", "CORE", 0, "trace this core alone (default: one core of each kind)"),
        ("from", "CYCLES", 0, "trace from this cycle on (default 0)"),
        ("to", "CYCLES", 1, "trace up to this cycle (default: the end)"),
    )
    for name, metavar, least, text in parts:
        add_flag(group, f"--trace-{name}", brief="part of it", type=whole(least), metavar=metavar, help=text)
    add_flag(
        group,
        "--gantt",
        brief="engines of one core over time, as text",
        action="store_true",
        help="also what the engines of one core do over time, as text: the first tile, and the steady state",
    )
    add_flag(
        group,
        "--save-gemm",
        brief="write its record; compare its bits",
        type=Path,
        metavar="FILE.json",
        help="write the resolved record: everything that fixes bits and cycles",
    )
    add_flag(
        group,
        "--expect",
        brief="write its record; compare its bits",
        metavar="SHA256|FILE.json",
        help="compare the result with a SHA-256, or operands and result with the JSON of another run (hwsim run "
        "--json); exit code 1 where they differ",
    )
    add_report(group, "--m 512 --n 512 --k 512")
    add_flag(
        group,
        "--what-if",
        brief="what to speed up; with another number",
        nargs="?",
        const="",
        action="append",
        metavar="PATH=VALUE",
        help="also the what-if analysis (cycles if one part took no time), and the roofline; with PATH=2x or "
        "PATH=VALUE the cycles with that number of the device file (paths: hwsim devices show NAME --sources); "
        "repeatable, or with commas: --what-if hbm.bytes_per_second=0.5x",
    )
    add_flag(
        group,
        "--json",
        brief="JSON alone; no progress, no notes",
        action="store_true",
        help="one JSON object on standard output, nothing else there",
    )
    add_flag(
        group,
        "-q",
        "--quiet",
        brief="JSON alone; no progress, no notes",
        action="store_true",
        help="no progress and no notes on standard error",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Run, write the files, print the report."""
    _check_files(arguments)
    wanted = None if arguments.expect is None else expected(arguments.expect)
    a, b = read_pair(arguments.a, arguments.b, takes_stacks=True)
    options = given_options(arguments)
    what: dict[str, Any] = {"exact": not arguments.no_exact, "timing": not arguments.no_timing}
    if arguments.gemm is not None:
        if arguments.clock_mhz is not None:
            raise InputError("--clock-mhz: the record says the clock; leave it out beside --gemm")
        saved = read_saved("--gemm", arguments.gemm, "a record as --save-gemm writes it")
        what["gemm"] = saved.record
        _say_drawn(arguments, options, saved)
    elif arguments.clock_mhz is not None:
        what["clock_mhz"] = arguments.clock_mhz
    what |= {name: x for name in ("device", "scheme") if (x := getattr(arguments, name)) is not None}
    with progress_bar(quiet=arguments.quiet) as progress:
        watcher = _Watcher(arguments, progress)
        result = run(a, b, launch_overhead=arguments.launch_overhead, progress=watcher, **what, **options)
        watcher.at("errors, times and the report")
        by_library, changes = result.times.by_library, _changes(arguments.what_if)
        changed = result.with_numbers(changes) if changes else None
        if arguments.json:
            text = _json(result, arguments.what_if, changed)
        else:
            text = run_text(result, watcher.problem)
            if changed is not None:
                below = "below: the device without this change"
                text = f"{changed_text(changed, by_library=by_library)}\n\n{below}\n\n{text}"
            if result.values is not None:
                text += f"\n\n{values_text(result.values, result.exact_values)}"
            if "" in (arguments.what_if or ()):
                assert result.what_if is not None and result.roofline is not None
                text += f"\n\n{what_if_text(result.what_if, by_library=by_library)}"
                text += f"\n\n{roofline_text(result.roofline)}"
    notes = []
    if arguments.gantt:
        text += f"\n\n{gantt_asked_for(arguments, result.traced)}"
    if arguments.trace is not None:
        trace = trace_asked_for(arguments, result.traced)
        with progress_bar(quiet=arguments.quiet) as progress:
            trace.write(arguments.trace, progress)
        notes.append(f"wrote {arguments.trace}: trace of {len(trace):,} instructions{most_waited(trace)}")
    if arguments.out is not None:
        assert result.c is not None
        product = result.c
        write_whole(arguments.out, lambda file: np.save(file, product, allow_pickle=False))
        notes.append(f"wrote {arguments.out}: C, {' x '.join(map(str, product.shape))} {product.dtype}")
    if arguments.save_gemm is not None:
        record = result.gemm.to_json() + "\n"
        write_whole(arguments.save_gemm, lambda file: file.write(record.encode()))
        notes.append(f"wrote {arguments.save_gemm}: the record of this GEMM")
    if arguments.report is not None:
        with progress_bar(quiet=arguments.quiet) as progress:
            run_page(result, progress, changed=changed).write(arguments.report)
        notes.append(report_note(arguments.report))
    print(text)
    if not arguments.quiet:
        for note in notes:
            print(f"hwsim: {note}", file=sys.stderr)
    if wanted is not None:
        told = differing(wanted, result)
        if told:
            raise MismatchError(f"--expect {arguments.expect}: {told}")
        if not arguments.quiet:
            print(f"hwsim: --expect {arguments.expect}: equal", file=sys.stderr)
    return 0


class _Watcher:
    """Hears how far the run is: the bar shows the problem before the computation, then the stages.

    problem: what is computed, as text, once that is known.
    """

    def __init__(self, arguments: argparse.Namespace, bar: ProgressBar | None) -> None:
        self.arguments, self.bar, self.problem = arguments, bar, ""
        self.at("choosing tile and instruction" if arguments.scheme != AUTO else "choosing a scheme")

    def __call__(self, share: float) -> None:
        if self.bar is not None:
            self.bar(share)

    def at(self, stage: str) -> None:
        """Say what is done now."""
        if self.bar is not None:
            self.bar.at(stage)

    def resolved(self, call: ProductCall) -> None:
        """Refuse what needs cycles where there are none, then show the problem."""
        asked = [f"--{name.replace('_', '-')}" for name in NEED_CYCLES if getattr(self.arguments, name)]
        if asked and (reason := why_no_cycles(call)):
            raise UnsupportedError(f"{asked[0]}: there are no cycles: {reason}")
        request, inputs = call.request, _inputs(self.arguments, call)
        sizes, gemm = call.operands.sizes, call.resolved.gemm
        self.problem = problem_text(sizes, request.scheme.name, request.device, inputs, gemm)
        if self.bar is not None and not self.arguments.json and not is_beside_output():  # the report has it too
            self.bar.show(self.problem)
        self.at("times" if self.arguments.no_exact else "computing the bits")


def _check_files(arguments: argparse.Namespace) -> None:
    """Refuse output files that could not be written, before the work."""
    for option in ("out", "expect"):
        if getattr(arguments, option) is not None and arguments.no_exact:
            raise InputError(f"--{option} needs the bits: leave out --no-exact")
    for option in ("trace", "gantt"):
        if getattr(arguments, option) and arguments.no_timing:
            raise InputError(f"--{option} needs cycles: leave out --no-timing")
    check_trace(arguments)
    check_report(arguments.report)
    files = {f"--{name.replace('_', '-')}": getattr(arguments, name) for name in ("out", "trace", "save_gemm")}
    check_outputs(files | report_files(arguments.report))


def _changes(wanted: list[str] | None) -> dict[str, str]:
    """{path: value} of the options --what-if PATH=VALUE. Raises InputError for one without either."""
    changes: dict[str, str] = {}
    for text in (part for option in wanted or () for part in BETWEEN_CHANGES.split(option)):
        path, sign, value = text.partition("=")
        if text and not (path and sign and value):
            raise InputError(f"--what-if {text}: allowed: PATH=2x, PATH=VALUE, or nothing; hbm.bytes_per_second=0.5x")
        changes |= {path: value} if text else {}
    return changes


def _json(result: Result, wanted: list[str] | None, changed: ChangedNumbers | None) -> str:
    if not wanted:
        return result.to_json()
    more: dict[str, Any] = {}
    if changed is not None:
        more["changed"] = dataclasses.asdict(changed)
    if "" in wanted:
        assert result.what_if is not None and result.roofline is not None
        more["what_if"] = [dataclasses.asdict(part) for part in result.what_if]
        more["roofline"] = dataclasses.asdict(result.roofline)
    return json.dumps(plain(result.to_dict() | more), allow_nan=False)


def _inputs(arguments: argparse.Namespace, call: ProductCall) -> str:
    if arguments.a is not None:
        return f"A from {arguments.a}, B from {arguments.b}"
    if arguments.no_exact:
        return f"no operands, {call.resolved.gemm.problem.a.format} in memory assumed"
    problem = call.options.problem
    words = words_of_draw(problem.operand_distribution, call.resolved.gemm.problem.a.format)
    return f"A and B random {words}, seed {problem.seed}"


def _say_drawn(arguments: argparse.Namespace, options: Mapping[str, Any], saved: SavedRun) -> None:
    """Warn of a record that is repeated with random operands nobody asked for: it holds none. In the JSON of a run it
    stands beside what drew them.
    """
    asked = arguments.a is not None or arguments.no_exact or any(name in options for name in DRAWN)
    if not asked and not arguments.quiet:
        flags = saved.draw_flags
        way = f"{flags} draws the ones of that run again" if flags else "give --a and --b, or --seed"
        print(f"hwsim: warning: a record holds no operands: A and B are drawn anew; {way}", file=sys.stderr)
