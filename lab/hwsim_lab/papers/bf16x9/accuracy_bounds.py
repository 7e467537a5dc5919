"""Bounds on the error of an FP32 dot product, and how near native FP32 comes to them: Section 2, Eq. 1 and 3.

It knows the bounds and the condition number of Eq. 2; products come from accuracy_runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import hwsim
from hwsim.formats import format_of
from hwsim_lab.papers.bf16x9.accuracy_runs import (
    DELTAS,
    DEVICE,
    NATIVE,
    PAIRS,
    SIZE,
    X9,
    Array,
    normal,
    of_pairs,
    operands,
    product,
    uniform,
    wide,
)
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series

LENGTHS = (16, 160, 1024)  # of normal vectors
ROWS, COLUMNS = 40, 25  # 1000 dot products
SOME_DELTAS = (1e1, 1e3, 1e6)
ABSORBING = 26  # log2 of C by the product


def unit_roundoff() -> float:
    """Half the distance of 1 to the next number of hwsim's FP32."""
    return float(2.0 ** -format_of("fp32").precision)


def condition_numbers(a: Array, b: Array) -> Array:
    """|x| |y| / |x . y| of each row x of A and column y of B (Eq. 2)."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    return np.asarray(np.outer(np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=0)) / np.abs(x @ y))


def share_of_bound(a: Array, b: Array) -> float:
    """The greatest error of native FP32 by the bound of Eq. 1."""
    error = np.abs(wide(a, b) - product(NATIVE, a, b))
    bound = a.shape[1] * unit_roundoff() * wide(np.abs(a), np.abs(b))
    return float((error / bound).max())


def measure_bounds(scale: Scale) -> Found:
    """Native FP32's errors by the bounds of Eq. 1 and 3."""
    count = PAIRS[scale]
    checked = [max(share_of_bound(*operands(delta, seed)) for seed in range(count)) for delta in SOME_DELTAS]
    checked += [share_of_bound(*normal(ROWS, COLUMNS, k, k)) for k in LENGTHS]
    worst, bits, rows = [], [], dict[str, list[Any]](delta=[], curve=[], error=[])
    unit = SIZE * unit_roundoff()
    for delta in DELTAS:
        kappa = np.stack([condition_numbers(*operands(delta, seed)) for seed in range(count)])
        errors = of_pairs(NATIVE, delta, count)
        worst.append(float((errors / (unit * kappa)).max()))
        bits.append(float(np.log2(unit * kappa.mean() / errors.mean())))
        for curve, value in (("bound", unit * kappa.mean()), ("native FP32", errors.mean())):
            rows["delta"].append(delta)
            rows["curve"].append(curve)
            rows["error"].append(float(value))
    x = np.ones((1, SIZE), np.float32)
    y = np.full((SIZE, 1), unit_roundoff(), np.float32)
    y[0] = 1.0
    measured: dict[str, dict[str, Quantity]] = {
        "eq1-absolute-bound": {"worst": checked, "mu": unit_roundoff()},
        "eq3-relative-bound": {"worst": worst},
        "eq3-observed-bits-better": {"bits": bits},
        "eq3-worst-case-reached": {"ratio": share_of_bound(x, y)},
    }
    return Found(
        measured,
        {
            "eq1-absolute-bound": f"Native FP32 is hwsim's: one chain of FMAs in order of K. {count} pairs each.",
            "eq3-relative-bound": f"{count} pairs each.",
            "eq3-observed-bits-better": (
                f"At k = {SIZE} native FP32 is {min(bits):.1f} to {max(bits):.1f} bits better than the bound with one "
                "chain of FMAs in order of K; the paper gives neither its k nor its data, and the bound grows with k. "
                f"By the element that is nearest to its own bound it is {-np.log2(max(worst)):.1f} to "
                f"{-np.log2(min(worst)):.1f} bits, which is near the paper's 4 to 5. "
                f"{count} pairs each."
            ),
        },
        (Series("bounds", rows, x="delta", y="error", by="curve", log="xy"),),
    )


def measure_absorbed(scale: Scale) -> Found:
    """A product added to a C that is far greater."""
    n = 128
    a, b = uniform(n, n, n, 0)
    signs = np.random.default_rng(1).choice((-1.0, 1.0), (n, n))
    greatest = np.ceil(np.log2(wide(np.abs(a), np.abs(b)).max()))
    c = (signs * 2.0 ** (greatest + ABSORBING)).astype(np.float32)
    both: tuple[dict[str, Any], ...] = ({"scheme": "bf16x9"}, {"format": "fp32"})
    added = [np.asarray(hwsim.matmul(a, b, c, device=DEVICE, beta=1.0, **given)) for given in both]
    return Found({"sec2-beta-absorbs": {"differences": int((added[0].view("u4") != added[1].view("u4")).sum())}})


def measure_more_often(scale: Scale) -> Found:
    """How often BF16x9 is nearer to DGEMM than native FP32."""
    better, worse = [], []
    for draw in (normal, uniform):
        for k in (64, 256, 1024):
            a, b = draw(256, 256, k, k)
            exact = wide(a, b)
            ours, theirs = (np.abs(product(method, a, b) - exact) for method in (X9, NATIVE))
            better.append(100 * float(np.mean(ours < theirs)))
            worse.append(100 * float(np.mean(ours > theirs)))
    return Found({"sec2-more-often-better": {"better": better, "worse": worse}})


EXPERIMENTS = (
    Experiment(
        "bounds",
        ("eq1-absolute-bound", "eq3-relative-bound", "eq3-observed-bits-better", "eq3-worst-case-reached"),
        measure_bounds,
        {"quick": 10.0, "full": 60.0},
    ),
    Experiment("absorbed-errors", ("sec2-beta-absorbs",), measure_absorbed, {"quick": 1.0, "full": 1.0}),
    Experiment("more-often-better", ("sec2-more-often-better",), measure_more_often, {"quick": 3.0, "full": 3.0}),
)
