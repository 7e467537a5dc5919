"""SGEMM-cube's throughput at its best block size, double- and single-buffered (arXiv 2507.23387, Fig. 10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hwsim.papers.anchor_data import value
from hwsim.result import Result

EDGE = 5632  # m = n = k
SETTING: dict[str, Any] = {"device": "ascend910a", "scheme": "sgemm-cube", "tile": (176, 64, 176), "n_fused": 44}
#: Buffering -> the point of anchor_data; and that of their ratio.
POINTS = {"double": "910a-double", "single": "910a-single"}
RATIO = "910a-ratio"


@dataclass(frozen=True, slots=True)
class BufferedRate:
    """TFLOP/s of the kernel `gemm`, simulated and in the paper, for m = n = k = `size`."""

    buffering: str
    size: int
    tflops: float
    paper: float


def throughput(run: Callable[..., Result], size: int = EDGE) -> Iterator[BufferedRate]:
    """The throughput with both bufferings, by `run` (hwsim.run)."""
    for buffering, point in POINTS.items():
        result = run(m=size, n=size, k=size, buffering=buffering, exact=False, **SETTING)
        seconds = next(phase["seconds"] for phase in result.phases if phase["name"] == "gemm")
        yield BufferedRate(buffering, size, 2 * size**3 / seconds / 1e12, value(point))


def markdown(found: Sequence[BufferedRate]) -> str:
    """The points and their ratio as a Markdown table."""
    lines = ["| buffering | TFLOP/s, gemm phase | paper | difference |", "| --- | ---: | ---: | ---: |"]
    for one in found:
        lines.append(f"| {one.buffering} | {one.tflops:.1f} | {one.paper} | {one.tflops / one.paper - 1:+.1%} |")
    ratio, paper = found[0].tflops / found[1].tflops, value(RATIO)
    lines.append(f"| ratio | {ratio:.2f} | {paper} | {ratio / paper - 1:+.1%} |")
    return "\n".join(lines) + "\n"
