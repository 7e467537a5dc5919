"""Times of products of all m, n and k of a list beside the times of their transposes; operands by rows, default bits.

    python lab/tools/transposes.py --device ascend910a

Prints the products that are slowest against their transposes. The exit code is 1 where one takes more than `--limit`
times as long.
"""

from __future__ import annotations

import argparse
import itertools
import sys

import hwsim

SIZES = 1, 16, 64, 256, 1024, 4096


def main() -> int:
    """Print the table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="ascend910a")
    parser.add_argument("--format", default="fp16")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="of m, n and k (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=1.5)
    parser.add_argument("--rows", type=int, default=8, help="printed at most")
    given = parser.parse_args()
    sizes = [int(size) for size in given.sizes.split(",")]
    seconds = {
        (m, n, k): hwsim.run(m=m, n=n, k=k, device=given.device, format=given.format, exact=False).seconds
        for m, n, k in itertools.product(sizes, repeat=3)
    }
    ratios = {(m, n, k): time / seconds[n, m, k] for (m, n, k), time in seconds.items()}
    above = sum(ratio > given.limit for ratio in ratios.values())
    print(f"{len(ratios)} products on {given.device}; {above} take more than {given.limit} times their transpose")
    for (m, n, k), ratio in sorted(ratios.items(), key=lambda entry: -entry[1])[: given.rows]:
        print(f"  {m:5} x {n:5} x {k:5}: {1e6 * seconds[m, n, k]:9.2f} us, {ratio:.2f} times the transpose")
    return int(above > 0)


if __name__ == "__main__":
    sys.exit(main())
