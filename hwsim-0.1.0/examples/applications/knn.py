"""Nearest neighbours: distances |x|^2 - 2 x.y + |y|^2 with x.y from a simulated matrix unit.

The points lie in clusters far from the origin, so the distances are small differences of large numbers. Claims: the
neighbours found with FP32-like products are those of fp64, and the classes with them; with FP16 products a good part
of the neighbours is wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Application, Case, bars

NEIGHBOURS, CLASSES = 10, 8


def points(count: int, seed: int) -> tuple[Any, Any]:
    """`count` points of 64 dimensions in CLASSES clusters, and the cluster of each; fp32 values."""
    centres = 4 + np.random.default_rng(0).standard_normal((CLASSES, 64)) / 4
    rng = np.random.default_rng(seed)
    of = rng.integers(0, CLASSES, count)
    return (centres[of] + rng.standard_normal((count, 64)) / 2).astype(np.float32).astype(np.float64), of


def study(case: Case, quick: bool) -> dict[str, Any]:
    """Indices of the neighbours, and the share of queries whose class is found by vote."""
    known, classes = points(512 if quick else 2048, 1)
    queries, truth = points(64 if quick else 512, 2)
    with case.products():
        inner = np.matmul(queries, known.T)
    distance = (queries**2).sum(1)[:, None] - 2 * inner + (known**2).sum(1)
    nearest = np.argsort(distance, axis=1, kind="stable")[:, :NEIGHBOURS]
    votes = np.array([np.bincount(classes[row], minlength=CLASSES).argmax() for row in nearest])
    return {"nearest": nearest, "accuracy": float((votes == truth).mean()), "distance": distance}


def compare(exact: dict[str, Any], found: dict[str, Any]) -> dict[str, float]:
    same = [len(set(x) & set(y)) for x, y in zip(exact["nearest"], found["nearest"], strict=True)]
    return {
        "wrong neighbours": 1 - sum(same) / exact["nearest"].size,
        "accuracy": found["accuracy"],
        "distance error": float(np.abs(found["distance"] / exact["distance"] - 1).max()),
    }


def claims(rows: Any) -> list[tuple[str, bool]]:
    wrong = {label: row["wrong neighbours"] for label, row in rows.items()}
    good = [label for label in rows if label not in ("fp64", "fp16", "tf32")]
    accuracy = rows["fp64"]["accuracy"]
    return [
        ("FP32-like products: at most one neighbour in 500 is another", all(wrong[label] <= 0.002 for label in good)),
        ("FP16 and TF32 products: more than one in 100", all(wrong[label] > 0.01 for label in ("fp16", "tf32"))),
        ("FP32-like products classify as fp64 does", all(rows[label]["accuracy"] == accuracy for label in good)),
    ]


APPLICATION = Application(
    "k nearest neighbours of clustered points",
    ("fp64", "fp32", "fp16", "tf32", "tf32x3", "ape-fp32-f", "bf16x9", "sgemm-cube"),
    study,
    compare,
    claims,
    lambda axes, rows, _: bars(axes, rows, ("wrong neighbours", "distance error")),
)

if __name__ == "__main__":
    raise SystemExit(APPLICATION.main())
