"""The feed-forward part of a BERT layer: LayerNorm(x + W2 GELU(W1 x + b1) + b2), 768 wide and 3072 inside.

Weights are random, of BERT's initial spread 0.02, with a few strong channels as trained models have. Claims:
bf16x9 and sgemm-cube are no worse than plain FP32 products; the schemes on the A100, whose units truncate as they add,
within ten times its error; FP16 products at least a hundred times worse than FP32.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from common import Application, Case, bars, relative

erf = np.vectorize(math.erf)


def layer(tokens: int, width: int) -> tuple[Any, ...]:
    """x, W1, b1, W2, b2, fp32 values."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((tokens, width))
    x[:, :: width // 4] *= 12  # strong channels
    arrays = (
        x,
        0.02 * rng.standard_normal((width, 4 * width)),
        0.02 * rng.standard_normal(4 * width),
        0.02 * rng.standard_normal((4 * width, width)),
        0.02 * rng.standard_normal(width),
    )
    return tuple(array.astype(np.float32).astype(np.float64) for array in arrays)


def study(case: Case, quick: bool) -> dict[str, Any]:
    """The hidden values and the output."""
    x, w1, b1, w2, b2 = layer(4 if quick else 16, 128 if quick else 768)
    with case.products():
        hidden = np.matmul(x, w1) + b1
        hidden = hidden * (1 + erf(hidden / math.sqrt(2))) / 2
        out = x + np.matmul(hidden, w2) + b2
    out = (out - out.mean(1, keepdims=True)) / np.sqrt(out.var(1, keepdims=True) + 1e-12)
    return {"hidden": hidden, "out": out}


def compare(exact: dict[str, Any], found: dict[str, Any]) -> dict[str, float]:
    return {
        "hidden": relative(exact["hidden"], found["hidden"]),
        "output": relative(exact["out"], found["out"]),
        "largest": float(np.abs(exact["out"] - found["out"]).max()),
    }


def claims(rows: Any) -> list[tuple[str, bool]]:
    plain = rows["fp32"]["hidden"]
    good = [label for label in rows if label not in ("fp64", "fp16", "tf32", "fp32")]
    return [
        ("bf16x9, sgemm-cube: no worse than FP32", all(rows[x]["hidden"] <= plain for x in ("bf16x9", "sgemm-cube"))),
        ("schemes: at most ten times the error of FP32", all(rows[x]["hidden"] <= 10 * plain for x in good)),
        ("FP16 products: a hundred times the error of FP32", rows["fp16"]["hidden"] > 100 * plain),
    ]


APPLICATION = Application(
    "BERT feed-forward layer",
    ("fp64", "fp32", "fp16", "tf32", "tf32x3", "ape-fp32-f", "bf16x9", "sgemm-cube"),
    study,
    compare,
    claims,
    lambda axes, rows, _: bars(axes, rows, ("hidden", "output")),
)

if __name__ == "__main__":
    raise SystemExit(APPLICATION.main())
