"""Latency of small products on this host, in ms: warm, cycles alone, and cycles of shapes not seen before.

python lab/tools/small_products.py [--shapes N] [--seed S]
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import hwsim

CASES: tuple[dict[str, Any], ...] = (
    {"device": "h200", "format": "fp16"},
    {"device": "h200", "scheme": "tf32x3"},
    {"device": "ascend910a", "scheme": "sgemm-cube"},
)
SIZE, REPEATS = 256, 15


def milliseconds(call: Callable[[], object]) -> float:
    """Wall time of one call."""
    begun = time.perf_counter()
    call()
    return (time.perf_counter() - begun) * 1e3


def warm(case: dict[str, Any], rng: np.random.Generator) -> tuple[float, float]:
    """Medians for SIZE^3: exact and timed with operands that change, and cycles alone."""
    dtype = np.float16 if case.get("format") == "fp16" else np.float32
    pairs = [rng.standard_normal((2, SIZE, SIZE)).astype(dtype) for _ in range(4)]
    sizes = {"m": SIZE, "n": SIZE, "k": SIZE, "exact": False}
    whole, alone = [], []
    for i in range(REPEATS):
        a, b = pairs[i % len(pairs)]
        whole.append(milliseconds(lambda a=a, b=b: hwsim.run(a, b, threads=1, **case).cycles))
        alone.append(milliseconds(lambda: hwsim.run(threads=1, **sizes, **case).cycles))
    return statistics.median(whole), statistics.median(alone)


def unseen(case: dict[str, Any], draw: Callable[[], tuple[int, int, int]], shapes: int) -> str:
    """Median, 95th percentile and maximum of the latency of unseen shapes, cycles alone."""
    seen: set[tuple[int, int, int]] = set()
    found = []
    while len(seen) < shapes + 2:
        shape = draw()
        if shape in seen:
            continue
        seen.add(shape)
        sizes = dict(zip("mnk", shape, strict=True))
        found.append(milliseconds(lambda sizes=sizes: hwsim.run(threads=1, exact=False, **sizes, **case).cycles))
    times = found[2:]
    return f"median {statistics.median(times):.1f}, p95 {np.percentile(times, 95):.1f}, most {max(times):.1f}"


def main() -> None:
    """Print a row per case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", type=int, default=22, help="shapes per case (default 22)")
    parser.add_argument("--seed", type=int, default=3)
    given = parser.parse_args()
    draws = random.Random(given.seed)
    rng = np.random.default_rng(given.seed)
    for case in CASES:
        exact, alone = warm(case, rng)
        even = unseen(case, lambda: tuple(64 * draws.randint(2, 6) for _ in range(3)), given.shapes)
        ragged = unseen(case, lambda: tuple(draws.randint(200, 330) for _ in range(3)), given.shapes)
        name = " ".join(str(value) for value in case.values())
        print(
            f"{name:24} {SIZE}^3 again {exact:.2f}, cycles alone {alone:.2f}; unseen, whole tiles: "
            f"{even}; ragged: {ragged}"
        )


if __name__ == "__main__":
    main()
