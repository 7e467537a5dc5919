"""BF16x9's errors at the ends of FP32's range, without its scales, in another order: Abstract, Sections 1, 2 and 4.

It knows operands by their exponents, and INT8 slices as the fixed point to compare with.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import hwsim
from hwsim_lab.papers.bf16x9.accuracy_runs import (
    DEVICE,
    NATIVE,
    X9,
    Array,
    Pair,
    geomean,
    normal,
    product,
    rms,
    rms_ratio,
    row_by_row,
    spread,
    unscaled,
    wide,
)
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series

SEEDS = 3
EXPONENTS = (-140, -126, -110, -60, 0, 60, 110, 120)
LEAST_SUM, MOST_SUM = -120, 110
LEAST = 2.0**-149
INT8 = {"scheme": "ozaki-int8", "slices": 4}


def by_scheme(scheme: Any, a: Array, b: Array) -> float:
    """Error of a scheme, Eq. 6."""
    return rms(a, b, np.asarray(hwsim.matmul(a, b, device=DEVICE, scheme=scheme)))


def small_by_large(seed: int) -> Pair:
    """A of exponents that BF16's unscaled pieces do not reach, and a B that brings the product back."""
    random = np.random.default_rng(seed)
    return spread((128, 256), -126, -118, random), spread((256, 128), 90, 110, random)


def measure_scales(scale: Scale) -> Found:
    """BF16x9 and BF16x6 with and without the scales of Eq. 4."""
    nine, six = unscaled("bf16x9"), unscaled("bf16x6")
    pairs = [small_by_large(seed) for seed in range(SEEDS)]
    ours = [rms(a, b, product(X9, a, b)) for a, b in pairs]
    without = [by_scheme(nine, a, b) / x for (a, b), x in zip(pairs, ours, strict=True)]
    sixes = [by_scheme(six, a, b) / x for (a, b), x in zip(pairs, ours, strict=True)]
    natives = [rms_ratio(a, b, X9, NATIVE) for a, b in pairs]
    return Found(
        {
            "eq4-scaling-improves-accuracy": {"ratio": geomean(without)},
            "sec2-x9-robust-outside-range": {"x6_over_x9": geomean(sixes), "x9_over_native": geomean(natives)},
        },
        {
            "sec2-x9-robust-outside-range": (
                "Unscaled: the same plan with pieces and accumulator left as they are; geometric means of 3 seeds."
            )
        },
    )


def measure_denormals(scale: Scale) -> Found:
    """A of denormals by a B of large numbers."""
    n, ratios, zeroed = 256, [], 0
    for seed in range(SEEDS):
        random = np.random.default_rng(seed)
        a = (random.integers(1, 1 << 23, (n, n)) * LEAST * random.choice((-1.0, 1.0), (n, n))).astype(np.float32)
        b = spread((n, n), 100, 110, random)
        ratios.append(rms_ratio(a, b, X9, NATIVE))
        zeroed += int(((product(X9, a, b) == 0) & (wide(a, b) != 0)).sum())
    return Found({"abstract-denormals": {"ratio": max(ratios), "zeroed": zeroed}})


def measure_full_range(scale: Scale) -> Found:
    """Operands of one exponent each, for pairs over FP32's range."""
    m, n, k = (64, 64, 1024) if scale == "quick" else (512, 2048, 1024)
    columns: dict[str, list[Any]] = {"exponent of A": [], "exponent of B": [], "BF16x9 by native": []}
    for ea in EXPONENTS:
        for eb in EXPONENTS:
            if not LEAST_SUM <= ea + eb <= MOST_SUM:
                continue
            random = np.random.default_rng([ea + 200, eb + 200])
            a, b = spread((m, k), ea, ea, random), spread((k, n), eb, eb, random)
            for name, value in zip(columns, (ea, eb, rms_ratio(a, b, X9, NATIVE)), strict=True):
                columns[name].append(value)
    ratio = columns["BF16x9 by native"]
    worst = int(np.argmax(ratio))
    return Found(
        {"intro-ieee-level-full-range": {"ratio": ratio}},
        {
            "intro-ieee-level-full-range": (
                f"{m} x {k} by {k} x {n}. Greatest ratio {ratio[worst]:.2f}, at exponents "
                f"{columns['exponent of A'][worst]} and {columns['exponent of B'][worst]}."
            )
        },
        (Series("full-range", columns, x="exponent of A", y="BF16x9 by native", by="exponent of B"),),
    )


