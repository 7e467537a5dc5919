"""SGEMM-cube's claims on splitting FP32 into two FP16 numbers: lost bits, underflow, and the limits of scaling.

It knows how a scheme's plan splits an operand, and counts over the significands of a binade; it forms no products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.devices import load
from hwsim.evaluate.split import pieces_of
from hwsim.formats import format_of
from hwsim.gemm.plan import Piece, Plan
from hwsim.gemm.problem import Problem
from hwsim.operands.operand import Operand
from hwsim.schemes import scheme_of
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series

Float64 = NDArray[np.float64]
DEVICE, SCHEME = "ascend910a", "sgemm-cube"
FRACTION = 23  # explicit significand bits of fp32
NORMAL, SUBNORMAL = 2.0**-14, 2.0**-24  # the least numbers of fp16
SAMPLE = 37  # in a subset every so many significands are taken, and the ends
TAILS = 1 << 14  # trailing significand bits that decide the split of a binade with normal high parts, and its ties
LOW, NEAR = tuple(range(-27, 3)), tuple(range(-14, 16))


@dataclass(frozen=True, slots=True)
class SplitParts:
    """Values and their parts, fp64: high, low as it is stored (scaled), and the error of high + unscaled low."""

    values: Float64
    high: Float64
    low: Float64
    error: Float64

    @property
    def rest(self) -> Float64:
        """The exact residual that the low part is rounded from."""
        return self.values - self.high


def binade(exponent: int, step: int = 1) -> Float64:
    """The fp32 numbers of [2^exponent, 2^(exponent + 1)), or every step-th of them and the last."""
    numbers = np.arange(0, 1 << FRACTION, step, dtype=np.int64)
    if step > 1:
        numbers = np.append(numbers, (1 << FRACTION) - 1)
    return np.ldexp(1 + numbers / 2.0**FRACTION, exponent)


def tails(exponent: int) -> Float64:
    """Numbers of a binade with all trailing bits behind the first, the second and the last leading bits.

    Where the high part is normal, its rounding and the residual depend on no other bits.
    """
    heads = np.array([0, 1, (1 << FRACTION) // TAILS - 1], np.int64)
    numbers = (heads[:, None] * TAILS + np.arange(TAILS)).ravel()
    return np.ldexp(1 + numbers / 2.0**FRACTION, exponent)


def parts(values: Float64, scheme: str = SCHEME, device: str = DEVICE, **options: Any) -> SplitParts:
    """Splits as the scheme does; conversions overflow to infinity, as the paper's formulas have it."""
    chosen = scheme_of(scheme)
    plan = chosen.plan(chosen.complete(options), Problem.of("fp32", 1, 1, 1))
    assert isinstance(plan, Plan)
    pieces: tuple[Piece, ...] = tuple(replace(piece, overflow="ieee") for piece in plan.a_pieces)
    given = Operand(values.astype(np.float32).view(np.uint32)[None], "fp32")
    codes = pieces_of(given, replace(plan, a_pieces=pieces), "a", load(device)).codes
    high, low = (
        Operand(code, piece.format).values().astype(np.float64)[0] for code, piece in zip(codes, pieces, strict=True)
    )
    with np.errstate(invalid="ignore"):
        error = values - high - np.ldexp(low, -pieces[1].scale_exponent)
    return SplitParts(values, high, low, error)


def numbers(exponent: int, scale: Scale) -> Float64:
    """All numbers of a binade; at quick scale `tails`, whose shares and worst errors are the same."""
    return tails(exponent) if scale == "quick" and exponent >= -14 else binade(exponent)


def loss(scale: Scale, scheme: str, device: str = DEVICE, **options: Any) -> float:
    """Low bits of fp32's significand that the split may get wrong, for numbers of [1, 2)."""
    worst = np.abs(parts(numbers(0, scale), scheme, device, **options).error).max()
    return math.log2(1 + float(worst) * 2.0**FRACTION)


