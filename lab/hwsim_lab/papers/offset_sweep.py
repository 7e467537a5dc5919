"""SGEMM-cube's accuracy figure: error against the offset exponent of the inputs (arXiv 2507.23387, Fig. 8).

The paper does not give the matrix size; here it is m = n, with k = 64 * 44 as in its Fig. 9a. Its SGEMM is
OpenBLAS; here it is a plain fp32 FMA chain in order of k. The caller brings the product function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.analysis.inputs import offset_uniform
from hwsim.analysis.metrics import relative_frobenius

Array = NDArray[Any]
DEVICE, SCHEME, HALF = "ascend910a", "sgemm-cube", "native"  # the paper's chip, its scheme, and plain fp16
EXPONENTS = tuple(range(-12, 5))
FP16_LARGEST = np.float32(65504)
SCALING = (0, 6, 12)
ACCUMULATION = ("elementwise", "termwise")
BLOCK = ("sb=12 elementwise, b_k = 64", {"scaling_exponent": 12, "accumulation": "elementwise", "k_group": 64})
COLUMNS = (
    "HGEMM",
    "HGEMM, FP16 out",
    "FP32 chain",
    *(f"sb={sb} {how}" for sb in SCALING for how in ACCUMULATION),
    BLOCK[0],
)


@dataclass(frozen=True, slots=True)
class OffsetErrors:
    """One row of the figure: relative Frobenius errors by column of COLUMNS."""

    symmetric: bool
    exponent: int
    errors: dict[str, float]


def sweep(
    matmul: Callable[..., Array],
    chain: Callable[[Array, Array], Array],
    *,
    size: int = 128,
    k: int = 64 * 44,
    exponents: Iterable[int] = EXPONENTS,
    seed: int = 0,
    device: str = DEVICE,
) -> Iterator[OffsetErrors]:
    """Yield the points in order. matmul(a, b, device=, scheme=, **options); chain(a, b): plain fp32."""
    for symmetric in (True, False):
        for exponent in exponents:
            a, b = offset_uniform(size, size, k, seed, exponent, symmetric=symmetric)
            exact = a.astype(np.float64) @ b.astype(np.float64)

            def error(product: Array, exact: Array = exact) -> float:
                return relative_frobenius(exact, product)

            half = matmul(a, b, device=device, scheme=HALF, format="fp16")
            with np.errstate(over="ignore"):
                narrow = np.clip(half, -FP16_LARGEST, FP16_LARGEST).astype(np.float16)
            found = {
                "HGEMM": error(half),
                "HGEMM, FP16 out": error(narrow),
                "FP32 chain": error(chain(a, b)),
            }
            for sb in SCALING:
                for how in ACCUMULATION:
                    product = matmul(a, b, device=device, scheme=SCHEME, scaling_exponent=sb, accumulation=how)
                    found[f"sb={sb} {how}"] = error(product)
            found[BLOCK[0]] = error(matmul(a, b, device=device, scheme=SCHEME, **BLOCK[1]))
            yield OffsetErrors(symmetric, exponent, found)


def markdown(points: Iterable[OffsetErrors]) -> str:
    """The points as a Markdown table."""
    lines = ["| inputs | exponent | " + " | ".join(COLUMNS) + " |", "| --- | ---: |" + " ---: |" * len(COLUMNS)]
    for point in points:
        span = f"[-2^{point.exponent}, 2^{point.exponent}]" if point.symmetric else f"[0, 2^{point.exponent}]"
        cells = " | ".join(f"{point.errors[name]:.2e}" for name in COLUMNS)
        lines.append(f"| {span} | {point.exponent} | {cells} |")
    return "\n".join(lines) + "\n"
