"""Operands of captures that keep none: hashes of (seed, index), the same on every machine; sums of four bytes."""

from __future__ import annotations

import ml_dtypes
import numpy as np

PATTERNS = np.array(
    [[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 1], [0, 0, 1, 1]], bool
)  # of two of four elements


def hashed(seed: int, rows: int, cols: int) -> np.ndarray:
    word = (np.arange(rows * cols, dtype=np.uint64) + np.uint64(seed * 0x9E3779B1)) & np.uint64(0xFFFFFFFF)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        word ^= word >> np.uint64(shift)
        word = (word * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
    return (word ^ (word >> np.uint64(16))).reshape(rows, cols)


def drawn(seed: int, rows: int, cols: int, fmt: str) -> np.ndarray:
    word = hashed(seed, rows, cols)
    if fmt == "int8":
        return ((word & np.uint64(255)).astype(np.int64) - 128).astype(np.int8)
    total = sum((word >> np.uint64(8 * byte) & np.uint64(255)).astype(np.int64) for byte in range(4)) - 510
    values = total / 128 + (hashed(seed + 7, rows, cols).astype(np.float64) - 2.0**31) / 2.0**40
    if fmt == "fp64":
        return values
    narrow = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}.get(fmt, np.float32)
    return values.astype(np.float32).astype(narrow)


def pruned(seed: int, rows: int, cols: int, fmt: str) -> np.ndarray:
    """An A with two of four elements, whose places change from group to group and row to row."""
    places = (np.arange(rows)[:, None] * 5 + np.arange(cols // 4)[None] * 11) % 6
    x = drawn(seed, rows, cols, fmt)
    return np.where(PATTERNS[places].reshape(rows, cols), x, np.zeros((), x.dtype))


def picked(size: int, count: int, seed: int) -> list[int]:
    return sorted(np.random.default_rng(seed).choice(size, min(size, count), replace=False).tolist())