@cache
def preserved_bits(exponent: int, scaling_exponent: int, step: int = 1) -> float:
    """Explicit significand bits kept for the worst number of a binade; 0 where a low part is infinite."""
    values = tails(exponent) if exponent >= -14 else binade(exponent, step)
    found = parts(values, scaling_exponent=scaling_exponent)
    fits = np.isfinite(found.high)
    if not np.isfinite(found.low[fits]).all():
        return 0.0
    worst = float(np.abs(found.error[fits]).max())
    return max(0.0, exponent - 1 - math.log2(worst)) if worst else float(FRACTION)


def significand_bits(format: str) -> float:
    """Significand bits of a format with the hidden one, from the distance of 1 to the next number above."""
    dtype = np.dtype(f"f{format_of(format).bits // 8}")
    one = np.ones((1, 1), dtype)
    above = Operand(one.view(f"u{dtype.itemsize}") + 1, format).values()[0, 0]
    return 1 - math.log2(float(above) - 1)


def measure_losses(scale: Scale) -> Found:
    """Table 2's lost bits of each scheme's split, and the formats' precision."""
    feng = loss(scale, "egemm-tc", "t4")
    truncated = loss(scale, "egemm-tc", "t4", rounding="RZ")
    return Found(
        {
            "sec2-significand-bits": {name: significand_bits(name) for name in ("fp16", "fp32")},
            "table2-markidis-loss": {"loss": loss(scale, "markidis", "v100")},
            "table2-feng-loss": {"loss": feng, "kept": FRACTION - feng},
            "table2-ootomo-loss": {"loss": loss(scale, "ootomo-fp16", "a100")},
            "sec2-ootomo-tf32-loss": {"loss": loss(scale, "ootomo-tf32", "a100")},
            "table2-ma-loss": {"loss": loss(scale, "ape-fp32-f", "a100")},
            "table2-this-loss": {"loss": [loss(scale, SCHEME, scaling_exponent=sb) for sb in (0, 6, 12)]},
        },
        {
            "table2-feng-loss": f"The scheme rounds both pieces to nearest even, as its own paper's text says; with "
            f"both toward zero, as Table 2 says, the loss is {truncated:g} bits.",
            "sec2-ootomo-tf32-loss": "Rounded to nearest, ties away, as the scheme does; its low part is not scaled "
            "(TF32 has the exponents of FP32), and the split of [1, 2) is the same with a factor of 2^11.",
            "table2-ma-loss": "With the split of ape-fp32-f, which scales the low part by 2^12.",
        },
    )


def measure_single(scale: Scale) -> Found:
    """What becomes of single numbers, the range of N, and the 22 bits of Section 3.1.1."""
    tie, carry = (parts(np.array([value]), scaling_exponent=0) for value in (1 + 2.0**-11, 2 - 2.0**-FRACTION))
    every = parts(binade(0), scaling_exponent=0)
    rest = every.rest
    nonzero = np.abs(rest[rest != 0])
    zeros = -12 - (np.frexp(nonzero)[1] - 1)
    shares = [float(np.count_nonzero(zeros == n)) / len(rest) for n in range(-1, 12)]
    bits = preserved_bits(0, 0)
    gain = math.log2(float(np.abs(rest).max()) / float(np.abs(every.error).max()))
    return Found(
        {
            "sec3-1-1-tie": {"high": float(tie.high[0]), "low": float(tie.low[0])},
            "eq2-carry": {"high": float(carry.high[0]), "low": float(carry.low[0])},
            "eq2-sign-flip": {"share": float(np.mean(every.low < 0))},
            "eq2-range-of-n": {"least": int(zeros.min()), "greatest": int(zeros.max())},
            "sec3-1-1-22-bits": {"bits": bits, "below_fp32": FRACTION - bits},
            "sec3-1-1-11-more": {"gain": gain},
            "eq3-distribution": {"p": [*shares, float(np.mean(rest == 0))]},
        },
        {
            "eq2-range-of-n": "Counted over all numbers of the binade, N has the ends that Section 3.1.2's Eq. 3 sums "
            "over, less 12 (a low part of zero): a tie of the high part gives -1, a last bit alone 11.",
            "sec3-1-1-11-more": "The residual's worst is 2^-11, and one unit of FP32's last place is left of it: the "
            "second part brings 12 bits, its sign being one of them.",
        },
    )