def measure_order(scale: Scale) -> Found:
    """Bands from the least, against the order of Eq. 5."""
    lengths, rows = (160, 1024), row_by_row()
    ratio = []
    for k in lengths:
        pairs = [normal(128, 128, k, seed) for seed in range(SEEDS)]
        ratio.append(geomean([by_scheme(rows, a, b) / rms(a, b, product(X9, a, b)) for a, b in pairs]))
    return Found(
        {"fig1-band-order-reduces-error": {"ratio": ratio}},
        {
            "fig1-band-order-reduces-error": (
                "The order of Eq. 5 with unscaled pieces on one accumulator: scales are powers of two and change "
                "nothing for these operands. Both add outside the unit after each 16 of K."
            )
        },
    )


def of_like_products(reach: int, seed: int) -> Pair:
    """Rows and columns whose exponents spread over 2 `reach`, in opposite directions."""
    random = np.random.default_rng(seed)
    steps = random.integers(-reach, reach, 256, endpoint=True)
    a, b = spread((128, 256), 0, 0, random), spread((256, 128), 0, 0, random)
    return np.ldexp(a, -steps), np.ldexp(b, steps[:, None])


def by_sum_of_products(a: Array, b: Array, **options: Any) -> float:
    """The mean of |error| / (|A| |B|)."""
    computed = np.asarray(hwsim.matmul(a, b, device=DEVICE, **options))
    return float(np.mean(np.abs(computed - wide(a, b)) / wide(np.abs(a), np.abs(b))))


def measure_fixed_point(scale: Scale) -> Found:
    """Four INT8 slices against BF16x9, for narrow and wide ranges of exponents."""

    def error(reach: int, **options: Any) -> float:
        return geomean([by_sum_of_products(*of_like_products(reach, seed), **options) for seed in range(SEEDS)])

    narrow, wide_range = 2, 20
    fixed = [error(reach, **INT8) for reach in (narrow, wide_range)]
    ours = [error(reach, scheme="bf16x9") for reach in (narrow, wide_range)]
    measured: dict[str, Quantity] = {
        "wide_ratio": fixed[1] / ours[1],
        "int8_growth": fixed[1] / fixed[0],
        "x9_growth": ours[1] / ours[0],
    }
    return Found(
        {"sec2-int8-range": measured},
        {
            "sec2-int8-range": (
                "Exponents of A and B from the scales of K alone, so that products are of like size; INT8: 4 slices "
                "of 7 bits, truncated, products i + j < 4, added in FP64 (result in FP64)."
            )
        },
    )


EXPERIMENTS = (
    Experiment(
        "scaled-pieces",
        ("eq4-scaling-improves-accuracy", "sec2-x9-robust-outside-range"),
        measure_scales,
        {"quick": 2.0, "full": 2.0},
    ),
    Experiment("denormal-operands", ("abstract-denormals",), measure_denormals, {"quick": 1.0, "full": 1.0}),
    Experiment("full-range", ("intro-ieee-level-full-range",), measure_full_range, {"quick": 6.0, "full": 300.0}),
    Experiment("order-of-bands", ("fig1-band-order-reduces-error",), measure_order, {"quick": 2.0, "full": 2.0}),
    Experiment("fixed-point", ("sec2-int8-range",), measure_fixed_point, {"quick": 3.0, "full": 3.0}),
)
