"""Experiments of `hwsim reproduce` on errors: the accuracy table, and three papers' analyses."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

Found = tuple[list[dict[str, Any]], str]


def table(arguments: argparse.Namespace) -> Found:
    """Every scheme on every device; --size: k of the matrices."""
    from hwsim.api import fma_chain, matmul
    from hwsim.cli.progress import progress_bar
    from hwsim.devices import names
    from hwsim.studies import accuracy

    devices = arguments.device or [name for name, _ in names()]
    given = accuracy.all_inputs(depth=arguments.size or accuracy.DEPTH)
    with progress_bar(quiet=False) as progress:
        points = list(accuracy.table(matmul, fma_chain, devices, given, arguments.scheme or (), progress))
    return [point.to_dict() for point in points], accuracy.markdown(points)


def underflow(arguments: argparse.Namespace) -> Found:
    """SGEMM-cube, Fig. 2."""
    from hwsim.papers.underflow import markdown, plain, points

    found = list(points())
    return [plain(point) for point in found], markdown(found)


def distances(arguments: argparse.Namespace) -> Found:
    """LE-GEMM's Max_error and MRED; --size: k (without: several)."""
    from hwsim.api import fma_chain, matmul
    from hwsim.papers.paper_errors import DEPTHS, distances_markdown
    from hwsim.papers.paper_errors import distances as run

    found = list(run(matmul, fma_chain, (arguments.size,) if arguments.size else DEPTHS))
    return [asdict(point) for point in found], distances_markdown(found)


def snr(arguments: argparse.Namespace) -> Found:
    """BF16x9's heat map; --device, --scheme: others than b200 and bf16x9."""
    from hwsim.api import fma_chain, matmul
    from hwsim.papers.paper_errors import snr as run
    from hwsim.papers.paper_errors import snr_markdown

    device, scheme = (arguments.device or ["b200"])[-1], (arguments.scheme or ["bf16x9"])[-1]
    found = list(run(matmul, fma_chain, device, scheme))
    return [asdict(point) for point in found], snr_markdown(found)


#: Paper -> figure -> what it is, and what makes it.
FIGURES: dict[str, dict[str, tuple[str, Callable[[argparse.Namespace], Found]]]] = {
    "accuracy": {"table": ("errors of every scheme on every device, beside a plain FP32 chain", table)},
    "sgemm-cube": {"fig2": ("underflow of the low piece, and bits kept, by exponent", underflow)},
    "le-gemm": {"errors": ("Max_error and MRED against fp32, by depth", distances)},
    "bf16x9": {"snr": ("signal-to-noise ratio over the exponents of A and B, and its gain over FP32", snr)},
}
