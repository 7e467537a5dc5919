"""The Tensor Core as Ape describes it (its Fig. 1, sections 4.1 and 5.1): exact products, one truncation, no underflow.

It runs single matrix instructions of the simulated A100 beside exact arithmetic (integers and fractions); no GEMMs.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from hwsim.api import fma_chain, matmul
from hwsim.devices import changed, dot_spec, load
from hwsim.devices.query import entry, instruction
from hwsim.formats import format_of
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale
from hwsim_lab.papers.splits import Array, SchemeSplit, log_uniform

DEVICE = "a100"
EXTREMES = (0x0001, 0x0002, 0x03FF, 0x0400, 0x0401, 0x3BFF, 0x3C00, 0x3C01, 0x7BFE, 0x7BFF)  # fp16 codes
PATTERNS = 340  # of each side: 350^2 pairs with the extremes
DOTS = 128  # rows and columns
CASES = 112  # rows and columns of results that are compared with exact sums
PAIRS = 400  # of each side
ONE = 60  # exact sums are integers times 2^-60 and 2^-120; smaller parts of numbers of N(0, 1) are too rare to be drawn
BEYOND = 2.0**-21
SMALLEST_NORMAL = 2.0**-126
LARGEST_PRODUCT = 3.4e38
RANGES = {"ape-fp32-f": (2.0**-14, 65504.0), "ape-fp32-b": (2.0**-110, 3.38e38)}
CLAIMS = (
    "fig1-tensor-core-mma", "sec4-1-no-over-underflow", "sec5-1-same-accuracy-as-fp32", "sec5-1-round-to-zero",
    "sec5-1-no-overflow-if-fp32-does-not",
)  # fmt: skip


def patterns(seed: int) -> Array:
    """Nonzero finite FP16 numbers of both signs: random codes, and the extremes."""
    rng = np.random.default_rng(seed)
    codes = np.concatenate([rng.integers(1, 0x7C00, PATTERNS), EXTREMES])
    found: Array = (codes | (rng.integers(0, 2, len(codes)) << 15)).astype(np.uint16).view(np.float16)
    return found


def single_products() -> tuple[Array, Array]:
    """The instruction's results with one nonzero product and C = 0, and the exact products."""
    a, b = patterns(0)[:, None], patterns(1)[None, :]
    return matmul(a, b, device=DEVICE, format="fp16").astype(np.float64), a.astype(np.float64) * b.astype(np.float64)


def accuracy_ratio(format: str) -> float:
    """The largest relative error of one instruction's dot products, over that of an FP32 FMA chain."""
    k, dtype = instruction(load(DEVICE), _native(format)).k, format_of(format)
    rng = np.random.default_rng(0)
    scale = 2.0 ** (dtype.fraction_bits + 1)
    significand, exponent = np.frexp(rng.uniform(0, 1, (2, DOTS, k)))
    left, right = np.ldexp(np.rint(significand * scale) / scale, exponent).astype(np.float32)
    exact = left.astype(np.float64) @ right.T.astype(np.float64)  # of 16 products of 22 bits: exact
    unit = matmul(left, right.T, device=DEVICE, format=format).astype(np.float64)
    chain = fma_chain(left, right.T).astype(np.float64)
    return float((np.abs(unit - exact) / exact).max() / (np.abs(chain - exact) / exact).max())


def rounding(fraction_bits: int | None = None, k: int | None = None) -> tuple[float, float]:
    """Shares of results above the exact sum in magnitude, and equal to it truncated; where it is no FP32 number.

    fraction_bits: of the unit's alignment, instead of the device's. k: products, instead of the instruction's.
    """
    chip = load(DEVICE)
    if fraction_bits is not None:
        chip = changed(chip, {"dot_units.f32.fraction_bits": fraction_bits})
    depth = instruction(chip, _native("fp16")).k if k is None else k
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((CASES, depth)).astype(np.float16) for _ in range(2))
    c = rng.standard_normal((CASES, CASES)).astype(np.float32)
    got = matmul(a, b.T, c, device=chip, format="fp16", schedule={"start": "c"})
    left, right, start = (_as_integers(x) for x in (a, b, c))
    above = truncated = cases = 0
    for i in range(CASES):
        sums = (left[i] * right).sum(axis=1) + start[i] * 2**ONE
        for exact, own in zip(sums.tolist(), got[i].tolist(), strict=True):
            magnitude = Fraction(abs(exact), 4**ONE)
            shorter = np.float32(float(magnitude))
            if Fraction(float(shorter)) > magnitude:
                shorter = np.nextafter(shorter, np.float32(0))
            if Fraction(float(shorter)) == magnitude:
                continue
            cases += 1
            above += Fraction(abs(own)) > magnitude
            truncated += abs(own) == float(shorter) and (own < 0) == (exact < 0)
    return above / cases, truncated / cases


