"""`hwsim compare`: kernels that a profiler measured, beside the simulated ones."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from hwsim.cli.option_flags import add_options, given_options, positive
from hwsim.cli.progress import progress_bar
from hwsim.host.files import check_outputs, write_whole
from hwsim.libraries.recording.kernel_map import read_kernel_map
from hwsim.libraries.recording.ncu_csv import read_ncu_csv
from hwsim.machines.l2_state import COLD, SERIES, STATES
from hwsim.report.text.measured_text import check_measured_plot, measured_dict, measured_text, write_measured_plot
from hwsim.result import plain
from hwsim.studies.measured import compare_measured

EXAMPLE = """example:

  ncu --csv --page raw --clock-control none --cache-control none --metrics gpu__time_duration.sum \\
      --log-file report.csv ./app
  hwsim compare --ncu report.csv --map kernels.yaml --device h200 --library cublas

kernels.yaml, where the report has no added columns m, n, k:

  "gemm.*128x256": {m: 4096, n: 4096, k: 4096, format: bf16}   # a regular expression of the kernel's name"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"{EXAMPLE}\n\n{parser.epilog}"
    parser.add_argument(
        "--ncu",
        type=Path,
        required=True,
        metavar="REPORT.csv",
        help="Nsight Compute's CSV, of --page raw or --page details; columns m, n, k, format, scheme, a_layout, "
        "b_layout that you add say each kernel's GEMM",
    )
    parser.add_argument(
        "--map", type=Path, metavar="KERNELS.yaml", help="GEMMs by regular expressions of kernels' names"
    )
    parser.add_argument("--device", required=True, metavar="NAME", help="device name or YAML file")
    parser.add_argument(
        "--clock-mhz",
        type=positive,
        metavar="MHZ",
        help="core clock at which the kernels were measured: ncu's base clock, unless it ran with --clock-control none "
        "(default: the clock under load)",
    )
    parser.add_argument(
        "--l2",
        choices=tuple(STATES),
        help="what L2 held before each kernel: cold, unless ncu ran with --cache-control none (default: cold with "
        "--clock-mhz, else series)",
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.svg", help="write simulated over measured time (needs matplotlib)"
    )
    parser.add_argument("--json", action="store_true", help="everything as one JSON object on standard output")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar and no notes on standard error")
    add_options(parser, ("library",))


def execute(arguments: argparse.Namespace) -> int:
    """Read the report, run the GEMMs, print the comparison."""
    plot: Path | None = arguments.plot
    if plot is not None:
        check_measured_plot(plot)
    check_outputs({"--plot": plot})
    rows = read_ncu_csv(arguments.ncu)
    if arguments.map is not None:
        rows = read_kernel_map(arguments.map).applied(rows)
    options = given_options(arguments)
    if arguments.clock_mhz is not None:
        options["clock_mhz"] = arguments.clock_mhz
    options["l2"] = arguments.l2 or (SERIES if arguments.clock_mhz is None else COLD)
    with progress_bar(quiet=arguments.quiet, stage="timing kernels") as progress:
        comparison = compare_measured(rows, device=arguments.device, progress=progress, **options)
    if plot is not None:
        write_whole(plot, lambda file: write_measured_plot(comparison, file, plot.suffix))
    if arguments.json:
        print(json.dumps(plain(measured_dict(comparison)), allow_nan=False))
    else:
        print(measured_text(comparison))
    if plot is not None and not arguments.quiet:
        print(f"hwsim: wrote {plot}: simulated over measured time", file=sys.stderr)
    return 0
