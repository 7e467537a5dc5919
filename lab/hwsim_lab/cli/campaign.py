"""`hwsim golden campaign`: this machine's GPU beside hwsim at length, with a summary."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from hwsim.cli.gpu_options import add_gpu_options, gpu_choice
from hwsim.cli.option_flags import whole
from hwsim.errors import InputError
from hwsim.golden import simulated
from hwsim.host.files import make_folder
from hwsim.host.threads import MOST
from hwsim_lab.golden.campaign import Summary, campaign_on_gpu


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the action."""
    add_gpu_options(parser, "hwsim's device (default: the one that the GPU's name contains)")
    parser.add_argument(
        "--outputs", type=float, default=1e9, metavar="N", help="results to compare, then stop (default 1e9)"
    )
    parser.add_argument("--seconds", type=float, default=480.0, metavar="S", help="stop after so long (default 480)")
    parser.add_argument("--threads", type=whole(1, MOST), metavar="N", help="host threads (default: all)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write campaign.json and campaign.md there")


def execute(arguments: argparse.Namespace) -> int:
    """Run the campaign and print its summary; 1 where a bit differs."""
    if arguments.outputs < 1 or arguments.seconds <= 0:
        raise InputError(
            f"--outputs {arguments.outputs:g} --seconds {arguments.seconds:g}: allowed: at least 1, above 0"
        )

    def tell(summary: Summary) -> None:
        print(
            f"hwsim: {summary.seconds:.0f} s: {summary.results:,} results, {summary.mismatches:,} differ",
            file=sys.stderr,
            flush=True,
        )

    chosen = gpu_choice(arguments)
    if arguments.out is not None:
        make_folder(arguments.out)
    summary = campaign_on_gpu(
        simulated.mma,
        has=simulated.has,
        outputs=int(arguments.outputs),
        seconds=arguments.seconds,
        threads=arguments.threads,
        out=arguments.out,
        progress=tell,
        **chosen,
    )
    if arguments.json:
        print(json.dumps({"schema": "hwsim.golden-campaign/1"} | summary.to_json()))
    else:
        print(summary.to_markdown(), end="")
        for miss in summary.first:
            print(miss.replay)
    if not summary.results:
        raise InputError("the campaign compared no result; give it more --seconds")
    return int(summary.mismatches > 0)
