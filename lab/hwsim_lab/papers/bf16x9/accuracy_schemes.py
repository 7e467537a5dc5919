"""BF16x9's errors beside those of native FP32, BF16x6, FP16 and TF32 schemes: Abstract, Sections 1 and 2.

It knows which operands and which mean each claim asks for; products come from accuracy_runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import hwsim
from hwsim_lab.papers.bf16x9.accuracy_runs import (
    DELTAS,
    DEVICE,
    NATIVE,
    PAIRS,
    SIZE,
    X6,
    X9,
    Array,
    fp16x4,
    geomean,
    normal,
    of_pairs,
    product,
    relative_errors,
    rms,
    rms_ratio,
    uniform,
)
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series

SIZES = (160, 512, 1024, 2048)
SAMPLE = 64  # rows and columns at quick scale
SEEDS = 3
STEP = 16  # of K of one instruction; promotion_interval counts these
TF32_DEVICE = "a100"


def late_ratio(delta: float, count: int) -> float:
    """The greatest error by native FP32's, of BF16x9 that adds outside the unit once, at the end of K."""

    def late(a: Array, b: Array) -> Array:
        return product(X9, a, b, promotion_interval=SIZE // STEP)

    worst = max(float(relative_errors(delta, seed, late).max()) for seed in range(count))
    return worst / float(of_pairs(NATIVE, delta, count).max())


def measure_conditioned(scale: Scale) -> Found:
    """The matrices of Fig. 4: mean and greatest component-wise relative errors, and the nearer of two results."""
    count = PAIRS[scale]
    methods = (NATIVE, X9, X6, "markidis", "ootomo")
    errors = {method: [of_pairs(method, delta, count) for delta in DELTAS] for method in methods}
    four = fp16x4()

    def by_four(a: Array, b: Array) -> Array:
        return np.asarray(hwsim.matmul(a, b, device=DEVICE, scheme=four))

    errors["fp16x4"] = [np.stack([relative_errors(delta, seed, by_four) for seed in range(count)]) for delta in DELTAS]
    mean = {method: [float(one.mean()) for one in found] for method, found in errors.items()}
    worst = {method: [float(one.max()) for one in found] for method, found in errors.items()}

    def ratio(table: dict[str, list[float]], method: str, over: str) -> list[float]:
        return [x / y for x, y in zip(table[method], table[over], strict=True)]

    pairs = list(zip(errors[NATIVE], errors[X9], strict=True))
    x6, greatest = ratio(mean, X6, X9), ratio(worst, X6, X9)
    measured: dict[str, dict[str, Quantity]] = {
        "sec2-worst-case-like-native": {"ratio": ratio(worst, X9, NATIVE)},
        "sec2-not-always-better": {"native_better": [100 * float(np.mean(one < other)) for one, other in pairs]},
        "sec2-x6-average-similar": {"ratio": x6},
        "sec2-x6-worst-case": {"ratio": greatest},
        "intro-x9-more-accurate-than-x6": {"ratio": x6},
        "intro-x9-more-accurate-than-fp16": {
            f"{method}_ratio": ratio(mean, method, X9) for method in ("markidis", "ootomo", "fp16x4")
        },
    }
    counted = f"{count} pairs each."
    six = (
        f"Mean errors of BF16x6 by BF16x9's: {min(x6):.3f} to {max(x6):.3f}. Both end in the same FP32 additions, "
        f"whose roundings exceed what the products i + j > 2 add. Section 2 itself says that the two are "
        f"alike. {counted}"
    )
    native = ratio(mean, X9, NATIVE)
    halves = [
        geomean([float(x[part].max() / y[part].max()) for x, y in zip(errors[X6], errors[X9], strict=True)])
        for part in (slice(count // 2), slice(count // 2, None))
    ]
    late = [late_ratio(delta, count) for delta in (DELTAS[0], DELTAS[-1])]
    notes = {
        "sec2-worst-case-like-native": (
            f"Better than native FP32, by the greatest error as by the mean (x9 by native {min(native):.2f} to "
            f"{max(native):.2f}): hwsim's default adds to an FP32 sum outside the unit after each 16 of K, native FP32 "
            f"is one chain of FMAs. With all of K = {SIZE} added in the unit: greatest error {late[0]:.2f} and "
            f"{late[1]:.2f} of native FP32's at the least and the greatest delta. {counted}"
        ),
        "sec2-not-always-better": counted,
        "sec2-x6-average-similar": counted,
        "sec2-x6-worst-case": (
            f"Greatest errors of BF16x6 by BF16x9's: {min(greatest):.4f} to {max(greatest):.4f}; each is one "
            f"element's, and hangs on the sample: geometric mean over delta of {halves[0]:.4f} for the first half of "
            f"the pairs, {halves[1]:.4f} for the second. {six}"
        ),
        "intro-x9-more-accurate-than-x6": six,
        "intro-x9-more-accurate-than-fp16": (
            "fp16x4: Ootomo's plan with the product of the low pieces on an accumulator of its own. Ootomo's and this "
            "one add the leading product outside the unit after each instruction, as BF16x9's default here does; at "
            "these magnitudes (below 1) FP16's pieces keep about 22 bits. "
            f"{counted}"
        ),
    }
    columns: dict[str, list[Any]] = {
        "delta": [delta for _ in mean for delta in DELTAS],
        "method": [method for method in mean for _ in DELTAS],
        "mean error": [x for found in mean.values() for x in found],
        "greatest error": [x for found in worst.values() for x in found],
    }
    return Found(measured, notes, (Series("methods", columns, x="delta", y="mean error", by="method", log="xy"),))


def sampled_ratio(n: int, seed: int, count: int | None) -> float:
    """Native FP32's error by BF16x9's for normal n x n operands; count: of rows and of columns that are computed."""
    a, b = normal(n, n, n, seed)
    options: dict[str, Any] = {}
    if count is not None and count < n:
        places = np.arange(0, n, n // count)
        a, b, options = a[places], b[:, places], {"shape": (n, n), "at": (places, places)}
    native, ours = (rms(a, b, product(method, a, b, **options)) for method in (NATIVE, X9))
    return native / ours


def measure_normal(scale: Scale) -> Found:
    """Normal and uniform operands: errors in the Frobenius norm."""
    count = SAMPLE if scale == "quick" else None
    ratio = [geomean([sampled_ratio(n, seed, count) for seed in range(SEEDS)]) for n in SIZES]
    comparable = [
        geomean([rms_ratio(*draw(n, n, n, seed), X9, NATIVE) for seed in range(SEEDS)])
        for draw in (normal, uniform)
        for n in ((256, 1024) if scale == "full" else (256,))
    ]
    if scale == "quick":
        large = [geomean([_part(draw, seed) for seed in range(SEEDS)]) for draw in (normal, uniform)]
        comparable = [comparable[0], large[0], comparable[1], large[1]]
    note = f"{SAMPLE} rows and columns of each larger product, evenly spaced." if scale == "quick" else ""
    columns: dict[str, list[Any]] = {"n": list(SIZES), "native by BF16x9": ratio}
    return Found(
        {"abstract-more-accurate": {"ratio": ratio}, "intro-comparable-accuracy": {"ratio": comparable}},
        dict.fromkeys(("abstract-more-accurate", "intro-comparable-accuracy"), note) if note else {},
        (Series("normal-operands", columns, x="n", y="native by BF16x9", log="x"),),
    )


def _part(draw: Any, seed: int, n: int = 1024) -> float:
    a, b = draw(n, n, n, seed)
    places = np.arange(0, n, n // SAMPLE)
    a, b = a[places], b[:, places]
    where = {"shape": (n, n), "at": (places, places)}
    ours, native = (rms(a, b, product(method, a, b, **where)) for method in (X9, NATIVE))
    return ours / native


def measure_tf32(scale: Scale) -> Found:
    """Three TF32 products on a GPU that has them."""
    lengths = (256, 1024, 4096)
    by_length: dict[str, list[float]] = {"outside": [], "unit": []}
    native: dict[str, Any] = {"format": "fp32"}
    for leading, found in by_length.items():
        given: dict[str, Any] = {"scheme": "ootomo-tf32", "leading": leading}
        for k in lengths:
            each = []
            for seed in range(SEEDS):
                a, b = uniform(128, 128, k, seed)
                ours, theirs = (hwsim.matmul(a, b, device=TF32_DEVICE, **one) for one in (given, native))
                each.append(rms(a, b, ours) / rms(a, b, theirs))
            found.append(geomean(each))
    outside, unit = by_length.values()
    return Found(
        {"sec2-tf32x3-like-native": {"ratio": outside}},
        {
            "sec2-tf32x3-like-native": (
                f"{TF32_DEVICE}, Ootomo's TF32 variant, whose low piece is unscaled (TF32 has FP32's exponents). It is "
                f"{outside[0]:.2f} to {outside[-1]:.2f} of native FP32's error, a chain of FMAs that grows with K; "
                f"with the leading product added in the unit over all of K: {unit[0]:.2f} to {unit[-1]:.2f}."
            )
        },
    )


EXPERIMENTS = (
    Experiment(
        "conditioned-operands",
        (
            "sec2-worst-case-like-native", "sec2-not-always-better", "sec2-x6-average-similar", "sec2-x6-worst-case",
            "intro-x9-more-accurate-than-x6", "intro-x9-more-accurate-than-fp16",
        ),
        measure_conditioned,
        {"quick": 10.0, "full": 90.0},
    ),
    Experiment(
        "normal-operands",
        ("abstract-more-accurate", "intro-comparable-accuracy"),
        measure_normal,
        {"quick": 5.0, "full": 300.0},
    ),
    Experiment("three-tf32-products", ("sec2-tf32x3-like-native",), measure_tf32, {"quick": 5.0, "full": 5.0}),
)  # fmt: skip
