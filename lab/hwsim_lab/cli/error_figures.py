"""The experiments of `hwsim reproduce` on errors: the accuracy table, and analyses of three papers."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from hwsim.api import fma_chain, matmul
from hwsim.cli.progress import progress_bar
from hwsim.devices import names
from hwsim_lab.papers import accuracy, paper_errors
from hwsim_lab.papers import underflow as underflow_figure

FigureRows = tuple[list[dict[str, Any]], str]


def table(arguments: argparse.Namespace) -> FigureRows:
    """The accuracy table of every scheme on every device; --size: k of the matrices."""
    devices = arguments.device or [name for name, _ in names()]
    given = accuracy.all_inputs(depth=arguments.size or accuracy.DEPTH)
    with progress_bar(quiet=False) as progress:
        points = list(accuracy.table(matmul, fma_chain, devices, given, arguments.scheme or (), progress))
    return [point.to_dict() for point in points], accuracy.markdown(points)


def underflow(arguments: argparse.Namespace) -> FigureRows:
    """The table of SGEMM-cube, Fig. 2."""
    found = list(underflow_figure.points())
    return [underflow_figure.plain(point) for point in found], underflow_figure.markdown(found)


def distances(arguments: argparse.Namespace) -> FigureRows:
    """LE-GEMM's Max_error and MRED; --size: k (default: several)."""
    found = list(
        paper_errors.distances(matmul, fma_chain, (arguments.size,) if arguments.size else paper_errors.DEPTHS)
    )
    return [asdict(point) for point in found], paper_errors.distances_markdown(found)


def snr(arguments: argparse.Namespace) -> FigureRows:
    """BF16x9's heat map; --device, --scheme: other than b200 and bf16x9."""
    device = (arguments.device or [paper_errors.SNR_DEVICE])[-1]
    scheme = (arguments.scheme or [paper_errors.SNR_SCHEME])[-1]
    found = list(paper_errors.snr(matmul, fma_chain, device, scheme))
    return [asdict(point) for point in found], paper_errors.snr_markdown(found)


#: Paper -> figure -> what it is, and what makes it.
FIGURES: dict[str, dict[str, tuple[str, Callable[[argparse.Namespace], FigureRows]]]] = {
    "accuracy": {"table": ("errors of every scheme on every device, beside a plain FP32 chain", table)},
    "sgemm-cube": {"fig2": ("underflow of the low piece, and bits kept, by exponent", underflow)},
    "le-gemm": {"errors": ("Max_error and MRED against fp32, by depth", distances)},
    "bf16x9": {"snr": ("signal-to-noise ratio over the exponents of A and B, and its gain over FP32", snr)},
}
