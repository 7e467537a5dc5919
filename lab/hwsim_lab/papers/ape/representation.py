"""Ape's representations (its Tables 1 and 2, section 4): bits, ranges and fields of the splits, as they come out.

It knows hwsim's splits and NumPy's conversions beside which it puts them; none of the paper's numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import ml_dtypes
import numpy as np

from hwsim.formats import format_of
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale
from hwsim_lab.papers.splits import Array, SchemeSplit, log_uniform, products, significands

DEVICE = "a100"
F, T, B = (SchemeSplit(f"ape-fp32-{letter}", DEVICE) for letter in ("f", "t", "b"))
M = SchemeSplit("markidis", DEVICE, (("rounding", "RNE"),))
EGEMM = SchemeSplit("egemm-tc", DEVICE)
COUNT = 200_000
WITHIN_22_BITS = 2.0**-23
TF32_DROPPED = 13
MARKIDIS_NOTE = (
    "Both parts to nearest even, as the claim says; with RZ, the scheme's default here, the split keeps a bit less."
)


def keeps(bound: float) -> Callable[[Array], bool]:
    """A test that every error is at most a bound."""
    return lambda errors: bool((errors <= bound).all())


@cache
def bits(split: SchemeSplit) -> int:
    """Bits of precision."""
    return split.precision_bits()


@cache
def least(split: SchemeSplit, bound: float) -> int:
    """The smallest exponent from which on errors are at most the bound."""
    return split.least_exponent(keeps(bound))


@cache
def largest(split: SchemeSplit) -> float:
    """The largest FP32 number whose parts are finite."""
    return split.largest()


def top(split: SchemeSplit) -> int:
    """Its exponent."""
    return int(np.floor(np.log2(largest(split))))


def to_tf32(x: Array) -> Array:
    """FP32 rounded to TF32, to nearest even, by integer arithmetic."""
    code = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    half, odd = np.uint64((1 << (TF32_DROPPED - 1)) - 1), (code >> np.uint64(TF32_DROPPED)) & np.uint64(1)
    rounded = (code + half + odd) >> np.uint64(TF32_DROPPED) << np.uint64(TF32_DROPPED)
    return rounded.astype(np.uint32).view(np.float32)


def by_numpy(x: Array, convert: Callable[[Array], Array], count: int, shift: int = 0) -> list[Array]:
    """Parts of x by NumPy's conversions, each of the fp32 remainder; the last ones scaled by 2^shift."""
    found, rest = [], x
    for place in range(count):
        part = convert(rest * np.float32(2.0**shift) if place and shift else rest).astype(np.float32)
        found.append(part)
        rest = rest - part
    return found


def to_fp16(x: Array) -> Array:
    """NumPy's conversion."""
    with np.errstate(over="ignore"):
        return x.astype(np.float16)


def to_bf16(x: Array) -> Array:
    """ml_dtypes' conversion."""
    return x.astype(ml_dtypes.bfloat16)


def differing(split: SchemeSplit, x: Array, by_hand: list[Array]) -> int:
    """Numbers of which a part has other bits than by hand."""
    wrong = np.zeros(x.shape, bool)
    for own, other in zip(split.parts(x), by_hand, strict=True):
        wrong |= own.astype(np.float32).view(np.uint32) != other.view(np.uint32)
    return int(wrong.sum())


