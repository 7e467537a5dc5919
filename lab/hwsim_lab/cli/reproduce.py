"""`hwsim reproduce PAPER|all [ITEM]`: the papers' claims and figures on simulated devices, as Markdown or JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hwsim.api import fma_chain, matmul, run
from hwsim.cli.option_flags import whole
from hwsim.cli.progress import progress_bar
from hwsim.cli.report_option import add_report, check_report, report_files, report_note
from hwsim.errors import InputError, nearest
from hwsim.host.files import check_outputs
from hwsim.host.threads import MOST
from hwsim.result import plain
from hwsim_lab.cli import error_figures
from hwsim_lab.papers import (
    anchor_data,
    anchors,
    block_size,
    chip_times,
    influences,
    influences_text,
    processes,
    reproduce,
    reproduce_text,
)
from hwsim_lab.papers.anchors_text import rows_text, times_text
from hwsim_lab.papers.ascend910b import (
    FIG11,
    fig11,
    fig11_text,
    guide,
    huawei,
    points_text,
    readings,
    readings_text,
    torch,
)
from hwsim_lab.papers.claims import PAPERS
from hwsim_lab.papers.claims_page import claims_page
from hwsim_lab.papers.experiment import SCALES
from hwsim_lab.papers.offset_sweep import EXPONENTS, markdown, sweep

SAID_FROM_SECONDS = 60  # how long the claims take is said from here on
FIGURES: dict[str, dict[str, str]] = {
    "sgemm-cube": {
        "fig8": "relative error against the offset exponent of the inputs",
        "fig10": "throughput at the best block size, single- and double-buffered",
        "fig11": "throughput against m = n, k and all three, beside native fp32 on a 910B3",
    },
    "ascend910b": {
        "gemm": "Huawei's 8192^3 FP16 and PTO's GEMMs by pipe, and Huawei's tuning guide",
        "torch": "PyTorch's GEMMs on a 910B2",
        "readings": "other readings of the tables of transfers",
    },
}
FIGURES["chips"] = {"times": "public times of GEMMs beside hwsim's, chip by chip and format by format"}
FIGURES["cycles"] = {"anchors": "every published or own measurement of times beside the timing machine's"}
for _paper, _figures in error_figures.FIGURES.items():
    FIGURES[_paper] = {name: what for name, (what, _) in _figures.items()} | FIGURES.get(_paper, {})


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    known = ", ".join(dict.fromkeys((*FIGURES, *PAPERS)))
    parser.add_argument("paper", help=f"one of: {known}; all: the papers' claims")
    parser.add_argument(
        "figure",
        nargs="?",
        metavar="ITEM",
        help="a figure, table or section, as fig10, or experiment:NAME, one run (without: every claim, or a list)",
    )
    group = parser.add_argument_group("claims")
    group.add_argument("--scale", choices=SCALES, help="quick (default): minutes; full: the paper's sizes")
    group.add_argument(
        "--out", type=Path, metavar="DIR", help="claims.json, a page per paper, data, plots (extra plot)"
    )
    group.add_argument(
        "--sensitivity",
        action="store_true",
        default=None,
        help="how far assumptions move what was measured, and which verdicts turn",
    )
    group.add_argument(
        "--jobs", type=whole(1, MOST), metavar="N", help="processes (default 1, whose products use every processor)"
    )
    add_report(group, "sgemm-cube")
    parser.add_argument(
        "--size", type=int, help="m = n (fig8, default 128) or m = n = k (fig10, default 5632; fig11) or k (errors)"
    )
    parser.add_argument("--device", metavar="NAME", action="append", help="accuracy, bf16x9: this device (repeatable)")
    parser.add_argument("--scheme", metavar="NAME", action="append", help="accuracy, bf16x9: this scheme (repeatable)")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


OF_CLAIMS, OF_FIGURES = ("scale", "out", "report", "sensitivity", "jobs"), ("size", "device", "scheme")


def execute(arguments: argparse.Namespace) -> int:
    """Run one experiment and print it; returns the exit code."""
    paper, figures = arguments.paper, FIGURES.get(arguments.paper, {})
    for_claims, for_figure = (
        [name for name in names if getattr(arguments, name) is not None] for names in (OF_CLAIMS, OF_FIGURES)
    )
    has_claims = paper == "all" or paper in PAPERS
    if for_claims and not has_claims:
        raise InputError(f"--{for_claims[0]} is for claims: of {', '.join(PAPERS)}, or all")
    if for_figure and (for_claims or not figures):
        raise InputError(f"--{for_figure[0]} is not for claims, whose settings are the papers'; leave it out")
    if has_claims and not for_figure and (for_claims or arguments.figure not in figures):
        return _claims(arguments)
    return _figure(arguments, has_claims and not for_figure)


def _figure(arguments: argparse.Namespace, has_claims: bool) -> int:
    """Print one figure; has_claims: and the claims of that item of the paper."""
    figures = FIGURES.get(arguments.paper)
    if figures is None:
        known = list(dict.fromkeys((*FIGURES, *PAPERS, "all")))
        raise InputError(f"no paper {arguments.paper!r}; there are {', '.join(known)}{nearest(arguments.paper, known)}")
    if arguments.figure is None and len(figures) == 1:
        (arguments.figure,) = figures
    if arguments.figure is None:
        print("\n".join(f"{name}: {what}" for name, what in figures.items()))
        return 0
    if arguments.figure not in figures:
        raise InputError(
            f"{arguments.paper} has no figure {arguments.figure!r} here; there are {', '.join(figures)}"
            f"{nearest(arguments.figure, list(figures))}"
        )
    if arguments.size is not None and arguments.size < 1:
        raise InputError(f"--size {arguments.size}: allowed: at least 1")
    work: dict[str, Callable[[argparse.Namespace], tuple[list[dict[str, Any]], str]]] = {
        "fig8": _fig8,
        "fig10": _fig10,
        "fig11": _fig11,
        "gemm": _gemm,
        "torch": _torch,
        "readings": _readings,
        "anchors": _anchors,
        "times": _times,
    }
    own = error_figures.FIGURES.get(arguments.paper, {}).get(arguments.figure)
    points, text = (work[arguments.figure] if own is None else own[1])(arguments)
    if arguments.json:
        found = {"schema": "hwsim.reproduce/1", "paper": arguments.paper, "figure": arguments.figure, "points": points}
        print(json.dumps(plain(found), allow_nan=False))
        return 0
    print(text, end="")
    if has_claims and reproduce.has_item(arguments.paper, arguments.figure):
        print()
        return _claims(arguments)
    return 0


def _claims(arguments: argparse.Namespace) -> int:
    """Measure and judge claims; the exit code is 0 whatever the verdicts."""
    papers = PAPERS if arguments.paper == "all" else (arguments.paper,)
    scale = arguments.scale or SCALES[0]
    check_report(arguments.report)
    check_outputs(report_files(arguments.report))
    if arguments.out is not None:
        reproduce_text.check_folder(arguments.out)
    jobs = arguments.jobs or 1
    _say(reproduce.seconds_left(papers, arguments.figure, scale), "")
    with progress_bar(quiet=False) as progress:
        if jobs > 1:
            processes.run(papers, arguments.figure, scale=scale, jobs=jobs, progress=progress)
        left = None if jobs > 1 else progress
        found = reproduce.reproduce(papers, arguments.figure, scale=scale, progress=left)
    if arguments.sensitivity:
        _say(influences.seconds_left(found, scale), " for the assumptions")
        with progress_bar(quiet=False) as progress:
            found = influences.with_influences(found, scale, progress, jobs=jobs)
    written = [] if arguments.out is None else reproduce_text.write(arguments.out, found)
    if arguments.report is not None:
        title = " ".join(x for x in ("Claims of", arguments.paper, arguments.figure) if x)
        claims_page(title, found).write(arguments.report)
        print(f"hwsim: {report_note(arguments.report)}", file=sys.stderr)
    if arguments.json:
        claims = [one.to_dict() for one in found.outcomes]
        print(json.dumps(plain({"schema": "hwsim.claims/1", "scale": scale, "claims": claims}), allow_nan=False))
        return 0
    print(reproduce_text.table(found.outcomes) + "\n" + reproduce_text.summary(found.outcomes))
    print(reproduce_text.by_kind(found.outcomes), end="")
    if arguments.sensitivity:
        print("\n" + influences_text.table(found.outcomes), end="")
    if written:
        print(f"\n{len(written)} files in {arguments.out}")
    return 0


def _say(seconds: float, of: str) -> None:
    """How long a run takes, where that is long."""
    if seconds >= SAID_FROM_SECONDS:
        print(
            f"hwsim: about {seconds / 60:.0f} minutes{of} on 2 cores; a stopped run goes on where it was",
            file=sys.stderr,
        )


def _fig8(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], str]:
    points = []
    with progress_bar(quiet=False) as progress:
        for point in sweep(matmul, fma_chain, size=arguments.size or 128):
            points.append(point)
            if progress is not None:
                progress(len(points) / (2 * len(EXPONENTS)))
    return [asdict(point) for point in points], markdown(points)


def _fig10(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], str]:
    found = list(block_size.throughput(run, arguments.size or block_size.EDGE))
    return [asdict(point) for point in found], block_size.markdown(found)


def _anchors(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], str]:
    data = anchor_data.read()
    rows, sets = anchors.rows(data), anchors.sets(data)
    points: list[dict[str, Any]] = [asdict(x) | {"error": x.error, "passes": x.passes} for x in rows]
    points += [
        {
            "id": f"{times.device} {times.format} {times.role}{' columns' if times.columns else ''}",
            "mean_absolute_error": anchors.mean_absolute(x.plain),
            "mean_absolute_error_large": anchors.mean_absolute(anchors.large(x.plain)),
            "mean_absolute_error_cut": anchors.mean_absolute(x.cut),
            "mean_absolute_error_large_cut": anchors.mean_absolute(anchors.large(x.cut)),
            "passes": x.passes(times.tolerance),
        }
        for times, x in sets
    ]
    return points, rows_text(rows) + "\n" + times_text(sets)


def _times(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], str]:
    with progress_bar(quiet=arguments.json) as progress:
        rows = chip_times.chip_times(anchor_data.read(), progress)
    points = [
        {"chip": x.chip, "format": x.format, "state": x.state, "error": x.row.error, **asdict(x.row)} for x in rows
    ]
    return points, chip_times.page_text(rows)


def _fig11(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], str]:
    n = arguments.size
    found = list(fig11(FIG11 if n is None else {"m = n = k": [(n, n, n)]}))
    return [asdict(point) for point in found], fig11_text(found)


def _gemm(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], str]:
    found = huawei() + guide()
    return [asdict(point) for point in found], points_text(found)


def _torch(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], str]:
    found = torch()
    return [asdict(point) for point in found], points_text(found)


def _readings(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], str]:
    found = list(readings())
    points = [{"changed": name, "gemm": asdict(run), "pto_us": times} for name, run, times in found]
    return points, readings_text(found)