def measure_underflow(scale: Scale) -> Found:
    """Eq. 5 and Fig. 2a: how often the unscaled low part is subnormal or zero."""
    gradual, complete, subnormal, zero = {}, {}, {}, {}
    exponents = tuple(range(-16, 5))
    for exponent in exponents:
        found = parts(numbers(exponent, scale), scaling_exponent=0)
        rest, low = np.abs(found.rest), np.abs(found.low)
        gradual[exponent], complete[exponent] = float(np.mean(rest < NORMAL)), float(np.mean(rest < SUBNORMAL))
        subnormal[exponent], zero[exponent] = float(np.mean(low < NORMAL)), float(np.mean(low == 0))
    names = ("without subnormals", "with subnormals")
    columns: dict[str, list[Any]] = {
        "offset exponent": [*exponents, *exponents],
        "probability": [*(subnormal[e] for e in exponents), *(zero[e] for e in exponents)],
        "underflow": [name for name in names for _ in exponents],
    }
    half = zero[-12]
    return Found(
        {
            "eq5-gradual": {"p": [gradual[e] for e in range(-3, 5)]},
            "eq5-underflow": {"p": [complete[e] for e in range(-13, -5)]},
            "fig2a-gradual-10-percent": {"p": subnormal[0]},
            "fig2a-collapse": {
                "above": [zero[e] for e in range(-6, -11, -1)],
                "below": [zero[e] for e in range(-13, -17, -1)],
            },
        },
        {
            "fig2a-collapse": "The low part is rounded, so that residuals from half the least subnormal on stay: "
            f"{zero[-13]:.1%} are zero at exponent -13 and {half:.1%} at -12; judged before rounding, as Eq. 4 does, "
            f"{complete[-13]:.1%} and {complete[-12]:.1%}."
        },
        (Series("fig2a", columns, "offset exponent", "probability", "underflow"),),
    )


def least_scaling(exponent: int, bits: float) -> int:
    """The least sb that keeps so many bits in a binade; -1: none up to 40."""
    return next((sb for sb in range(41) if preserved_bits(exponent, sb) >= bits), -1)


def overflows(exponent: int, scaling_exponent: int) -> float:
    """Share of the numbers of a binade with a finite high part whose scaled low part is infinite."""
    found = parts(binade(exponent), scaling_exponent=scaling_exponent)
    return float(np.mean(np.isinf(found.low[np.isfinite(found.high)])))


def greatest_scaling(exponent: int) -> int:
    """The greatest sb with which no scaled low part of a binade is infinite."""

    def is_safe(sb: int) -> bool:
        found = parts(tails(exponent), scaling_exponent=sb)
        return not np.isinf(found.low[np.isfinite(found.high)]).any()

    return max(sb for sb in range(41) if is_safe(sb))


def _curve(exponents: Sequence[int], scaling_exponent: int, step: int) -> list[float]:
    return [preserved_bits(e, scaling_exponent, step) for e in exponents]


