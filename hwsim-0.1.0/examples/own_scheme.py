"""A scheme of one's own as a plug-in: FP32 from three or four products of BF16 pieces.

In a package of one's own this file needs three more lines, in pyproject.toml; hwsim and its command line then know
the scheme by name (`hwsim schemes`, `hwsim run --scheme bf16-pair --products 4`):

    [project.entry-points."hwsim.schemes"]
    bf16-pair = "own_scheme:SCHEME"

Run as it is, the file hands the record itself to hwsim and prints the error beside that of a single BF16 product.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import hwsim
from hwsim.gemm.plan import Piece, Plan, Scaled, Sum, TermValue, chain
from hwsim.gemm.problem import Problem
from hwsim.schemes import Notice, Option, Scheme

STEP = 8  # the low piece carries eight more bits
LEAST = 2.0**-118  # below, the low piece is subnormal or zero


def plan(options: Mapping[str, Any], problem: Problem) -> Plan:
    """p0 = RN(x), p1 = RN((x - p0) 2^8); the small products share one accumulator, the large one has its own."""
    pieces = (Piece("bf16"), Piece("bf16", scale_exponent=STEP))
    small = Scaled(TermValue(1), -STEP)
    terms = [chain((0, 0)), chain((0, 1), (1, 0))]
    if options["products"] == 4:
        terms.append(chain((1, 1)))
        small = Scaled(Sum(TermValue(1), Scaled(TermValue(2), -STEP)), -STEP)
    return Plan(
        "bf16-pair",
        pieces,
        pieces,
        tuple(terms),
        Sum(TermValue(0), small),
        k_group=options["k_group"],
        input_format=problem.input_format,
    )


def inspect(a: np.ndarray, b: np.ndarray, options: Mapping[str, Any]) -> list[Notice]:
    """Elements so small that the low piece loses digits."""
    count = sum(int(((x != 0) & (np.abs(x) < LEAST)).sum()) for x in (a, b))
    return [Notice("low_piece_subnormal", count, f"{count} elements below 2^-118 lose digits")] if count else []


SCHEME = Scheme(
    "bf16-pair",
    "FP32 from 3 or 4 BF16 products",
    "an example",
    (
        Option("products", int, 3, "4: the product of the low pieces too", least=3),
        Option("k_group", int, None, "length of K accumulated in the unit from zero; by default all", least=1),
    ),
    plan,
    inspect,
)


def main() -> None:
    """Bits and cycles on three chips."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((128, 512), np.float32), rng.standard_normal((512, 128), np.float32)
    for device in ("a100", "h200", "mi210"):
        plain = hwsim.run(a, b, device=device, format="bf16")
        pair = hwsim.run(a, b, device=device, scheme=SCHEME, products=4)
        errors = [result.error["relative_frobenius"] for result in (plain, pair)]
        print(f"{device}: bf16 {errors[0]:.1e}, {plain.cycles} cycles; pairs {errors[1]:.1e}, {pair.cycles} cycles")


if __name__ == "__main__":
    main()
