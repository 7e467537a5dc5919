"""What GEMMs by BF16x9 give for infinities, NaN, denormals and an added C: Sections 2, 4 and 8, Fig. 1 and 3.

It knows operands with such entries, and compares results bit by bit or by class with native FP32's.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hwsim
from hwsim.gemm.plan import Plan
from hwsim.schemes import scheme_of
from hwsim.schemes.scheme import Scheme
from hwsim_lab.papers.bf16x9.pieces import with_opposing_signs
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale

Array = NDArray[Any]
Pair = tuple[Array, Array]
DEVICE = "b200"
SEED = 0
SPECIAL = 30  # entries of each operand
OVERFLOW_MARGIN = 1e-6
LEAST = 2.0**-149


def _unpatched(scheme: Scheme, options: Any, problem: Any) -> Plan:
    plan = scheme.plan(options, problem)
    assert isinstance(plan, Plan)
    return replace(plan, specials="unit")


def unpatched() -> Scheme:
    """BF16x9 with option (a), whose results are not patched."""
    scheme = scheme_of("bf16x9")
    return replace(scheme, plan=partial(_unpatched, scheme))


def emulated(a: Array, b: Array, **options: Any) -> Array:
    """A B by BF16x9, FP32."""
    return np.asarray(hwsim.matmul(a, b, device=DEVICE, **{"scheme": "bf16x9"} | options))


def native(a: Array, b: Array) -> Array:
    """A B by FP32 FMAs."""
    return np.asarray(hwsim.matmul(a, b, device=DEVICE, format="fp32"))


def normal(n: int, count: int = 2, seed: int = SEED) -> list[Array]:
    """Matrices n x n, standard normal."""
    random = np.random.default_rng(seed)
    return [random.standard_normal((n, n)).astype(np.float32) for _ in range(count)]


def different(x: Array, y: Array) -> int:
    """Elements whose bits differ."""
    return int((x.view(np.uint32) != y.view(np.uint32)).sum())


def with_specials(n: int) -> Pair:
    """Standard normal operands with entries replaced by infinities and NaN at random places."""
    random = np.random.default_rng(SEED + 1)
    a, b = normal(n)
    for x in (a, b):
        places = random.choice(n * n, SPECIAL, replace=False)
        x.ravel()[places] = random.choice(np.array([np.inf, -np.inf, np.nan], np.float32), SPECIAL)
    return a, b


def with_exponents(n: int, low: int, high: int, seed: int) -> Array:
    """Numbers of random sign and mantissa, and exponents uniform from low to high."""
    random = np.random.default_rng(seed)
    size = np.ldexp(random.uniform(1, 2, (n, n)), random.integers(low, high, (n, n), endpoint=True))
    return np.asarray((size * random.choice((-1.0, 1.0), (n, n))).astype(np.float32))


def classes(x: Array) -> Array:
    """0: finite, 1 and -1: infinities, 2: NaN."""
    return np.where(np.isnan(x), 2, np.where(np.isinf(x), np.sign(x), 0))


def lost_errors(a: Array, b: Array) -> int:
    """Elements that are finite by BF16x9 alone, those about FP32's limit left out."""
    limit = float(np.finfo(np.float32).max)
    with np.errstate(invalid="ignore", over="ignore"):
        wide = np.abs(a.astype(np.float64) @ b.astype(np.float64))
        about = np.abs(wide / limit - 1) < OVERFLOW_MARGIN
    return int((~np.isfinite(native(a, b)) & np.isfinite(emulated(a, b)) & ~about).sum())