def measure_scaling(scale: Scale) -> Found:
    """Section 3.1.3: bits kept by exponent and scaling, and the limits of Eq. 6."""
    step = SAMPLE if scale == "quick" else 1
    low = parts(binade(-13), scaling_exponent=0)
    ratio = float(np.abs(low.rest).max() / np.abs(low.error).max())
    wanted = preserved_bits(0, 0)
    scaled, unscaled = _curve(LOW, 12, step), _curve([e + 12 for e in LOW], 0, step)
    shown = tuple(range(-27, 16))
    names = ("sb = 0", "sb = 12")
    columns: dict[str, list[Any]] = {
        "offset exponent": [*shown, *shown],
        "bits": [*_curve(shown, 0, step), *_curve(shown, 12, step)],
        "scaling": [name for name in names for _ in shown],
    }
    sampled = f"Binades below 2^-14 by every {step}th number and the last." if step > 1 else ""
    whole = _curve(NEAR, 12, step)
    wrong = [e for e, one in zip(NEAR, whole, strict=True) if one < wanted]
    return Found(
        {
            "sec3-1-3-rule1-limit": {"bits_at_limit": preserved_bits(-2, 0), "bits_below": preserved_bits(-3, 0)},
            "sec3-1-3-rule1-collapse": {"ratio": ratio},
            "sec3-1-3-loss-below-2-12": {"bits": _curve(range(-13, -19, -1), 0, step)},
            "sec3-1-3-below-2-24": {"best_bits": max(preserved_bits(-26, sb, step) for sb in range(41))},
            "sec3-1-3-rule2": {"overflow_12": overflows(15, 12), "overflow_13": overflows(15, 13)},
            "eq6-lower-bound": {"least_sb": [least_scaling(e, wanted) for e in (-2, -6, -10, -14)]},
            "eq6-upper-bound": {"greatest_sb": [greatest_scaling(e) for e in (15, 10, 5, 0)]},
            "eq6-sb-12": {"bits": whole},
            "fig2b-unscaled": {"bits": _curve(range(-14, -1), 0, step)},
            "fig2b-shift": {"bits_scaled": scaled, "bits_unscaled_12_above": unscaled},
        },
        {
            "sec3-1-3-rule1-collapse": "The low part of [2^-13, 2^-12) is rounded to a multiple of 2^-24, which still "
            f"leaves {ratio:g} times less error than the high part alone.",
            "sec3-1-3-loss-below-2-12": sampled,
            "sec3-1-3-below-2-24": "Where the high part is zero the low part carries 11 bits alone. " + sampled,
            "sec3-1-3-rule2": "Conversions that overflow to infinity, as Eq. 6 has it; the 910A's saturate in "
            "hwsim. At and just below a tie of the high part the residual is 2^4 in the largest binade, which 2^12 "
            "takes to 2^16.",
            "eq6-upper-bound": "The greatest residual of a binade 2^E is 2^(E - 11), at a tie; the formula has room "
            "for residuals below that alone.",
            "eq6-sb-12": f"Fewer bits at exponents {wrong}: a tie of the high part overflows the scaled low part."
            if wrong
            else "",
            "fig2b-shift": sampled,
        },
        (Series("fig2b", columns, "offset exponent", "bits", "scaling"),),
    )


EXPERIMENTS = (
    Experiment(
        "losses",
        (
            *("sec2-significand-bits", "table2-markidis-loss", "table2-feng-loss", "table2-ootomo-loss"),
            *("sec2-ootomo-tf32-loss", "table2-ma-loss", "table2-this-loss"),
        ),
        measure_losses,
        {"quick": 1, "full": 15},
    ),
    Experiment(
        "single-numbers",
        (
            *("sec3-1-1-tie", "eq2-carry", "eq2-sign-flip", "eq2-range-of-n", "sec3-1-1-22-bits"),
            *("sec3-1-1-11-more", "eq3-distribution"),
        ),
        measure_single,
        {"quick": 2, "full": 2},
    ),
    Experiment(
        "underflow",
        ("eq5-gradual", "eq5-underflow", "fig2a-gradual-10-percent", "fig2a-collapse"),
        measure_underflow,
        {"quick": 3, "full": 25},
    ),
    Experiment(
        "scaling",
        (
            *("sec3-1-3-rule1-limit", "sec3-1-3-rule1-collapse", "sec3-1-3-loss-below-2-12", "sec3-1-3-below-2-24"),
            *("sec3-1-3-rule2", "eq6-lower-bound", "eq6-upper-bound", "eq6-sb-12", "fig2b-unscaled", "fig2b-shift"),
        ),
        measure_scaling,
        {"quick": 5, "full": 60},
    ),
)
