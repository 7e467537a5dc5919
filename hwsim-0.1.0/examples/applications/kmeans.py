"""k-means (Lloyd): assignments from x.c products, and sums of each cluster as a product with a 0/1 matrix.

Claims: with FP32-like products every point ends in the cluster that it has with fp64, the centres agree to 1e-6; with
FP16 products the centres are at least a hundred times further off.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Application, Case, relative

ROUNDS = 12


def data(count: int, clusters: int) -> tuple[Any, Any]:
    """Points (count, 32), fp32 values, and the centres to begin with."""
    rng = np.random.default_rng(3)
    centres = 3 + rng.standard_normal((clusters, 32))
    points = centres[rng.integers(0, clusters, count)] + rng.standard_normal((count, 32)) / 2
    points = points.astype(np.float32).astype(np.float64)
    return points, points[rng.choice(count, clusters, replace=False)]


def study(case: Case, quick: bool) -> dict[str, Any]:
    """Lloyd's rounds; labels, centres and the centres of every round."""
    points, centres = data(512 if quick else 2048, 8 if quick else 16)
    history = []
    squares = (points**2).sum(1)[:, None]
    labels = np.zeros(len(points), int)
    for _ in range(4 if quick else ROUNDS):
        with case.products(threads=1):
            labels = (squares - 2 * np.matmul(points, centres.T) + (centres**2).sum(1)).argmin(1)
            members = (labels == np.arange(len(centres))[:, None]).astype(np.float64)
            sums = np.matmul(members, points)
        counts = members.sum(1)[:, None]
        centres = np.where(counts > 0, sums / np.maximum(counts, 1), centres)
        history.append(centres)
    inertia = float(((points - centres[labels]) ** 2).sum())
    return {"labels": labels, "centres": centres, "history": history, "inertia": inertia}


def compare(exact: dict[str, Any], found: dict[str, Any]) -> dict[str, float]:
    return {
        "other cluster": float((exact["labels"] != found["labels"]).mean()),
        "centres' error": relative(exact["centres"], found["centres"]),
        "inertia": found["inertia"],
    }


def claims(rows: Any) -> list[tuple[str, bool]]:
    good = [label for label in rows if label not in ("fp64", "fp16", "tf32")]
    worst = max(rows[label]["centres' error"] for label in good)
    return [
        ("FP32-like products: every point in its cluster", all(rows[label]["other cluster"] == 0 for label in good)),
        (f"FP32-like products: centres to 1e-6 (worst {worst:.1e})", worst < 1e-6),
        ("FP16 products: centres a hundred times further off", rows["fp16"]["centres' error"] > 100 * worst),
    ]


def draw(axes: Any, rows: Any, results: Any) -> None:
    for label in rows:
        if label != "fp64":
            pairs = zip(results["fp64"]["history"], results[label]["history"], strict=True)
            axes.semilogy([relative(*pair) for pair in pairs], "o-", label=label)
    axes.set(xlabel="round", ylabel="relative error of the centres")
    axes.legend()


APPLICATION = Application(
    "k-means of clustered points",
    ("fp64", "fp32", "fp16", "tf32", "tf32x3", "ape-fp32-f", "bf16x9", "sgemm-cube"),
    study,
    compare,
    claims,
    draw,
)

if __name__ == "__main__":
    raise SystemExit(APPLICATION.main())
