"""Times of products of all m, n and k of a list beside the times of their transposes; operands by rows, default bits.

    python lab/tools/transposes.py --device ascend910a
    python lab/tools/transposes.py --device ascend910a --seed 1

Prints the products that are slowest against their transposes. The exit code is 1 where one takes more than `--limit`
times as long.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys

import hwsim

SIZES = 1, 16, 64, 256, 1024, 4096
MOST = 8192  # of sizes drawn


def drawn(seed: int) -> list[int]:
    """As many sizes as SIZES has, drawn evenly over their logarithms."""
    generator = random.Random(seed)
    return sorted({round(MOST ** generator.random()) for _ in SIZES})


def main() -> int:
    """Print the table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="ascend910a")
    parser.add_argument("--format", default="fp16")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="of m, n and k (default: %(default)s)")
    parser.add_argument("--seed", type=int, help=f"draws the sizes instead, from 1 to {MOST}")
    parser.add_argument("--limit", type=float, default=1.5)
    parser.add_argument("--rows", type=int, default=8, help="printed at most")
    given = parser.parse_args()
    sizes = [int(size) for size in given.sizes.split(",")] if given.seed is None else drawn(given.seed)
    seconds = {
        (m, n, k): hwsim.run(m=m, n=n, k=k, device=given.device, format=given.format, exact=False).seconds
        for m, n, k in itertools.product(sizes, repeat=3)
    }
    ratios = {(m, n, k): time / seconds[n, m, k] for (m, n, k), time in seconds.items()}
    above = sum(ratio > given.limit for ratio in ratios.values())
    print(f"m, n and k of {', '.join(map(str, sizes))}")
    print(f"{len(ratios)} products on {given.device}; {above} take more than {given.limit} times their transpose")
    for (m, n, k), ratio in sorted(ratios.items(), key=lambda entry: -entry[1])[: given.rows]:
        print(f"  {m:5} x {n:5} x {k:5}: {1e6 * seconds[m, n, k]:9.2f} us, {ratio:.2f} times the transpose")
    return int(above > 0)


if __name__ == "__main__":
    sys.exit(main())
