"""What BF16x9's split makes of numbers, denormals, infinities and NaN: Sections 1, 2 and 4, Eq. 5, Fig. 2 and 3.

It knows FP32's numbers and the values of pieces; it multiplies pieces exactly and runs no GEMM.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.devices import load
from hwsim.evaluate.split import pieces_of
from hwsim.formats import array_of, format_of
from hwsim.gemm.plan import Plan
from hwsim.operands.operand import Operand
from hwsim_lab.papers.bf16x9.definitions import DEVICE, EVERY, plan_of, run_plan, scales
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale

Array = NDArray[Any]
FRACTION_BITS, BIAS = 23, 127
COUNT: dict[Scale, int] = {"quick": 200, "full": 2000}  # mantissas per exponent
MANY = 100_000
PAIRS = 10_000
FINITE = 1000  # numbers b of Fig. 3
SEED = 0


def codes_of_split(x: Array, plan: Plan) -> list[Array]:
    """The pieces' codes for FP32 numbers (n,)."""
    given = Operand(np.ascontiguousarray(x, np.float32).view(np.uint32).reshape(1, -1), "fp32")
    return [np.asarray(one).ravel() for one in pieces_of(given, plan, "a", load(DEVICE)).codes]


def pieces(x: Array, plan: Plan) -> list[Array]:
    """The pieces' values, as the unit reads them, in fp64."""
    every = zip(codes_of_split(x, plan), plan.a_pieces, strict=True)
    return [np.asarray(array_of(code, format_of(piece.format))).astype(np.float64) for code, piece in every]


def mismatches(x: Array, plan: Plan) -> Array:
    """Which numbers are not the sum of their scaled pieces: a sum of three such is exact in fp64."""
    total = sum(np.ldexp(part, s) for part, s in zip(pieces(x, plan), scales(plan), strict=True))
    return np.asarray(total != x.astype(np.float64))


def of_exponent(exponent: int, count: int) -> Array:
    """Numbers of a binade, both signs: random mantissas, the least and the greatest one."""
    random = np.random.default_rng([SEED, exponent + 200])
    fractions = np.append(random.integers(0, 1 << FRACTION_BITS, count), [0, (1 << FRACTION_BITS) - 1])
    return _signed((np.uint32(exponent + BIAS) << np.uint32(FRACTION_BITS)) | fractions.astype(np.uint32))


def denormals(count: int) -> Array:
    """Random ones of both signs, the least and the greatest one."""
    random = np.random.default_rng(SEED)
    codes = np.append(random.integers(1, 1 << FRACTION_BITS, count), [1, (1 << FRACTION_BITS) - 1])
    return _signed(codes.astype(np.uint32))


def _signed(codes: Array) -> Array:
    return np.concatenate([codes, codes | np.uint32(1 << 31)]).view(np.float32)


