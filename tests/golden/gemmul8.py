"""Operands of the products in h200_gemmul8: numbers from bit fields, by a seed and the number of the product.

products.json has a row for each: number, backend (int8 or fp8), format, number of moduli, whether fast mode, whether A
and B are stored by rows, m, n, k, kinds of A and B. products.npz has of each the first rows and columns of C, and the
exponents that GEMMul8 took for them. GEMMul8 2.0.9 (commit 71296f9) on an NVIDIA H200, CUDA 13.0, cuBLASLt 13,
2026-11-28; operands of seed 43.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SEED = 43
#: By format: bits of the fraction, exponent bias, sign bit, code and float types.
FIELDS = {"fp64": (52, 1023, 63, np.uint64, np.float64), "fp32": (23, 127, 31, np.uint32, np.float32)}
REACH = {"wide": (20, 20), "wider": (200, 50)}  # exponents to both sides, in fp64 and fp32
SHIFT = {"small": (-60, -30), "large": (60, 30)}


def numbers(rng: np.random.Generator, shape: tuple[int, int], kind: str, fmt: str) -> NDArray[Any]:
    """Numbers of a kind, in the order in which the generator gives their fields."""
    bits, bias, sign_bit, word, dtype = FIELDS[fmt]
    at = 0 if fmt == "fp64" else 1
    fraction = rng.integers(0, 1 << 63, shape, np.uint64) >> np.uint64(63 - bits)
    sign = rng.integers(0, 2, shape, np.uint64)
    reach = REACH.get(kind, (2, 2))[at]
    exponent = rng.integers(-reach, reach + 1, shape).astype(np.int64) + SHIFT.get(kind, (0, 0))[at]
    if kind == "rows":
        exponent += rng.integers(-30, 31, (shape[0], 1))
    if kind == "edges":  # sums of squares at powers of two: fractions of zeros, of ones, and of three bits
        of_row = np.broadcast_to(rng.integers(-3, 4, (shape[0], 1)), shape)
        exponent = of_row - rng.integers(0, 2, shape) * rng.integers(0, 2, (shape[0], 1))
        choice, short = rng.integers(0, 3, (shape[0], 1)), np.uint64(bits - 3)
        fraction = np.where(choice == 0, 0, np.where(choice == 1, (1 << bits) - 1, fraction >> short << short))
    field = np.clip(exponent + bias, 1, 2 * bias).astype(np.uint64)
    code = sign << np.uint64(sign_bit) | field << np.uint64(bits) | fraction.astype(np.uint64)
    x = code.astype(word).view(dtype)
    if kind == "uniform":
        x = ((code & np.uint64((1 << bits) - 1)).astype(np.float64) * 2.0**-bits - 0.5).astype(dtype)
    if kind in ("wide", "edges"):
        x[1], x[2, ::2] = 0, -0.0
    return x


def pair(row: list[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """A (m, k) and B (k, n) of a row of products.json."""
    number, _, fmt, _, _, _, _, m, n, k, first, second = row
    rng = np.random.default_rng((SEED, number))
    return numbers(rng, (m, k), first, fmt), np.ascontiguousarray(numbers(rng, (n, k), second, fmt).T)
