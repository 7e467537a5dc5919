"""Facts of a GEMM's sizes on which a library's choice may rest. They know m, n, k and batches; no library and no
device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
TILES = (
    (64, 64), (64, 128), (128, 64), (128, 128), (256, 128), (128, 256), (64, 32), (32, 64), (32, 32), (16, 64),
    (64, 16), (32, 128), (128, 32), (64, 256), (256, 64),
)  # fmt: skip
MOST_ALIGNED = 512  # elements


def aligned(size: Values) -> Values:
    """The largest power of two that divides a size, at most 512."""
    whole = size.astype(np.int64)
    powers: Values = np.minimum(whole & -whole, MOST_ALIGNED).astype(np.float64)
    return powers


def _blocks(size: Values, length: int) -> Values:
    return np.ceil(size / length)


_FIXED: dict[str, Callable[[Values, Values, Values], Values]] = {
    "m": lambda m, n, k: m,
    "n": lambda m, n, k: n,
    "k": lambda m, n, k: k,
    "mn": lambda m, n, k: m * n,
    "mnk": lambda m, n, k: m * n * k,
    "mk": lambda m, n, k: m * k,
    "nk": lambda m, n, k: n * k,
    "m/n": lambda m, n, k: m / n,
    "k/m": lambda m, n, k: k / m,
    "k/n": lambda m, n, k: k / n,
    "kk/mn": lambda m, n, k: k * k / (m * n),
    "mn/k": lambda m, n, k: m * n / k,
    "alignment of m": lambda m, n, k: aligned(m),
    "alignment of n": lambda m, n, k: aligned(n),
    "alignment of k": lambda m, n, k: aligned(k),
    "elements": lambda m, n, k: m * n + m * k + n * k,
}
NAMES = (
    *_FIXED,
    *(f"tiles {rows}x{columns}" for rows, columns in TILES),
)


#: Facts of a batch, beside those of one of its products.
BATCH_NAMES = ("batch", "elements of the batch", *(f"tiles {rows}x{columns} of the batch" for rows, columns in TILES))


def batch_features(m: Any, n: Any, k: Any, batch: Any) -> Values:
    """(features, problems) float64, rows in the order of NAMES and BATCH_NAMES, of batches of such problems."""
    alone = features(m, n, k)
    count = np.broadcast_to(np.asarray(batch, np.float64), alone.shape[1:])
    first = len(_FIXED)
    elements = alone[first - 1]
    return np.concatenate([alone, [count, elements * count], alone[first : first + len(TILES)] * count])


def features(m: Any, n: Any, k: Any) -> Values:
    """(features, problems) float64, rows in the order of NAMES, of problems with these sizes (numbers or arrays)."""
    m, n, k = (np.atleast_1d(np.asarray(size, np.float64)) for size in (m, n, k))
    rows = [function(m, n, k) for function in _FIXED.values()]
    rows += [_blocks(m, height) * _blocks(n, width) for height, width in TILES]
    return np.stack(rows)
