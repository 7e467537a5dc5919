"""SGEMM-cube's analysis of its low piece (arXiv 2507.23387, 3.1.2-3.1.3, Fig. 2): underflow, and bits preserved.

The paper's formulas (Eq. 3-6), compared with counts over significands that are split as the scheme splits them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
FRACTION, HIGH_FRACTION = 23, 10  # fraction bits of fp32 and fp16
BIAS, LEAST_NORMAL, LEAST = 15, -14, -24  # fp16: bias, exponents of the least normal and subnormal number
LOW_BITS = FRACTION - HIGH_FRACTION
EXPONENTS = tuple(range(-25, 16))
SCALING = (0, 12)
HEADS = 16  # leading bits of the significands are drawn so often; the rest are all there


def zeros_probability(n: int) -> float:
    """Probability that the low piece has n leading zeros, truncated or rounded (Eq. 3, both cases added)."""
    if n < -1 or n >= LOW_BITS:
        return 0.0
    if n == LOW_BITS - 1:
        return 0.5**LOW_BITS
    return 2 * (0.5 ** (LOW_BITS + 1) if n == -1 else 0.5 ** (n + 2))


def underflow_probability(exponent: int, *, gradual: bool) -> float:
    """Probability that the unscaled low piece underflows: gradually or completely (`gradual`), or completely (Eq.
    5).
    """
    first = exponent + BIAS - 2 - (HIGH_FRACTION if gradual else 0)
    return sum(zeros_probability(n) for n in range(max(first, -1), LOW_BITS))


def significant_bits_bound(exponent: int, scaling_exponent: int) -> int:
    """Fraction bits of a number of this exponent that survive the split, at most 22 (Eq. 6); 0 beyond fp16's range."""
    largest = BIAS
    if exponent > largest:
        return 0
    by_high = min(HIGH_FRACTION, exponent - LEAST)
    by_low = min(2 * HIGH_FRACTION + 2, exponent - LEAST + scaling_exponent)
    fits = exponent - (HIGH_FRACTION + 2) + scaling_exponent <= largest
    return max(by_high, by_low if fits else 0, 0)


@dataclass(frozen=True, slots=True)
class ExponentLoss:
    """Losses at one exponent.

    formula, counted: probabilities of (gradual or complete underflow, complete underflow) of the unscaled piece. bound,
    kept: bits by scaling exponent, from the formula and for the worst of the significands.
    """

    exponent: int
    formula: tuple[float, float]
    counted: tuple[float, float]
    bound: dict[int, int]
    worst_bits: dict[int, float]


def points(exponents: Iterable[int] = EXPONENTS, seed: int = 0) -> Iterator[ExponentLoss]:
    """The points of the figure."""
    rng = np.random.default_rng(seed)
    low = np.arange(2 ** (LOW_BITS + 1))  # the bits that are cut, and the one that decides ties
    heads = rng.integers(0, 2 ** (FRACTION - LOW_BITS - 1), HEADS)
    heads[:2] = 0, heads.max()
    fraction = (heads[:, None] << (LOW_BITS + 1) | low).ravel()
    significand = 1 + fraction / 2.0**FRACTION
    for exponent in exponents:
        x = np.ldexp(significand, exponent)
        with np.errstate(over="ignore"):
            rest = x - x.astype(np.float16).astype(np.float64)
        place = np.frexp(np.where(rest == 0, 2.0 ** (exponent - 2 * (HIGH_FRACTION + 2)), np.abs(rest)))[1] - 1
        # Eq. 4 counts a rest of nothing as one of the most leading zeros.
        counted = float((place < LEAST_NORMAL).mean()), float((place < LEAST).mean())
        formula = tuple(underflow_probability(exponent, gradual=gradual) for gradual in (True, False))
        yield ExponentLoss(
            exponent,
            (formula[0], formula[1]),
            counted,
            {sb: significant_bits_bound(exponent, sb) for sb in SCALING},
            {sb: significant_bits(x, exponent, sb) for sb in SCALING},
        )


def significant_bits(x: Float64, exponent: int, scaling_exponent: int) -> float:
    """Fraction bits preserved for the worst element of x: -log2(error / 2^exponent) - 1, from 0 to 23."""
    with np.errstate(over="ignore", invalid="ignore"):
        high = x.astype(np.float16).astype(np.float64)
        low = np.ldexp((x - high).astype(np.float32), scaling_exponent).astype(np.float16).astype(np.float64)
        worst = float(np.abs(x - high - np.ldexp(low, -scaling_exponent)).max())
    if not math.isfinite(worst):
        return 0.0
    return max(0.0, min(float(FRACTION), exponent - 1 - math.log2(worst)) if worst else float(FRACTION))


def markdown(found: Iterable[ExponentLoss]) -> str:
    """The points as a Markdown table."""
    head = ["exponent", "underflow or gradual, Eq. 5", "counted", "underflow, Eq. 5", "counted"]
    head += [f"bits, sb={sb}{what}" for sb in SCALING for what in ("", ", worst counted")]
    lines = [f"| {' | '.join(head)} |", "|" + " ---: |" * len(head)]
    for point in found:
        cells = [str(point.exponent)]
        cells += [f"{100 * x:.2f} %" for i in (0, 1) for x in (point.formula[i], point.counted[i])]
        cells += [text for sb in SCALING for text in (str(point.bound[sb]), f"{point.worst_bits[sb]:.1f}")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def plain(point: ExponentLoss) -> dict[str, Any]:
    """A point as plain data."""
    return {
        "exponent": point.exponent,
        "formula": list(point.formula),
        "counted": list(point.counted),
        "bound": {str(sb): bits for sb, bits in point.bound.items()},
        "kept": {str(sb): bits for sb, bits in point.worst_bits.items()},
    }
