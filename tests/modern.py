"""What an H100 gave for PyTorch's calls and Triton's kernels: tests/golden/h100_modern (CUDA 13.0, PyTorch 2.11, Triton
3.6, 2026-11-27). Operands are not kept: `operand` draws them again.
"""

from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np

FOLDER = Path(__file__).parent / "golden" / "h100_modern"
MASK = np.uint64(0xFFFFFFFF)
PATTERNS = np.array(
    [[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 1], [0, 0, 1, 1]], bool
)  # of two of four elements
NARROW = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn, "fp64": np.float64}


def _hash(seed, count, first=0):
    h = (np.arange(first, first + count, dtype=np.uint64) + np.uint64(seed * 0x9E3779B1)) & MASK
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = (h ^ h >> np.uint64(shift)) * np.uint64(factor) & MASK
    return h ^ h >> np.uint64(16)


def operand(seed, rows, columns, fmt, first=0):
    """A (rows, columns) array of the format: sums of four bytes of a hash, about normal, with full significands. first:
    the rows before it, which are not drawn.
    """
    count, before = rows * columns, first * columns
    h = _hash(seed, count, before)
    if fmt == "int8":
        return (h.astype(np.uint8).astype(np.int16) - 128).astype(np.int8).reshape(rows, columns)
    total = h.astype("<u4").view(np.uint8).reshape(-1, 4).sum(1, dtype=np.int64) - 510
    x = total / 128 + (_hash(seed + 7, count, before).astype(np.float64) - 2.0**31) / 2.0**40
    if fmt != "fp64":
        x = x.astype(np.float32)
    return x.astype(NARROW.get(fmt, np.float32)).reshape(rows, columns)


def pruned(seed, rows, columns, fmt):
    """An A with two of four elements, whose places change from group to group and row to row."""
    places = (np.arange(rows)[:, None] * 5 + np.arange(columns // 4)[None] * 11) % 6
    x = operand(seed, rows, columns, fmt)
    return np.where(PATTERNS[places].reshape(rows, columns), x, np.zeros((), x.dtype))


def picked(size, count, seed):
    """The rows or columns that a capture kept."""
    return np.sort(np.random.default_rng(seed).choice(size, min(size, count), replace=False))


@cache
def kernels(kind):
    """{key: results} of one kind: "triton", "fp8", "grouped", "conv", "sdpa", "sparse", "emulated"."""
    with np.load(FOLDER / "kernels.npz") as archive:
        return {key: archive[key] for key in archive.files if key.startswith(f"{kind} ")}