def finite(count: int, seed: int = SEED) -> Array:
    """FP32 numbers of random bits that are finite, denormals among them."""
    random = np.random.default_rng(seed)
    found = random.integers(0, 1 << 32, 2 * count, np.uint32).view(np.float32)
    found = found[np.isfinite(found)]
    found[: count // 20] = denormals(count)[: count // 20]
    return np.asarray(found[:count])


def plain(plan: Plan) -> Plan:
    """The split without saturation and without replacing infinities."""
    return replace(plan, clamp=False, a_pieces=tuple(replace(one, overflow="ieee") for one in plan.a_pieces))


def inexact_products(a: Array, b: Array, plan: Plan) -> int:
    """Pairs of which the nine scaled products do not sum to the product, in exact arithmetic."""
    left, right, steps = pieces(a, plan), pieces(b, plan), scales(plan)
    wrong = 0
    for at in range(len(a)):
        total = sum(
            Fraction(float(left[i][at])) * Fraction(float(right[j][at])) * Fraction(2) ** (steps[i] + steps[j])
            for i, j in EVERY
        )
        wrong += total != Fraction(float(a[at])) * Fraction(float(b[at]))
    return wrong


def measure_splits(scale: Scale) -> Found:
    """Which numbers the scaled and the unscaled split keep."""
    scaled, unscaled = run_plan("bf16x9"), plan_of("bf16x9", accumulation="termwise")
    count = COUNT[scale]
    lost = sum(int(mismatches(of_exponent(e, count), scaled).sum()) for e in range(-126, 127))
    lost += int(mismatches(denormals(MANY), scaled).sum())
    greatest = np.append(of_exponent(127, MANY), np.arange(0x7F7F0000, 0x7F800000, dtype=np.uint32).view(np.float32))
    top = int(mismatches(greatest, scaled).sum())
    not_finite = int((~np.isfinite(np.stack(pieces(greatest, scaled)))).any(axis=0).sum())
    by_exponent = {e: int(mismatches(of_exponent(e, count), unscaled).sum()) for e in range(-126, 112)}
    least = min(e for e in by_exponent if not any(by_exponent[x] for x in by_exponent if x >= e))
    random = np.random.default_rng(SEED)
    middle = np.ldexp(random.uniform(1, 2, MANY), random.integers(-60, 60, MANY, endpoint=True)).astype(np.float32)
    normal = random.standard_normal(MANY).astype(np.float32)
    parts = pieces(normal, scaled)
    positive = sum((part > 0).astype(int) for part in parts)
    negative = sum((part < 0).astype(int) for part in parts)
    opposing = 100 * float(np.mean((np.asarray(positive) > 0) & (np.asarray(negative) > 0)))
    measured: dict[str, dict[str, Quantity]] = {
        "intro-lossless-conversion": {"mismatches": lost},
        "intro-lossless-top-binade": {"mismatches": top, "not_finite": not_finite},
        "sec2-unscaled-split-lossless": {
            "mismatches_inside": sum(by_exponent[e] for e in range(-110, 112)), "least_lossless_exponent": least,
        },
        "sec2-practical-scales": {
            "scaled_exponents": scales(scaled), "unscaled_exponents": scales(unscaled),
            "mismatches_scaled": int(mismatches(middle, scaled).sum()),
            "mismatches_unscaled": int(mismatches(middle, unscaled).sum()),
        },
        "eq5-exact-product": {"mismatches": inexact_products(finite(PAIRS), finite(PAIRS, SEED + 1), scaled)},
        "sec4-rounded-split": {"opposing": opposing},
    }  # fmt: skip
    sampled = f"{count} random mantissas per exponent." if scale == "quick" else ""
    notes = {
        "intro-lossless-conversion": sampled,
        "sec2-unscaled-split-lossless": f"{sampled} Unscaled: the scheme with accumulation=termwise.",
        "intro-lossless-top-binade": (
            "hwsim's split saturates: a number that would round to infinity in BF16 takes the greatest finite one, and "
            " the lower pieces the rest."
        ),
    }
    return Found(measured, notes)


# --- infinities and NaN -----------------------------------------------------------------------------------------------


def with_opposing_signs(count: int) -> Array:
    """Standard normal numbers with three nonzero pieces, not all of one sign."""
    random = np.random.default_rng(SEED)
    x = random.standard_normal(8 * count).astype(np.float32)
    parts = np.stack(pieces(x, run_plan("bf16x9")))
    good = (parts != 0).all(axis=0) & (np.abs(np.sign(parts).sum(axis=0)) < len(parts))
    assert good.sum() >= count
    return np.asarray(x[good][:count])


def nan_share(pieces_of_a: list[float], b: Array) -> float:
    """Per cent of b for which the scaled products of these pieces and those of b sum to NaN."""
    plan = run_plan("bf16x9")
    parts, steps = pieces(b, plan), scales(plan)
    with np.errstate(invalid="ignore", over="ignore"):
        total = sum(np.ldexp(pieces_of_a[i] * parts[j], steps[i] + steps[j]) for i, j in EVERY)
    return 100 * float(np.mean(np.isnan(total)))


def measure_special_pieces(scale: Scale) -> Found:
    """What the split makes of infinities and NaN, and what products of such pieces are."""
    plan = run_plan("bf16x9")
    infinities = np.array([np.inf, -np.inf], np.float32)
    nans = np.array([0x7FC00000, 0xFFC00000], np.uint32).view(np.float32)
    codes = np.stack(codes_of_split(infinities, plan))
    with np.errstate(invalid="ignore"):
        of_nan, of_infinity = np.stack(pieces(nans, plain(plan))), np.stack(pieces(infinities, plain(plan)))
    largest = format_of("bf16").largest_code()
    greatest = float(array_of(np.array([largest], np.uint16), format_of("bf16"))[0])
    exact = sum(Fraction(greatest) * Fraction(2) ** s for s in scales(plan))
    recomposed = np.float32(float(exact))
    b = with_opposing_signs(FINITE)
    override = [float("inf")] * len(plan.a_pieces)
    signs = np.stack([np.sign(part) for part in pieces(b[:1], plan)]).ravel()
    products = [override[i] * signs[j] for i, j in EVERY]
    native = np.inf * b.astype(np.float64)
    measured: dict[str, dict[str, Quantity]] = {
        "sec4-options-for-infinity": {
            "piece_bits_positive": [int(x) for x in codes[:, 0]], "piece_bits_negative": [int(x) for x in codes[:, 1]],
        },
        "sec4-option-a-recomposes": {
            "recomposed_bits": int(recomposed.view(np.uint32)), "exact": int(Fraction(float(recomposed)) == exact),
        },
        "sec4-nine-infinite-products": {
            "infinite_products": int(np.isinf(products).sum()), "positive": int(np.sum(np.array(products) > 0)),
            "negative": int(np.sum(np.array(products) < 0)),
        },
        "fig2-nan-in-decomposition": {"nan_pieces": int(np.isnan(of_nan).sum(axis=0).min())},
        "fig2-infinity-in-decomposition": {
            "infinite_pieces": int(np.isinf(of_infinity).sum(axis=0).max()),
            "nan_pieces": int(np.isnan(of_infinity).sum(axis=0).min()),
        },
        "fig3-spurious-nan": {
            "nan_share": nan_share(override, b), "native_infinite_share": 100 * float(np.mean(np.isinf(native))),
        },
    }  # fmt: skip
    notes = {
        "fig3-spurious-nan": (
            "The sum is of exact products of BF16 infinities with hwsim's pieces of b, without a unit's padding; hwsim "
            "has no option (b)."
        ),
        "fig2-nan-in-decomposition": "The scheme's split with saturation and the replacing of infinities left out.",
    }
    notes["fig2-infinity-in-decomposition"] = notes["fig2-nan-in-decomposition"]
    return Found(measured, notes)


EXPERIMENTS = (
    Experiment(
        "splits",
        (
            "intro-lossless-conversion", "intro-lossless-top-binade", "sec2-unscaled-split-lossless",
            "sec2-practical-scales", "eq5-exact-product", "sec4-rounded-split",
        ),
        measure_splits,
        {"quick": 3.0, "full": 5.0},
    ),
    Experiment(
        "special-pieces",
        (
            "sec4-options-for-infinity", "sec4-option-a-recomposes", "sec4-nine-infinite-products",
            "fig2-nan-in-decomposition", "fig2-infinity-in-decomposition", "fig3-spurious-nan",
        ),
        measure_special_pieces,
        {"quick": 0.2, "full": 0.2},
    ),
)  # fmt: skip
