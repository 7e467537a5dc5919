"""Error figures of two papers: LE-GEMM's errors over k (its Fig. 10-11), BF16x9's SNR over exponents (its Fig. 5-6).

Of large products only some rows and columns are computed. The caller passes the product functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.analysis import metrics

Array = NDArray[Any]
Product = Callable[..., Array]
EDGE = 32  # rows and columns that are computed
DEPTHS = (128, 256, 512, 1024, 2048, 4096)
#: Device -> the methods that the paper compares there: (its name, arguments).
METHODS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    device: (
        ("FP16", {"format": "fp16"}),
        ("Markidis", {"scheme": "markidis"}),
        ("Ootomo", {"scheme": "ootomo-fp16"}),
        ("LE-GEMM", {"scheme": "le-gemm"}),
    )
    for device in ("mi210", "a800")
}
SNR_DEVICE, SNR_SCHEME = "b200", "bf16x9"
SNR_SHAPE = (512, 1024, 2048)  # m, k, n
SNR_SAMPLE = 4
SNR_EXPONENTS = (-145, -135, -126, -110, -80, -40, -10, 0, 10, 40, 80, 110)


@dataclass(frozen=True, slots=True)
class Distance:
    """Errors of one method at one k. double: the mean relative error against fp64 instead of fp32."""

    device: str
    method: str
    k: int
    max_error: float
    mred: float
    double: float


def distances(matmul: Product, chain: Product, depths: Sequence[int] = DEPTHS, seed: int = 0) -> Iterator[Distance]:
    """Max_error and MRED against fp32 (a plain chain in order of k), inputs in [-1, 1]; the chain's own first."""
    for k in depths:
        rng = np.random.default_rng(seed)
        a, b = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((EDGE, k), (k, EDGE)))
        single, double = chain(a, b), a.astype(np.float64) @ b.astype(np.float64)
        yield Distance("any", "FP32 chain", k, 0.0, 0.0, metrics.mean_relative(double, single))
        for device, methods in METHODS.items():
            for name, arguments in methods:
                c = matmul(a, b, device=device, **arguments)
                yield Distance(
                    device,
                    name,
                    k,
                    metrics.max_error(single, c),
                    metrics.mean_relative(single, c),
                    metrics.mean_relative(double, c),
                )


def distances_markdown(found: Iterable[Distance]) -> str:
    """The errors as a Markdown table: one row per device, method and k."""
    lines = ["| device | method | k | Max_error | MRED | mean relative error, fp64 |"]
    lines += ["| --- | --- | ---: | ---: | ---: | ---: |"]
    for x in sorted(found, key=lambda x: (x.device, x.method)):
        lines.append(f"| {x.device} | {x.method} | {x.k} | {x.max_error:.1e} | {x.mred:.1e} | {x.double:.1e} |")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Noise:
    """Signal-to-noise ratios for elements of exponents a and b: of the scheme and of a plain FP32 chain, in dB.

    None: no error at all, or an overflow.
    """

    a: int
    b: int
    scheme: float | None
    chain: float | None


def snr(
    matmul: Product,
    chain: Product,
    device: str = SNR_DEVICE,
    scheme: str = SNR_SCHEME,
    exponents: Sequence[int] = SNR_EXPONENTS,
    seed: int = 0,
) -> Iterator[Noise]:
    """Signal-to-noise ratios for pairs of exponents whose products' exponents lie from -149 to 127. Random significands
    and signs.
    """
    m, k, n = SNR_SHAPE
    rng = np.random.default_rng(seed)
    rows = np.linspace(0, m - 1, SNR_SAMPLE).astype(int)
    cols = np.linspace(0, n - 1, SNR_SAMPLE).astype(int)
    signed = [rng.uniform(1, 2, shape) * rng.choice((-1.0, 1.0), shape) for shape in ((m, k), (k, n))]
    left, right = signed[0][rows], signed[1][:, cols]
    for x in exponents:
        for y in exponents:
            if not -149 <= x + y <= 110:
                continue
            a, b = np.ldexp(left, x).astype(np.float32), np.ldexp(right, y).astype(np.float32)
            exact = a.astype(np.float64) @ b.astype(np.float64)
            products = matmul(a, b, device=device, scheme=scheme), chain(a, b)
            ratios = (metrics.snr_db(exact, c) for c in products)
            yield Noise(x, y, *(ratio if math.isfinite(ratio) else None for ratio in ratios))


def snr_markdown(found: Iterable[Noise]) -> str:
    """A Markdown table with a row per exponent of A and a column per exponent of B: dB of the scheme, and its gain over
    the chain.
    """
    points = list(found)
    columns = sorted({x.b for x in points})
    lines = ["| A \\ B | " + " | ".join(f"2^{b}" for b in columns) + " |", "| ---: |" + " ---: |" * len(columns)]
    for a in sorted({x.a for x in points}):
        row = {x.b: x for x in points if x.a == a}
        lines.append(f"| 2^{a} | " + " | ".join(_cell(row.get(b)) for b in columns) + " |")
    return "\n".join(lines) + "\n"


def _cell(noise: Noise | None) -> str:
    if noise is None:
        return ""
    if noise.scheme is None or noise.chain is None:
        return "exact" if noise.scheme is None and noise.chain is None else "-"
    return f"{noise.scheme:.0f} ({noise.scheme - noise.chain:+.0f})"
