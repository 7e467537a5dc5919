"""Single products of two split numbers (Ape, section 4.1 and 4.3): what the products that are left out would change.

It knows the parts of two numbers and rounds exact sums once; no matrix unit.
"""

from __future__ import annotations

import math

import numpy as np

from hwsim_lab.papers.ape.representation import B, F
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale
from hwsim_lab.papers.splits import Array, SchemeSplit, products

COUNT = 200_000
CLAIMS = (
    "listing2-three-products", "fig6-shifts", "fig6-lo-lo-no-effect", "sec4-1-computation-precision",
    "sec4-3-skipped-no-effect",
)  # fmt: skip


def unscaled(split: SchemeSplit, x: Array) -> list[Array]:
    """The parts without their scales."""
    return [part * 2.0**-piece.scale_exponent for part, piece in zip(split.parts(x), split.pieces, strict=True)]


def part_products(split: SchemeSplit, x: Array, y: Array) -> dict[tuple[int, int], Array]:
    """The product of each pair of parts, scales taken out; exact in fp64."""
    right = unscaled(split, y)
    return {(i, j): a * b for i, a in enumerate(unscaled(split, x)) for j, b in enumerate(right)}


def rounded_sums(terms: list[Array]) -> Array:
    """Exact sums, rounded once to FP32."""
    exact = np.array([math.fsum(values) for values in zip(*(term.tolist() for term in terms), strict=True)])
    return exact.astype(np.float32).astype(np.float64)


def measure(scale: Scale) -> Found:
    """All products of parts against those that a scheme issues."""
    rng = np.random.default_rng(0)
    x, y = (rng.uniform(1, 2, COUNT).astype(np.float32) for _ in range(2))
    exact = x.astype(np.float64) * y.astype(np.float64)
    ulp = np.spacing(exact.astype(np.float32)).astype(np.float64)

    def results(split: SchemeSplit) -> tuple[Array, Array]:
        every = part_products(split, x, y)
        return rounded_sums([every[pair] for pair in products(split.plan)]), rounded_sums(list(every.values()))

    few, all_four = results(F)
    six, nine = results(B)
    pairs = products(F.plan)
    shift = [piece.scale_exponent for piece in F.pieces]
    measured: dict[str, dict[str, Quantity]] = {
        "listing2-three-products": {"products": len(pairs), "lo_lo": int((1, 1) in pairs)},
        "fig6-shifts": {"shifts": [shift[i] + shift[j] for i, j in ((0, 0), (0, 1), (1, 0), (1, 1))]},
        "fig6-lo-lo-no-effect": {
            "changed": float((few != all_four).mean()), "largest": float((np.abs(few - all_four) / ulp).max()),
        },
        "sec4-1-computation-precision": {"error": float((np.abs(few - exact) / exact).max())},
        "sec4-3-skipped-no-effect": {
            "largest": float((np.abs(six - nine) / ulp).max()),
            "error_ratio": float((np.abs(six - exact) / exact).max() / (np.abs(nine - exact) / exact).max()),
        },
    }  # fmt: skip
    notes = {
        "fig6-lo-lo-no-effect": "Lo Lo is at most 2^-22 of numbers in (1, 2): up to two units in FP32's last place.",
        "sec4-3-skipped-no-effect": "Below a quarter of the last place, it still turns roundings near a tie.",
        "sec4-1-computation-precision": "Lo Lo, which is left out, and the final rounding add up.",
    }
    return Found(measured, notes)


EXPERIMENTS = (Experiment("single-products", CLAIMS, measure, {"quick": 5, "full": 5}),)
