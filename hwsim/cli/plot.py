"""`hwsim plot`: a figure of errors, rates, tiles or devices, as a file; without a kind it lists them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwsim import plots
from hwsim.api import run
from hwsim.cli.progress import progress_bar
from hwsim.devices import load
from hwsim.errors import InputError, nearest
from hwsim.report.plot_style import checked_plot_path, save
from hwsim.report.text.words import table
from hwsim.studies.questions import tune
from hwsim.studies.sweep import sweep

SIZES = (256, 512, 1024, 2048, 4096, 8192)
DEPTHS = (16, 64, 256, 1024, 4096)
SMALL = (32, 64, 128, 256, 512)
EDGE = 64  # rows and columns of the products whose error is drawn over K
Draw = Callable[[argparse.Namespace, Any], Any]


@dataclass(frozen=True, slots=True)
class PlotKind:
    """A kind of plot: what it shows, and how it is drawn from the verb's arguments and a progress callback."""

    shows: str
    draw: Draw


def _rows(arguments: argparse.Namespace, progress: Any, shapes: list[list[int]], *, exact: bool) -> Any:
    study: dict[str, Any] = {"devices": arguments.device, "schemes": arguments.scheme, "shapes": shapes, "exact": exact}
    if arguments.format:
        study["options"] = {"format": arguments.format}
    rows = sweep(study, progress=progress).rows
    reasons = {(row["device"], row["scheme"]): row["refused"] for row in rows if row["refused"]}
    for (device, scheme), reason in reasons.items():
        print(f"hwsim: left out: {scheme} on {device}: {reason}", file=sys.stderr)
    return rows


def _error_over_k(arguments: argparse.Namespace, progress: Any) -> Any:
    shapes = [[EDGE, EDGE, k] for k in arguments.at or DEPTHS]
    return plots.error_over_k(_rows(arguments, progress, shapes, exact=True))


def _error_over_size(arguments: argparse.Namespace, progress: Any) -> Any:
    return plots.error_over_size(
        _rows(arguments, progress, [[size, size, size] for size in arguments.at or SMALL], exact=True)
    )


def _error_over_exponent(arguments: argparse.Namespace, progress: Any) -> Any:
    options = {"format": arguments.format[0]} if arguments.format else {}
    exponents = {"exponents": arguments.at} if arguments.at else {}
    return plots.error_over_exponent(arguments.device[0], arguments.scheme, progress=progress, **exponents, **options)


def _tflops_over_size(arguments: argparse.Namespace, progress: Any) -> Any:
    return plots.tflops_over_size(
        _rows(arguments, progress, [[size, size, size] for size in arguments.at or SIZES], exact=False)
    )


def _tiles(arguments: argparse.Namespace, progress: Any) -> Any:
    device, scheme, size = arguments.device[0], arguments.scheme[0], (arguments.at or [2048])[0]
    form = arguments.format[0] if arguments.format else None
    landscape = tune(device, size, size, size, scheme=scheme, format=form, progress=progress)
    return plots.tile_landscape(landscape, f"{device}, {' '.join([scheme, *(arguments.format or ())])}, {size}^3")


def _rooflines(arguments: argparse.Namespace, progress: Any) -> Any:
    form = arguments.format[0] if arguments.format else load(arguments.device[0]).default_format
    size = {name: (arguments.at or [4096])[0] for name in "mnk"}
    results = [run(device=name, format=form, exact=False, **size) for name in arguments.device]
    return plots.rooflines(arguments.device, form, results)


def _devices(arguments: argparse.Namespace, progress: Any) -> Any:
    return plots.device_bars(arguments.device, arguments.format)


KINDS = {
    "error-over-k": PlotKind("error of devices and schemes over K (--at: values of K)", _error_over_k),
    "error-over-size": PlotKind("error of devices and schemes over n of n^3 (--at: values of n)", _error_over_size),
    "error-over-exponent": PlotKind(
        "error of schemes over the binary exponent of A's elements (--at: exponents)", _error_over_exponent
    ),
    "tflops-over-size": PlotKind("rate of devices and schemes over n of n^3 (--at: values of n)", _tflops_over_size),
    "tiles": PlotKind("best cycles of every tile that hwsim tune timed (--at: n of n^3)", _tiles),
    "rooflines": PlotKind("attainable rate over work per byte, with a run of each device (--at: n of n^3)", _rooflines),
    "devices": PlotKind("peak of each format on each device", _devices),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    kinds = "; ".join(f"{name}: {kind.shows}" for name, kind in KINDS.items())
    parser.add_argument("kind", nargs="?", metavar="KIND", help=f"{kinds}. Without it: the list")
    parser.add_argument("--device", action="append", metavar="NAME", help="a device; may be repeated (default h200)")
    parser.add_argument("--scheme", action="append", metavar="NAME", help="a scheme; may be repeated (default native)")
    parser.add_argument("--format", action="append", metavar="FORMAT", help="a format of the operands; may be repeated")
    parser.add_argument("--at", nargs="+", type=int, metavar="N", help="the places along the axis, as KIND says")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the file to write: .png, .svg or .pdf")
    parser.add_argument("--json", action="store_true", help="what was written as one JSON object on standard output")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar")


def execute(arguments: argparse.Namespace) -> int:
    """List the kinds, or draw one."""
    if arguments.kind is None:
        if arguments.json:
            kinds = [{"kind": name, "shows": kind.shows} for name, kind in KINDS.items()]
            print(json.dumps({"schema": "hwsim.plots/1", "kinds": kinds}))
        else:
            print("\n".join(table([(name, kind.shows) for name, kind in KINDS.items()], ("kind", "shows"), indent="")))
        return 0
    if arguments.kind not in KINDS:
        raise InputError(
            f"no plot {arguments.kind!r}; there are {', '.join(KINDS)}{nearest(arguments.kind, list(KINDS))}"
        )
    if arguments.out is None:
        raise InputError(f"plot {arguments.kind}: give --out FILE.svg (or .png, .pdf)")
    checked_plot_path(arguments.out)
    arguments.device = arguments.device or ["h200"]
    arguments.scheme = arguments.scheme or ["native"]
    with progress_bar(quiet=arguments.quiet) as progress:
        path = save(KINDS[arguments.kind].draw(arguments, progress), arguments.out)
    if arguments.json:
        print(json.dumps({"schema": "hwsim.plot/1", "kind": arguments.kind, "file": str(path)}))
    else:
        print(f"wrote {path}")
    return 0
