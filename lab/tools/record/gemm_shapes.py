"""Draw GEMMs for cublas_gemms.py: every kind that PyTorch calls, sizes over the whole range.

    python lab/tools/record/gemm_shapes.py --out gemms.csv --count 6000 --seed 11 [--large 0.4] [--columns] [--batches]
    python lab/tools/record/gemm_shapes.py --out gemms.csv --count 300 --seed 12 --mixed [--large 0.2]
    python lab/tools/record/gemm_shapes.py --out gemms.csv --count 150 --seed 13 --kinds "fp64>fp64+bias"

m and n log-uniform in 1 .. 10,000, k in 8 .. 32,768; half of the GEMMs in whole multiples of 64, a quarter of 8, a
quarter of 1 (e4m3: of 16, int8: of 8); one in twelve has m = 1, one in sixty n = 1. --large: the share, of kinds that
run on matrix units, that is drawn until m n k is between 2^30 and 2^37. --columns: A is stored by columns. --batches:
2 to 256 products in a strided batch, as many as keep the batch under 2^36 multiply-adds and 2^27 elements. Both leave
out e4m3 and int8. --mixed: e4m3 times e5m2 and the other way round alone. --kinds: these alone, B by rows and by
columns. Needs NumPy and nothing of hwsim.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

KINDS = (  # kind, B's layouts, of how many GEMMs in 31
    ("fp16>fp16", ("rows", "columns"), 3),
    ("fp16>fp32", ("rows", "columns"), 3),
    ("bf16>bf16", ("rows", "columns"), 3),
    ("bf16>fp32", ("rows", "columns"), 3),
    ("tf32>fp32", ("rows", "columns"), 5),
    ("e4m3>bf16fast", ("columns",), 2),
    ("e4m3>bf16slow", ("columns",), 2),
    ("e4m3>fp32slow", ("columns",), 2),
    ("fp32>fp32", ("rows", "columns"), 3),
    ("fp64>fp64", ("rows", "columns"), 3),
    ("int8>int32", ("columns",), 2),
)
MIXED = tuple(
    (f"{first},{second}>{output}", ("columns",), 1)
    for first, second in (("e4m3", "e5m2"), ("e5m2", "e4m3"))
    for output in ("bf16fast", "bf16slow", "fp16fast", "fp32fast", "fp32slow")
)
STEPS = (64, 64, 8, 1)
MOST_K, MOST_M = 32768, 10000
LARGE = (2**30, 2**37)
MOST_PRODUCTS = {"fp32": 2**35, "fp64": 2**35, "int8": 2**37}
MOST_ELEMENTS = 2**29
MOST_BATCHED_PRODUCTS, MOST_BATCHED_ELEMENTS = 2**36, 2**27


def one(rng: np.random.Generator, kind: str, large: bool) -> tuple[int, int, int]:
    """m, n and k."""
    operand = kind.split(">")[0].split(",")[0]
    step = STEPS[rng.integers(4)]
    step = max(step, {"e4m3": 16, "e5m2": 16, "int8": 8}.get(operand, 1))
    least_m = 32 if operand == "int8" else 1
    vector = rng.random()
    while True:
        m, n = (int(MOST_M ** rng.random()) for _ in range(2))
        k = int(8 * (MOST_K / 8) ** rng.random())
        m, n, k = (max(step, x // step * step) for x in (m, n, k))
        if not large and operand not in ("e4m3", "e5m2", "int8"):
            m, n = (1, n) if vector < 1 / 12 else (m, 1) if vector < 1 / 10 else (m, n)
        m = max(m, least_m)
        products = m * n * k
        fits = max(m * k, n * k, m * n) <= MOST_ELEMENTS and products <= MOST_PRODUCTS.get(operand, LARGE[1])
        if fits and (not large or products >= LARGE[0]):
            return m, n, k


def batched(rng: np.random.Generator, m: int, n: int, k: int) -> int:
    """Products in a batch."""
    most = min(256, MOST_BATCHED_PRODUCTS // (m * n * k), MOST_BATCHED_ELEMENTS // max(m * k, n * k, m * n))
    return int(2 * (max(most, 2) / 2) ** rng.random())


def main() -> None:
    """Draw and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--count", type=int, default=930)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--large", type=float, default=0.0)
    parser.add_argument("--columns", action="store_true")
    parser.add_argument("--batches", action="store_true")
    parser.add_argument("--mixed", action="store_true")
    parser.add_argument("--kinds", nargs="+", default=[])
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    kinds = [x for x in KINDS if len(x[1]) > 1] if arguments.columns or arguments.batches else list(KINDS)
    kinds = list(MIXED) if arguments.mixed else kinds
    kinds = [(kind, ("rows", "columns"), 1) for kind in arguments.kinds] or kinds
    shares = np.array([share for *_, share in kinds], float)
    with arguments.out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["kind", "a_layout", "b_layout", "m", "n", "k", "batch"])
        for _ in range(arguments.count):
            kind, layouts, _ = kinds[rng.choice(len(kinds), p=shares / shares.sum())]
            large = kind.split(">")[0] not in MOST_PRODUCTS and rng.random() < arguments.large
            sizes = one(rng, kind, large)
            by_columns = arguments.columns and not (arguments.batches and rng.random() < 1 / 2)
            batch = batched(rng, *sizes) if arguments.batches else 1
            a_layout = "columns" if by_columns else "rows"
            writer.writerow([kind, a_layout, layouts[rng.integers(len(layouts))], *sizes, batch])


if __name__ == "__main__":
    main()
