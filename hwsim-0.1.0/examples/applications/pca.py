"""Principal components: the covariance X^T X / n, and the scores X V, as products of a simulated matrix unit.

The variances fall from 1 to 1e-5. Claims: with FP32-like products the scores are right to 2e-6, with FP16 products
fifty times worse; bf16x9 and sgemm-cube give the smallest variances as well as plain FP32 does. The units of the A100
truncate as they add, so that long sums of squares come out low: of a scheme that leaves all of the sum to them the
variances suffer more than from FP16 operands, whatever the splitting.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Application, Case, relative


def data(count: int, width: int) -> Any:
    """X (count, width), fp32 values: independent components of falling variance, turned by a random rotation."""
    rng = np.random.default_rng(4)
    spread = np.logspace(0, -2.5, width)
    turn = np.linalg.qr(rng.standard_normal((width, width)))[0]
    return ((rng.standard_normal((count, width)) * spread) @ turn).astype(np.float32).astype(np.float64)


def study(case: Case, quick: bool) -> dict[str, Any]:
    """Variances, largest first, and the scores on the two first components (signs as of the largest entry)."""
    x = data(256 if quick else 2048, 24 if quick else 64)
    with case.products():
        covariance = np.matmul(x.T, x) / len(x)
        values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
        vectors = vectors[:, ::-1]
        vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(0), np.arange(len(values))])
        scores = np.matmul(x, vectors[:, :2])
    return {"variances": values[::-1], "scores": scores}


def compare(exact: dict[str, Any], found: dict[str, Any]) -> dict[str, float]:
    ratio = np.abs(found["variances"] / exact["variances"] - 1)
    return {
        "largest variance": float(ratio[0]),
        "worst variance": float(ratio.max()),
        "scores": relative(exact["scores"], found["scores"]),
    }


def claims(rows: Any) -> list[tuple[str, bool]]:
    good = [label for label in rows if label not in ("fp64", "fp16", "tf32")]
    worst = max(rows[label]["scores"] for label in good)
    plain = rows["fp32"]["worst variance"]
    return [
        (f"FP32-like products: scores to 2e-6 (worst {worst:.1e})", worst < 2e-6),
        ("FP16 products: scores fifty times worse", rows["fp16"]["scores"] > 50 * worst),
        (
            "bf16x9 and sgemm-cube: variances as good as with FP32",
            all(rows[label]["worst variance"] <= 1.5 * plain for label in ("bf16x9", "sgemm-cube")),
        ),
    ]


def draw(axes: Any, rows: Any, results: Any) -> None:
    exact = results["fp64"]["variances"]
    for label in rows:
        if label != "fp64":
            axes.semilogy(np.abs(results[label]["variances"] / exact - 1) + 1e-17, label=label)
    axes.set(xlabel="component", ylabel="relative error of the variance")
    axes.legend(fontsize=8)


APPLICATION = Application(
    "principal components, variances from 1 to 1e-5",
    ("fp64", "fp32", "fp16", "tf32", "tf32x3", "ape-fp32-f", "bf16x9", "sgemm-cube"),
    study,
    compare,
    claims,
    draw,
)

if __name__ == "__main__":
    raise SystemExit(APPLICATION.main())
