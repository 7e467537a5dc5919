"""The scaled split of bf16x9 on every binary32 code: nothing of a finite value is lost, each piece is the right one.

`python tests/schemes/exhaustive_split.py` goes through all 2^32 codes and prints the seconds; the test suite takes a
sample by `wrong`. Pieces are compared with integer arithmetic on the codes, their sum with the value in binary64.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time

import numpy as np

from hwsim.devices import load
from hwsim.evaluate.split import pieces_of
from hwsim.gemm.problem import Problem
from hwsim.operands.operand import Operand
from hwsim.schemes import scheme_of

CHUNK = 1 << 18
ALL = 1 << 32
LARGEST_BF16 = 0x7F7F
INFINITY = 0x7F800000
SCHEME = scheme_of("bf16x9")
PLAN = SCHEME.plan(SCHEME.complete({"accumulation": "fastf32"}), Problem.of("fp32", 1, 1, 1))
DEVICE = load("b200")


def rounded_bf16(x: np.ndarray) -> np.ndarray:
    """bf16 codes of finite float32 values, to nearest even by integers; the largest finite one for those beyond."""
    code = x.view(np.uint32)
    kept = (code + np.uint32(0x7FFF) + (code >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    sign, magnitude = kept & np.uint32(0x8000), kept & np.uint32(0x7FFF)
    return (sign | np.minimum(magnitude, np.uint32(LARGEST_BF16))).astype(np.uint16)


def value(piece: np.ndarray) -> np.ndarray:
    """Values of bf16 codes."""
    return (piece.astype(np.uint32) << np.uint32(16)).view(np.float32)


def wrong(codes: np.ndarray) -> int:
    """How many of these binary32 codes are split wrongly; NaNs are passed over, infinities count as the largest."""
    codes = codes[(codes & np.uint32(0x7FFFFFFF)) <= INFINITY]
    pieces = pieces_of(Operand(codes.reshape(1, -1), "fp32"), PLAN, "a", DEVICE).codes
    magnitude = np.minimum(codes & np.uint32(0x7FFFFFFF), np.uint32(INFINITY - 1))
    x = (codes & np.uint32(0x80000000) | magnitude).view(np.float32)
    rest, total, bad = x, np.zeros(x.shape), np.zeros(x.shape, bool)
    for i, piece in enumerate(pieces):
        if i:
            rest = rest * np.float32(256)
        want = rounded_bf16(rest)
        bad |= piece[0] != want
        rest = rest - value(want)
        total += value(piece[0]).astype(np.float64) * 256.0**-i
    bad |= total != x
    return int(bad.sum())


def chunk(start: int) -> int:
    """`wrong` for CHUNK codes from `start`."""
    return wrong(np.arange(start, start + CHUNK, dtype=np.uint32))


def main() -> int:
    """All codes, or every n-th chunk of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="only every n-th chunk of 2^18 codes")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    starts = range(0, ALL, CHUNK * arguments.every)
    begun = time.perf_counter()
    with multiprocessing.Pool(arguments.processes) as pool:
        bad = sum(pool.imap_unordered(chunk, starts, 16))
    seconds = time.perf_counter() - begun
    print(f"{len(starts) * CHUNK} codes, {bad} split wrongly, {seconds:.0f} s in {arguments.processes} processes")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
