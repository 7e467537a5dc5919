"""SGEMM-cube's throughput at its best block size, double- and single-buffered (arXiv 2507.23387, Fig. 10)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hwsim.result import Result
from hwsim_lab.papers.anchor_data import value

EDGE = 5632  # m = n = k
SETTING: dict[str, Any] = {
    "device": "ascend910a",
    "scheme": "sgemm-cube",
    "tile": (176, 64, 176),
    "n_fused": 44,
    "grid": (32, 1),
}
#: Buffering -> the point of anchor_data; and that of their ratio.
POINTS = {"double": "910a-double", "single": "910a-single"}
RATIO = "910a-ratio"


@dataclass(frozen=True, slots=True)
class BufferedRate:
    """TFLOP/s of the kernel `gemm`, simulated and in the paper, and of the whole run (splits, zeroing and joining too),
    for m = n = k = `size`.
    """

    buffering: str
    size: int
    tflops: float
    paper: float
    whole_run_tflops: float


def throughput(run: Callable[..., Result], size: int = EDGE) -> Iterator[BufferedRate]:
    """The throughput with both bufferings, by `run` (hwsim.run)."""
    for buffering, point in POINTS.items():
        result = run(m=size, n=size, k=size, buffering=buffering, exact=False, **SETTING)
        seconds = next(phase["seconds"] for phase in result.phases if phase["name"] == "gemm")
        flop = 2e-12 * size**3
        yield BufferedRate(buffering, size, flop / seconds, value(point), flop / (result.seconds or math.nan))


def markdown(found: Sequence[BufferedRate]) -> str:
    """The points and their ratio as a Markdown table."""
    lines = [
        "| buffering | TFLOP/s, gemm phase | paper | difference | TFLOP/s, whole run |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for one in found:
        difference = one.tflops / one.paper - 1
        lines.append(
            f"| {one.buffering} | {one.tflops:.1f} | {one.paper} | {difference:+.1%} | {one.whole_run_tflops:.1f} |"
        )
    ratio, paper = found[0].tflops / found[1].tflops, value(RATIO)
    whole = found[0].whole_run_tflops / found[1].whole_run_tflops
    lines.append(f"| ratio | {ratio:.2f} | {paper} | {ratio / paper - 1:+.1%} | {whole:.2f} |")
    return "\n".join(lines) + "\n"