def _as_integers(x: Array) -> Array:
    return np.array([[int(Fraction(value) * 2**ONE) for value in row] for row in x.tolist()], dtype=object)


def _native(format: str) -> str:
    found = entry(load(DEVICE), load(DEVICE).native[format])
    assert found is not None
    return found


def losses(scheme: str) -> tuple[int, int, str]:
    """Single products within FP32's normal range: how many are not finite, how many off by more than 2^-21; a text."""
    a, b = (log_uniform(*RANGES[scheme], PAIRS, seed=seed) for seed in (2, 3))
    exact = a.astype(np.float64)[:, None] * b.astype(np.float64)
    normal = (np.abs(exact) >= SMALLEST_NORMAL) & (np.abs(exact) <= LARGEST_PRODUCT)
    got = matmul(a[:, None], b[None, :], device=DEVICE, scheme=scheme).astype(np.float64)[normal]
    infinite = ~np.isfinite(got)
    with np.errstate(invalid="ignore"):
        far = np.abs(got - exact[normal]) > BEYOND * np.abs(exact[normal])
    said = f"{normal.sum()} pairs of {scheme} are kept."
    if infinite.any():
        first = SchemeSplit(scheme, DEVICE)
        leading = (first.parts(a)[0][:, None] * first.parts(b)[0])[normal][infinite]
        said += (
            f" {infinite.sum()} overflows: the product is {np.abs(exact[normal][infinite]).min():.5g}, but that of the "
        )
        said += f"leading parts, rounded up, {np.abs(leading).min():.5g}, beyond FP32 before the others bring it down."
    return int(infinite.sum()), int((far & ~infinite).sum()), said


def measure(scale: Scale) -> Found:
    """Single instructions."""
    got, exact = single_products()
    spec = dot_spec(load(DEVICE), _native("fp16"))
    bad = (got != exact) | ~np.isfinite(got) | (np.abs(got) < SMALLEST_NORMAL)
    above, truncated = rounding()
    eight, wide = rounding(k=8), rounding(k=8, fraction_bits=60)
    (over_f, under_f, _), (over_b, under_b, said) = losses("ape-fp32-f"), losses("ape-fp32-b")
    measured: dict[str, dict[str, Quantity]] = {
        "fig1-tensor-core-mma": {
            "inexact": int((got != exact).sum()), "significand_bits": format_of(spec.d).fraction_bits,
        },
        "sec4-1-no-over-underflow": {"bad": int(bad.sum())},
        "sec5-1-same-accuracy-as-fp32": {"fp16": accuracy_ratio("fp16"), "bf16": accuracy_ratio("bf16")},
        "sec5-1-round-to-zero": {"above": above, "truncated": truncated},
        "sec5-1-no-overflow-if-fp32-does-not": {
            "overflow": over_f + over_b, "underflow_fp32f": under_f, "underflow_fp32b": under_b,
        },
    }  # fmt: skip
    notes = {
        "sec5-1-round-to-zero": "The A100's instruction of k = 16 is two steps of 8 products, and each step cuts every "
        f"addend at 2^-24 of the largest before it adds. With one step of 8: {eight[0]:.3f} above, {eight[1]:.3f} "
        f"truncated; with one step and no cut before the sum: {wide[0]:.3f} and {wide[1]:.3f}.",
        "sec5-1-no-overflow-if-fp32-does-not": said,
        "sec5-1-same-accuracy-as-fp32": "Two truncations of sums of 8, against 16 roundings to nearest.",
    }
    return Found(measured, notes)


EXPERIMENTS = (Experiment("tensor core", CLAIMS, measure, {"quick": 3, "full": 3}),)
