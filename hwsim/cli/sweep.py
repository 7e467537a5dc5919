"""`hwsim sweep`: a grid of runs as a table, one row per point."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hwsim.cli.option_flags import add_distribution, whole
from hwsim.cli.progress import progress_bar
from hwsim.cli.report_option import add_report, check_report, report_files, report_note
from hwsim.errors import InputError, UnsupportedError
from hwsim.host.files import check_outputs
from hwsim.host.threads import MOST
from hwsim.report.page.sweep_page import sweep_page
from hwsim.report.table_file import table_csv
from hwsim.report.text.sweep_text import refusals
from hwsim.request.declarations import OPERAND_DISTRIBUTION
from hwsim.result import plain
from hwsim.studies.sweep import sweep

#: What an error about an unknown option adds.
UNKNOWN_OPTION = (
    "In the study stand exact: true (bits and errors), and options of a scheme or a run: "
    "options: {moduli: 14, input_format: fp64}"
)
OPTIONS = ("format", OPERAND_DISTRIBUTION)
WAYS = ("device", "scheme", *OPTIONS)
EXAMPLE = """example study:

  devices: [h200, b200]          # a name, a file, or {device: v100, format: fp16}
  shapes: [[4096, 4096, 4096]]   # or {name: up, m: ..., n: ..., k: ...}; or lists m:, n:, k: for a grid;
                                 # or workload: {scalesim: net.csv} or {onnx: net.onnx, dimensions: {batch: 8}}
  options: {format: [bf16, fp16]}

  hwsim sweep study.yaml --out table.csv

variants of a device, without a file:

  hwsim sweep --device my.yaml --set "instructions.mma*.macs_per_cycle=512,1024" --set cores=8,16 --format bf16"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"{EXAMPLE}\n\n{parser.epilog}"
    parser.add_argument(
        "study", nargs="?", type=Path, metavar="STUDY.yaml", help="devices, schemes, shapes, options and seeds"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=V,V",
        help="values of a number of each device, by its path in the file (hwsim devices show NAME --sources), with * "
        "for any text; a value, or a factor as 2x; may be repeated: every combination is run",
    )
    group = parser.add_argument_group("without a study file")
    for name, text in (("device", "a device"), ("scheme", "a scheme"), ("format", "a format of the operands")):
        group.add_argument(f"--{name}", action="append", metavar="NAME", help=f"{text}; may be repeated")
    add_distribution(group)
    for name in "mnk":
        group.add_argument(f"--{name}", nargs="+", type=whole(1), metavar="N", help=f"values of {name} (default 1024)")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write the table: .csv, .jsonl or .parquet (else CSV is printed, on a terminal a table to read)",
    )
    parser.add_argument(
        "--jobs", type=whole(1, MOST), metavar="N", help="processes (default: one per processor); the rows are the same"
    )
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="run the points on the workers of a dask.distributed cluster: tcp://host:8786 (extra sweep)",
    )
    parser.add_argument("--no-cache", action="store_true", help="run every point, and store none")
    add_report(parser, "study.yaml")
    parser.add_argument("--json", action="store_true", help="the table as one JSON object on standard output")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar and no notes on standard error")


def execute(arguments: argparse.Namespace) -> int:
    """Run the points, write or print the table. Raises UnsupportedError, after that, where no point ran."""
    check_report(arguments.report)
    check_outputs({"--out": arguments.out, **report_files(arguments.report)})
    with progress_bar(quiet=arguments.quiet, stage="running points") as progress:
        table = sweep(
            _study(arguments),
            numbers=_numbers(arguments.set),
            out=arguments.out,
            jobs=arguments.jobs,
            scheduler=arguments.scheduler,
            cache=not arguments.no_cache,
            progress=progress,
        )
    if arguments.report is not None:
        sweep_page(table).write(arguments.report)
    if arguments.json:
        print(json.dumps(plain(table.to_dict()), allow_nan=False))
    elif arguments.out is None:
        print(table if sys.stdout.isatty() else table_csv(table.columns, table.rows).removesuffix("\n"))
    if not arguments.quiet:
        for warning in table.warnings:
            print(f"hwsim: warning: {warning}", file=sys.stderr)
        for note in dict.fromkeys(row["cost_note"] for row in table.rows if _lacks_costs(row)):
            print(f"hwsim: warning: no joules or no area: {note}", file=sys.stderr)
        where = "" if arguments.out is None else f"wrote {arguments.out}: "
        print(f"hwsim: {where}{table.counts}", file=sys.stderr)
        if arguments.report is not None:
            print(f"hwsim: {report_note(arguments.report)}", file=sys.stderr)
    if table.refused == len(table.rows):
        points, devices, schemes, reason = refusals(table)[0]
        raise UnsupportedError(f"sweep: no point ran. {points} of {schemes} on {devices}: {reason}")
    return 0


def _lacks_costs(row: Mapping[str, Any]) -> bool:
    """Whether a row has a reason why its energy or area is not known."""
    return bool(row.get("cost_note")) and (row.get("joules") is None or row.get("area_mm2") is None)


def _study(arguments: argparse.Namespace) -> Path | dict[str, Any]:
    """The study file, or the study that the options say."""
    axes = {name: getattr(arguments, name) for name in OPTIONS}
    said = {
        key: value
        for key, value in (
            ("devices", arguments.device),
            ("schemes", arguments.scheme),
            ("options", {name: values for name, values in axes.items() if values}),
            *((size, getattr(arguments, size)) for size in "mnk"),
        )
        if value
    }
    if arguments.study is None:
        if "devices" not in said:
            raise InputError("sweep: give STUDY.yaml, or --device NAME for a study without a file")
        return said
    if said:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in (*WAYS, *"mnk") if getattr(arguments, name))
        raise InputError(f"{flags}: the study file says it; leave the option out, or the file")
    return Path(arguments.study)


def _numbers(wanted: list[str]) -> dict[str, list[Any]]:
    """{path: values} of the options --set PATH=V,V."""
    numbers: dict[str, list[str]] = {}
    for text in wanted:
        path, sign, values = text.partition("=")
        listed = [value.strip() for value in values.strip().removeprefix("[").removesuffix("]").split(",")]
        if not (path and sign and all(listed)):
            raise InputError(f"--set {text}: allowed: PATH=VALUE,VALUE; cores=8,16 or links.GM_SRAM.*=0.5x,2x")
        numbers.setdefault(path, []).extend(listed)
    return {path: [_value(value) for value in values] for path, values in numbers.items()}


def _value(text: str) -> Any:
    """A whole number, another number, or text: a factor."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