def tables(scale: Scale) -> Found:
    """Tables 1 and 2: bits and exponents."""
    unscaled, scaled = least(M, WITHIN_22_BITS), least(F, WITHIN_22_BITS)
    measured: dict[str, dict[str, Quantity]] = {
        "table1-previous-fp16-range": {
            "min_exponent": unscaled, "max_exponent": top(M), "low": 2.0**unscaled, "high": largest(M),
        },
        "table1-previous-fp16-precision": {"bits": bits(EGEMM)},
        "table1-markidis-20-bits": {"bits": bits(M)},
        "table1-fp32f-range": {"min_exponent": scaled, "max_exponent": top(F), "gain": unscaled - scaled},
        "table1-fp32f-precision": {"bits": bits(F), "previous": bits(EGEMM)},
        "table1-one-bit-loss": {"loss_fp32f": 23 - bits(F), "loss_fp32t": 23 - bits(T)},
        "table2-egemm": {
            "bits": bits(EGEMM), "min_exponent": least(EGEMM, 2.0 ** -(bits(EGEMM) + 1)), "max_exponent": top(EGEMM),
        },
        "sec4-1-range-enlarged": {"low": 2.0**scaled, "low_unscaled": 2.0**unscaled, "high": largest(F)},
    }  # fmt: skip
    sign = "The remainder's sign is a bit as well: two parts to nearest keep 22 bits, scaled or not, if normal."
    notes = dict.fromkeys(("table1-previous-fp16-range", "table1-markidis-20-bits"), MARKIDIS_NOTE)
    notes |= dict.fromkeys(("table1-previous-fp16-precision", "table1-fp32f-precision", "table2-egemm"), sign)
    return Found(measured, notes)


def share_within_22_bits(split: SchemeSplit, exponent: int) -> float:
    """Share of random numbers of a binade that are kept within 22 bits."""
    x = np.ldexp(significands()[: 1 << 16], exponent).astype(np.float32)
    return float((split.errors(x) <= WITHIN_22_BITS).mean())


def fp32_f(scale: Scale) -> Found:
    """Section 4.1: FP32-F's split."""
    x = log_uniform(2.0**-14, 65504.0, COUNT)
    wide = log_uniform(2.0**-24, 65504.0, COUNT, seed=1)
    one = significands()
    fraction = one.view(np.uint32) & np.uint32((1 << 23) - 1)
    twelfth, eleventh = (((fraction >> np.uint32(23 - place)) & 1) == 1 for place in (12, 11))
    last = (fraction & np.uint32(1)) == 1
    apart = np.abs(one.astype(np.float64) - F.value(one)) * 2.0**23
    high, low = F.parts(one)
    later = (fraction & np.uint32((1 << 11) - 1)) != 0
    drawn = twelfth & later & (high < 2)
    gap = np.floor(np.log2(high)) - np.floor(np.log2(np.where(low == 0, 1, np.abs(low)) * 2.0**-12))
    measured: dict[str, dict[str, Quantity]] = {
        "listing1-split": {"different": differing(M, wide, by_numpy(wide, to_fp16, 2))},
        "sec4-1-lo-scaled": {
            "scale": 2 ** F.pieces[1].scale_exponent,
            "different": differing(F, x, by_numpy(x, to_fp16, 2, F.pieces[1].scale_exponent)),
        },
        "fig5-field-layout": {
            "exact_even": float((apart[twelfth & ~last] == 0).mean()),
            "error_odd": float(apart[twelfth & last].max()),
        },
        "fig5-hi-rounding": {"different": int((high != one.astype(np.float16).astype(np.float64)).sum())},
        "fig5-lo-exponent": {
            "share": float((gap[drawn] == 12).mean()),
            "share_not_rounded": float((gap[drawn & ~eleventh] == 12).mean()),
        },
        "fig5-rounding-bit-sign": {"share": float((np.signbit(low) == eleventh)[twelfth & later].mean())},
        "sec4-1-exponent-limits": {
            name: share_within_22_bits(F, exponent)
            for name, exponent in (("above", 16), ("below", -15), ("far_below", -40))
        },
    }  # fmt: skip
    rounded = "Where Hi is rounded up the remainder is negative, and its leading bit is another one."
    return Found(measured, {"fig5-lo-exponent": rounded})


def fp32_t(scale: Scale) -> Found:
    """Section 4.2: FP32-T's split."""
    x = log_uniform(2.0 ** least(T, WITHIN_22_BITS), 3.3e38, COUNT)
    measured: dict[str, dict[str, Quantity]] = {
        "sec4-2-fp32t-split": {
            "bits": bits(T),
            "scale": 2 ** T.pieces[1].scale_exponent,
            "different": differing(T, x, by_numpy(x, to_tf32, 2)),
        },
        "sec4-2-fp32t-range": {"low": 2.0 ** least(T, WITHIN_22_BITS), "high": largest(T)},
        "sec4-2-fp32t-three-products": {"products": len(products(T.plan))},
    }
    return Found(measured)


