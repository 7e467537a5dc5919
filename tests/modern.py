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


def _hash(seed, index):
    h = (index + np.uint64(seed * 0x9E3779B1)) & MASK
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = (h ^ h >> np.uint64(shift)) * np.uint64(factor) & MASK
    return h ^ h >> np.uint64(16)


def operand(seed, rows, columns, fmt, first=0, only=None):
    """A (rows, columns) array of the format: sums of four bytes of a hash, about normal, with full significands. first:
    the rows before it, which are not drawn; only: an array of the rows of it that are drawn, where not all.
    """
    chosen = np.arange(rows) if only is None else np.asarray(only)
    index = ((first + chosen)[:, None] * columns + np.arange(columns)).astype(np.uint64)
    h = _hash(seed, index)
    if fmt == "int8":
        return (h.astype(np.uint8).astype(np.int16) - 128).astype(np.int8)
    total = h.astype("<u4").view(np.uint8).reshape(*h.shape, 4).sum(-1, dtype=np.int64) - 510
    x = total / 128 + (_hash(seed + 7, index).astype(np.float64) - 2.0**31) / 2.0**40
    if fmt != "fp64":
        x = x.astype(np.float32)
    return x.astype(NARROW.get(fmt, np.float32))


def pruned(seed, rows, columns, fmt, only=None):
    """An A with two of four elements, whose places change from group to group and row to row. only: as operand's."""
    chosen = np.arange(rows) if only is None else np.asarray(only)
    places = (chosen[:, None] * 5 + np.arange(columns // 4)[None] * 11) % 6
    x = operand(seed, rows, columns, fmt, only=only)
    return np.where(PATTERNS[places].reshape(x.shape), x, np.zeros((), x.dtype))


def picked(size, count, seed):
    """The rows or columns that a capture kept."""
    return np.sort(np.random.default_rng(seed).choice(size, min(size, count), replace=False))


@cache
def kernels(kind):
    """{key: results} of one kind: "triton", "fp8", "grouped", "conv", "sdpa", "sparse", "emulated"."""
    with np.load(FOLDER / "kernels.npz") as archive:
        return {key: archive[key] for key in archive.files if key.startswith(f"{kind} ")}