def measure_specials(scale: Scale) -> Found:
    """Infinities and NaN in the operands, with and without patching."""
    a, b = normal(64)
    a[5, 7] = b[9, 11] = np.nan
    product = emulated(a, b)
    touched = np.zeros(product.shape, bool)
    touched[5], touched[:, 11] = True, True
    infinite, _ = normal(64)
    random = np.random.default_rng(SEED + 2)
    infinite.ravel()[random.choice(64 * 64, 20, replace=False)] = random.choice((np.inf, -np.inf), 20)
    small = random.uniform(-(2.0**-20), 2.0**-20, (64, 64)).astype(np.float32)
    limit = np.finfo(np.float32).max
    plain = unpatched()
    saturated = [emulated(x, small, scheme=plain) for x in (infinite, np.clip(infinite, -limit, limit))]
    finite = with_opposing_signs(1000)
    finite = np.ldexp(finite, -2 - np.frexp(finite)[1]).astype(np.float32)  # powers of two keep the pieces' signs
    option_a = emulated(np.full((1, 1), np.inf, np.float32), finite[None], scheme=plain)
    special = with_specials(128)
    overflowing = with_exponents(128, 60, 66, 3), with_exponents(128, 60, 66, 4)
    ours, theirs = emulated(*special), native(*special)
    measured: dict[str, dict[str, Quantity]] = {
        "sec4-nan-propagates": {
            "missing": int((~np.isnan(product[touched])).sum()),
            "spurious": int((~np.isfinite(product[~touched])).sum()),
        },
        "sec4-option-a-is-saturation": {"mismatches": different(*saturated)},
        "sec4-patching-keeps-errors": {"lost": lost_errors(*special) + lost_errors(*overflowing)},
        "fig3-option-a-avoids-nan": {"nan_results": int(np.isnan(option_a).sum())},
        "sec8-nonnumbers-as-native": {
            "different": int((classes(ours) != classes(theirs)).sum()),
            "error_lost": int((np.isfinite(ours) != np.isfinite(theirs)).sum()),
        },
    }
    patched = (
        "hwsim's patching recomputes the rows and columns with special values as a chain of FP32 FMAs, which is also "
        "its native FP32: for them the agreement is by construction. The paper does not say how it patches."
    )
    bare = "Without patching: the scheme's plan with specials left to the unit."
    left = dict.fromkeys(("sec4-patching-keeps-errors", "sec8-nonnumbers-as-native", "sec4-nan-propagates"), patched)
    left |= dict.fromkeys(("sec4-option-a-is-saturation", "fig3-option-a-avoids-nan"), bare)
    return Found(measured, left)


def measure_bits(scale: Scale) -> Found:
    """Orders of addition, an added C, and denormal operands and results."""
    a, b = normal(256)
    bands, termwise = emulated(a, b), emulated(a, b, accumulation="termwise")
    x, y, c = normal(64, 3)
    bare, added = emulated(x, y), np.asarray(hwsim.matmul(x, y, c, device=DEVICE, scheme="bf16x9", beta=1.0))
    random = np.random.default_rng(SEED + 3)
    codes = random.integers(1, 1 << 23, (128, 128), np.uint32) | (random.integers(0, 2, (128, 128), np.uint32) << 31)
    cases = (
        (codes.astype(np.uint32).view(np.float32), with_exponents(128, 100, 110, 5)),
        (with_exponents(128, -75, -60, 6), with_exponents(128, -75, -60, 7)),
    )
    lost = spurious = 0
    for left, right in cases:
        ours, theirs = emulated(left, right), native(left, right)
        wide = np.abs(left.astype(np.float64) @ right.astype(np.float64))
        lost += int(((ours == 0) & (theirs != 0) & (wide >= LEAST)).sum())
        spurious += int(((ours != 0) & (theirs == 0) & (wide < LEAST / 4)).sum())
    return Found(
        {
            "sec2-result-depends-on-order": {"differing": different(bands, termwise)},
            "fig1-c-added-last": {"mismatches": different(added, bare + c)},
            "sec8-denormals-as-native": {"lost": lost, "spurious": spurious},
        },
        {
            "sec2-result-depends-on-order": (
                "Separate matrices: accumulation=termwise, whose pieces are unscaled and which adds from the least."
            )
        },
    )


EXPERIMENTS = (
    Experiment(
        "special-products",
        (
            "sec4-nan-propagates", "sec4-option-a-is-saturation", "sec4-patching-keeps-errors",
            "fig3-option-a-avoids-nan", "sec8-nonnumbers-as-native",
        ),
        measure_specials,
        {"quick": 1.0, "full": 1.0},
    ),
    Experiment(
        "bits-of-products",
        ("sec2-result-depends-on-order", "fig1-c-added-last", "sec8-denormals-as-native"),
        measure_bits,
        {"quick": 2.0, "full": 2.0},
    ),
)  # fmt: skip