def fp32_b(scale: Scale) -> Found:
    """Section 4.3: FP32-B's split."""
    x = log_uniform(2.0**-110, 3.38e38, COUNT)
    every = np.arange(0, 1 << 23, 1 if scale == "full" else 7, dtype=np.uint32) | np.uint32(127 << 23)
    one = every.view(np.float32)
    low = B.parts(one)[2]
    places = [((every >> np.uint32(23 - place)) & 1) for place in (8, 9, 17, 18)]
    drawn = (places[0] == 0) & (places[1] == 1) & (places[2] == 0) & (places[3] == 1) & (low != 0)
    codes = low[drawn].astype(np.float32).view(np.uint32)
    fraction = codes & np.uint32((1 << 23) - 1)
    used = 23 - np.where(fraction == 0, 23, np.log2((fraction & (~fraction + np.uint32(1))).clip(1)))
    exact_from = least(B, 0.0)
    pairs = products(B.plan)
    left = sorted({(i, j) for i in range(3) for j in range(3)} - set(pairs))
    measured: dict[str, dict[str, Quantity]] = {
        "listing3-split": {
            "different": differing(B, x, by_numpy(x, to_bf16, 3)),
            "scale": max(2**piece.scale_exponent for piece in B.pieces),
        },
        "fig7-field-layout": {"inexact": int((B.value(one) != one).sum()), "lo_bits": int(used.max())},
        "sec4-3-fp32b-precision": {"error": float(B.errors(x).max())},
        "sec4-3-fp32b-range": {"low": 2.0**exact_from, "high": largest(B)},
        "listing4-six-products": {
            "products": len(pairs), "left_out": len(left) if left == [(1, 2), (2, 1), (2, 2)] else -1,
        },
    }  # fmt: skip
    note = "Every seventh significand of the 2^23." if scale == "quick" else ""
    return Found(measured, {"fig7-field-layout": note} if note else {})


def formats(scale: Scale) -> Found:
    """Fig. 2: fields of the formats."""
    known = [format_of(name) for name in ("fp16", "bf16", "tf32", "fp32")]
    fraction: list[int] = [fmt.fraction_bits for fmt in known]
    measured: dict[str, dict[str, Quantity]] = {
        "fig2-formats": {
            "exponent": [fmt.exponent_bits for fmt in known],
            "significand": fraction,
            "tf32_bytes": format_of("tf32").bits // 8,
        },
        "fig2-format-ranking": {
            "binades": [fmt.max_exponent - fmt.min_exponent + 1 for fmt in known], "significand": fraction,
        },
    }  # fmt: skip
    return Found(measured)


def _experiment(name: str, measure: Callable[[Scale], Found], claims: tuple[str, ...], seconds: float) -> Experiment:
    return Experiment(name, claims, measure, {"quick": seconds, "full": 3 * seconds})


EXPERIMENTS = (
    _experiment(
        "representations",
        tables,
        (
            "table1-previous-fp16-range", "table1-previous-fp16-precision", "table1-markidis-20-bits",
            "table1-fp32f-range", "table1-fp32f-precision", "table1-one-bit-loss", "table2-egemm",
            "sec4-1-range-enlarged",
        ),
        4,
    ),
    _experiment(
        "fp32-f",
        fp32_f,
        (
            "listing1-split", "sec4-1-lo-scaled", "fig5-field-layout", "fig5-hi-rounding", "fig5-lo-exponent",
            "fig5-rounding-bit-sign", "sec4-1-exponent-limits",
        ),
        2,
    ),
    _experiment("fp32-t", fp32_t, ("sec4-2-fp32t-split", "sec4-2-fp32t-range", "sec4-2-fp32t-three-products"), 5),
    _experiment(
        "fp32-b",
        fp32_b,
        (
            "listing3-split", "fig7-field-layout", "sec4-3-fp32b-precision", "sec4-3-fp32b-range",
            "listing4-six-products",
        ),
        6,
    ),
    _experiment("formats", formats, ("fig2-formats", "fig2-format-ranking"), 1),
)  # fmt: skip
